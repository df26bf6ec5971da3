//! What is told to whoever watches: each warning, checkpoint, compression, rollover and refusal, as it happens.
//!
//! An event is numbered and on disk before anybody sees it, so a reader that was away misses none. It says
//! what was done and how much, never what was said. The latest are kept at hand as they are sent: many readers
//! cost one look at the disk.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::Either;
use prometheus::IntCounterVec;
use serde_json::{Value, json};
use tokio::sync::{Mutex, watch};

use crate::context::Usage;
use crate::context::identity::ConversationId;
use crate::proxy::conversations::Turn;
use crate::store::{Ack, Change, EventRow, NewEvent, Store, StoreError};

/// All kinds there are.
pub const KINDS: [&str; 10] = [
    "warning",
    "refused",
    "compression",
    "rollover",
    "checkpoint.started",
    "checkpoint.progress",
    "checkpoint.deferred",
    "checkpoint.failed",
    "checkpoint.waited",
    "checkpoint.written",
];

/// Events at hand. Whoever is further behind reads from disk.
const AT_HAND: usize = 512;

/// Nobody relies on being woken.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// After a store could not be read.
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// Events read from disk at once.
const BATCH: u32 = 200;

/// Hands changes to the store, and wakes readers when new events may be there.
#[derive(Debug, Clone)]
pub struct Events {
    store: Arc<Store>,
    changed: Arc<watch::Sender<u64>>,
    latest: Arc<Mutex<Latest>>,
    published: IntCounterVec,
}

/// The latest events, without a gap up to `up_to`.
#[derive(Debug, Default)]
struct Latest {
    told: VecDeque<Arc<Told>>,
    up_to: i64,
    /// What `changed` was before the disk was last looked at, and when that was.
    version: u64,
    looked: Option<Instant>,
    /// When it could not be read.
    failed: Option<Instant>,
}

/// An event as its readers get it.
#[derive(Debug)]
pub struct Told {
    pub id: i64,
    pub kind: String,
    pub conversation: Option<ConversationId>,
    pub user: Option<String>,
    /// As a frame of server-sent events.
    pub frame: Bytes,
}

impl Told {
    fn new(row: &EventRow) -> Self {
        let frame = format!("id: {}\nevent: {}\ndata: {}\n\n", row.id, row.kind, shown(row)).into();
        let EventRow { id, kind, conversation, user, .. } = row;
        Self { id: *id, kind: kind.clone(), conversation: *conversation, user: user.clone(), frame }
    }
}

/// An event as JSON, wherever it is shown.
pub fn shown(row: &EventRow) -> Value {
    let at = jiff::Timestamp::from_millisecond(row.at).map(|at| at.to_string()).unwrap_or_default();
    let mut shown: Value = serde_json::from_str(&row.body).unwrap_or_default();
    shown["id"] = row.id.into();
    shown["at"] = at.into();
    shown["kind"] = row.kind.as_str().into();
    shown["conversation"] = row.conversation.into();
    shown["user"] = row.user.as_deref().into();
    shown
}

/// Whether a kind is the one that is meant: `checkpoint` is also `checkpoint.started` and the like.
pub fn is_of(kind: &str, meant: &str) -> bool {
    kind.strip_prefix(meant).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// An event that is not yet anybody's.
#[derive(Debug)]
pub struct Event {
    pub kind: &'static str,
    pub body: Value,
}

impl Event {
    /// As the store takes it.
    pub fn of(self, turn: &Turn, at: i64) -> NewEvent {
        NewEvent {
            at,
            kind: self.kind,
            conversation: Some(turn.conversation).filter(|id| *id > 0),
            user: Some(turn.user.to_string()),
            body: self.body.to_string(),
        }
    }
}

impl Events {
    pub fn new(store: Arc<Store>, published: IntCounterVec) -> Self {
        Self { store, changed: Arc::new(watch::Sender::new(0)), latest: Arc::default(), published }
    }

    /// Hands a change to the store; readers of events wake when it is on disk, also if nobody waits for that here.
    pub fn submit(&self, change: Change) -> impl Future<Output = Result<(), StoreError>> + Send + 'static {
        self.submit_then(change, |_| ())
    }

    /// The same, with something to be done on the writer's thread before anybody is told.
    pub fn submit_then(
        &self,
        change: Change,
        then: impl FnOnce(&Result<(), StoreError>) + Send + 'static,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + 'static {
        let kinds: Vec<&'static str> = change.events().iter().map(|event| event.kind).collect();
        let ack: Ack = self.store.submit_then(change, then);
        if kinds.is_empty() {
            return Either::Left(ack);
        }
        let (changed, published) = (Arc::clone(&self.changed), self.published.clone());
        let told = tokio::spawn(async move {
            let stored = ack.await;
            if stored.is_ok() {
                kinds.iter().for_each(|kind| published.with_label_values(&[*kind]).inc());
                changed.send_modify(|version| *version += 1);
            }
            stored
        });
        Either::Right(told.map(|told| told.unwrap_or(Err(StoreError::Stopped))))
    }

    /// Publishes one event, without waiting for it.
    pub fn publish(&self, turn: &Turn, event: Event) {
        let stored = self.submit(Change::Event(event.of(turn, now_ms())));
        tokio::spawn(async move {
            if let Err(error) = stored.await {
                tracing::warn!(%error, "an event could not be stored");
            }
        });
    }

    /// Changes whenever there may be new events.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// What may be done to it by whoever hears of others.
    pub fn ear(&self) -> Ear {
        Ear { changed: Arc::clone(&self.changed), latest: Arc::clone(&self.latest) }
    }

    /// Forgets what was told of a conversation that is deleted.
    pub async fn forget(&self, conversation: ConversationId) {
        self.latest.lock().await.told.retain(|told| told.conversation != Some(conversation));
    }

    /// The number of the latest event.
    pub async fn last(&self) -> Result<i64, StoreError> {
        let store = Arc::clone(&self.store);
        blocking(move || store.reader()?.last_event_id()).await
    }

    /// The events after a number, in order; not all of them, if there are many. The first of those who wake looks
    /// at the disk, the others find what it found.
    pub async fn after(&self, last: i64) -> Result<Vec<Arc<Told>>, StoreError> {
        let mut latest = self.latest.lock().await;
        let version = *self.changed.borrow();
        if latest.is_behind(version) {
            let caught_up = latest.catch_up(&self.store).await;
            latest.failed = caught_up.is_err().then(Instant::now);
            caught_up?;
            (latest.version, latest.looked) = (version, Some(Instant::now()));
        }
        if latest.reaches_back_to(last) {
            let missed = latest.told.partition_point(|told| told.id <= last);
            return Ok(latest.told.iter().skip(missed).cloned().collect());
        }
        drop(latest);
        let store = Arc::clone(&self.store);
        let rows = blocking(move || store.reader()?.events(last, BATCH)).await?;
        Ok(rows.iter().map(|row| Arc::new(Told::new(row))).collect())
    }
}

/// Where it is heard what others have done to the same store. It does not hold the store, which holds it.
#[derive(Debug)]
pub struct Ear {
    changed: Arc<watch::Sender<u64>>,
    latest: Arc<Mutex<Latest>>,
}

impl Ear {
    /// Others may have stored events.
    pub fn wake(&self) {
        self.changed.send_modify(|version| *version += 1);
    }

    /// What was told of a conversation that others have deleted is forgotten. Waits, so not for a thread that drives
    /// others.
    pub fn forget(&self, conversation: ConversationId) {
        self.latest.blocking_lock().told.retain(|told| told.conversation != Some(conversation));
    }
}

impl Latest {
    /// Whether the disk is to be looked at: there is something new, or nobody has looked for a while. A store that
    /// is too busy to be read is not asked by one after the other.
    fn is_behind(&self, version: u64) -> bool {
        let old = self.looked.is_none_or(|looked| looked.elapsed() >= LOOK_AGAIN);
        let busy = self.failed.is_some_and(|failed| failed.elapsed() < TRY_AGAIN);
        (old || self.version != version) && !busy
    }

    async fn catch_up(&mut self, store: &Arc<Store>) -> Result<(), StoreError> {
        let (store, up_to) = (Arc::clone(store), self.up_to);
        let (from, rows) = blocking(move || {
            let reader = store.reader()?;
            // What nobody asked for in a while is not read now.
            let from = up_to.max(reader.last_event_id()? - AT_HAND as i64);
            reader.events(from, u32::MAX).map(|rows| (from, rows))
        })
        .await?;
        if from > self.up_to {
            self.told.clear();
        }
        self.up_to = rows.last().map_or(from, |row| row.id);
        self.told.extend(rows.iter().map(|row| Arc::new(Told::new(row))));
        let too_many = self.told.len().saturating_sub(AT_HAND);
        self.told.drain(..too_many);
        Ok(())
    }

    /// Whether everything after a number is at hand.
    fn reaches_back_to(&self, last: i64) -> bool {
        last >= self.up_to || self.told.front().is_some_and(|first| first.id <= last + 1)
    }
}

async fn blocking<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(read).await.unwrap_or(Err(StoreError::Stopped))
}

/// Milliseconds since the epoch.
pub fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

pub fn warning(text: &str) -> Event {
    Event { kind: "warning", body: json!({ "text": text }) }
}

pub fn refused(usage: Usage) -> Event {
    Event { kind: "refused", body: json!({ "tokens": usage.total, "limit": usage.limit, "usage": usage.to_string() }) }
}

/// A checkpoint has become part of its conversation.
pub fn checkpoint(id: &str, author: &str, messages: [usize; 2], tokens: u32) -> Event {
    let body = json!({ "checkpoint": id, "author": author, "messages": messages, "tokens": tokens });
    Event { kind: "checkpoint.written", body }
}

pub fn compression(before: Usage, tokens_after: u32) -> Event {
    Event { kind: "compression", body: compacted(before, tokens_after) }
}

pub fn rollover(snapshot: &str, before: Usage, tokens_after: u32, messages: usize) -> Event {
    let mut body = compacted(before, tokens_after);
    body["snapshot"] = snapshot.into();
    body["messages"] = messages.into();
    Event { kind: "rollover", body }
}

/// An event in words, for the terminal. What it says of others' texts is as they are.
pub fn sentence(kind: &str, event: &Value) -> String {
    let number = |name: &str| event[name].as_u64().map_or_else(|| "?".to_owned(), |number| number.to_string());
    let text = |name: &str| event[name].as_str().unwrap_or("?");
    let messages = || format!("{} to {}", event["messages"][0], event["messages"][1]);
    let became = || {
        let (before, after, limit) = (number("tokens_before"), number("tokens_after"), number("limit"));
        format!("{before} tokens became {after} of {limit} ({})", text("usage"))
    };
    match kind {
        "warning" => text("text").to_owned(),
        "refused" => format!("{} tokens are too many for {} ({})", number("tokens"), number("limit"), text("usage")),
        "compression" => became(),
        "rollover" => format!("{}; {} messages are in {}", became(), number("messages"), text("snapshot")),
        "checkpoint.started" => format!("{} reads messages {}", text("model"), messages()),
        "checkpoint.progress" => format!("{} of {} parts are written", number("done"), number("of")),
        "checkpoint.deferred" => {
            let (times, done, of) = (number("times"), number("done"), number("of"));
            format!("put off, {times} time(s) now: {done} of {of} parts")
        }
        "checkpoint.failed" => text("reason").to_owned(),
        "checkpoint.waited" => {
            let outcome = if event["written"] == true { "and it was written" } else { "and went on without it" };
            format!("a request waited {:.1} s for it, {outcome}", event["seconds"].as_f64().unwrap_or(0.0))
        }
        "checkpoint.written" => {
            format!("by {}: messages {} in {} tokens", text("author"), messages(), number("tokens"))
        }
        // A kind that this version has not heard of: plainly everything it says.
        _ => plainly(event),
    }
}

fn plainly(event: &Value) -> String {
    const KNOWN: [&str; 5] = ["id", "at", "kind", "conversation", "user"];
    let fields = event.as_object().into_iter().flatten().filter(|(name, _)| !KNOWN.contains(&name.as_str()));
    let field = |(name, value): (&String, &Value)| match value {
        Value::String(text) => format!("{name} {text}"),
        value => format!("{name} {value}"),
    };
    fields.map(field).collect::<Vec<_>>().join(", ")
}

fn compacted(before: Usage, tokens_after: u32) -> Value {
    json!({ "tokens_before": before.total, "tokens_after": tokens_after, "limit": before.limit, "usage": before.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_words_of_its_own() {
        for kind in KINDS {
            let said = sentence(kind, &json!({ "text": "a text", "reason": "a reason" }));
            assert!(!said.is_empty() && said != plainly(&json!({ "text": "a text", "reason": "a reason" })), "{kind}");
        }
        let rollover = json!({ "tokens_before": 7200, "tokens_after": 1300, "limit": 6963, "usage": "103.4%",
            "messages": 41, "snapshot": "snapshot-1" });
        let wanted = "7200 tokens became 1300 of 6963 (103.4%); 41 messages are in snapshot-1";
        assert_eq!(sentence("rollover", &rollover), wanted);
        let written = json!({ "author": "smollm2", "messages": [2, 11], "tokens": 120 });
        assert_eq!(sentence("checkpoint.written", &written), "by smollm2: messages 2 to 11 in 120 tokens");
        assert_eq!(sentence("mutiny", &json!({ "id": 1, "hands": 3, "cook": "gone" })), "hands 3, cook gone");
    }

    #[test]
    fn a_kind_means_those_below_it_and_no_others() {
        assert!(is_of("checkpoint.started", "checkpoint") && is_of("rollover", "rollover"));
        assert!(!is_of("checkpointed", "checkpoint") && !is_of("checkpoint", "checkpoint.started"));
    }
}
