//! The six routes that generate: how each reads a request, and how each writes an answer.
//!
//! Every dialect is read into the one native form ([`Ask`]) and brings a [`Wire`] that writes the answer
//! back in its own shape. The wires know nothing of prompts and windows, and the flow in
//! `exchange` knows nothing of JSON.

mod chat_completions;
mod completions;
mod messages;
mod messages_wire;
mod native;
mod native_wire;
mod openai;
mod responses;
mod responses_wire;

use std::fmt::Debug;

use super::Flavour;
use super::answer::Piece;
use super::refusal::{ErrorShape, Refusal};
use super::request::Ask;

/// What an answer came to.
#[derive(Debug, Clone, Default)]
pub(super) struct Totals {
    /// `stop`, `length`, `load` or `unload`.
    pub(super) reason: &'static str,
    /// Signed, because a scripted fault may push it anywhere.
    pub(super) prompt_tokens: i64,
    pub(super) answer_tokens: u64,
    pub(super) load_ns: u64,
    pub(super) prompt_ns: u64,
    pub(super) answer_ns: u64,
    /// Prompt and answer as tokens, where `/api/generate` tells them.
    pub(super) context: Option<Vec<u32>>,
}

/// Writes one answer in one dialect. A stream is `open`, any number of `piece`s, and `close`.
pub(super) trait Wire: Send + Debug {
    /// What a stream begins with, before the first piece.
    fn open(&mut self) -> String {
        String::new()
    }
    fn piece(&mut self, piece: &Piece) -> String;
    fn close(&mut self, totals: &Totals) -> String;
    /// What a stream gets to see when generation fails in the middle: in most dialects not much.
    fn failed(&mut self, message: &str) -> String;
    /// The whole answer as one body.
    fn whole(&mut self, pieces: &[Piece], totals: &Totals) -> String;
    /// The answer to `_debug_render_only`.
    fn rendered(&mut self, text: &str, images: usize) -> String;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    Chat,
    Generate,
    ChatCompletions,
    Completions,
    Responses,
    Messages,
}

impl Route {
    pub(super) const COUNT: usize = 6;

    pub(super) fn of_path(path: &str) -> Option<Self> {
        Some(match path {
            "/api/chat" => Self::Chat,
            "/api/generate" => Self::Generate,
            "/v1/chat/completions" => Self::ChatCompletions,
            "/v1/completions" => Self::Completions,
            "/v1/responses" => Self::Responses,
            "/v1/messages" => Self::Messages,
            _ => return None,
        })
    }

    pub(super) fn read(self, body: &[u8], flavour: Flavour) -> Result<(Ask, Box<dyn Wire>), Refusal> {
        match self {
            Self::Chat => native::read_chat(body),
            Self::Generate => native::read_generate(body),
            Self::ChatCompletions => chat_completions::read(body, flavour),
            Self::Completions => completions::read(body),
            Self::Responses => responses::read(body),
            Self::Messages => messages::read(body),
        }
    }

    pub(super) fn is_native(self) -> bool {
        matches!(self, Self::Chat | Self::Generate)
    }

    pub(super) fn error_shape(self) -> ErrorShape {
        match self {
            Self::Chat | Self::Generate => ErrorShape::Native,
            Self::ChatCompletions | Self::Completions | Self::Responses => ErrorShape::OpenAi,
            Self::Messages => ErrorShape::Anthropic,
        }
    }

    pub(super) fn content_type(self, stream: bool) -> &'static str {
        match (self.is_native(), stream) {
            (true, true) => "application/x-ndjson",
            (true, false) => "application/json; charset=utf-8",
            (false, true) => "text/event-stream",
            (false, false) => "application/json",
        }
    }
}

/// All pieces of one kind, joined: thinking, text.
fn joined(pieces: &[Piece]) -> (String, String) {
    let (mut thinking, mut text) = (String::new(), String::new());
    for piece in pieces {
        match piece {
            Piece::Thinking(part) => thinking.push_str(part),
            Piece::Text(part) => text.push_str(part),
            Piece::Call(_) => {}
        }
    }
    (thinking, text)
}
