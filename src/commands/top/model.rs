//! The overview that the server gives, as far as it is shown.
//!
//! A newer or older server says more or less: what is unknown is passed over, what is missing or null is empty.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Overview {
    pub(super) version: String,
    pub(super) now: Option<Timestamp>,
    pub(super) started_at: Option<Timestamp>,
    pub(super) mode: String,
    pub(super) caller: Caller,
    pub(super) marks: Marks,
    pub(super) upstream: Upstream,
    pub(super) store: Store,
    pub(super) totals: Totals,
    pub(super) models: Vec<Model>,
    pub(super) conversations: Vec<Conversation>,
    pub(super) events: Vec<Event>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Caller {
    pub(super) user: String,
    pub(super) sees_all: bool,
}

/// Where the rungs of the ladder are, in percent of the limit.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(default)]
pub(super) struct Marks {
    pub(super) told: f64,
    pub(super) checkpoint: f64,
    pub(super) compression: f64,
    pub(super) rollover: f64,
}

impl Default for Marks {
    fn default() -> Self {
        Self { told: 70.0, checkpoint: 80.0, compression: 95.0, rollover: 100.0 }
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Upstream {
    pub(super) url: String,
    pub(super) up: bool,
    pub(super) version: String,
    pub(super) error: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Store {
    pub(super) healthy: bool,
    pub(super) waiting_changes: u64,
    pub(super) failed_commits: u64,
    pub(super) size_bytes: u64,
    pub(super) free_bytes: Option<u64>,
}

/// Since the start of the server.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Totals {
    pub(super) turns: Turns,
    pub(super) tokens_arrived: u64,
    pub(super) tokens_forwarded: u64,
    pub(super) tokens_saved: u64,
    pub(super) tokens_recalled: u64,
    pub(super) exact_mismatches: u64,
    pub(super) overflows: u64,
    pub(super) cut_by_upstream: u64,
    pub(super) in_flight: u64,
    pub(super) checkpoints_under_way: u64,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct Turns {
    pub(super) none: u64,
    pub(super) checkpoint: u64,
    pub(super) compression: u64,
    pub(super) rollover: u64,
    pub(super) refused: u64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Model {
    pub(super) name: String,
    pub(super) window: u64,
    pub(super) window_from: String,
    pub(super) trained_window: u64,
    pub(super) limit: u64,
    pub(super) basis: String,
    pub(super) note: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Conversation {
    pub(super) id: i64,
    pub(super) user: String,
    /// None: it is somebody else's.
    pub(super) title: Option<String>,
    pub(super) model: String,
    pub(super) messages: u64,
    pub(super) branches: u64,
    pub(super) created_at: Option<Timestamp>,
    pub(super) updated_at: Option<Timestamp>,
    pub(super) snapshots: u64,
    pub(super) checkpoints: u64,
    pub(super) writing_checkpoint: bool,
    /// None: never counted.
    pub(super) load: Option<Load>,
    /// Percent that arrived in the last turns, oldest first.
    pub(super) recent: Vec<f64>,
}

/// How full the window was in the last turn.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Load {
    pub(super) turn: i64,
    pub(super) dialect: String,
    pub(super) status: String,
    pub(super) action: String,
    pub(super) basis: String,
    pub(super) arrived_tokens: u64,
    pub(super) sent_tokens: Option<u64>,
    pub(super) limit_tokens: u64,
    pub(super) reported_tokens: Option<u64>,
    pub(super) usage: String,
    pub(super) receipt: Option<String>,
}

/// Something that happened. What else is known of it depends on its kind.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Event {
    pub(super) id: i64,
    pub(super) at: Option<Timestamp>,
    pub(super) kind: String,
    pub(super) conversation: Option<i64>,
    pub(super) user: Option<String>,
    #[serde(flatten)]
    pub(super) more: Map<String, Value>,
}

impl Overview {
    pub(super) fn read(text: &str) -> Result<Self, serde_json::Error> {
        let fields: Map<String, Value> = serde_json::from_str(text)?;
        let mut value = Value::Object(fields);
        drop_nulls(&mut value);
        serde_json::from_value(value)
    }
}

impl Conversation {
    /// How full it was when the last turn arrived, in percent of the limit.
    pub(super) fn percent(&self) -> Option<f64> {
        let load = self.load.as_ref().filter(|load| load.limit_tokens > 0)?;
        Some(load.arrived_tokens as f64 / load.limit_tokens as f64 * 100.0)
    }

    /// The same in the server's own words, which everything else it says agrees with.
    pub(super) fn usage(&self) -> Option<String> {
        let percent = self.percent()?;
        let said = self.load.as_ref().map(|load| load.usage.clone()).filter(|usage| !usage.is_empty());
        Some(said.unwrap_or_else(|| format!("{percent:.1}%")))
    }
}

/// A field that is null is a field that is missing: every default holds for both.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => {
            items.retain(|item| !item.is_null());
            items.iter_mut().for_each(drop_nulls);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    /// The overview of a small server on a good day.
    pub(in super::super) fn sample() -> Value {
        json!({
            "version": "0.1.0", "now": "2026-11-16T14:03:52.123Z", "started_at": "2026-11-16T13:00:00Z",
            "mode": "enforce",
            "caller": { "user": "local", "scopes": "admin", "sees_all": true },
            "marks": { "told": 70, "checkpoint": 80, "compression": 95, "rollover": 100 },
            "upstream": { "url": "http://127.0.0.1:11434", "up": true, "version": "0.17.4", "error": null },
            "store": { "healthy": true, "waiting_changes": 0, "commits": 812, "failed_commits": 0,
                       "last_commit_ms": 1.9, "size_bytes": 1234567, "free_bytes": 99999999999u64 },
            "totals": { "turns": { "none": 120, "checkpoint": 6, "compression": 2, "rollover": 3, "refused": 1 },
                        "tokens_arrived": 812345, "tokens_forwarded": 601234, "tokens_saved": 211111,
                        "tokens_recalled": 8123, "prefill_tokens_avoided": 412345, "counts_compared": 128,
                        "exact_mismatches": 0, "overflows": 0, "cut_by_upstream": 0, "in_flight": 1,
                        "checkpoints_under_way": 0, "event_streams": 2 },
            "models": [{ "name": "smollm2:latest", "architecture": "llama", "window": 4096,
                         "window_from": "Ollama's default", "trained_window": 8192, "limit": 3481,
                         "basis": "exact", "tokenizer": "bpe", "note": null }],
            "conversations": [conversation(7, "How do I trim the sails?", 5043, 6963)],
            "last_event": 512,
            "events": [{ "id": 511, "at": "2026-11-16T14:03:50Z", "kind": "warning", "conversation": 7,
                         "user": "local", "text": "INFO: Context at 72.4% (5043/6963 tokens)" }]
        })
    }

    pub(in super::super) fn conversation(id: i64, title: &str, arrived: u64, limit: u64) -> Value {
        let usage = arrived as f64 / limit as f64 * 100.0;
        json!({
            "id": id, "user": "local", "title": title, "model": "smollm2", "messages": 42, "branches": 1,
            "created_at": "2026-11-16T13:03:52Z", "updated_at": "2026-11-16T14:03:40Z",
            "snapshots": 1, "checkpoints": 2, "writing_checkpoint": false,
            "load": { "turn": 118, "at": "2026-11-16T14:03:40Z", "model": "smollm2", "dialect": "ollama-chat",
                      "status": "complete", "action": "none", "basis": "exact", "arrived_tokens": arrived,
                      "sent_tokens": arrived.min(limit), "limit_tokens": limit, "reported_tokens": arrived,
                      "usage": format!("{usage:.1}%"), "receipt": null },
            "recent": [12.0, 33.1, usage]
        })
    }

    pub(in super::super) fn read(value: &Value) -> Overview {
        Overview::read(&value.to_string()).expect("an overview")
    }

    #[test]
    fn everything_that_is_shown_is_read() {
        let overview = read(&sample());
        assert_eq!((overview.version.as_str(), overview.mode.as_str()), ("0.1.0", "enforce"));
        assert_eq!((overview.upstream.up, overview.upstream.error), (true, None));
        assert_eq!((overview.totals.turns.none, overview.totals.tokens_saved), (120, 211_111));
        let conversation = &overview.conversations[0];
        assert_eq!(conversation.usage().as_deref(), Some("72.4%"));
        assert_eq!(conversation.recent.len(), 3);
        assert_eq!(overview.events[0].more["text"], "INFO: Context at 72.4% (5043/6963 tokens)");
        assert_eq!(overview.models[0].window_from, "Ollama's default");
    }

    #[test]
    fn what_is_missing_or_null_is_empty_and_what_is_unknown_is_passed_over() {
        let overview = read(&json!({}));
        assert_eq!((overview.marks.told, overview.marks.rollover), (70.0, 100.0));
        assert!(overview.conversations.is_empty() && overview.now.is_none());
        let overview = read(&json!({
            "version": null, "weather": { "wind": 7 }, "marks": { "told": 60, "checkpoint": null },
            "totals": { "turns": null, "sunk": 0 }, "upstream": null,
            "conversations": [{ "id": 1, "load": null, "title": null }, null],
            "events": [{ "kind": "mutiny", "ringleader": "cook" }]
        }));
        assert_eq!((overview.marks.told, overview.marks.checkpoint), (60.0, 80.0));
        let conversation = &overview.conversations[0];
        assert_eq!((conversation.percent(), conversation.usage(), conversation.title.as_deref()), (None, None, None));
        assert_eq!(overview.events[0].more["ringleader"], "cook");
    }

    #[test]
    fn a_limit_of_nothing_is_no_usage() {
        let overview = read(&json!({ "conversations": [{ "load": { "arrived_tokens": 9, "limit_tokens": 0 } }] }));
        assert_eq!(overview.conversations[0].percent(), None);
    }

    #[test]
    fn what_is_no_overview_is_said_to_be_none() {
        for text in ["<html>", "[]", "null", "7", ""] {
            assert!(Overview::read(text).is_err(), "{text}");
        }
    }
}
