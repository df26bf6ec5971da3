//! Safe cleaning of a user's message before it is sent: what a terminal left in it, and what is there twice.
//!
//! Pasted logs bring colours, progress bars and pages of blank lines, and the same file is pasted again and
//! again; each costs tokens and says nothing. Only what nobody reads goes: terminal sequences and what they
//! painted over, space at the ends of lines, runs of blank lines, and long blocks that stand word for word in
//! an earlier message of the same prompt. Cleaning twice is cleaning once, and it takes linear time.
//!
//! It refuses to improve: no spelling, no space inside lines, no indentation. Fenced code stays byte for byte
//! but for terminal sequences and repeated blocks.

use std::borrow::Cow;
use std::ops::Range;

use foldhash::{HashMap, HashMapExt};

mod terminal;
#[cfg(test)]
mod tests;

use terminal::shown;

/// One thing that was done to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cleaning {
    TerminalEscapes,
    BlankLines,
    TrailingSpace,
    RepeatedBlock { lines: usize },
}

/// A message that says the same in fewer characters, and what was done to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleaned {
    pub text: String,
    pub done: Vec<Cleaning>,
}

/// A block is worth a reference only when it is longer than one: this many lines that are not blank …
const BLOCK_LINES: usize = 8;
/// … and this many characters in them.
const BLOCK_CHARS: usize = 400;
/// Fewer blank lines than this may be meant.
const BLANK_RUN: usize = 3;
const EXCERPT_CHARS: usize = 60;
/// How a reference begins and ends. Such a line is never part of a block, or cleaning again could find more.
const REFERENCE: (&str, &str) = ("[the same ", "\"]");

/// The message without what nobody reads; none if there is nothing to clean. `earlier` are the texts before it
/// that leave as they are in the same prompt.
pub fn clean(text: &str, earlier: &[&str]) -> Option<Cleaned> {
    let shown = shown(text);
    let mut done = Vec::new();
    if let Cow::Owned(_) = shown {
        done.push(Cleaning::TerminalEscapes);
    }
    let lines = lines(&shown);
    let mut blocks = repeated(&lines, earlier).into_iter().peekable();
    let (mut text, mut at, mut trims, mut joins) = (String::with_capacity(shown.len()), 0, false, false);
    let mut replaced = Vec::new();
    while let Some(line) = lines.get(at) {
        let blank = lines[at..].iter().take_while(|line| line.is_blank()).count();
        if let Some(block) = blocks.next_if(|block| block.start == at) {
            let (last, count) = (&lines[block.end - 1], block.len());
            let (from, to) = (excerpt(line.text), excerpt(last.text));
            text +=
                &format!("{}{count} lines as in an earlier message: \"{from}\" to \"{to}{}", REFERENCE.0, REFERENCE.1);
            text += last.newline;
            replaced.push(Cleaning::RepeatedBlock { lines: count });
            at = block.end;
            continue;
        }
        let kept = if blank >= BLANK_RUN { 1 } else { blank.max(1) };
        for line in &lines[at..at + kept] {
            trims |= line.text.len() < line.written;
            text += line.text;
            text += line.newline;
        }
        joins |= kept < blank;
        at += blank.max(1);
    }
    done.extend(joins.then_some(Cleaning::BlankLines));
    done.extend(trims.then_some(Cleaning::TrailingSpace));
    done.extend(replaced);
    // A message of nothing but space is left to whoever sent it.
    (!done.is_empty() && !text.trim().is_empty()).then_some(Cleaned { text, done })
}

struct Line<'a> {
    /// Without the space at its end, unless it belongs to code.
    text: &'a str,
    /// The length it was written with.
    written: usize,
    newline: &'a str,
    /// Which stretch of prose (even) or fenced code (odd) it comes from, and which it leads to.
    before: usize,
    after: usize,
}

impl Line<'_> {
    fn is_blank(&self) -> bool {
        self.text.is_empty() && is_prose(self.before)
    }
}

fn is_prose(stretch: usize) -> bool {
    stretch.is_multiple_of(2)
}

fn lines(text: &str) -> Vec<Line<'_>> {
    let (mut stretch, mut fence) = (0, (0, 0));
    let split = text.split_inclusive('\n').map(|line| {
        let (written, newline) = split_newline(line);
        let before = stretch;
        let body = written.trim_start_matches([' ', '\t']);
        let mark = body.bytes().next().unwrap_or_default();
        let count = body.bytes().take_while(|byte| *byte == mark).count();
        if matches!(mark, b'`' | b'~') {
            let info = &body[count..];
            let opens = is_prose(before) && count >= 3 && !(mark == b'`' && info.contains('`'));
            let closes = !is_prose(before) && mark == fence.0 && count >= fence.1 && info.trim().is_empty();
            if opens {
                fence = (mark, count);
            }
            stretch += usize::from(opens || closes);
        }
        let is_prose = before == stretch && is_prose(before);
        let text = if is_prose { written.trim_end_matches([' ', '\t']) } else { written };
        Line { text, written: written.len(), newline, before, after: stretch }
    });
    split.collect()
}

fn split_newline(line: &str) -> (&str, &str) {
    let body = line.strip_suffix('\n').map_or(line, |body| body.strip_suffix('\r').unwrap_or(body));
    line.split_at(body.len())
}

fn excerpt(line: &str) -> String {
    let line = line.trim();
    let cut = line.char_indices().nth(EXCERPT_CHARS).map(|(end, _)| format!("{}…", line[..end].trim_end()));
    cut.unwrap_or_else(|| line.to_owned())
}

/// The blocks of lines that an earlier text has too, as long as they can be. Blank lines and space at line ends do
/// not count, so that cleaning them changes nothing here. A block does not open or close a code fence.
fn repeated(lines: &[Line<'_>], earlier: &[&str]) -> Vec<Range<usize>> {
    const OTHER: u32 = u32::MAX;
    let bare = |line: &str| line.trim_end_matches([' ', '\t', '\r', '\n']).len();
    let written: Vec<usize> = (0..lines.len()).filter(|index| bare(lines[*index].text) > 0).collect();
    let mut blocks = Vec::new();
    if written.len() < BLOCK_LINES || earlier.is_empty() {
        return blocks;
    }
    let mut ids: HashMap<&str, u32> = HashMap::with_capacity(written.len());
    // The characters before each line, and the line that begins each stretch of prose or code.
    let (mut chars, mut starts) = (vec![0_usize], vec![0_usize]);
    let mut new = Vec::with_capacity(written.len());
    for index in &written {
        let text = &lines[*index].text[..bare(lines[*index].text)];
        if lines[*index].after == starts.len() {
            starts.push(new.len());
        }
        let is_reference = text.starts_with(REFERENCE.0) && text.ends_with(REFERENCE.1);
        let next = ids.len() as u32;
        new.push(if is_reference { OTHER } else { *ids.entry(text).or_insert(next) });
        chars.push(chars.last().unwrap_or(&0) + text.chars().count());
    }
    let mut old = Vec::new();
    for text in earlier {
        let written = text.split_inclusive('\n').map(|line| &line[..bare(line)]).filter(|line| !line.is_empty());
        old.extend(written.map(|line| ids.get(line).copied().unwrap_or(OTHER)));
        old.push(OTHER);
    }
    let mut places: HashMap<&[u32], usize> = HashMap::new();
    for (place, window) in old.windows(BLOCK_LINES).enumerate().filter(|(_, window)| !window.contains(&OTHER)) {
        places.entry(window).or_insert(place);
    }
    let (mut at, mut place, mut length) = (0, 0, 0);
    while at + BLOCK_LINES <= new.len() {
        // What is left of a match that was too short is not compared again, which keeps this linear.
        if length < BLOCK_LINES {
            let Some(found) = places.get(&new[at..at + BLOCK_LINES]) else {
                at += 1;
                continue;
            };
            place = *found;
            length = new[at..].iter().zip(&old[place..]).take_while(|(new, old)| new == old && **new != OTHER).count();
        }
        let (before, after) = (lines[written[at]].before, lines[written[at + length - 1]].after);
        let end = match (is_prose(before), is_prose(after)) {
            (true, true) => at + length,
            (true, false) => starts[after],
            (false, _) => starts.get(before + 1).map_or(at + length, |end| (at + length).min(*end)),
        };
        if end >= at + BLOCK_LINES && chars[end] - chars[at] >= BLOCK_CHARS {
            blocks.push(written[at]..written[end - 1] + 1);
            (at, length) = (end, 0);
        } else {
            (at, place, length) = (at + 1, place + 1, length - 1);
        }
    }
    blocks
}
