//! A history as a section of a prompt, for whoever takes over the work.
//!
//! Everything that was said stands indented below the line that says who said it, and nothing foreign can begin a
//! line of its own. So no message can pass for another entry, nor for the end of the section.

use super::attachment;
use super::python_text::first_chars;
use super::stored::{History, HistoryMessage};
use super::timestamp;

const INDENT: &str = "    ";
const HEADING: &str = "💬 CONVERSATION HISTORY (Leading to This Task):

The orchestrator had the following conversation before creating this task.
This provides context for WHY this task exists and WHAT the user wants.
";
/// Roles and unreadable times stand on a line with other things and are shown up to this length.
const INLINE_CHARS: usize = 64;

/// The section with its leading and closing line break, ready to stand between others. Empty if nothing was said.
pub fn section(history: &History) -> String {
    if history.messages.is_empty() {
        return String::new();
    }
    let mut section = format!("\n{HEADING}\n");
    for (position, message) in history.messages.iter().enumerate() {
        push_message(&mut section, position + 1, message);
        section.push('\n');
    }
    section.push_str(&format!("📊 History metadata: {} messages", history.messages.len()));
    if history.truncated_count > 0 {
        section.push_str(&format!(", {} truncated (user messages kept concise)", history.truncated_count));
    }
    section.push('\n');
    section
}

fn push_message(section: &mut String, number: usize, message: &HistoryMessage) {
    let emoji = match message.role.as_str() {
        "user" => "👤",
        "assistant" => "🤖",
        "orchestrator" => "🎯",
        _ => "💬",
    };
    let role = capitalized(&inline(&message.role));
    let time = match timestamp::time_of_day(&message.timestamp) {
        Some(time) => time.strftime("%H:%M:%S").to_string(),
        None => inline(&message.timestamp),
    };
    let mark = if message.truncated { " [TRUNCATED]" } else { "" };
    section.push_str(&format!("[{number}] {emoji} {role} ({time}){mark}:\n{INDENT}"));
    push_indented(section, &message.content);
    for attachment in &message.attachments {
        section.push_str(INDENT);
        push_indented(section, &attachment::shown(attachment));
    }
}

/// Writes text whose first line is already indented. Blank lines stay blank.
fn push_indented(section: &mut String, text: &str) {
    for (position, line) in lines(text).enumerate() {
        if position > 0 && !line.is_empty() {
            section.push_str(INDENT);
        }
        section.push_str(line);
        section.push('\n');
    }
}

/// Lines as any reader might see them: every character that somebody takes for a line break is one.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split("\r\n").flat_map(|part| part.split(is_line_break))
}

fn is_line_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Foreign text that has to stay on one line.
pub(super) fn inline(text: &str) -> String {
    first_chars(text, INLINE_CHARS).chars().map(|c| if is_line_break(c) { ' ' } else { c }).collect()
}

fn capitalized(role: &str) -> String {
    let mut rest = role.chars();
    let first = rest.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(rest.as_str().to_lowercase().chars()).collect()
}
