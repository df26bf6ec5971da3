//! The words of a text, as the index knows them.
//!
//! Recall must find "shipping" where "shipped" was said, `7341` where `PO-7341` was, and 预算 without spaces
//! around it. So words lose their case, accents and endings; identifiers count whole and in parts; scripts
//! that put no space between words count by pairs of characters. Stop words do not count at all.
//!
//! Stemming is English. Other languages in Latin letters pass through the same stemmer on both sides, which
//! costs them little; every other script is taken as it is.

use rust_stemmers::{Algorithm, Stemmer};

use super::forms::{base_form, is_everyday, is_stop_word};

/// A longer run of letters is encoded data, not a word. A SHA-256 in hexadecimal still counts.
const LONGEST_WORD_BYTES: usize = 80;

/// What a term was in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Word,
    /// A word that occurs in talk on any subject.
    Everyday,
    /// An identifier or compound as a whole; its parts come besides.
    Whole,
    /// Two neighbouring characters of a script without spaces: less than a word.
    Pair,
}

/// Turns raw words into terms. It holds a buffer, so that a word costs no allocation.
pub(super) struct Words {
    stemmer: Stemmer,
    folded: String,
}

impl Default for Words {
    fn default() -> Self {
        Self { stemmer: Stemmer::create(Algorithm::English), folded: String::new() }
    }
}

impl Words {
    /// The terms of one raw word as [`raw`] yields it: none for a stop word, several for an identifier.
    pub(super) fn terms(&mut self, raw: &str, mut emit: impl FnMut(&str, Form)) {
        if raw.chars().next().is_some_and(is_unspaced) {
            return emit(raw, Form::Pair);
        }
        if !raw.contains(is_joiner) && hump(raw).is_none() {
            return self.simple(raw, &mut emit);
        }
        if raw.len() <= LONGEST_WORD_BYTES {
            fold_into(raw, &mut self.folded);
            emit(&self.folded, Form::Whole);
        }
        for mut part in raw.split(is_joiner) {
            while let Some((head, tail)) = hump(part).and_then(|at| part.split_at_checked(at)) {
                self.simple(head, &mut emit);
                part = tail;
            }
            self.simple(part, &mut emit);
        }
    }

    fn simple(&mut self, raw: &str, emit: &mut impl FnMut(&str, Form)) {
        if raw.len() > LONGEST_WORD_BYTES {
            return;
        }
        fold_into(raw, &mut self.folded);
        let word = without_clitic(&self.folded);
        let base = base_form(word).unwrap_or(word);
        if base.is_empty() || is_stop_word(word) || is_stop_word(base) {
            return;
        }
        if !base.bytes().all(|byte| byte.is_ascii_lowercase()) {
            // A small number is in too many messages to tell them apart.
            return emit(base, if base.len() <= 2 { Form::Everyday } else { Form::Word });
        }
        let stem = self.stemmer.stem(base);
        let everyday = stem.len() == 1 || is_everyday(&stem);
        emit(&stem, if everyday { Form::Everyday } else { Form::Word });
    }
}

/// The raw words of a text, in order: runs of letters and digits with what joins them, and overlapping
/// pairs of characters where a script has no spaces.
pub(super) fn raw(text: &str) -> Raw<'_> {
    Raw { text, at: 0 }
}

#[derive(Debug)]
pub(super) struct Raw<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Iterator for Raw<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        loop {
            let start = self.at;
            let byte = *self.text.as_bytes().get(start)?;
            if byte.is_ascii_alphanumeric() {
                self.at = self.word_end(start + 1);
                return self.text.get(start..self.at);
            }
            if byte.is_ascii() {
                self.at += 1;
                continue;
            }
            let first = self.char_at(start)?;
            let next = start + first.len_utf8();
            if is_unspaced(first) {
                self.at = next;
                match self.char_at(next).filter(|second| is_unspaced(*second)) {
                    Some(second) => return self.text.get(start..next + second.len_utf8()),
                    // The last of a run is in the pair before it, unless it stands alone.
                    None if self.text.get(..start)?.chars().next_back().is_some_and(is_unspaced) => {}
                    None => return self.text.get(start..next),
                }
            } else if first.is_alphanumeric() {
                self.at = self.word_end(next);
                return self.text.get(start..self.at);
            } else {
                self.at = next;
            }
        }
    }
}

impl Raw<'_> {
    fn char_at(&self, at: usize) -> Option<char> {
        self.text.get(at..)?.chars().next()
    }

    /// Where the word ends that goes on at `end`. A joiner belongs to it only if a letter or digit follows.
    fn word_end(&self, mut end: usize) -> usize {
        let bytes = self.text.as_bytes();
        let continues = |at: usize| bytes.get(at).is_some_and(|byte| byte.is_ascii_alphanumeric() || !byte.is_ascii());
        while let Some(byte) = bytes.get(end) {
            if byte.is_ascii_alphanumeric() {
                end += 1;
            } else if byte.is_ascii() {
                if !((is_joiner(char::from(*byte)) || *byte == b'\'') && continues(end + 1)) {
                    break;
                }
                end += 1;
            } else {
                let Some(next) = self.char_at(end) else { break };
                let apostrophe = next == '’' && continues(end + next.len_utf8());
                if is_unspaced(next) || !(next.is_alphanumeric() || apostrophe) {
                    break;
                }
                end += next.len_utf8();
            }
        }
        end
    }
}

/// What holds the parts of an identifier, a path, a version, an address or a compound together.
fn is_joiner(c: char) -> bool {
    matches!(c, '_' | '-' | '.' | '/' | ':' | '@' | '+' | '#' | '\\' | '=' | '&')
}

/// Where the second part of a camel-case word begins.
fn hump(word: &str) -> Option<usize> {
    let is_hump =
        |pair: &[u8]| matches!(pair, [before, after] if before.is_ascii_lowercase() && after.is_ascii_uppercase());
    word.as_bytes().windows(2).position(is_hump).map(|at| at + 1)
}

/// Thai to Burmese, Khmer, Han, kana, Hangul. Korean has spaces, but its endings stick to its words.
fn is_unspaced(c: char) -> bool {
    matches!(c, '\u{0e00}'..='\u{0eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}'
        | '\u{3005}'..='\u{3007}' | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}'
        | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{323af}')
}

/// Lower case, and Latin letters without accents: "Zürich" is also written "Zurich".
fn fold_into(word: &str, folded: &mut String) {
    folded.clear();
    if word.is_ascii() {
        folded.push_str(word);
        folded.make_ascii_lowercase();
        return;
    }
    for c in word.chars().flat_map(char::to_lowercase) {
        match c {
            'à'..='å' | 'ā' | 'ă' | 'ą' => folded.push('a'),
            'ç' | 'ć' | 'č' => folded.push('c'),
            'è'..='ë' | 'ē' | 'ę' | 'ě' => folded.push('e'),
            'ì'..='ï' | 'ī' | 'ı' => folded.push('i'),
            'ł' => folded.push('l'),
            'ñ' | 'ń' | 'ň' => folded.push('n'),
            'ò'..='ö' | 'ø' | 'ō' | 'ő' => folded.push('o'),
            'ś' | 'š' | 'ş' | 'ș' => folded.push('s'),
            'ù'..='ü' | 'ū' | 'ů' | 'ű' => folded.push('u'),
            'ý' | 'ÿ' => folded.push('y'),
            'ź' | 'ż' | 'ž' => folded.push('z'),
            'æ' => folded.push_str("ae"),
            'œ' => folded.push_str("oe"),
            'ß' => folded.push_str("ss"),
            '’' => folded.push('\''),
            other => folded.push(other),
        }
    }
}

/// "Anna's" is about Anna, and "didn't" is a stop word.
fn without_clitic(word: &str) -> &str {
    match word.split_once('\'') {
        Some((before, "t")) => before.strip_suffix('n').unwrap_or(before),
        Some((before, "s" | "re" | "ve" | "ll" | "d" | "m")) => before,
        _ => word,
    }
}
