//! The preset `requirements-first`: what the user asked for is precious, answers are verbose.
//!
//! Little is put right here and little refused: a role must be known, content becomes text, a missing time becomes
//! the current one. Times are not read, only kept. Then answers are cut hard and requests hardly ever.

use jiff::civil::DateTime;
use serde_json::{Map, Value};

use super::content::{attachments, parts};
use super::finding::{Fatal, Findings, Part, reported_keys};
use super::preset::{Preset, RequirementsLimits};
use super::python_text::{self, clipped, first_chars, length_chars, type_name};
use super::stored::{History, HistoryMessage};
use super::{Checked, most_recent, timestamp};

const ROLES: [&str; 3] = ["user", "assistant", "orchestrator"];
const ANSWER_CUT_MARK: &str = " ... (truncated)";
/// Room that a cut request leaves for the note about it.
const REQUEST_MARK_ROOM_CHARS: usize = 100;

pub(super) fn check(history: &Value, limits: &RequirementsLimits, now: DateTime) -> Result<Checked, Box<Fatal>> {
    if history.is_null() {
        return Ok(Checked::default());
    }
    let Some(given) = history.as_array() else {
        let mut findings = Findings::new(Preset::RequirementsFirst, 0);
        let message = "conversation_history must be a list of message dicts";
        return Err(findings.fatal(message, type_name(history), "type_error"));
    };
    let (skipped, entries) = most_recent(given, limits.max_messages);
    let mut findings = Findings::new(Preset::RequirementsFirst, skipped);
    if skipped > 0 {
        let (count, max) = (given.len(), limits.max_messages);
        let message = format!("conversation_history has {count} messages, truncating to most recent {max}");
        findings.warn(message, Some("Consider providing only recent relevant messages"));
    }
    let mut messages = Vec::with_capacity(entries.len());
    for (position, entry) in entries.iter().enumerate() {
        messages.push(message(position, entry, limits, now, &mut findings)?);
    }
    let history = (!messages.is_empty()).then(|| truncate(messages, limits, now));
    Ok(Checked { history, warnings: findings.into_warnings() })
}

/// Cuts messages to their limits, requests and answers each in their own way.
pub(super) fn truncate(mut messages: Vec<HistoryMessage>, limits: &RequirementsLimits, now: DateTime) -> History {
    for message in &mut messages {
        cut(message, limits);
    }
    History::of(messages, now)
}

fn message(
    position: usize,
    entry: &Value,
    limits: &RequirementsLimits,
    now: DateTime,
    findings: &mut Findings,
) -> Result<HistoryMessage, Box<Fatal>> {
    let Some(entry_fields) = entry.as_object() else {
        let name = type_name(entry);
        let text = format!("Message at index {position} must be a dict, got {name}");
        return Err(findings.fatal_at(position, Part::Whole, text, name, "type_error"));
    };
    let role = required(position, "role", entry_fields, findings)?;
    let content = required(position, "content", entry_fields, findings)?;
    let Some(role) = ROLES.into_iter().find(|known| role.as_str() == Some(*known)) else {
        let role = clipped(&python_text::text(role));
        let roles = ROLES.join("|");
        let text = format!("Message at index {position} has invalid role '{role}', must be {roles}");
        return Err(findings.fatal_at(position, Part::Role, text, role, "invalid_value"));
    };
    let timestamp = match entry_fields.get("timestamp") {
        None | Some(Value::Null) => timestamp::isoformat(now),
        Some(given) => python_text::text(given),
    };
    let (content, images) = match parts(content) {
        Some(parts) => (parts.text, parts.images),
        None => (python_text::text(content), Vec::new()),
    };
    let mut message = HistoryMessage::new(role, content, timestamp);
    message.attachments = attachments(entry_fields);
    message.attachments.extend(images);
    adopt_mark(&mut message, entry_fields, limits);
    Ok(message)
}

fn required<'a>(
    position: usize,
    name: &str,
    entry_fields: &'a Map<String, Value>,
    findings: &mut Findings,
) -> Result<&'a Value, Box<Fatal>> {
    entry_fields.get(name).ok_or_else(|| {
        let text = format!("Message at index {position} missing required field '{name}'");
        findings.fatal_at(position, Part::Whole, text, reported_keys(entry_fields), "missing_field")
    })
}

/// A stored message that is handed over again keeps its mark and its original length, so that a second intake says
/// the same as the first. The mark alone is not believed: the content must look exactly as these limits leave it.
fn adopt_mark(message: &mut HistoryMessage, entry_fields: &Map<String, Value>, limits: &RequirementsLimits) {
    let marked = entry_fields.get("truncated") == Some(&Value::Bool(true));
    let claimed = entry_fields.get("original_length").and_then(Value::as_u64);
    let claimed = claimed.and_then(|length| usize::try_from(length).ok());
    if let (true, Some(original_length)) = (marked, claimed)
        && is_cut_form(message, original_length, limits)
    {
        message.truncated = true;
        message.original_length = original_length;
    }
}

fn cut(message: &mut HistoryMessage, limits: &RequirementsLimits) {
    if message.truncated && is_cut_form(message, message.original_length, limits) {
        return;
    }
    let length = length_chars(&message.content);
    message.original_length = if message.truncated { message.original_length.max(length) } else { length };
    let Cut { limit_chars, kept_chars, mark } = Cut::of(message, message.original_length, limits);
    if length > limit_chars {
        message.content = format!("{}{mark}", first_chars(&message.content, kept_chars));
        message.truncated = true;
    }
}

/// Whether the content is what a cut of a text of that length leaves.
fn is_cut_form(message: &HistoryMessage, original_length: usize, limits: &RequirementsLimits) -> bool {
    let Cut { limit_chars, kept_chars, mark } = Cut::of(message, original_length, limits);
    original_length > limit_chars
        && message.content.ends_with(&mark)
        && length_chars(&message.content) == kept_chars.saturating_add(mark.len())
}

/// How a message of a role is cut.
struct Cut {
    limit_chars: usize,
    kept_chars: usize,
    /// ASCII, so its bytes are its characters.
    mark: String,
}

impl Cut {
    fn of(message: &HistoryMessage, original_length: usize, limits: &RequirementsLimits) -> Self {
        if message.role == "user" {
            let limit_chars = limits.user_chars;
            let mark = format!(" ... (truncated, original: {original_length} chars)");
            Self { limit_chars, kept_chars: limit_chars.saturating_sub(REQUEST_MARK_ROOM_CHARS), mark }
        } else {
            let limit_chars = limits.assistant_chars;
            Self { limit_chars, kept_chars: limit_chars, mark: ANSWER_CUT_MARK.to_owned() }
        }
    }
}
