//! `/v1/messages`, as a request: Anthropic's blocks, read as Ollama's middleware reads them.
//!
//! The texts of one message are joined without a separator, and tool results come after the message they
//! stood in, whatever their order was. Blocks that Ollama does not know vanish silently.

use serde_json::Value;

use super::Wire;
use super::messages_wire::MessageWire;
use crate::sim::go_json::{self, Object};
use crate::sim::refusal::{Refusal, go_kind};
use crate::sim::request::{Ask, Message, Prompt, Think, ToolCall, fingerprint};
use crate::sim::runner::options_of;
use crate::sim::tools::Tool;

const OWNER: &str = "MessagesRequest";

pub(super) fn read(body: &[u8]) -> Result<(Ask, Box<dyn Wire>), Refusal> {
    let object = go_json::decode(body, "anthropic.MessagesRequest", "EOF")?;
    let model = go_json::text(&object, "model", OWNER)?;
    let max_tokens = go_json::whole(&object, "max_tokens", OWNER)?.unwrap_or(0);
    let given = go_json::list(&object, "messages", OWNER, "[]anthropic.MessageParam")?;
    if model.is_empty() {
        return Err(Refusal::reading("model is required"));
    }
    if max_tokens <= 0 {
        return Err(Refusal::reading("max_tokens is required and must be positive"));
    }
    if given.is_empty() {
        return Err(Refusal::reading("messages is required"));
    }
    let mut messages = Vec::with_capacity(given.len() + 1);
    let system = texts(go_json::field(&object, "system"));
    if !system.is_empty() {
        messages.push(Message::new("system", system));
    }
    for value in given {
        read_message(value, &mut messages)?;
    }
    let tools = go_json::list(&object, "tools", OWNER, "[]anthropic.Tool")?;
    let enabled =
        go_json::field(&object, "thinking").and_then(|thinking| thinking.get("type")) == Some(&Value::from("enabled"));
    let ask = Ask {
        model: model.clone(),
        prompt: Prompt::Chat(messages),
        tools: tools.iter().map(read_tool).collect::<Result<_, _>>()?,
        options: options_of(&object, &[("max_tokens", "num_predict")]),
        think: if enabled { Think::OnIfAble } else { Think::Unset },
        stream: go_json::flag(&object, "stream", OWNER)?.unwrap_or(false),
        ..Ask::default()
    };
    let estimate = estimate(&object, given, tools);
    Ok((ask, Box::new(MessageWire::new(model, estimate))))
}

fn read_tool(value: &Value) -> Result<Tool, Refusal> {
    let object = go_json::object(value, OWNER, "tools", "anthropic.Tool")?;
    Tool::from_parts("function", object, go_json::field(object, "input_schema"))
}

/// A string, or the text blocks of a list, joined; anything else is no text.
fn texts(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(blocks)) => {
            let texts = blocks.iter().filter(|block| block.get("type") == Some(&Value::from("text")));
            texts.filter_map(|block| block.get("text")?.as_str()).collect()
        }
        _ => String::new(),
    }
}

fn read_message(value: &Value, messages: &mut Vec<Message>) -> Result<(), Refusal> {
    let object = go_json::object(value, OWNER, "messages", "anthropic.MessageParam")?;
    let role = go_json::text(object, "role", "MessageParam.messages")?;
    let blocks = match go_json::field(object, "content") {
        Some(Value::String(text)) => {
            messages.push(Message::new(&role, text));
            return Ok(());
        }
        Some(Value::Array(blocks)) => blocks,
        other => {
            let kind = other.map_or("<nil>", go_kind);
            return Err(Refusal::reading(format!("invalid message content type: {kind}")));
        }
    };
    let mut message = Message::new(&role, "");
    let mut results = Vec::new();
    for block in blocks {
        let block = block.as_object().ok_or_else(|| Refusal::reading("invalid content block format"))?;
        read_block(block, &mut message, &mut results)?;
    }
    let says_something = !message.content.is_empty()
        || !message.images.is_empty()
        || !message.tool_calls.is_empty()
        || !message.thinking.is_empty();
    messages.extend(says_something.then_some(message));
    messages.append(&mut results);
    Ok(())
}

fn read_block(block: &Object, message: &mut Message, results: &mut Vec<Message>) -> Result<(), Refusal> {
    let text = |name: &str| block.get(name).and_then(Value::as_str);
    match text("type").unwrap_or_default() {
        "text" => message.content.push_str(text("text").unwrap_or_default()),
        "thinking" => message.thinking = text("thinking").unwrap_or_default().to_owned(),
        "image" => message.images.push(read_image(block)?),
        kind @ ("tool_use" | "server_tool_use") => {
            let named = |name: &str| match text(name) {
                None if kind == "tool_use" => {
                    Err(Refusal::reading(format!("tool_use block missing required '{name}' field")))
                }
                other => Ok(other.unwrap_or_default().to_owned()),
            };
            let arguments = block.get("input").and_then(Value::as_object).cloned().unwrap_or_default();
            message.tool_calls.push(ToolCall { id: named("id")?, name: named("name")?, arguments });
        }
        "tool_result" => results.push(Message {
            tool_call_id: text("tool_use_id").unwrap_or_default().to_owned(),
            ..Message::new("tool", texts(block.get("content")))
        }),
        _ => {}
    }
    Ok(())
}

fn read_image(block: &Object) -> Result<u32, Refusal> {
    let source =
        block.get("source").and_then(Value::as_object).ok_or_else(|| Refusal::reading("invalid image source"))?;
    let text = |name: &str| source.get(name).and_then(Value::as_str).unwrap_or_default();
    match text("type") {
        "base64" => Ok(fingerprint(text("data"))),
        other => {
            Err(Refusal::reading(format!("invalid image source type: {other}. Only base64 images are supported.")))
        }
    }
}

/// The input tokens that `message_start` tells before anything is counted: a fourth of the bytes.
fn estimate(object: &Object, messages: &[Value], tools: &[Value]) -> u64 {
    let mut bytes = texts(go_json::field(object, "system")).len();
    for message in messages {
        bytes += message.get("role").and_then(Value::as_str).map_or(0, str::len);
        bytes += match message.get("content") {
            Some(Value::String(text)) => text.len(),
            Some(Value::Array(blocks)) => blocks.iter().map(block_bytes).sum(),
            _ => 0,
        };
    }
    for tool in tools {
        for name in ["name", "description"] {
            bytes += tool.get(name).and_then(Value::as_str).map_or(0, str::len);
        }
        bytes += tool.get("input_schema").map_or(0, |schema| schema.to_string().len());
    }
    (bytes as u64 / 4).max(1)
}

fn block_bytes(block: &Value) -> usize {
    let text = |name: &str| block.get(name).and_then(Value::as_str);
    match text("type") {
        Some("text") => text("text").map_or(0, str::len),
        Some("thinking") => text("thinking").map_or(0, str::len),
        Some("tool_use" | "tool_result") => go_json::encode(block).len(),
        _ => 0,
    }
}
