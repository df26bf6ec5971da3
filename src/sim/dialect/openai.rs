//! What OpenAI's three routes have in common: server-sent events, usage, tool calls, image addresses.

use serde_json::{Value, json};

use super::Totals;
use crate::sim::go_json::{self, Object};
use crate::sim::refusal::Refusal;
use crate::sim::request::{ToolCall, fingerprint};

/// The image types whose `data:` addresses Ollama takes; the empty one is taken as well.
const IMAGE_PREFIXES: [&str; 5] = [
    "data:;base64,",
    "data:image/jpeg;base64,",
    "data:image/jpg;base64,",
    "data:image/png;base64,",
    "data:image/webp;base64,",
];

/// One event without a name.
pub(super) fn data(value: &Value) -> String {
    format!("data: {}\n\n", go_json::encode(value))
}

/// One event with a name.
pub(super) fn event(name: &str, value: &Value) -> String {
    format!("event: {name}\ndata: {}\n\n", go_json::encode(value))
}

pub(super) const DONE: &str = "data: [DONE]\n\n";

pub(super) fn usage(totals: &Totals) -> Value {
    json!({
        "prompt_tokens": totals.prompt_tokens,
        "completion_tokens": totals.answer_tokens,
        "total_tokens": totals.prompt_tokens + totals.answer_tokens as i64,
    })
}

pub(super) fn now_seconds() -> i64 {
    jiff::Timestamp::now().as_second()
}

pub(super) fn written_call(call: &ToolCall) -> Value {
    json!({
        "id": call.id, "index": 0, "type": "function",
        "function": {"name": call.name, "arguments": written_arguments(call)},
    })
}

/// Arguments as OpenAI has them: JSON in a string.
pub(super) fn written_arguments(call: &ToolCall) -> String {
    go_json::encode(&Value::Object(call.arguments.clone()))
}

/// Reads arguments out of their string.
pub(super) fn read_arguments(text: &str) -> Option<Object> {
    match serde_json::from_str(text) {
        Ok(Value::Object(arguments)) => Some(arguments),
        Ok(Value::Null) => Some(Object::new()),
        Ok(_) | Err(_) => None,
    }
}

/// Reads an image's address, which must carry the image itself.
pub(super) fn image(url: &str) -> Result<u32, Refusal> {
    if url.starts_with("http://") || url.starts_with("https://") {
        return Err(Refusal::reading("image URLs are not currently supported, please use base64 encoded data instead"));
    }
    let data = IMAGE_PREFIXES.iter().find_map(|prefix| url.strip_prefix(prefix));
    data.map(fingerprint).ok_or_else(|| Refusal::reading("invalid image input"))
}
