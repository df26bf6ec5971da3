//! Intake of handed-over histories: checked, repaired where that is safe, cut to size.
//!
//! Loadline knows two opposite opinions about what matters in a conversation. Each is a [`Preset`] with its own
//! limits, texts and order of checks: `reasoning-first` keeps the long answers, `requirements-first` keeps what the
//! user asked for. Both end in the same stored form, a [`History`], and [`section`] writes that as part of a prompt.
//!
//! Lengths are characters, never bytes. The intake summarises nothing, reorders nothing and reads no clock: the
//! caller says what time it is.

mod attachment;
mod content;
mod finding;
mod preset;
mod python_text;
mod reasoning_first;
mod requirements_first;
mod section;
mod stored;
mod timestamp;

#[cfg(test)]
mod tests;

use jiff::civil::DateTime;
use serde_json::Value;

pub use finding::{Fatal, Severity, Warning};
pub use preset::{Limits, Preset, PresetLimits, ReasoningLimits, RequirementsLimits, UnknownPreset};
pub use section::section;
pub use stored::{History, HistoryMessage, Metadata};

/// What the intake made of a history.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Checked {
    /// `None` if no history was given or nothing of it was left.
    pub history: Option<History>,
    pub warnings: Vec<Warning>,
}

/// Checks a handed-over history, repairs what can be repaired and cuts it to size.
///
/// `now` is the local wall clock. It stands in for missing times and is noted as the time of collection.
pub fn check(history: &Value, preset: Preset, limits: &Limits, now: DateTime) -> Result<Checked, Box<Fatal>> {
    match preset {
        Preset::ReasoningFirst => reasoning_first::check(history, &limits.reasoning_first, now),
        Preset::RequirementsFirst => requirements_first::check(history, &limits.requirements_first, now),
    }
}

/// Cuts messages that are already known to be sound, such as those of a store, to the limits of a preset.
///
/// The oldest messages beyond the permitted number are left out. Roles are taken as they are; every role but `user`
/// has the limit of an assistant. A message already marked as truncated keeps its mark and its original length.
pub fn truncate(mut messages: Vec<HistoryMessage>, preset: Preset, limits: &Limits, now: DateTime) -> History {
    let surplus = messages.len().saturating_sub(limits.of(preset).max_messages);
    messages.drain(..surplus);
    match preset {
        Preset::ReasoningFirst => reasoning_first::truncate(messages, &limits.reasoning_first, now),
        Preset::RequirementsFirst => requirements_first::truncate(messages, &limits.requirements_first, now),
    }
}

/// The most recent entries of a list, and how many older ones are left out.
fn most_recent(entries: &[Value], max_messages: usize) -> (usize, &[Value]) {
    let skipped = entries.len().saturating_sub(max_messages);
    (skipped, entries.get(skipped..).unwrap_or_default())
}
