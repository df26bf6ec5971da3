//! SentencePiece with scores: the adjacent pair that makes the best-scored token is merged, until none does.
//!
//! There are no words here, the whole text between two special tokens is one piece; but where no token
//! of the vocabulary has a space after something else, no merge can cross that border, and the text is
//! cut there for speed. What is left over as no token is written as one token a byte.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use foldhash::{HashMap, HashMapExt};

use super::vocabulary::{TokenType, Vocabulary};

/// How SentencePiece writes a space.
const SPACE: char = '\u{2581}';

#[derive(Debug)]
pub(super) struct SentencePiece {
    tokens: HashMap<Box<str>, (u32, f32)>,
    byte_tokens: Vec<Option<u32>>,
    space_prefix: bool,
    /// Whether a piece may be cut before each space that follows something else.
    cuts_at_spaces: bool,
}

impl SentencePiece {
    pub(super) fn new(vocabulary: &Vocabulary) -> Self {
        let mut tokens = HashMap::with_capacity(vocabulary.tokens.len());
        let mut byte_tokens = vec![None; 256];
        let mut cuts_at_spaces = true;
        for (id, text) in vocabulary.tokens.iter().enumerate() {
            tokens.insert(text.as_str().into(), (id as u32, vocabulary.scores[id]));
            if vocabulary.token_type(id) == TokenType::Byte
                && let [byte] = vocabulary.raw_bytes(id)[..]
            {
                byte_tokens[byte as usize] = Some(id as u32);
            }
            let mut previous = SPACE;
            for character in text.chars() {
                cuts_at_spaces &= character != SPACE || previous == SPACE;
                previous = character;
            }
        }
        Self { tokens, byte_tokens, space_prefix: vocabulary.add_space_prefix, cuts_at_spaces }
    }

    pub(super) fn count(&self, text: &str, after_special: bool) -> u32 {
        let mut tokens = 0;
        self.each_token(text, after_special, |_| tokens += 1);
        tokens
    }

    pub(super) fn encode(&self, text: &str, after_special: bool, ids: &mut Vec<u32>) {
        self.each_token(text, after_special, |id| ids.push(id));
    }

    fn each_token(&self, text: &str, after_special: bool, mut each: impl FnMut(u32)) {
        let mut escaped = String::with_capacity(text.len() + text.len() / 4 + 3);
        if self.space_prefix && after_special {
            escaped.push(SPACE);
        }
        for part in text.split_inclusive(' ') {
            match part.strip_suffix(' ') {
                Some(word) => {
                    escaped.push_str(word);
                    escaped.push(SPACE);
                }
                None => escaped.push_str(part),
            }
        }
        if !self.cuts_at_spaces {
            return self.merge(&escaped, &mut each);
        }
        let mut start = 0;
        let mut previous = SPACE;
        for (at, character) in escaped.char_indices() {
            if character == SPACE && previous != SPACE {
                self.merge(&escaped[start..at], &mut each);
                start = at;
            }
            previous = character;
        }
        self.merge(&escaped[start..], &mut each);
    }

    fn merge(&self, text: &str, each: &mut impl FnMut(u32)) {
        if text.is_empty() {
            return;
        }
        let mut chain = Chain::new(text);
        let mut heap = BinaryHeap::new();
        for right in 1..chain.symbols.len() {
            heap.extend(self.candidate(&chain, right - 1, right));
        }
        while let Some(best) = heap.pop() {
            let Reverse(left) = best.left;
            if chain.merge(left, best.right, best.length) {
                if let Some(before) = chain.symbols[left].previous {
                    heap.extend(self.candidate(&chain, before, left));
                }
                if let Some(after) = chain.symbols[left].next {
                    heap.extend(self.candidate(&chain, left, after));
                }
            }
        }
        let mut at = Some(0);
        while let Some(index) = at {
            let symbol = &chain.symbols[index];
            let piece = &text[symbol.start..symbol.start + symbol.length];
            match self.tokens.get(piece) {
                Some(&(id, _)) => each(id),
                // Only single characters can be left without a token: every merge makes one.
                None => piece.bytes().for_each(|byte| each(self.byte_tokens[byte as usize].unwrap_or(0))),
            }
            at = symbol.next;
        }
    }

    fn candidate(&self, chain: &Chain<'_>, left: usize, right: usize) -> Option<Candidate> {
        let start = chain.symbols[left].start;
        let length = chain.symbols[left].length + chain.symbols[right].length;
        let &(_, score) = self.tokens.get(&chain.text[start..start + length])?;
        Some(Candidate { score, left: Reverse(left), right, length })
    }
}

struct Chain<'a> {
    text: &'a str,
    symbols: Vec<Symbol>,
}

struct Symbol {
    start: usize,
    /// Zero once it is merged into the symbol before it.
    length: usize,
    previous: Option<usize>,
    next: Option<usize>,
}

impl<'a> Chain<'a> {
    fn new(text: &'a str) -> Self {
        let mut symbols: Vec<Symbol> = text
            .char_indices()
            .enumerate()
            .map(|(index, (start, character))| Symbol {
                start,
                length: character.len_utf8(),
                previous: index.checked_sub(1),
                next: Some(index + 1),
            })
            .collect();
        if let Some(last) = symbols.last_mut() {
            last.next = None;
        }
        Self { text, symbols }
    }

    /// Merges two symbols, unless one of them has changed since they were chosen.
    fn merge(&mut self, left: usize, right: usize, length: usize) -> bool {
        let right_length = self.symbols[right].length;
        if self.symbols[left].length == 0 || right_length == 0 || self.symbols[left].length + right_length != length {
            return false;
        }
        let after = self.symbols[right].next;
        self.symbols[right].length = 0;
        self.symbols[left].length = length;
        self.symbols[left].next = after;
        if let Some(after) = after {
            self.symbols[after].previous = Some(left);
        }
        true
    }
}

/// The best score first; of equal scores the leftmost.
struct Candidate {
    score: f32,
    left: Reverse<usize>,
    right: usize,
    length: usize,
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.score.total_cmp(&other.score).then_with(|| self.left.cmp(&other.left))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Candidate {}
