//! `GET /loadline/events`: what happens, as it happens, as server-sent events.
//!
//! Each event has a number. A reader that comes back with `Last-Event-ID` gets everything it missed, from
//! disk, and then goes on live. `?kind=`, `?conversation=` and, for admins, `?user=` narrow the feed; `?last=` begins that many events ago.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use prometheus::IntGauge;
use tokio::sync::watch;

use super::Gateway;
use super::respond::{Refusal, ResponseBody};
use crate::api::auth::Caller;
use crate::api::query::{Query, invalid};
use crate::context::identity::ConversationId;
use crate::events::{KINDS, Told, is_of};
use crate::ollama::client::BoxError;

/// A comment now and then keeps proxies from closing a quiet stream.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// How often a quiet stream looks whether its reader may still listen.
const RECHECK: Duration = Duration::from_secs(2);

/// Many readers do not all wake at once, so that whoever chats does not wait for them: a few at a time, a moment apart.
const AT_ONCE: u32 = 8;
const PACE: Duration = Duration::from_millis(2);
const STEPS: u32 = 32;

/// As many events as a reader may ask to begin with.
const MOST_BEFORE: u32 = 1000;

/// Events among which those are looked for.
const MOST_LOOKED_AT: u32 = 5000;

/// What a reader wants to hear.
#[derive(Debug, Clone)]
struct Wanted {
    /// None: all kinds.
    kinds: Vec<String>,
    conversation: Option<ConversationId>,
    /// For those who hear of all.
    user: Option<String>,
}

impl Wanted {
    fn covers(&self, kind: &str, conversation: Option<ConversationId>, user: Option<&str>) -> bool {
        (self.kinds.is_empty() || self.kinds.iter().any(|meant| is_of(kind, meant)))
            && self.conversation.is_none_or(|id| conversation == Some(id))
            && self.user.as_deref().is_none_or(|name| user == Some(name))
    }
}

struct Feed {
    gateway: Arc<Gateway>,
    /// How long after the first reader this one looks.
    later: Duration,
    caller: Caller,
    changes: watch::Receiver<u64>,
    last: i64,
    wanted: Wanted,
    _open: Open,
}

/// An open stream is counted as long as this lives.
struct Open(IntGauge);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Opens the feed. Without a place to go on from, it begins now.
pub(super) async fn stream(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    head: &Parts,
) -> Result<Response<ResponseBody>, Refusal> {
    let query = Query::read(head.uri.query())?;
    let wanted = Wanted {
        kinds: query.all("kind"),
        conversation: query.number("conversation")?,
        user: query.get("user").map(str::to_owned),
    };
    if let Some(unknown) = wanted.kinds.iter().find(|kind| !KINDS.iter().any(|known| is_of(known, kind))) {
        return Err(invalid("kind", &format!("there is no kind `{unknown}`; there are {}", KINDS.join(", "))));
    }
    let changes = gateway.events.changes();
    let last = begins_after(gateway, caller, head, &query, &wanted).await?;
    let streams = gateway.metrics.event_streams.clone();
    streams.inc();
    let feed = Feed {
        gateway: Arc::clone(gateway),
        later: PACE * (streams.get().max(0) as u32 / AT_ONCE % STEPS),
        caller: caller.clone(),
        changes,
        last,
        wanted,
        _open: Open(streams),
    };
    let stopping = gateway.stopping.clone();
    let body = StreamBody::new(stream::unfold(feed, move |mut feed| {
        let stopping = stopping.clone();
        async move {
            let frame = stopping.run_until_cancelled(feed.next()).await??;
            Some((Ok::<_, BoxError>(Frame::data(frame)), feed))
        }
    }));
    let mut response = Response::new(BodyExt::boxed_unsync(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // nginx would keep events back until it has a pageful.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    Ok(response)
}

/// The event before the first that is sent.
async fn begins_after(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    head: &Parts,
    query: &Query,
    wanted: &Wanted,
) -> Result<i64, Refusal> {
    let unreadable = |_| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the store cannot be read right now");
    if let Some(header) = head.headers.get("last-event-id").filter(|header| !header.is_empty()) {
        let number = header.to_str().ok().and_then(|id| id.trim().parse().ok());
        let number: i64 = number.ok_or_else(|| {
            Refusal::new(StatusCode::BAD_REQUEST, "Last-Event-ID must be the number of an event, as `id:` gave it")
        })?;
        // A number that is not there yet is of another store, such as one that a backup has replaced.
        return Ok(number.min(gateway.events.last().await.map_err(unreadable)?));
    }
    if query.get("last").is_none() {
        return gateway.events.last().await.map_err(unreadable);
    }
    let before = query.number("last")?.filter(|number| (0..=i64::from(MOST_BEFORE)).contains(number));
    let before = before.ok_or_else(|| invalid("last", &format!("must be a number up to {MOST_BEFORE}")))? as u32;
    let (store, user) = (Arc::clone(&gateway.store), (!caller.sees_all()).then(|| Arc::clone(&caller.user)));
    let wanted = wanted.clone();
    let found = tokio::task::spawn_blocking(move || {
        let reader = store.reader()?;
        let end = reader.last_event_id()?;
        let latest = reader.latest_events(user.as_deref(), MOST_LOOKED_AT)?;
        let matching = latest.iter().filter(|row| wanted.covers(&row.kind, row.conversation, row.user.as_deref()));
        let first = matching.rev().take(before as usize).last();
        Ok(first.map_or(end, |first| first.id - 1))
    });
    found.await.map_err(|_| unreadable(crate::store::StoreError::Stopped))?.map_err(unreadable)
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
            // What cannot be read now is read at the next look.
            let told = self.gateway.events.after(self.last).await.unwrap_or_default();
            self.last = told.last().map_or(self.last, |told| told.id);
            let mut frames = told.iter().filter(|told| self.is_wanted(told)).map(|told| &told.frame);
            if let Some(first) = frames.next() {
                let mut rest = frames.peekable();
                if rest.peek().is_none() {
                    return Some(first.clone());
                }
                let mut bytes = BytesMut::from(&first[..]);
                rest.for_each(|frame| bytes.extend_from_slice(frame));
                return Some(bytes.freeze());
            }
            if !told.is_empty() {
                continue;
            }
            let woken = tokio::time::timeout(RECHECK, self.changes.changed()).await.is_ok();
            if woken && !self.later.is_zero() {
                tokio::time::sleep(self.later).await;
            }
            if quiet_since.elapsed() >= HEARTBEAT {
                return Some(Bytes::from_static(b": still here\n\n"));
            }
        }
    }

    fn is_wanted(&self, told: &Told) -> bool {
        let theirs = self.caller.sees_all() || told.user.as_deref().is_none_or(|user| user == &*self.caller.user);
        theirs && self.wanted.covers(&told.kind, told.conversation, told.user.as_deref())
    }
}
