//! Which archived messages bear on the newest one: a small search engine over one conversation.
//!
//! What left the prompt is still in the archive, and a question about it should find it. Ranking is BM25 over
//! stemmed words, with two changes for talk. A message is read together with its neighbours, because an
//! answer rarely repeats its question. And the best passages lend the question some of their own words, so
//! that it also finds what was said in others. Similarity from an embedding model joins in where there is one.
//!
//! Nothing comes back unless the message names something that was said: "ok, thanks" recalls nothing. Memory
//! is bounded: 12 bytes for each distinct word of a message, at most 64 KiB of its text, plus one dictionary.
//!
//! This module refuses to read, quote or count anything; it hands out numbers of messages.

mod choose;
mod forms;
mod rank;
#[cfg(test)]
mod tests;
mod wanted;
mod words;

use std::ops::Range;

use foldhash::{HashMap, HashMapExt};

pub use choose::choose;

use words::{Words, raw};

/// How much of one message is indexed. A longer one would not fit a recall budget anyway, and a pasted log
/// must not take the memory of a whole conversation.
const INDEXED_BYTES: usize = 64 * 1024;

/// How many words are indexed in all, each message's repeats left out: about 200 MB. What comes after is not found.
const INDEXED_WORDS: usize = 16 << 20;

/// The archived messages of a conversation, ready to be searched.
#[derive(Debug, Default)]
pub struct Index {
    terms: HashMap<Box<str>, TermId>,
    /// Where each term was said: `postings[term_starts[t]..term_starts[t + 1]]`, oldest first.
    postings: Vec<Posting>,
    term_starts: Vec<u32>,
    /// What each message says: `said[message_starts[m]..message_starts[m + 1]]`, each term once.
    said: Vec<TermId>,
    message_starts: Vec<u32>,
    /// Words in each message, repeats included.
    lengths: Vec<u32>,
    average_length: f32,
}

/// The newest message, and what helps to understand it.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a> {
    pub newest: &'a str,
    /// What was said right before, for a follow-up such as "and the other one?". It weighs less.
    pub before: Option<&'a str>,
    /// Cosine similarity to each message, from an embedding model.
    pub semantic: Option<&'a [f32]>,
    /// From 0, only what clearly bears on it, to 1, whatever might: for those who give recall much room.
    pub keen: f32,
}

/// What a search gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    pub hits: Vec<Hit>,
    /// From 0, it may be chance, to 1: how much of a budget the hits are worth.
    pub certainty: f32,
}

/// A message that bears on the query. Scores compare within one ranking only.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hit {
    pub index: usize,
    pub score: f32,
}

type TermId = u32;

#[derive(Debug, Clone, Copy, Default)]
struct Posting {
    message: u32,
    count: u32,
}

impl Index {
    /// Reads the messages once, in order. A word is stemmed when it is first met, and looked up after that.
    pub fn build<'a>(texts: impl Iterator<Item = &'a str>) -> Self {
        let mut words = Words::default();
        let mut index = Self { message_starts: vec![0], ..Self::default() };
        let mut met: HashMap<&'a str, Range<u32>> = HashMap::new();
        let mut met_terms: Vec<TermId> = Vec::new();
        // For each term, where in `said` it was last noted; the counts stand beside `said`.
        let mut noted: Vec<u32> = Vec::new();
        let mut counts: Vec<u32> = Vec::new();
        for text in texts {
            let first = index.said.len() as u32;
            let mut length = 0;
            let room = if index.said.len() < INDEXED_WORDS { INDEXED_BYTES } else { 0 };
            for word in raw(head(text, room)) {
                let terms = met.entry(word).or_insert_with(|| {
                    let start = met_terms.len() as u32;
                    words.terms(word, |term, _| met_terms.push(index_of(&mut index.terms, term)));
                    start..met_terms.len() as u32
                });
                noted.resize(index.terms.len(), u32::MAX);
                for term in &met_terms[terms.start as usize..terms.end as usize] {
                    length += 1;
                    let slot = &mut noted[*term as usize];
                    if *slot >= first && *slot != u32::MAX {
                        counts[*slot as usize] += 1;
                    } else {
                        *slot = index.said.len() as u32;
                        index.said.push(*term);
                        counts.push(1);
                    }
                }
            }
            index.lengths.push(length);
            index.message_starts.push(index.said.len() as u32);
        }
        index.file_by_term(&counts);
        let words: f32 = index.lengths.iter().map(|length| *length as f32).sum();
        index.average_length = (words / index.len().max(1) as f32).max(1.0);
        index
    }

    /// How many messages it holds.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Turns what each message says into where each term was said: a counting sort, so postings stay in order.
    fn file_by_term(&mut self, counts: &[u32]) {
        self.term_starts = vec![0; self.terms.len() + 1];
        for term in &self.said {
            self.term_starts[*term as usize + 1] += 1;
        }
        for term in 0..self.terms.len() {
            self.term_starts[term + 1] += self.term_starts[term];
        }
        let mut next = self.term_starts.clone();
        self.postings = vec![Posting::default(); self.said.len()];
        for (message, bounds) in self.message_starts.windows(2).enumerate() {
            for at in bounds[0] as usize..bounds[1] as usize {
                let slot = &mut next[self.said[at] as usize];
                self.postings[*slot as usize] = Posting { message: message as u32, count: counts[at] };
                *slot += 1;
            }
        }
    }

    fn postings(&self, term: TermId) -> &[Posting] {
        let (from, to) = (self.term_starts[term as usize], self.term_starts[term as usize + 1]);
        &self.postings[from as usize..to as usize]
    }

    fn said(&self, message: usize) -> &[TermId] {
        &self.said[self.message_starts[message] as usize..self.message_starts[message + 1] as usize]
    }
}

fn index_of(terms: &mut HashMap<Box<str>, TermId>, term: &str) -> TermId {
    if let Some(id) = terms.get(term) {
        return *id;
    }
    let id = terms.len() as TermId;
    terms.insert(term.into(), id);
    id
}

fn head(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

fn tail(text: &str, bytes: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(bytes))..]
}
