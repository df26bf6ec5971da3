//! What happened, as sentences; and texts of others, made safe to show.
//!
//! Titles, names and reasons come from users and models. A terminal obeys control characters, and some
//! invisible ones move what stands beside them, so neither gets through.

use ratatui::text::Span;
use serde_json::Value;

use super::super::data::shown;
use super::model::Event;

/// Marks that may pile up on one letter; a tower of them would hang over the lines around it.
const MARKS_ON_A_LETTER: usize = 2;

/// A text on one line that keeps to the cells it is given.
pub(super) fn plain(text: &str) -> String {
    let mut marks = 0;
    let shown = shown(text);
    let visible = shown.chars().filter_map(|char| match char {
        '\n' | '\t' | '\u{2028}' | '\u{2029}' => Some(' '),
        char if moves_its_neighbours(char) => None,
        char => Some(char),
    });
    let kept = visible.filter(|char| {
        marks = if char.is_ascii() || Span::raw(char.to_string()).width() > 0 { 0 } else { marks + 1 };
        marks <= MARKS_ON_A_LETTER
    });
    kept.collect()
}

/// As much of a text as fits into so many cells; that something is missing can be seen.
pub(super) fn cut(text: &str, cells: u16) -> String {
    let cells = usize::from(cells);
    if Span::raw(text).width() <= cells {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut taken = 1;
    for char in text.chars() {
        taken += Span::raw(char.to_string()).width();
        if taken > cells {
            break;
        }
        kept.push(char);
    }
    if cells > 0 {
        kept.push('…');
    }
    kept
}

/// A text on as many lines as it needs, broken between words; a longer word is cut.
pub(super) fn wrapped(text: &str, cells: u16) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let word = cut(word, cells);
        match lines.last_mut() {
            Some(line) if Span::raw(&*line).width() + 1 + Span::raw(&word).width() <= usize::from(cells) => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

/// Characters without a shape of their own that change the direction or the width of others.
fn moves_its_neighbours(char: char) -> bool {
    matches!(char, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{1f3fb}'..='\u{1f3ff}' | '\u{e0000}'..='\u{e0fff}')
}

/// One event, for people.
pub(super) fn sentence(event: &Event) -> String {
    let field = |name: &str| Field(event.more.get(name));
    let text = match event.kind.as_str() {
        "warning" => field("text").to_string(),
        "refused" => {
            format!("refused: {} tokens are too many for {} ({})", field("tokens"), field("limit"), field("usage"))
        }
        "checkpoint.started" => {
            format!("checkpoint begun: {} reads messages {}", field("model"), field("messages").range())
        }
        "checkpoint.progress" => format!("checkpoint: {} of {} parts are written", field("done"), field("of")),
        "checkpoint.deferred" => {
            format!("checkpoint put off, {} times now: {} of {} parts", field("times"), field("done"), field("of"))
        }
        "checkpoint.failed" => format!("checkpoint failed: {}", field("reason")),
        "checkpoint.waited" => {
            let written = event.more.get("written").and_then(Value::as_bool).unwrap_or_default();
            let end = if written { "and it was written" } else { "and went on without it" };
            format!("waited {} s for a checkpoint, {end}", field("seconds"))
        }
        "checkpoint.written" => {
            let (messages, author) = (field("messages").range(), field("author"));
            format!("checkpoint written by {author}: messages {messages} in {} tokens", field("tokens"))
        }
        "compression" => {
            let (before, after) = (field("tokens_before"), field("tokens_after"));
            format!("compression: {before} tokens became {after} of {} ({})", field("limit"), field("usage"))
        }
        "rollover" => {
            let (before, after) = (field("tokens_before"), field("tokens_after"));
            format!(
                "rollover: {before} tokens became {after} of {} ({}); {} messages are in {}",
                field("limit"),
                field("usage"),
                field("messages"),
                field("snapshot")
            )
        }
        other => unknown(other, event),
    };
    plain(&text)
}

/// A kind that this version has not heard of: plainly everything it says.
fn unknown(kind: &str, event: &Event) -> String {
    let fields = event.more.iter().map(|(name, value)| format!("{name} {}", Field(Some(value))));
    let fields: Vec<String> = fields.collect();
    if fields.is_empty() { kind.to_owned() } else { format!("{kind}: {}", fields.join(", ")) }
}

/// A field as it may be, or not be.
struct Field<'a>(Option<&'a Value>);

impl std::fmt::Display for Field<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            None => out.write_str("?"),
            Some(Value::String(text)) => out.write_str(text),
            Some(value) => write!(out, "{value}"),
        }
    }
}

impl Field<'_> {
    /// The first and the last.
    fn range(&self) -> String {
        match self.0.and_then(Value::as_array).map(Vec::as_slice) {
            Some([first, last]) => format!("{first} to {last}"),
            _ => self.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said(event: Value) -> String {
        sentence(&serde_json::from_value(event).expect("an event"))
    }

    #[test]
    fn every_kind_is_a_sentence() {
        for (event, expected) in [
            (json!({ "kind": "warning", "text": "INFO: Context at 72.4%" }), "INFO: Context at 72.4%"),
            (
                json!({ "kind": "refused", "tokens": 9000, "limit": 6963, "usage": "129.3%" }),
                "refused: 9000 tokens are too many for 6963 (129.3%)",
            ),
            (
                json!({ "kind": "checkpoint.started", "messages": [2, 31], "model": "smollm2" }),
                "checkpoint begun: smollm2 reads messages 2 to 31",
            ),
            (json!({ "kind": "checkpoint.progress", "done": 1, "of": 3 }), "checkpoint: 1 of 3 parts are written"),
            (
                json!({ "kind": "checkpoint.deferred", "times": 2, "done": 1, "of": 3 }),
                "checkpoint put off, 2 times now: 1 of 3 parts",
            ),
            (json!({ "kind": "checkpoint.failed", "reason": "no answer" }), "checkpoint failed: no answer"),
            (
                json!({ "kind": "checkpoint.waited", "seconds": 1.5, "written": false }),
                "waited 1.5 s for a checkpoint, and went on without it",
            ),
            (
                json!({ "kind": "checkpoint.written", "checkpoint": "c", "author": "smollm2", "messages": [2, 11], "tokens": 120 }),
                "checkpoint written by smollm2: messages 2 to 11 in 120 tokens",
            ),
            (
                json!({ "kind": "compression", "tokens_before": 6700, "tokens_after": 4100, "limit": 6963, "usage": "96.2%" }),
                "compression: 6700 tokens became 4100 of 6963 (96.2%)",
            ),
            (
                json!({ "kind": "rollover", "snapshot": "snapshot-1", "tokens_before": 7200, "tokens_after": 1300,
                        "limit": 6963, "usage": "103.4%", "messages": 41 }),
                "rollover: 7200 tokens became 1300 of 6963 (103.4%); 41 messages are in snapshot-1",
            ),
        ] {
            assert_eq!(said(event), expected);
        }
    }

    #[test]
    fn a_kind_from_the_future_and_one_with_nothing_in_it_are_shown_plainly() {
        assert_eq!(
            said(json!({ "kind": "mutiny", "hands": 3, "cook": "in\u{1b}[2Jnocent" })),
            "mutiny: hands 3, cook in\u{fffd}[2Jnocent"
        );
        assert_eq!(said(json!({ "kind": "calm" })), "calm");
        assert_eq!(said(json!({ "kind": "compression" })), "compression: ? tokens became ? of ? (?)");
    }

    #[test]
    fn a_cut_text_fits_even_with_wide_characters() {
        assert_eq!(cut("trim the sails", 14), "trim the sails");
        assert_eq!(cut("trim the sails", 6), "trim …");
        assert_eq!(cut("船を出す", 8), "船を出す");
        assert_eq!(cut("船を出す", 7), "船を出…");
        assert_eq!(cut("船を出す", 6), "船を…");
        assert_eq!((cut("船", 1), cut("船", 0)), ("…".to_owned(), String::new()));
    }

    #[test]
    fn a_text_that_is_too_long_goes_on_below() {
        assert_eq!(wrapped("trim the sails, 船を出す", 9), ["trim the", "sails,", "船を出す"]);
        assert_eq!(wrapped("displacement of  tea", 8), ["displac…", "of tea"]);
        assert!(wrapped(" ", 8).is_empty());
    }

    #[test]
    fn a_text_cannot_command_the_terminal_nor_turn_it_around() {
        assert_eq!(plain("a\u{1b}[31mb\u{9b}2J\r\nc\td"), "a\u{fffd}[31mb\u{fffd}2J\u{fffd} c d");
        assert_eq!(plain("left\u{202e}right\u{2066}x\u{200b}y\u{feff}"), "leftrightxy");
        assert_eq!(plain("❤\u{fe0f} 👩\u{200d}👧"), "❤ 👩👧");
        assert_eq!(plain("z\u{301}\u{302}\u{303}\u{304}a"), "z\u{301}\u{302}a");
    }
}
