//! One request from its first byte to the last of its answer: its span in the log, and its numbers.
//!
//! The span's fields have the names that receipts have. They are filled in where they become known.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http::{Method, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tracing::Span;
use tracing::field::Empty;

use super::respond::ResponseBody;
use super::{Gateway, own};
use crate::api;
use crate::context::Action;
use crate::dialect::Dialect;
use crate::ollama::client::BoxError;
use crate::telemetry::metrics::{Handled, UpstreamTrouble};

/// A request that is under way.
pub(super) struct Passage {
    gateway: Arc<Gateway>,
    pub(super) span: Span,
    route: &'static str,
    dialect: Option<Dialect>,
    started: Instant,
    status: u16,
    action: &'static str,
}

impl Passage {
    pub(super) fn begin(gateway: &Arc<Gateway>, method: &Method, path: Option<&str>) -> Self {
        let dialect = path.and_then(Dialect::of_path).filter(|_| *method == Method::POST);
        let route = route(dialect, path);
        let span = tracing::info_span!(
            "request",
            route,
            dialect = dialect.map(Dialect::name),
            conversation = Empty,
            turn = Empty,
            model = Empty,
            window = Empty,
            limit_tokens = Empty,
            arrived_tokens = Empty,
            forwarded_tokens = Empty,
            reported_tokens = Empty,
            basis = Empty,
            action = Empty,
            snapshot = Empty,
            status = Empty,
        );
        if is_upstreams(route) {
            gateway.metrics.in_flight.inc();
        }
        Self { gateway: Arc::clone(gateway), span, route, dialect, started: Instant::now(), status: 0, action: "" }
    }

    /// The head of the answer is known; the rest is watched until it is over.
    pub(super) fn answered(mut self, response: Response<ResponseBody>) -> Response<Watched> {
        self.status = response.status().as_u16();
        self.span.record("status", self.status);
        if self.dialect.is_some() {
            let action = response.headers().get("x-loadline-action").map(|action| action.as_bytes());
            let known = Action::ALL.into_iter().find(|known| action == Some(known.name().as_bytes()));
            self.action = known.map_or("", Action::name);
        }
        if is_upstreams(self.route)
            && response.status().is_server_error()
            && response.extensions().get::<OurOwn>().is_none()
        {
            self.gateway.metrics.upstream_trouble(UpstreamTrouble::Status);
        }
        response.map(|body| Watched { body, passage: self })
    }
}

/// An answer that is ours and not the upstream's.
#[derive(Debug, Clone, Copy)]
pub(super) struct OurOwn;

impl Drop for Passage {
    fn drop(&mut self) {
        if is_upstreams(self.route) {
            self.gateway.metrics.in_flight.dec();
        }
        let dialect = self.dialect.map_or("", Dialect::name);
        // A stream of events lasts as long as somebody listens: that is no time that anything took.
        let took = (self.route != EVENTS).then(|| self.started.elapsed());
        let handled = Handled { route: self.route, dialect, action: self.action, status: self.status };
        self.gateway.metrics.handled(handled, took);
    }
}

const RELAY: &str = "relay";
const EVENTS: &str = "events";

/// Whether the upstream has to do with it.
fn is_upstreams(route: &str) -> bool {
    route == RELAY || Dialect::of_path(route).is_some()
}

fn route(dialect: Option<Dialect>, path: Option<&str>) -> &'static str {
    match (dialect, path) {
        (Some(dialect), _) => dialect.path(),
        (None, Some(path)) if api::is_ours(path) => "history",
        (None, Some(path)) if crate::dashboard::is_ours(path) => "dashboard",
        (None, Some("/loadline/events")) => EVENTS,
        (None, Some(path)) if own::is_ours(path) => "own",
        (None, _) => RELAY,
    }
}

pin_project! {
    /// A body, and the request that it answers.
    pub struct Watched {
        #[pin]
        body: ResponseBody,
        passage: Passage,
    }
}

impl Body for Watched {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.project().body.poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Watched").field("route", &self.passage.route).finish_non_exhaustive()
    }
}
