//! What is told to whoever watches: each warning, checkpoint, compression, rollover and refusal, as it happens.
//!
//! An event is numbered and on disk before anybody sees it, so a reader that was away misses none. It says
//! what was done and how much, never what was said.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::watch;

use crate::context::Usage;
use crate::proxy::conversations::Turn;
use crate::store::{Ack, Change, NewEvent, Store, StoreError};

/// Hands changes to the store, and wakes readers when new events may be there.
#[derive(Debug, Clone)]
pub struct Events {
    store: Arc<Store>,
    changed: Arc<watch::Sender<u64>>,
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
    pub fn new(store: Arc<Store>) -> Self {
        Self { store, changed: Arc::new(watch::Sender::new(0)) }
    }

    /// Hands a change to the store; readers of events wake when it is on disk.
    pub fn submit(&self, change: Change) -> impl Future<Output = Result<(), StoreError>> + Send + 'static {
        let tells = change.tells();
        let ack: Ack = self.store.submit(change);
        let changed = Arc::clone(&self.changed);
        async move {
            let stored = ack.await;
            if tells {
                changed.send_modify(|version| *version += 1);
            }
            stored
        }
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

fn compacted(before: Usage, tokens_after: u32) -> Value {
    json!({ "tokens_before": before.total, "tokens_after": tokens_after, "limit": before.limit, "usage": before.to_string() })
}
