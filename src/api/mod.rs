//! The routes for people and programs that read histories: who may, and what they get.
//!
//! * [`auth`] and [`token`] say who is asking, for every route of the proxy; [`first_token`] gives the owner of the
//!   machine one to begin with.
//! * [`conversations`] reads, exports and deletes one's own; `snapshots` what rollovers have kept; `import` takes
//!   a history in, `handoff` hands one over as a section of a prompt; `overview` and `turn` show what is going on
//!   and what became of a turn.
//!
//! Everything here is looked up for the user whose token it is; what is somebody else's does not exist.

mod access;
pub mod auth;
pub mod conversations;
pub mod first_token;
pub mod handoff;
mod import;
pub(crate) mod overview;
pub(crate) mod query;
mod snapshots;
pub mod token;
pub(crate) mod turn;
pub mod views;

use std::sync::Arc;

use http::header::{CACHE_CONTROL, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use hyper::body::Incoming;

use crate::context::identity::ConversationId;
use crate::proxy::Gateway;
use crate::proxy::respond::{Refusal, ResponseBody};
use crate::store::{Reads, StoreError};
use auth::Caller;
use query::Query;

const CONVERSATIONS: &str = "/api/conversations";
const SNAPSHOTS: &str = "/api/snapshots";

/// Whether a path is of this API.
pub fn is_ours(path: &str) -> bool {
    [CONVERSATIONS, SNAPSHOTS]
        .into_iter()
        .any(|root| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

/// A request to the history API, by somebody who may.
#[derive(Debug)]
struct Asked<'a> {
    gateway: &'a Arc<Gateway>,
    caller: &'a Caller,
    head: &'a Parts,
}

impl Asked<'_> {
    fn query(&self) -> Result<Query, Refusal> {
        Query::read(self.head.uri.query())
    }
}

pub async fn answer(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    head: &Parts,
    path: &str,
    body: Incoming,
) -> Result<Response<ResponseBody>, Refusal> {
    let asked = Asked { gateway, caller, head };
    let segments: Vec<&str> = path.trim_start_matches("/api/").split('/').collect();
    // HEAD is GET without the body, which the server leaves out.
    let method = if head.method == Method::HEAD { &Method::GET } else { &head.method };
    match (method, segments.as_slice()) {
        (&Method::GET, ["conversations"]) => conversations::list(&asked).await,
        (&Method::POST, ["conversations"]) => import::import(&asked, body).await,
        (&Method::GET, ["conversations", "search"]) => conversations::search(&asked).await,
        (&Method::GET, ["conversations", id]) => conversations::details(&asked, number(id)?).await,
        (&Method::DELETE, ["conversations", id]) => conversations::delete(&asked, number(id)?).await,
        (&Method::GET, ["conversations", id, "messages"]) => conversations::messages(&asked, number(id)?).await,
        (&Method::GET, ["conversations", id, "branches"]) => conversations::branches(&asked, number(id)?).await,
        (&Method::GET, ["conversations", id, "load"]) => conversations::load_curve(&asked, number(id)?).await,
        (&Method::GET, ["conversations", id, "snapshots"]) => conversations::snapshots(&asked, number(id)?).await,
        (&Method::GET, ["conversations", id, "export"]) => conversations::export(&asked, number(id)?).await,
        (&Method::GET, ["conversations", id, "handoff"]) => handoff::hand_over(&asked, number(id)?).await,
        (&Method::GET, ["snapshots", id]) => snapshots::show(&asked, id).await,
        (&Method::GET, ["snapshots", id, "export"]) => snapshots::export(&asked, id).await,
        (_, ["conversations" | "snapshots", ..]) if is_route(&segments) => {
            Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "this route does not take that method"))
        }
        _ => Err(Refusal::new(StatusCode::NOT_FOUND, "there is no such route")),
    }
}

fn is_route(segments: &[&str]) -> bool {
    const BELOW: [&str; 6] = ["messages", "branches", "load", "snapshots", "export", "handoff"];
    match segments {
        ["conversations"] | ["conversations" | "snapshots", _] | ["snapshots", _, "export"] => true,
        ["conversations", _, below] => BELOW.contains(below),
        _ => false,
    }
}

fn number(id: &str) -> Result<ConversationId, Refusal> {
    id.parse().map_err(|_| query::invalid("conversation_id", "must be a whole number"))
}

/// What is one person's is not kept by anything on the way.
pub(crate) fn no_store(mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The same for what reads long: only so many at once, so that the gate always finds a connection.
async fn reading_much<T: Send + 'static>(
    gateway: &Gateway,
    read: impl FnOnce(&Reads) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, Refusal> {
    let _turn = gateway.long_reads.acquire().await;
    blocking(gateway, read).await
}

/// Reads from the store where that holds nobody up.
async fn blocking<T: Send + 'static>(
    gateway: &Gateway,
    read: impl FnOnce(&Reads) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, Refusal> {
    let store = Arc::clone(&gateway.store);
    let done = tokio::task::spawn_blocking(move || store.reader().and_then(|reader| read(&reader))).await;
    let failed = || Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the store cannot be read right now");
    done.map_err(|_| failed())?.map_err(|error| {
        tracing::error!(%error, "the store could not be read");
        failed()
    })
}
