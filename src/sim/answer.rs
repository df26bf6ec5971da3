//! The words of an answer: the same ones for the same prompt, cut into tokens of the model's own.
//!
//! Words are taken from a few sentences of plain English, so that each token is readable by itself and an
//! answer sent back as history is counted as it was generated. A tool is called when the last message
//! is the user's and says `CALL` and the tool's name. No answer ever depends on what a prompt means.

use serde_json::json;

use super::SimModel;
use super::request::{Ask, Message, Prompt, ToolCall};
use crate::tokenize::Generation;

/// Where answers begin depends on the prompt; they go round from there.
const SENTENCES: [&str; 8] = [
    "The ship takes on cargo until the water reaches the line painted on her side.",
    "Nobody argues with that line, because the sea reads it too.",
    "Heavy crates go low and in the middle, and light ones wherever there is room.",
    "When the hold is full, something has to stay on the quay.",
    "The mate keeps a list of what was left behind and why.",
    "A good list is short, and every name on it can be found again.",
    "In fresh water she sits a little deeper than out at sea.",
    "The harbour master checks the marks once more and lets her go.",
];

/// A thinking model thinks for one token in this many of its answer.
const THINKING_SHARE: u32 = 3;

/// One piece of an answer: what one chunk of a stream carries.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Piece {
    Thinking(String),
    Text(String),
    Call(ToolCall),
}

/// An answer, and its token ids.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Answer {
    pub(super) pieces: Vec<Piece>,
    pub(super) ids: Vec<u32>,
    /// `stop` or `length`.
    pub(super) reason: &'static str,
}

impl Answer {
    /// How many tokens were generated. An answer that ends by itself ends with a token that nobody sees.
    pub(super) fn tokens(&self) -> u64 {
        self.ids.len() as u64 + u64::from(self.reason == "stop")
    }
}

/// How long an answer may get.
#[derive(Debug, Clone, Copy)]
pub(super) struct Length {
    /// Where the model would stop by itself, the token that says so included.
    pub(super) natural: u32,
    pub(super) limit: Option<u32>,
}

/// Answers a prompt.
pub(super) fn compose(model: &SimModel, ask: &Ask, prompt: &[u32], thinks: bool, length: Length) -> Answer {
    let seed = seed_of(prompt);
    if let Some(call) = wanted_call(model, ask, seed) {
        let written = json!({"name": call.name, "arguments": call.arguments}).to_string();
        let ids = without_ends(model, &written);
        return Answer { pieces: vec![Piece::Call(call)], ids, reason: "stop" };
    }
    let limited = length.limit.filter(|limit| *limit < length.natural);
    let tokens = limited.unwrap_or_else(|| length.natural.saturating_sub(1));
    let ids = words(model, seed, tokens as usize);
    let thinking = if thinks { (tokens / THINKING_SHARE) as usize } else { 0 };
    let mut pieces = Vec::with_capacity(ids.len());
    for at in 0..ids.len() {
        let text = readable(model, &ids, at);
        pieces.push(if at < thinking { Piece::Thinking(text) } else { Piece::Text(text) });
    }
    Answer { pieces, ids, reason: if limited.is_some() { "length" } else { "stop" } }
}

/// A number that stands for a prompt; the same on every machine and in every run.
pub(super) fn seed_of(prompt: &[u32]) -> u64 {
    prompt.iter().fold(0xCBF2_9CE4_8422_2325, |seed, id| (seed ^ u64::from(*id)).wrapping_mul(0x0100_0000_01B3))
}

fn words(model: &SimModel, seed: u64, tokens: usize) -> Vec<u32> {
    let mut text = String::new();
    let mut ids = Vec::new();
    let mut next = (seed >> 32) as usize;
    // A vocabulary that cannot write English at all must not keep us here for ever.
    let most_bytes = tokens * 64 + 1024;
    while ids.len() < tokens && text.len() < most_bytes {
        // Enough for what is missing, by the shortest tokens one can expect of English.
        let wanted_bytes = text.len() + (tokens - ids.len()) * 4 + 1;
        while text.len() < wanted_bytes {
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str(SENTENCES[next % SENTENCES.len()]);
            next += 1;
        }
        ids = without_ends(model, &text);
    }
    ids.truncate(tokens);
    ids
}

fn without_ends(model: &SimModel, text: &str) -> Vec<u32> {
    let mut ids = model.tokenizer.encode(text, Generation::Later);
    if model.vocabulary.add_eos && model.vocabulary.eos.is_some() {
        ids.pop();
    }
    if model.vocabulary.add_bos && model.vocabulary.bos.is_some() && !ids.is_empty() {
        ids.remove(0);
    }
    ids
}

/// The text of one token. Some tokenizers strip a space in front of all text, so a neighbour goes first.
fn readable(model: &SimModel, ids: &[u32], at: usize) -> String {
    if at == 0 {
        return model.tokenizer.decode(&ids[..1]);
    }
    let before = model.tokenizer.decode(&ids[at - 1..at]);
    let both = model.tokenizer.decode(&ids[at - 1..=at]);
    both.get(before.len()..).map_or_else(|| model.tokenizer.decode(&ids[at..=at]), str::to_owned)
}

fn wanted_call(model: &SimModel, ask: &Ask, seed: u64) -> Option<ToolCall> {
    let Prompt::Chat(messages) = &ask.prompt else { return None };
    let last: &Message = messages.last().filter(|message| model.tools && message.role == "user")?;
    let tool =
        ask.tools.iter().find(|tool| !tool.name.is_empty() && last.content.contains(&format!("CALL {}", tool.name)))?;
    let arguments = tool.required.iter().map(|name| (name.clone(), json!("sim"))).collect();
    Some(ToolCall { id: call_id(seed), name: tool.name.clone(), arguments })
}

/// `call_` and eight letters or digits.
fn call_id(seed: u64) -> String {
    const SIGNS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut rest = seed;
    let mut id = String::from("call_");
    for _ in 0..8 {
        id.push(char::from(SIGNS[(rest % 36) as usize]));
        rest /= 36;
    }
    id
}
