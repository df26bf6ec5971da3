//! The preset `reasoning-first`: requests are short, answers are worth their length.
//!
//! Messages are looked at one after the other, each in full before the next: shape, role, content, length, time. The
//! first thing that cannot be put right refuses the whole history. What remains is fitted into a total size.

use jiff::civil::DateTime;
use serde_json::{Map, Value};

use super::content::{attachments, parts};
use super::finding::{Fatal, Findings, Part, reported_keys};
use super::preset::{Preset, ReasoningLimits};
use super::python_text::{self, clipped, first_chars, length_chars, strip, type_name};
use super::stored::{History, HistoryMessage};
use super::{Checked, most_recent, timestamp};

const ROLES: [&str; 2] = ["user", "assistant"];
const CUT_MARK: &str = "... [truncated]";
const OMISSION_MARK: &str = "... (earlier messages omitted for brevity)\n\n";
/// What a message takes beyond its texts, roughly.
const MESSAGE_OVERHEAD_CHARS: usize = 10;

pub(super) fn check(history: &Value, limits: &ReasoningLimits, now: DateTime) -> Result<Checked, Box<Fatal>> {
    if history.is_null() {
        return Ok(Checked::default());
    }
    let Some(given) = history.as_array() else {
        let mut findings = Findings::new(Preset::ReasoningFirst, 0);
        return Err(findings.fatal("Must be a list of message dictionaries", type_name(history), "type_error"));
    };
    let (skipped, entries) = most_recent(given, limits.max_messages);
    let mut findings = Findings::new(Preset::ReasoningFirst, skipped);
    if skipped > 0 {
        let (count, max) = (given.len(), limits.max_messages);
        let message = format!(
            "Too many messages ({count} > {max}). Will keep only the last {max} messages to preserve recent context."
        );
        findings.warn(message, None);
    }
    let mut messages = Vec::with_capacity(entries.len());
    for (position, entry) in entries.iter().enumerate() {
        messages.extend(Intake { position, limits, now, findings: &mut findings }.message(entry)?);
    }
    if messages.is_empty() {
        let message = "All messages were filtered out due to validation issues. History will be omitted.";
        findings.warn(message.to_owned(), None);
    } else {
        warn_about_total(&mut messages, limits, &mut findings);
    }
    let history = (!messages.is_empty()).then(|| History::of(messages, now));
    Ok(Checked { history, warnings: findings.into_warnings() })
}

/// Cuts messages to the soft limits and then fits them into the total. Nothing is refused.
pub(super) fn truncate(mut messages: Vec<HistoryMessage>, limits: &ReasoningLimits, now: DateTime) -> History {
    for message in &mut messages {
        let length = length_chars(&message.content);
        message.original_length = if message.truncated { message.original_length.max(length) } else { length };
        if !bears_mark(message, length, limits) {
            cut(message, length, limits);
        }
    }
    fit_total(&mut messages, limits);
    History::of(messages, now)
}

/// One message on its way in.
struct Intake<'a> {
    position: usize,
    limits: &'a ReasoningLimits,
    now: DateTime,
    findings: &'a mut Findings,
}

impl Intake<'_> {
    /// The message ready to be kept, or `None` if it says nothing.
    fn message(&mut self, entry: &Value) -> Result<Option<HistoryMessage>, Box<Fatal>> {
        let Some(entry_fields) = entry.as_object() else {
            let message = "Each message must be a dictionary".to_owned();
            return Err(self.findings.fatal_at(self.position, Part::Whole, message, type_name(entry), "type_error"));
        };
        let missing: Vec<_> = ["role", "content"].into_iter().filter(|key| !entry_fields.contains_key(*key)).collect();
        let (Some(role), Some(content)) = (entry_fields.get("role"), entry_fields.get("content")) else {
            let message = format!("Missing required fields: {}", missing.join(", "));
            let keys = reported_keys(entry_fields);
            return Err(self.findings.fatal_at(self.position, Part::Whole, message, keys, "missing_field"));
        };
        let role = self.role(role)?;
        let (content, images) = self.content(content)?;
        if content.is_empty() {
            let message = "Empty message content - message will be skipped".to_owned();
            self.findings.warn_at(self.position, Part::Content, message);
            return Ok(None);
        }
        let mut message = HistoryMessage::new(role, content, String::new());
        self.check_length(&mut message)?;
        message.timestamp = self.timestamp(entry_fields);
        message.attachments = attachments(entry_fields);
        message.attachments.extend(images);
        Ok(Some(message))
    }

    fn role(&mut self, role: &Value) -> Result<&'static str, Box<Fatal>> {
        let role = match role {
            Value::String(role) => strip(role).to_lowercase(),
            other => python_text::text(other),
        };
        ROLES.into_iter().find(|known| *known == role).ok_or_else(|| {
            let role = clipped(&role);
            let [user, assistant] = ROLES;
            let message = format!("Role must be one of {{'{user}', '{assistant}'}}, got '{role}'");
            self.findings.fatal_at(self.position, Part::Role, message, role, "invalid_value")
        })
    }

    fn content(&mut self, content: &Value) -> Result<(String, Vec<Value>), Box<Fatal>> {
        if let Value::String(text) = content {
            return Ok((strip(text).to_owned(), Vec::new()));
        }
        let Some(parts) = parts(content) else {
            let message = "Content must be a string".to_owned();
            return Err(self.findings.fatal_at(
                self.position,
                Part::Content,
                message,
                type_name(content),
                "type_error",
            ));
        };
        Ok((strip(&parts.text).to_owned(), parts.images))
    }

    /// Refuses what exceeds the hard limit and cuts what exceeds the soft one.
    fn check_length(&mut self, message: &mut HistoryMessage) -> Result<(), Box<Fatal>> {
        let length = message.original_length;
        let hard_limit = soft_limit_chars(&message.role, self.limits).saturating_mul(2);
        let speaker = if message.role == "user" { "User" } else { "Assistant" };
        if length > hard_limit {
            let text = format!("{speaker} message exceeds hard limit of {hard_limit} characters");
            let found = format!("{length} characters");
            return Err(self.findings.fatal_at(self.position, Part::Content, text, found, "invalid_value"));
        }
        if cut(message, length, self.limits) {
            let now_length = length_chars(&message.content);
            let text = format!("{speaker} message truncated from {length} to {now_length} characters");
            self.findings.warn_at(self.position, Part::Content, text);
        }
        Ok(())
    }

    fn timestamp(&mut self, entry_fields: &Map<String, Value>) -> String {
        let current = timestamp::isoformat(self.now);
        let Some(given) = entry_fields.get("timestamp").filter(|given| !python_text::is_falsy(given)) else {
            let text = format!("Missing timestamp - added current time: {current}");
            self.findings.warn_at(self.position, Part::Timestamp, text);
            return current;
        };
        match given.as_str() {
            Some(written) if timestamp::is_valid(written) => written.to_owned(),
            _ => {
                let shown = clipped(&python_text::text(given));
                let text = format!("Invalid timestamp format '{shown}' - replaced with current time");
                self.findings.warn_at(self.position, Part::Timestamp, text);
                current
            }
        }
    }
}

fn warn_about_total(messages: &mut Vec<HistoryMessage>, limits: &ReasoningLimits, findings: &mut Findings) {
    let count = messages.len();
    let Some(total) = fit_total(messages, limits) else { return };
    let limit = limits.total_chars;
    let exceeded = format!(
        "Total history size ({total} chars) exceeds limit ({limit} chars). \
         Dropping oldest messages to fit within limit."
    );
    findings.warn(exceeded, None);
    let kept = messages.len();
    findings.warn(format!("Total history size exceeded limit. Kept last {kept} of {count} messages."), None);
}

fn soft_limit_chars(role: &str, limits: &ReasoningLimits) -> usize {
    if role == "user" { limits.user_chars } else { limits.assistant_chars }
}

/// Cuts the content if it is too long and says whether it did.
fn cut(message: &mut HistoryMessage, length: usize, limits: &ReasoningLimits) -> bool {
    let limit = soft_limit_chars(&message.role, limits);
    let too_long = length > limit;
    if too_long {
        message.content = format!("{}{CUT_MARK}", first_chars(&message.content, limit));
        message.truncated = true;
    }
    too_long
}

/// Whether these same limits have cut the message before. Cutting it again would gain nothing.
fn bears_mark(message: &HistoryMessage, length: usize, limits: &ReasoningLimits) -> bool {
    let cut_length = soft_limit_chars(&message.role, limits).saturating_add(CUT_MARK.len());
    message.truncated && length == cut_length && message.content.ends_with(CUT_MARK)
}

/// Drops the oldest messages until the rest fits. Returns the size before, if that was too large.
fn fit_total(messages: &mut Vec<HistoryMessage>, limits: &ReasoningLimits) -> Option<usize> {
    let sizes: Vec<usize> = messages.iter().map(size_chars).collect();
    let before: usize = sizes.iter().sum();
    if before <= limits.total_chars {
        return None;
    }
    let droppable = messages.len().saturating_sub(limits.min_keep);
    let mut total = before;
    let mut dropped = 0;
    for size in sizes.iter().take(droppable) {
        if total <= limits.total_chars {
            break;
        }
        total -= size;
        dropped += 1;
    }
    messages.drain(..dropped);
    if let Some(first) = messages.first_mut() {
        first.content.insert_str(0, OMISSION_MARK);
    }
    Some(before)
}

fn size_chars(message: &HistoryMessage) -> usize {
    let HistoryMessage { role, content, timestamp, .. } = message;
    length_chars(content) + length_chars(role) + length_chars(timestamp) + MESSAGE_OVERHEAD_CHARS
}
