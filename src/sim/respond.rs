//! Responses: bodies, streams, and the scripted ways in which they break.
//!
//! A stream is written piece by piece, at the pace of the config, and stops working on itself the moment
//! its client is gone: hyper drops it, and the ledger hears of it.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use hyper::body::Body as _;
use tokio::time::Instant;

use super::Flavour;
use super::answer::Piece;
use super::dialect::{Route, Totals, Wire};
use super::faults::Fault;
use super::ledger::Watch;
use super::refusal::{Origin, Refusal};

/// The connection is to end here, without a word.
#[derive(Debug, thiserror::Error)]
#[error("the simulator tore the connection, as it was told to")]
pub(super) struct Torn;

/// `bufferBeforeChunkingSize` of Go's `net/http`.
const GO_BUFFER_BYTES: u64 = 2048;

/// What a failing runner says.
const FAILURE: &str = "an error was encountered while running the model: simulated";

pub(super) fn body(content_type: &'static str, text: impl Into<Body>) -> Response<Body> {
    with_status(StatusCode::OK, content_type, text.into())
}

pub(super) fn with_status(status: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

pub(super) fn refused(refusal: &Refusal, route: Route, stream: bool, flavour: Flavour) -> Response<Body> {
    let shape = route.error_shape();
    let text = refusal.body(shape, flavour);
    // The runner's word comes when a stream has begun, whatever became of it.
    let body = if stream && refusal.origin == Origin::Runner { without_length(text.into()) } else { text.into() };
    with_status(refusal.status, refusal.content_type(shape, stream), body)
}

/// The same body, sent in chunks.
fn without_length(body: Body) -> Body {
    Body::from_stream(body.into_data_stream())
}

/// Go tells the length of a body only if all of it fits its buffer.
pub(super) fn as_go_sends(response: Response<Body>) -> Response<Body> {
    let fits = response.body().size_hint().lower() <= GO_BUFFER_BYTES;
    if fits { response } else { response.map(without_length) }
}

pub(super) fn not_found() -> Response<Body> {
    with_status(StatusCode::NOT_FOUND, "text/plain", "404 page not found".into())
}

pub(super) fn wrong_method(allowed: &'static str) -> Response<Body> {
    let mut response = with_status(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "405 method not allowed".into());
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

pub(super) fn scripted(code: u16, body: String) -> Response<Body> {
    let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    with_status(status, "application/json; charset=utf-8", body.into())
}

pub(super) fn garbage(route: Route) -> Response<Body> {
    let text = if route.is_native() { "{\"model\":\"sim\",\"mess\n" } else { "data: {\"id\":\"chat\n\n" };
    body(route.content_type(true), text)
}

/// An answer in one body, or what a fault leaves of it.
pub(super) fn whole(route: Route, text: String, fault: Option<&Fault>, flavour: Flavour) -> Response<Body> {
    let content_type = route.content_type(false);
    let half = || Bytes::copy_from_slice(&text.as_bytes()[..text.len() / 2]);
    match fault {
        Some(Fault::EndAfterChunks(_) | Fault::EndWithinChunk(_)) => body(content_type, half()),
        Some(Fault::ResetAfterChunks(_)) => {
            let torn = stream::once(async {
                reach_the_client().await;
                Err(Torn)
            });
            body(content_type, Body::from_stream(stream::iter([Ok(half())]).chain(torn)))
        }
        Some(Fault::ErrorLineAfterChunks(_)) => {
            let refusal = Refusal::handler(StatusCode::INTERNAL_SERVER_ERROR, FAILURE);
            refused(&refusal, route, false, flavour)
        }
        _ => body(content_type, text),
    }
}

pub(super) fn stream(route: Route, delivery: Delivery) -> Response<Body> {
    let frames = stream::unfold(delivery, |mut delivery| async move {
        let frame = delivery.next().await?;
        Some((frame, delivery))
    });
    body(route.content_type(true), Body::from_stream(frames))
}

/// Lets hyper send what it has: it drops unsent bytes when a body fails.
async fn reach_the_client() {
    tokio::task::yield_now().await;
}

/// A streamed answer under way.
#[derive(Debug)]
pub(super) struct Delivery {
    wire: Box<dyn Wire>,
    pieces: std::vec::IntoIter<Piece>,
    totals: Totals,
    watch: Watch,
    fault: Option<Fault>,
    per_piece: Duration,
    started: Instant,
    sent_pieces: u32,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Unopened,
    Open,
    Ended,
}

impl Delivery {
    pub(super) fn new(
        wire: Box<dyn Wire>,
        pieces: Vec<Piece>,
        totals: Totals,
        watch: Watch,
        fault: Option<Fault>,
        per_piece: Duration,
    ) -> Self {
        let started = Instant::now();
        Self {
            wire,
            pieces: pieces.into_iter(),
            totals,
            watch,
            fault,
            per_piece,
            started,
            sent_pieces: 0,
            state: State::Unopened,
        }
    }

    async fn next(&mut self) -> Option<Result<Bytes, Torn>> {
        if self.state == State::Ended {
            return None;
        }
        if let Some(end) = self.scripted_end() {
            self.end();
            reach_the_client().await;
            return end;
        }
        let mut frame = if self.state == State::Unopened { self.wire.open() } else { String::new() };
        self.state = State::Open;
        match self.pieces.next() {
            Some(piece) => {
                self.sent_pieces += 1;
                self.keep_pace().await;
                frame.push_str(&self.wire.piece(&piece));
            }
            None => {
                frame.push_str(&self.wire.close(&self.totals));
                self.end();
            }
        }
        Some(Ok(frame.into()))
    }

    /// What a fault makes of this point of the stream: nothing, an end, a tear, or a last line.
    fn scripted_end(&mut self) -> Option<Option<Result<Bytes, Torn>>> {
        match self.fault {
            Some(Fault::EndAfterChunks(after)) if self.sent_pieces >= after => Some(None),
            Some(Fault::EndWithinChunk(after)) if self.sent_pieces >= after => {
                let piece = self.wire.piece(&self.pieces.next()?);
                let half = piece.floor_char_boundary(piece.trim_end().len() / 2);
                Some(Some(Ok(Bytes::copy_from_slice(&piece.as_bytes()[..half]))))
            }
            Some(Fault::ResetAfterChunks(after)) if self.sent_pieces >= after => Some(Some(Err(Torn))),
            Some(Fault::ErrorLineAfterChunks(after)) if self.sent_pieces >= after => {
                Some(Some(Ok(self.wire.failed(FAILURE).into())))
            }
            _ => None,
        }
    }

    /// Our own end, however abrupt, is not the client's going away.
    fn end(&mut self) {
        self.state = State::Ended;
        self.watch.finish();
    }

    /// Waits for this piece's time, counted from the start: short sleeps are rounded up and would add up.
    async fn keep_pace(&mut self) {
        if !self.per_piece.is_zero() {
            tokio::time::sleep_until(self.started + self.per_piece * self.sent_pieces).await;
        }
    }
}
