//! `GET /loadline/events`: what happens, as it happens, as server-sent events.
//!
//! Each event has a number. A reader that comes back with `Last-Event-ID` gets everything it missed, from
//! disk, and then goes on live. `?kind=` and `?conversation=` narrow the feed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::watch;

use super::Gateway;
use super::respond::{Refusal, ResponseBody};
use crate::api::auth::Caller;
use crate::ollama::client::BoxError;
use crate::store::EventRow;

/// Events read at once.
const BATCH: u32 = 100;

/// A comment now and then keeps proxies from closing a quiet stream.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// How often a quiet stream looks whether its reader may still listen.
const RECHECK: Duration = Duration::from_secs(2);

/// What a reader wants to hear.
#[derive(Debug, Default)]
struct Wanted {
    kind: Option<String>,
    conversation: Option<i64>,
}

struct Feed {
    gateway: Arc<Gateway>,
    caller: Caller,
    changes: watch::Receiver<u64>,
    last: i64,
    wanted: Wanted,
}

/// Opens the feed. Without a place to go on from, it begins now.
pub(super) fn stream(gateway: &Arc<Gateway>, caller: &Caller, head: &Parts) -> Result<Response<ResponseBody>, Refusal> {
    let unreadable = |_| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the store cannot be read right now");
    let changes = gateway.events.changes();
    let last = match head.headers.get("last-event-id").and_then(|id| id.to_str().ok()?.trim().parse().ok()) {
        Some(id) => id,
        None => gateway.store.reader().and_then(|reader| reader.last_event_id()).map_err(unreadable)?,
    };
    let wanted = wanted(head.uri.query().unwrap_or(""));
    let feed = Feed { gateway: Arc::clone(gateway), caller: caller.clone(), changes, last, wanted };
    let stopping = gateway.stopping.clone();
    let body = StreamBody::new(stream::unfold(feed, move |mut feed| {
        let stopping = stopping.clone();
        async move {
            let frame = stopping.run_until_cancelled(feed.next()).await??;
            Some((Ok::<_, BoxError>(Frame::data(frame)), feed))
        }
    }));
    let mut response = Response::new(BodyExt::boxed_unsync(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

fn wanted(query: &str) -> Wanted {
    let mut wanted = Wanted::default();
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        match name {
            "kind" => wanted.kind = Some(value.to_owned()),
            "conversation" => wanted.conversation = value.parse().ok(),
            _ => {}
        }
    }
    wanted
}

impl Feed {
    /// The next bytes: events, or a sign of life. None when the reader's token is good no more.
    async fn next(&mut self) -> Option<Bytes> {
        let quiet_since = tokio::time::Instant::now();
        loop {
            if let Some(digest) = self.caller.token
                && self.gateway.keys.is_over(digest).await
            {
                return None;
            }
            self.changes.mark_unchanged();
            let (store, last) = (Arc::clone(&self.gateway.store), self.last);
            let read = move || store.reader().and_then(|reader| reader.events(last, BATCH)).unwrap_or_default();
            let rows = tokio::task::spawn_blocking(read).await.unwrap_or_default();
            self.last = rows.last().map_or(self.last, |row| row.id);
            let text: String = rows.iter().filter(|row| self.is_wanted(row)).map(written).collect();
            if !text.is_empty() {
                return Some(Bytes::from(text));
            }
            if !rows.is_empty() {
                continue;
            }
            let _ = tokio::time::timeout(RECHECK, self.changes.changed()).await;
            if quiet_since.elapsed() >= HEARTBEAT {
                return Some(Bytes::from_static(b": still here\n\n"));
            }
        }
    }

    fn is_wanted(&self, row: &EventRow) -> bool {
        let theirs = self.caller.sees_all() || row.user.as_deref().is_none_or(|user| user == &*self.caller.user);
        let kind = self.wanted.kind.as_deref();
        // `checkpoint` is also `checkpoint.started` and the like.
        let of_kind = kind.is_none_or(|kind| {
            row.kind == kind || row.kind.strip_prefix(kind).is_some_and(|rest| rest.starts_with('.'))
        });
        theirs && of_kind && self.wanted.conversation.is_none_or(|id| row.conversation == Some(id))
    }
}

fn written(row: &EventRow) -> String {
    let at = jiff::Timestamp::from_millisecond(row.at).map(|at| at.to_string()).unwrap_or_default();
    let mut data: serde_json::Value = serde_json::from_str(&row.body).unwrap_or_default();
    data["at"] = at.into();
    data["kind"] = row.kind.as_str().into();
    data["conversation"] = row.conversation.into();
    format!("id: {}\nevent: {}\ndata: {data}\n\n", row.id, row.kind)
}
