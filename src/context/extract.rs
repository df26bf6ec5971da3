//! Notes without a model: the most telling sentences of a conversation, word for word, in their order.
//!
//! They stand in for messages when no model may be asked, because the request cannot wait, or when the
//! model failed. A sentence is worth its rare words (numbers, names and identifiers most) and what its
//! phrases announce: a standing wish, a decision, an error, a task. A word that a chosen sentence already
//! says is worth less in the next one, and so is each message and each stretch of the conversation that
//! already spoke; so the notes spread over everything that was said.
//!
//! It refuses to write: nothing is rephrased, code is not quoted beyond its first line, and what was said
//! stays data (no control characters, one line each, the speaker in front).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::BuildHasher;
use std::ops::Range;

use foldhash::fast::FixedState;
use foldhash::{HashMap, HashSet};

use super::ladder::Tokens;

mod language;
#[cfg(test)]
mod tests;

use language::{EMPTY, ERRORS, cues, sentences, words};

/// What one message says, and who says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Said<'a> {
    pub role: &'a str,
    pub text: &'a str,
}

/// A sentence is quoted up to here; what follows seldom holds another fact.
const QUOTED_CHARS: usize = 240;
/// How much is read of all messages together, at their beginnings and ends, so that it takes milliseconds.
const READ_BYTES: usize = 1 << 20;
/// However many messages there are, this much is read of each; and however few, not more than that.
const READ_BYTES_LEAST: usize = 1 << 10;
const READ_BYTES_MOST: usize = 48 << 10;
/// So many sentences that do not fit are tried before the notes count as full.
const MISSES: usize = 16;
/// The conversation is seen as so many stretches, each of which should be heard.
const STRETCHES: usize = 12;
/// The first line of a code block often names the file or the command, but prose says more.
const CODE_FACTOR: f32 = 0.35;
/// What is left of a word's worth when it was said zero, one, two … times before.
const FADING: [f32; 4] = [1.0, 0.35, 0.12, 0.0];

/// However much a sentence announces, it is worth no more than this for it.
const CUES_MOST: f32 = 6.0;

/// The most telling sentences, in their order, one line each as `- user: sentence`. `size` says what a text
/// takes, and the whole takes at most `budget`.
pub fn extract(said: &[Said<'_>], budget: Tokens, size: &dyn Fn(&str) -> Tokens) -> String {
    let leads: Vec<String> = said.iter().map(|one| format!("- {}: ", plain_role(one.role))).collect();
    let read = (READ_BYTES / said.len().max(1)).clamp(READ_BYTES_LEAST, READ_BYTES_MOST) / 2;
    let mut pool = Pool::new(said.len());
    let mut is_answer = false;
    for (message, (one, lead)) in said.iter().zip(&leads).enumerate() {
        // The answer to a question is worth more than the question.
        let factor = role_factor(one.role) * if is_answer { 1.2 } else { 1.0 };
        pool.add_message(lead, *one, message, factor, read);
        is_answer = asks(one.text);
    }
    pool.choose(budget, size)
}

/// Notes cut down to a smaller budget: the most telling lines stay, in their order, and a line that is a whole
/// paragraph is cut down by its sentences. Empty if nothing fits. A line that begins like one of our own
/// headings becomes a list item, since notes are data.
pub fn shorten(notes: &str, budget: Tokens, size: &dyn Fn(&str) -> Tokens) -> String {
    let is_plain = |line: &str| !is_heading(line) && !line.contains(char::is_control);
    if size(notes) <= budget && notes.lines().all(is_plain) {
        return notes.to_owned();
    }
    let mut pool = Pool::new(notes.lines().count());
    for (index, line) in notes.lines().enumerate() {
        let rest = line.trim_start().trim_start_matches(['-', '*', '•', '#', ' ']);
        let spoken = ["user", "assistant", "tool", "system"].into_iter().find_map(|role| {
            let text = rest.strip_prefix(role)?.strip_prefix(": ")?;
            Some((text, role_factor(role)))
        });
        let (text, factor) = spoken.unwrap_or((rest, 1.0));
        let lead = &line[..line.len() - text.len()];
        match text.len() {
            ..=QUOTED_CHARS => pool.add(lead, text, index, factor),
            _ => sentences(text, |sentence| pool.add(lead, sentence, index, factor)),
        }
    }
    pool.choose(budget, size)
}

/// A role as it may stand in front of a line: clients may write anything there.
fn plain_role(role: &str) -> String {
    let plain: String = role.chars().filter(|c| c.is_alphanumeric() || matches!(c, '_' | '-')).take(24).collect();
    if plain.is_empty() { "other".to_owned() } else { plain }
}

/// What a speaker's words are worth: what the user said cannot be said again by a model.
fn role_factor(role: &str) -> f32 {
    match role {
        "user" => USER_FACTOR,
        "assistant" => 0.7,
        "tool" => 0.3,
        _ => 0.75,
    }
}

const USER_FACTOR: f32 = 1.0;

/// Whether a line could be taken for a heading of ours, such as `[CHECKPOINT …`.
fn is_heading(line: &str) -> bool {
    let is_hidden = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{feff}');
    line.trim_start_matches(is_hidden).starts_with('[')
}

fn asks(text: &str) -> bool {
    text.trim_end().ends_with(['?', '？', '؟'])
}

/// Sentences that could be quoted, and the words they share.
struct Pool<'a> {
    candidates: Vec<Candidate<'a>>,
    messages: usize,
    /// How many sentences there were, with those that were said before.
    sentences: usize,
    /// The words of all candidates, each with what its form is worth.
    words: Vec<(u32, f32)>,
    /// Words by the hash of their small letters. Two that collide count as one, which does no harm.
    ids: HashMap<u64, u32>,
    /// For each word: how many sentences say it, and which was the last.
    said_in: Vec<(u32, usize)>,
    seen: HashSet<u64>,
}

struct Candidate<'a> {
    lead: &'a str,
    text: &'a str,
    is_cut: bool,
    message: usize,
    words: Range<usize>,
    factor: f32,
    bonus: f32,
    /// What quoting it takes, roughly. A long sentence is a little cheaper than two short ones.
    cost: f32,
}

const HASH: FixedState = FixedState::with_seed(0x10ad);
const NO_WORD: u32 = u32::MAX;

impl<'a> Pool<'a> {
    fn new(messages: usize) -> Self {
        let ids = EMPTY.split_whitespace().map(|word| (HASH.hash_one(word), NO_WORD)).collect();
        let (candidates, words, said_in, seen) = (Vec::new(), Vec::new(), Vec::new(), HashSet::default());
        Self { candidates, messages, sentences: 0, words, ids, said_in, seen }
    }

    /// The sentences in the first and the last `read` bytes of a message; of code its first line, of a tool's
    /// output its first line and its errors.
    fn add_message(&mut self, lead: &'a str, said: Said<'a>, message: usize, factor: f32, read: usize) {
        let is_tool = said.role == "tool";
        let (mut end, mut fence, mut is_first) = (0, None, true);
        for line in said.text.split_inclusive('\n') {
            let start = end;
            end += line.len();
            let text = line.trim();
            let mark = ["```", "~~~"].into_iter().find(|mark| text.starts_with(mark));
            if mark.is_some() && (fence.is_none() || fence == mark) {
                fence = if fence.is_none() { mark } else { None };
                is_first = true;
                continue;
            }
            if text.is_empty() || (start >= read && end + read <= said.text.len()) {
                continue;
            }
            if fence.is_some() || is_tool {
                if is_first || (is_tool && cues(text, false)[ERRORS] > 0.0) {
                    self.add(lead, text, message, if is_tool { factor } else { factor * CODE_FACTOR });
                }
            } else {
                let text = &text[..text.floor_char_boundary(read)];
                sentences(text, |sentence| self.add(lead, sentence, message, factor));
            }
            is_first = false;
        }
    }

    fn add(&mut self, lead: &'a str, sentence: &'a str, message: usize, factor: f32) {
        let sentence = sentence.trim().trim_start_matches(['-', '*', '•', '#', '>', '|', ' ']);
        let text = cut(sentence);
        let start = self.words.len();
        let mut small = String::new();
        self.sentences += 1;
        words(text, |word, form| {
            small.clear();
            if word.is_ascii() {
                small.push_str(word);
                small.make_ascii_lowercase();
            } else {
                small.extend(word.chars().flat_map(char::to_lowercase));
            }
            let next = self.said_in.len() as u32;
            let id = *self.ids.entry(HASH.hash_one(small.as_str())).or_insert(next);
            if id == next {
                self.said_in.push((0, 0));
            }
            if let Some((count, last)) = self.said_in.get_mut(id as usize).filter(|(_, last)| *last != self.sentences) {
                (*count, *last) = (*count + 1, self.sentences);
                self.words.push((id, form));
            }
        });
        let said = &self.words[start..];
        let is_new = self.seen.insert(said.iter().fold(0, |hash, (id, _)| HASH.hash_one((hash, *id))));
        if said.is_empty() || !is_new {
            return self.words.truncate(start);
        }
        let weight: f32 = said.iter().map(|(_, form)| form).sum();
        let cues: f32 = cues(text, factor >= USER_FACTOR).iter().sum();
        let bonus = cues.min(CUES_MOST) * (weight / 4.0).min(1.0);
        let thin = if weight < 3.0 { 0.4 } else { 1.0 };
        let question = if text.len() < 120 && asks(text) { 0.3 } else { 1.0 };
        let cost = ((lead.len() + text.len() + 24) as f32).powf(0.9);
        let (words, is_cut) = (start..self.words.len(), text.len() < sentence.len());
        let factor = factor * thin * question;
        self.candidates.push(Candidate { lead, text, is_cut, message, words, factor, bonus, cost });
    }

    /// Takes the sentence that gains most for its length until the budget is used. Gains only ever fall, so one
    /// that was computed earlier is a bound, and few have to be computed again.
    fn choose(self, budget: Tokens, size: &dyn Fn(&str) -> Tokens) -> String {
        let all = self.sentences as f32 + 1.0;
        let rarity: Vec<f32> = self.said_in.iter().map(|(count, _)| (all / *count as f32).ln() / all.ln()).collect();
        let mut told = vec![0_usize; rarity.len()];
        let mut heard = vec![0_u16; self.messages];
        let mut stretches = [0_u16; STRETCHES];
        let stretch = |one: &Candidate<'_>| one.message * STRETCHES / self.messages.max(1);
        // A gain is never negative, so its bits are in the order of its value.
        let gain = |one: &Candidate<'_>, told: &[usize], heard: &[u16], stretches: &[u16]| {
            let worth = |(id, form): &(u32, f32)| rarity[*id as usize] * form * FADING[told[*id as usize].min(3)];
            let fresh: f32 = self.words[one.words.clone()].iter().map(worth).sum();
            let crowd = 1.0 + 0.7 * f32::from(heard[one.message]) + 0.12 * f32::from(stretches[stretch(one)]);
            (one.factor * (fresh + one.bonus) / crowd / one.cost).to_bits()
        };
        let mut heap: BinaryHeap<_> = (self.candidates.iter().enumerate())
            .map(|(index, one)| (gain(one, &told, &heard, &stretches), Reverse(index)))
            .collect();
        let (mut chosen, mut used, mut misses) = (Vec::new(), 0, 0);
        while let Some((bound, Reverse(index))) = heap.pop()
            && misses < MISSES
        {
            let one = &self.candidates[index];
            let now = gain(one, &told, &heard, &stretches);
            if now == 0 {
                continue;
            }
            if now < bound && heap.peek().is_some_and(|(next, _)| now < *next) {
                heap.push((now, Reverse(index)));
                continue;
            }
            let line = one.line();
            let after = size(&line).saturating_add(1).saturating_add(used);
            if after > budget.saturating_add(1) {
                misses += 1;
                continue;
            }
            used = after;
            self.words[one.words.clone()].iter().for_each(|(id, _)| told[*id as usize] += 1);
            heard[one.message] = heard[one.message].saturating_add(1);
            stretches[stretch(one)] = stretches[stretch(one)].saturating_add(1);
            chosen.push((index, line));
        }
        within(chosen, budget, size)
    }
}

impl Candidate<'_> {
    /// The sentence on one line: what would break the line, or hide on it, becomes a
    /// space, and what begins like one of our headings becomes a list item.
    fn line(&self) -> String {
        let mut line: String = self.lead.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let words = self.text.split(|c: char| c.is_whitespace() || c.is_control());
        for (index, word) in words.filter(|word| !word.is_empty()).enumerate() {
            if index > 0 {
                line.push(' ');
            }
            line.push_str(word);
        }
        if self.is_cut {
            line.push('…');
        }
        if is_heading(&line) { format!("- {}", line.trim_start()) } else { line }
    }
}

/// The chosen lines in their order. Joined they can take more than their sum, so the whole is counted, and the
/// least telling go until it fits.
fn within(mut chosen: Vec<(usize, String)>, budget: Tokens, size: &dyn Fn(&str) -> Tokens) -> String {
    for surplus in (0..).map(|step| 1_usize << step.min(16)) {
        let mut ordered: Vec<_> = chosen.iter().collect();
        ordered.sort_unstable_by_key(|(index, _)| *index);
        let notes = ordered.iter().map(|(_, line)| line.as_str()).collect::<Vec<_>>().join("\n");
        if notes.is_empty() || size(&notes) <= budget {
            return notes;
        }
        chosen.truncate(chosen.len().saturating_sub(surplus));
    }
    String::new()
}

/// A sentence as far as it is quoted: to the last gap between words, where there is one.
fn cut(sentence: &str) -> &str {
    let end = match sentence.len() {
        ..=QUOTED_CHARS => None,
        _ => sentence.char_indices().nth(QUOTED_CHARS),
    };
    let Some((end, _)) = end else { return sentence };
    let gap = sentence[..end].rfind(char::is_whitespace).filter(|gap| *gap > end / 2);
    sentence[..gap.unwrap_or(end)].trim_end()
}
