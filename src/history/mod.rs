//! Histories that come from elsewhere, and histories that leave.
//!
//! * [`validate`] says whether a file is canonical JSONL, [`import`] reads one, [`export`] writes one.
//! * [`intake`] checks a list of messages by one of two presets; [`handoff`] writes a conversation as a section of a
//!   prompt, by the same presets.
//! * [`arrival`] is whatever comes in, told apart.

pub mod arrival;
pub mod export;
pub mod handoff;
pub mod import;
pub mod intake;
pub mod validate;

use std::borrow::Cow;

use crate::context::{Message, Role, ToolCall};
use crate::store::MessageRow;

/// A stored message as the rest of Loadline knows messages.
pub fn message(row: &MessageRow) -> Message<'static> {
    let calls = row.tool_calls.as_deref().and_then(|calls| serde_json::from_str::<Vec<serde_json::Value>>(calls).ok());
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let call = |call: serde_json::Value| {
        let arguments = call["arguments"].to_string();
        ToolCall {
            id: text(&call["id"]).into(),
            name: text(&call["name"]).into(),
            canonical_arguments: arguments.clone(),
            arguments: arguments.into(),
        }
    };
    Message {
        thinking: Cow::Owned(row.thinking.clone()),
        images: row.images,
        tool_calls: calls.unwrap_or_default().into_iter().map(call).collect(),
        tool_name: row.tool_name.clone().map(Cow::Owned),
        tool_call_id: row.tool_call_id.clone().map(Cow::Owned),
        ..Message::plain(Role::named(Cow::Owned(row.role.clone())), row.text.clone(), row.seq as usize)
    }
}

/// System prompts as they are stored: a JSON array.
pub fn system_prompts(stored: &str) -> Vec<String> {
    serde_json::from_str(stored).unwrap_or_default()
}
