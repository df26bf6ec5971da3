//! What happened, as sentences; and texts of others, made safe to show.
//!
//! Titles, names and reasons come from users and models. A terminal obeys control characters, and some
//! invisible ones move what stands beside them, so neither gets through.

use ratatui::text::Span;
use serde_json::Value;

use super::super::data::shown;
use super::model::Event;
use crate::events;

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

/// One event, for people: its kind and what it says.
pub(super) fn sentence(event: &Event) -> String {
    let said = events::sentence(&event.kind, &Value::Object(event.more.clone()));
    match event.kind.as_str() {
        // It says itself what it is.
        "warning" => plain(&said),
        kind if said.is_empty() => plain(kind),
        kind => plain(&format!("{}: {said}", kind.replace('.', " "))),
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
    fn an_event_is_its_kind_and_what_it_says() {
        assert_eq!(said(json!({ "kind": "warning", "text": "INFO: Context at 72.4%" })), "INFO: Context at 72.4%");
        assert_eq!(said(json!({ "kind": "checkpoint.failed", "reason": "no answer" })), "checkpoint failed: no answer");
        assert_eq!(
            said(json!({ "kind": "mutiny", "hands": 3, "cook": "in\u{1b}[2Jnocent" })),
            "mutiny: hands 3, cook in\u{fffd}[2Jnocent"
        );
        assert_eq!(said(json!({ "kind": "calm" })), "calm");
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
