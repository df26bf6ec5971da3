//! The receipt of a compacted turn: what went verbatim, what was summarised into which checkpoint, what is
//! only in the archive, what was recalled; with token numbers that add up to what was forwarded.
//!
//! Made beside the request, while the upstream reads it. It names messages by their place in the client's
//! list, counted from 1, and never quotes them.

use std::sync::Arc;

use serde_json::{Value, json};

use super::conversations::{Covering, Recalled};
use super::fit::{Fitted, Rewritten};
use super::headers::Report;
use crate::context::{Edit, Message, Plan, Role, Tokens};
use crate::dialect::{Dialect, Prompt};
use crate::events;
use crate::ollama::count::{TOKENS_PER_IMAGE, rough_size};
use crate::ollama::models::Model;

/// Everything that a receipt is made from.
#[derive(Debug)]
pub(super) struct Facts {
    pub turn_id: String,
    pub model: Arc<Model>,
    pub dialect: Dialect,
    /// Which of the dialect's messages each of Ollama's came from, in what arrived.
    pub sources: Vec<usize>,
    /// See [`places`].
    pub places: Vec<[usize; 3]>,
    /// The sizes of the rewritten messages as they came.
    pub sizes_before: Vec<Tokens>,
    pub sent: bytes::Bytes,
    pub report: Report,
    pub plan: Plan,
    pub covering: Option<Covering>,
    pub recalled: Option<Recalled>,
    pub rewritten: Vec<Rewritten>,
    pub window: u32,
}

/// A new name for a receipt.
pub(super) fn new_id() -> String {
    format!("receipt-{}", uuid::Uuid::now_v7().simple())
}

/// Whether a turn needs a receipt: something left other than it came.
pub(super) fn is_due(fitted: &Fitted) -> bool {
    !fitted.plan.is_identity()
}

impl Facts {
    /// The receipt, as JSON.
    pub(super) fn write(&self) -> String {
        let mut sheet = Sheet::default();
        self.weigh(&mut sheet);
        let forwarded = self.report.sent.total;
        let template = i64::from(forwarded) - sheet.sum;
        sheet.parts.push(json!({ "what": "template", "tokens": template }));
        let report = &self.report;
        json!({
            "id": report.receipt,
            "turn": self.turn_id,
            "conversation": report.conversation,
            "at": jiff::Timestamp::from_millisecond(events::now_ms()).map(|at| at.to_string()).unwrap_or_default(),
            "model": self.model.name,
            "window": self.window,
            "limit_tokens": report.sent.limit,
            "arrived_tokens": report.arrived.total,
            "forwarded_tokens": forwarded,
            "basis": report.basis.name(),
            "action": report.action.name(),
            "snapshot": report.snapshot,
            "parts": sheet.parts,
            "verbatim": ranges(&self.verbatim()),
            "summarised": self.summarised(),
            "archived": ranges(&self.archived()),
            "recalled": self.recalled.as_ref().map(|recalled| self.wire(&recalled.messages())).unwrap_or_default(),
            "cleaned": sheet.cleaned,
            "places": self.places,
        })
        .to_string()
    }

    /// Weighs each part of what leaves.
    fn weigh(&self, sheet: &mut Sheet) {
        let Ok(sent) = std::str::from_utf8(&self.sent) else { return };
        let Ok(request) = self.dialect.parse(sent) else { return };
        let Prompt::Chat(messages) = &request.prompt else { return };
        let size = |source: usize| -> Tokens {
            let own = messages.iter().filter(|message| message.source == source && message.role != Role::System);
            own.map(|message| text_size(&self.model, message)).sum()
        };
        let system: Tokens = messages.iter().filter(is_system).map(|message| text_size(&self.model, message)).sum();
        sheet.add("system", system, json!({}));
        let mut notes = self.covering.iter().flat_map(|covering| {
            let front = &covering.front;
            let rollover = front.rollover.iter().map(|rollover| {
                ("rollover", json!({ "snapshot": rollover.snapshot, "covers": self.span(1, rollover.last) }))
            });
            let checkpoints = front.checkpoints.iter().map(|checkpoint| {
                let about = json!({
                    "checkpoint": checkpoint.id, "level": checkpoint.level.number(), "author": checkpoint.author,
                    "covers": self.span(checkpoint.first, checkpoint.last),
                });
                ("checkpoint", about)
            });
            rollover.chain(checkpoints).collect::<Vec<_>>()
        });
        let (mut place, mut verbatim) = (0, 0);
        for edit in &self.plan.edits {
            match edit {
                Edit::Keep(range) => {
                    verbatim += range.clone().map(|index| size(place + index - range.start)).sum::<Tokens>();
                    place += range.len();
                }
                Edit::Rewrite(index, _) => {
                    let tokens = size(place);
                    sheet.add("cleaned", tokens, json!({ "message": index + 1 }));
                    sheet.cleaned.push(self.saving(*index, tokens));
                    place += 1;
                }
                Edit::Replace(_, Some(note)) => {
                    let is_recalled = self.recalled.as_ref().is_some_and(|recalled| recalled.note.text == note.text);
                    let (what, about) = match is_recalled {
                        true => (
                            "recalled",
                            json!({ "messages": self.recalled.as_ref().map(|recalled| self.wire(&recalled.messages())) }),
                        ),
                        false => notes.next().unwrap_or(("note", json!({}))),
                    };
                    sheet.add(what, size(place), about);
                    place += 1;
                }
                Edit::Replace(_, None) => {}
            }
        }
        sheet.add("verbatim", verbatim, json!({ "messages": ranges(&self.verbatim()) }));
        let images: u32 = messages.iter().map(|message| message.images).sum();
        if images > 0 {
            sheet.add("images", images.saturating_mul(TOKENS_PER_IMAGE), json!({ "images": images }));
        }
    }

    /// What cleaning has saved on one message.
    fn saving(&self, index: usize, after: Tokens) -> Value {
        let place = self.rewritten.iter().position(|one| one.index == index);
        let done = place.map(|place| self.rewritten[place].done.clone()).unwrap_or_default();
        let before = place.and_then(|place| self.sizes_before.get(place)).copied().unwrap_or(after);
        json!({ "message": index + 1, "done": done, "tokens_before": before, "tokens_after": after, "saved": before.saturating_sub(after) })
    }

    fn verbatim(&self) -> Vec<usize> {
        let kept = self.plan.edits.iter().flat_map(|edit| match edit {
            Edit::Keep(range) => range.clone(),
            Edit::Rewrite(..) | Edit::Replace(..) => 0..0,
        });
        kept.map(|index| index + 1).collect()
    }

    /// The client's numbers of some of Ollama's messages.
    fn wire(&self, indices: &[usize]) -> Vec<usize> {
        let mut wire: Vec<usize> =
            indices.iter().filter_map(|&index| self.sources.get(index)).map(|source| source + 1).collect();
        wire.dedup();
        wire
    }

    /// The client's numbers of the first and the last of some of Ollama's messages, which count from 1.
    fn span(&self, first: usize, last: usize) -> [Option<usize>; 2] {
        let last = last.min(self.sources.len());
        let sources = self.sources.get(first.saturating_sub(1)..last).unwrap_or_default();
        [sources.iter().min(), sources.iter().max()].map(|source| source.map(|source| source + 1))
    }

    fn summarised(&self) -> Vec<Value> {
        let Some(covering) = &self.covering else { return Vec::new() };
        let summary = |checkpoint: &crate::context::Checkpoint| {
            let messages = self.span(checkpoint.first, checkpoint.last);
            json!({ "checkpoint": checkpoint.id, "level": checkpoint.level.number(), "messages": messages })
        };
        covering.front.checkpoints.iter().map(summary).collect()
    }

    /// What neither leaves nor is in a checkpoint.
    fn archived(&self) -> Vec<usize> {
        let dropped = self.plan.edits.iter().flat_map(|edit| match edit {
            Edit::Replace(range, _) => range.clone(),
            Edit::Keep(_) | Edit::Rewrite(..) => 0..0,
        });
        let rolled = self.covering.as_ref().map_or(0, |covering| {
            covering.front.checkpoints.first().map_or(usize::MAX, |checkpoint| checkpoint.first - 1)
        });
        let places: Vec<usize> = (0..rolled.min(self.sources.len())).collect();
        let wire: std::collections::HashSet<usize> = self.wire(&places).into_iter().collect();
        dropped.map(|index| index + 1).filter(|index| wire.contains(index)).collect()
    }
}

/// The size of what a message says. Thinking is not among it: most templates leave earlier thinking out, and
/// what they keep of it counts as the template's.
fn text_size(model: &Model, message: &Message<'_>) -> Tokens {
    let calls =
        message.tool_calls.iter().map(|call| rough_size(model, &call.name) + rough_size(model, &call.arguments));
    rough_size(model, &message.text) + calls.sum::<Tokens>()
}

fn is_system(message: &&Message<'_>) -> bool {
    message.role == Role::System
}

#[derive(Default)]
struct Sheet {
    parts: Vec<Value>,
    cleaned: Vec<Value>,
    sum: i64,
}

impl Sheet {
    fn add(&mut self, what: &str, tokens: Tokens, mut about: Value) {
        if tokens == 0 {
            return;
        }
        self.sum += i64::from(tokens);
        about["what"] = what.into();
        about["tokens"] = tokens.into();
        self.parts.push(about);
    }
}

/// Where the messages of the stored history are in the client's list: runs of `[place in the history, number in the
/// list, how many]`, both counted from 1. System prompts are in the list only.
pub(super) fn places(messages: &[Message<'_>]) -> Vec<[usize; 3]> {
    let mut runs: Vec<[usize; 3]> = Vec::new();
    let stored = messages.iter().filter(|message| message.role != Role::System);
    for (place, number) in stored.enumerate().map(|(index, message)| (index + 1, message.source + 1)) {
        match runs.last_mut() {
            Some([first, at, count]) if place - *first == number - *at && *count == place - *first => *count += 1,
            _ => runs.push([place, number, 1]),
        }
    }
    runs
}

/// Neighbours as `[first, last]`.
fn ranges(numbers: &[usize]) -> Vec<[usize; 2]> {
    let mut ranges: Vec<[usize; 2]> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some([_, last]) if *last + 1 == number => *last = number,
            _ => ranges.push([number, number]),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_runs_and_skip_system_prompts() {
        let system = |source| Message::plain(Role::System, "", source);
        let said = |source| Message::plain(Role::User, "", source);
        let messages = [system(0), said(1), said(2), said(2), system(3), said(4)];
        assert_eq!(places(&messages), [[1, 2, 2], [3, 3, 1], [4, 5, 1]]);
    }

    #[test]
    fn neighbours_become_ranges() {
        assert_eq!(ranges(&[1, 2, 3, 7, 9, 10]), [[1, 3], [7, 7], [9, 10]]);
    }
}
