//! What a client says: conversations that grow turn by turn, the same for the same seed.
//!
//! Client number k has the same conversations on every path, so that paths are compared on the same work. Only the
//! number of the path is in each conversation's first message: an upstream that several paths share keeps the front
//! of what it has read, and would answer the second path from what the first one said.
//!
//! No I/O and no clock here.

use std::fmt::Write;
use std::sync::Arc;

use bytes::Bytes;
use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Value, json};

use super::words::{self, Random};
use crate::dialect::Dialect;

/// A chat that was asked for with more turns than this is meant to outgrow its window: then nothing is varied.
const VARIED_TURNS: u32 = 200;

/// How wide sizes spread: with this a message in six is more than twice the median.
const SPREAD: f64 = 0.7;

/// A message is at least an eighth and at most sixteen times the median.
const SMALLEST: usize = 8;
const LARGEST: usize = 16;

/// One message in so many is a paste, and so many times as long.
const PASTE_ONE_IN: usize = 20;
const PASTE_TIMES: f64 = 8.0;

/// A token has about so many bytes, to be on the safe side of the window.
const BYTES_A_TOKEN: usize = 3;

const SYSTEM: &[&str] = &[
    "You are a patient assistant who helps to run a small harbour. Answer briefly.",
    "You are a careful reviewer of code. Say what is wrong, and why, in few words.",
];

/// Which routes are used; `both`: clients alternate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Routes {
    Native,
    #[value(name = "openai")]
    OpenAi,
    Both,
}

/// Whether answers are streamed; `both`: turns alternate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Streams {
    Yes,
    No,
    Both,
}

/// What all conversations of a run are like.
#[derive(Debug, Clone, Serialize)]
pub struct Shape {
    pub seed: u64,
    pub model: String,
    #[serde(rename = "route")]
    pub routes: Routes,
    #[serde(rename = "stream")]
    pub streams: Streams,
    pub turns: u32,
    pub message_bytes: usize,
    pub history_bytes: usize,
    pub fresh: bool,
    pub answer_tokens: u32,
    pub window_tokens: u32,
}

/// Warming up has conversations of its own, so that what is measured begins at the same place on every path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    WarmUp,
    Measured,
}

/// One turn, ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    pub dialect: Dialect,
    pub stream: bool,
    /// Its number in its conversation, from 1.
    pub number: u32,
    pub body: Bytes,
}

/// All that one client says on one path.
#[derive(Debug)]
pub struct Script {
    shape: Arc<Shape>,
    stage: Stage,
    path: usize,
    client: usize,
    /// How many conversations were begun.
    begun: u64,
    conversation: Option<Conversation>,
}

#[derive(Debug)]
struct Conversation {
    random: Random,
    /// The messages so far as JSON, with commas between: a body is made by copying, not by writing it all again.
    messages: String,
    turn: u32,
    turns: u32,
}

impl Script {
    pub fn new(shape: Arc<Shape>, stage: Stage, path: usize, client: usize) -> Self {
        Self { shape, stage, path, client, begun: 0, conversation: None }
    }

    /// The next turn: of the conversation that is going on, or the first of a new one.
    pub fn next_turn(&mut self) -> Turn {
        let (mut conversation, mut text) = match self.conversation.take().filter(|going| !self.is_over(going)) {
            Some(conversation) => (conversation, String::new()),
            None => self.begin(),
        };
        let bytes = size(&self.shape, &mut conversation.random);
        words::write(&mut text, bytes, &mut conversation.random);
        conversation.say("user", text);
        conversation.turn += 1;
        let turn = self.write(&conversation);
        self.conversation = Some(conversation);
        turn
    }

    /// What came back becomes part of the history, as with any client.
    pub fn answered(&mut self, text: String) {
        if let Some(conversation) = &mut self.conversation {
            conversation.say("assistant", text);
        }
    }

    /// The turn failed. Nobody knows what the other side made of it, so the conversation is left.
    pub fn failed(&mut self) {
        self.conversation = None;
    }

    fn is_over(&self, conversation: &Conversation) -> bool {
        let full = self.shape.window_tokens as usize * BYTES_A_TOKEN * 3 / 5;
        let bounded = self.shape.turns <= VARIED_TURNS;
        conversation.turn >= conversation.turns || (bounded && conversation.messages.len() > full)
    }

    /// A new conversation, and how its next message begins.
    fn begin(&mut self) -> (Conversation, String) {
        self.begun += 1;
        let shape = &self.shape;
        let mut random = Random::of(&[shape.seed, self.stage as u64, self.client as u64, self.begun]);
        let turns = match shape.turns {
            _ if shape.fresh => 1,
            turns if turns > VARIED_TURNS => turns,
            turns => turns.div_ceil(2) + random.below(turns as usize / 2 * 2 + 1) as u32,
        };
        let mut opening = format!("Conversation {:012x} on path {:02}. ", random.next() >> 16, self.path);
        let system = random.one_in(2).then(|| random.pick(SYSTEM));
        let mut conversation = Conversation { random, messages: String::new(), turn: 0, turns };
        if let Some(system) = system {
            conversation.say("system", system.to_owned());
        }
        let mut left = shape.history_bytes;
        let mut roles = ["user", "assistant"].into_iter().cycle();
        // A history ends with an answer, so the last of it may be an empty one.
        while left > 0 || roles.clone().next() == Some("assistant") {
            let bytes = size(shape, &mut conversation.random).min(left);
            let mut text = std::mem::take(&mut opening);
            words::write(&mut text, bytes, &mut conversation.random);
            left -= bytes;
            conversation.say(roles.next().unwrap_or("user"), text);
        }
        (conversation, opening)
    }

    fn write(&self, conversation: &Conversation) -> Turn {
        let shape = &self.shape;
        let native = match shape.routes {
            Routes::Native => true,
            Routes::OpenAi => false,
            Routes::Both => self.client.is_multiple_of(2),
        };
        let stream = match shape.streams {
            Streams::Yes => true,
            Streams::No => false,
            // Conversations of one turn alternate as well.
            Streams::Both => (u64::from(conversation.turn) + self.begun).is_multiple_of(2),
        };
        let (dialect, rest) = if native {
            let options = json!({ "num_ctx": shape.window_tokens, "num_predict": shape.answer_tokens });
            (Dialect::Chat, format!(r#""options":{options}"#))
        } else {
            (Dialect::OpenAiChat, format!(r#""max_tokens":{}"#, shape.answer_tokens))
        };
        let (model, messages) = (json!(shape.model), &conversation.messages);
        let body = format!(r#"{{"model":{model},"messages":[{messages}],"stream":{stream},{rest}}}"#);
        Turn { dialect, stream, number: conversation.turn, body: body.into() }
    }
}

impl Conversation {
    fn say(&mut self, role: &str, text: String) {
        let comma = if self.messages.is_empty() { "" } else { "," };
        let text = Value::String(text);
        let _infallible = write!(self.messages, r#"{comma}{{"role":"{role}","content":{text}}}"#);
    }
}

/// The size of the next message: log-normal, within bounds.
fn size(shape: &Shape, random: &mut Random) -> usize {
    let median = shape.message_bytes as f64;
    let times = if random.one_in(PASTE_ONE_IN) { PASTE_TIMES } else { 1.0 };
    let bytes = median * times * (SPREAD * random.normal()).exp();
    (bytes as usize).clamp((shape.message_bytes / SMALLEST).max(1), shape.message_bytes * LARGEST)
}

#[cfg(test)]
mod tests;
