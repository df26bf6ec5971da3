//! Histories that come from elsewhere, and histories that leave.
//!
//! * [`validate`] says whether a file is canonical JSONL, [`import`] reads one, [`export`] writes one.
//! * [`intake`] checks a list of messages by one of two presets; [`handoff`] writes a conversation as a section of a
//!   prompt, by the same presets.
//! * [`arrival`] is whatever comes in, told apart; [`list`] reads a list without trusting its size.

pub mod arrival;
pub mod export;
pub mod handoff;
mod images;
pub mod import;
pub mod intake;
pub mod list;
pub mod validate;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::context::{Message, Role, ToolCall};
use crate::dialect::tool_call;
use crate::store::MessageRow;

/// A stored message as the rest of Loadline knows messages.
pub fn message(row: &MessageRow) -> Message<'static> {
    Message {
        thinking: Cow::Owned(row.thinking.clone()),
        images: row.images,
        tool_calls: calls(row).into_iter().map(StoredCall::into_tool_call).collect(),
        tool_name: row.tool_name.clone().map(Cow::Owned),
        tool_call_id: row.tool_call_id.clone().map(Cow::Owned),
        ..Message::plain(Role::named(Cow::Owned(row.role.clone())), row.text.clone(), row.seq as usize)
    }
}

/// A tool call as it is stored.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredCall {
    pub id: String,
    pub name: String,
    /// Arguments that a model wrote badly are a text.
    pub arguments: Value,
}

impl StoredCall {
    pub fn into_tool_call(self) -> ToolCall<'static> {
        let badly_written = self.arguments.as_str().filter(|text| serde_json::from_str::<Value>(text).is_err());
        let arguments = badly_written.map_or_else(|| self.arguments.to_string(), str::to_owned);
        tool_call(Some(self.id.into()), Some(self.name.into()), arguments.into())
    }
}

/// The tool calls of a stored message.
pub fn calls(row: &MessageRow) -> Vec<StoredCall> {
    row.tool_calls.as_deref().and_then(|calls| serde_json::from_str(calls).ok()).unwrap_or_default()
}

/// What was handed over beside a message; none for most.
pub fn attachments(row: &MessageRow) -> Option<Value> {
    let read: Value = serde_json::from_str(row.raw.as_deref()?).ok()?;
    read.get("attachments").filter(|given| given.as_array().is_some_and(|given| !given.is_empty())).cloned()
}

/// System prompts as they are stored: a JSON array.
pub fn system_prompts(stored: &str) -> Vec<String> {
    serde_json::from_str(stored).unwrap_or_default()
}
