//! What an answer said, gathered from its frames while they are relayed.

use std::borrow::Cow;

use super::{Dialect, anthropic, canonical, chat, completions, generate, openai, responses};
use crate::context::{Message, Role, ToolCall};
use crate::json::{Fields, JsonError};

/// An answer of this size is kept whole; more is relayed but not kept.
const MAX_TEXT_BYTES: usize = 16 << 20;

#[derive(Debug, Default)]
pub struct Answer {
    pub text: String,
    pub thinking: String,
    pub tool_calls: Vec<ToolCall<'static>>,
    /// How many tokens the prompt had, as the upstream reports it.
    pub prompt_tokens: Option<u32>,
    /// The terminal frame was seen.
    pub done: bool,
    /// An error frame was seen.
    pub failed: bool,
    /// Frames that could not be read. They are relayed all the same.
    pub unreadable: u32,
}

impl Answer {
    /// Reads one frame of an answer in its dialect.
    pub fn read(&mut self, dialect: Dialect, frame: &[u8]) {
        let read = std::str::from_utf8(frame).map_err(|_| JsonError::NotPlain).and_then(|frame| match dialect {
            Dialect::Chat => chat::read_frame(frame, self),
            Dialect::Generate => generate::read_frame(frame, self),
            Dialect::OpenAiChat => openai::read_frame(frame, self),
            Dialect::Completions => completions::read_frame(frame, self),
            Dialect::Responses => responses::read_frame(frame, self),
            Dialect::Anthropic => anthropic::read_frame(frame, self),
        });
        self.unreadable += u32::from(read.is_err());
    }

    /// The answer as the message that the client will send back with its next turn.
    pub fn message(&self) -> Message<'_> {
        Message {
            thinking: Cow::Borrowed(&self.thinking),
            tool_calls: self.tool_calls.clone(),
            ..Message::plain(Role::Assistant, self.text.as_str(), 0)
        }
    }

    pub(super) fn add_text(&mut self, text: &str) {
        if self.text.len() + text.len() <= MAX_TEXT_BYTES {
            self.text.push_str(text);
        }
    }

    pub(super) fn add_thinking(&mut self, text: &str) {
        if self.thinking.len() + text.len() <= MAX_TEXT_BYTES {
            self.thinking.push_str(text);
        }
    }

    /// More of the arguments of the tool call being streamed.
    pub(super) fn add_arguments(&mut self, part: &str) {
        if let Some(call) = self.tool_calls.last_mut() {
            let mut arguments = if call.arguments == "{}" { String::new() } else { call.arguments.to_string() };
            arguments.push_str(part);
            call.canonical_arguments = canonical(&arguments);
            call.arguments = Cow::Owned(arguments);
        }
    }

    pub(super) fn read_usage(&mut self, usage: Option<&str>, name: &str) -> Result<(), JsonError> {
        if let Some(usage) = usage {
            let count = Fields::read(usage, &[])?.number(name)?;
            self.prompt_tokens = count.filter(|count| *count > 0.0).map(|count| count as u32).or(self.prompt_tokens);
        }
        Ok(())
    }
}

pub(super) fn owned(call: ToolCall<'_>) -> ToolCall<'static> {
    ToolCall {
        id: Cow::Owned(call.id.into_owned()),
        name: Cow::Owned(call.name.into_owned()),
        arguments: Cow::Owned(call.arguments.into_owned()),
        canonical_arguments: call.canonical_arguments,
    }
}
