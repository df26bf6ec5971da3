//! What a terminal would still show of a text that was written for one.
//!
//! It follows a line at a time and refuses to be a screen: sequences that move between lines are left out.

use std::borrow::Cow;
use std::ops::Range;

use super::split_newline;

/// What a terminal would still show. Sequences that move within a line or erase it are followed, all others are
/// left out. A text of carriage returns alone is an old way to write newlines, and stays.
pub(super) fn shown(text: &str) -> Cow<'_, str> {
    let redraws = text.contains(['\n', '\u{1b}']);
    let is_control = |byte: u8| matches!(byte, 0x07 | 0x08 | 0x0e | 0x0f | 0x1b) || (redraws && byte == b'\r');
    let mut shown = String::new();
    let (mut copied, mut at) = (0, 0);
    for line in text.split_inclusive('\n') {
        let (body, _) = split_newline(line);
        if body.bytes().any(is_control) {
            shown += &text[copied..at];
            Row::default().draw(body, redraws).iter().for_each(|cell| shown += cell);
            copied = at + body.len();
        }
        at += line.len();
    }
    if copied == 0 { Cow::Borrowed(text) } else { Cow::Owned(shown + &text[copied..]) }
}

/// One line of a terminal. A wide character takes two cells, the second of them empty.
#[derive(Default)]
struct Row<'a> {
    cells: Vec<&'a str>,
    cursor: usize,
}

impl<'a> Row<'a> {
    fn draw(mut self, mut rest: &'a str, redraws: bool) -> Vec<&'a str> {
        while let Some(c) = rest.chars().next() {
            let mut taken = c.len_utf8();
            match c {
                '\u{1b}' => taken = self.escape(rest),
                '\u{8}' => self.cursor = self.cursor.saturating_sub(1),
                '\r' if redraws => self.cursor = 0,
                '\u{7}' | '\u{e}' | '\u{f}' => {}
                _ => {
                    taken = glyph(rest);
                    self.put(&rest[..taken]);
                    if is_wide(c) {
                        self.put("");
                    }
                }
            }
            rest = &rest[taken..];
        }
        self.cells
    }

    fn put(&mut self, cell: &'a str) {
        let at = self.cursor;
        self.cursor += 1;
        let Some(old) = self.cells.get(at) else { return self.cells.push(cell) };
        // Half of a wide character cannot be seen.
        if old.is_empty() && at > 0 {
            self.cells[at - 1] = " ";
        }
        if self.cells.get(at + 1).is_some_and(|next| next.is_empty()) {
            self.cells[at + 1] = " ";
        }
        self.cells[at] = cell;
    }

    /// Follows the sequence at the beginning of `rest` and returns its length. One that is not whole is not a
    /// sequence: of it only the escape character goes, and what could be read stays.
    fn escape(&mut self, rest: &str) -> usize {
        let bytes = rest.as_bytes();
        let run = |from: usize, of: Range<u8>| bytes[from..].iter().take_while(|byte| of.contains(byte)).count();
        match bytes.get(1) {
            Some(b'[') => {
                let middle = 2 + run(2, 0x30..0x40);
                let last = middle + run(middle, 0x20..0x30);
                let Some(kind @ 0x40..=0x7e) = bytes.get(last) else { return 1 };
                self.control(*kind, &rest[2..middle]);
                last + 1
            }
            // Titles, hyperlinks and other strings; they end on the same line or not at all.
            Some(b']' | b'P' | b'X' | b'^' | b'_') => {
                match bytes[2..].iter().position(|byte| matches!(byte, 0x07 | 0x1b)) {
                    Some(end) if bytes[2 + end] == 0x07 => end + 3,
                    Some(end) if bytes.get(3 + end) == Some(&b'\\') => end + 4,
                    Some(_) | None => 1,
                }
            }
            Some(0x20..0x30) if matches!(bytes.get(2), Some(0x30..=0x7e)) => 3,
            Some(b'7' | b'8' | b'=' | b'>' | b'c' | b'M' | b'\\') => 2,
            Some(_) | None => 1,
        }
    }

    fn control(&mut self, kind: u8, parameter: &str) {
        let number = parameter.parse().unwrap_or(0_usize);
        match (kind, number) {
            (b'K', 0) => self.cells.truncate(self.cursor),
            (b'K', 2) => {
                self.cells.clear();
                self.cursor = 0;
            }
            (b'G', _) => self.cursor = number.saturating_sub(1).min(self.cells.len()),
            (b'D', _) => self.cursor = self.cursor.saturating_sub(number.max(1)),
            (b'C', _) if self.cursor == self.cells.len() => self.put(" "),
            (b'C', _) => self.cursor = self.cursor.saturating_add(number.max(1)).min(self.cells.len()),
            _ => {}
        }
    }
}

/// The length of the first character with the marks that belong to it.
fn glyph(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1).peekable();
    while let Some((_, c)) = chars.next_if(|(_, c)| is_mark(*c)) {
        if c == '\u{200d}' {
            chars.next_if(|(_, c)| *c > '\u{a9}');
        }
    }
    chars.peek().map_or(rest.len(), |(at, _)| *at)
}

/// Combining marks, joiners, variation selectors and skin tones, which take no place of their own.
fn is_mark(c: char) -> bool {
    matches!(c as u32, 0x300..=0x36f | 0x483..=0x489 | 0x591..=0x5bd | 0x64b..=0x65f | 0x93a..=0x94f | 0xe31..=0xe3a
        | 0x1ab0..=0x1aff | 0x1dc0..=0x1dff | 0x200b..=0x200f | 0x20d0..=0x20ff | 0xfe00..=0xfe0f | 0xfe20..=0xfe2f
        | 0x1f3fb..=0x1f3ff | 0xe0020..=0xe01ef)
}

/// East Asian characters and emoji, which take two places.
fn is_wide(c: char) -> bool {
    matches!(c as u32, 0x1100..=0x115f | 0x2e80..=0x303e | 0x3041..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f | 0xff01..=0xff60 | 0xffe0..=0xffe6 | 0x1f300..=0x1f64f | 0x1f900..=0x1f9ff | 0x20000..=0x3fffd)
}
