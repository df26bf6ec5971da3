//! `/v1/responses`, as a request: OpenAI's item list, read as Ollama's middleware reads it.
//!
//! Items that Ollama does not know are refused with its words. State on the server
//! (`previous_response_id`, `conversation`) is ignored, as Ollama ignores it.

use serde_json::{Value, json};

use super::Wire;
use super::openai::{image, read_arguments};
use super::responses_wire::{Echo, Response};
use crate::sim::go_json::{self, Object};
use crate::sim::refusal::Refusal;
use crate::sim::request::{Ask, Message, Prompt, ToolCall};
use crate::sim::runner::options_of;
use crate::sim::tools::{Tool, sorted};

const OWNER: &str = "ResponsesRequest";

pub(super) fn read(body: &[u8]) -> Result<(Ask, Box<dyn Wire>), Refusal> {
    let object = go_json::decode(body, "openai.ResponsesRequest", "EOF")?;
    let model = go_json::text(&object, "model", OWNER)?;
    go_json::whole(&object, "max_output_tokens", OWNER)?;
    let instructions = go_json::text(&object, "instructions", OWNER)?;
    let mut messages = Vec::new();
    if !instructions.is_empty() {
        messages.push(Message::new("system", &instructions));
    }
    match go_json::field(&object, "input") {
        None => {}
        Some(Value::String(text)) if text.is_empty() => {}
        Some(Value::String(text)) => messages.push(Message::new("user", text)),
        Some(Value::Array(items)) => read_items(items, &mut messages)?,
        Some(other) => {
            let kind = go_json::json_kind(other);
            return Err(Refusal::reading(format!(
                "input must be a string or array: json: cannot unmarshal {kind} into Go value of type []json.RawMessage"
            )));
        }
    }
    let tools = go_json::list(&object, "tools", OWNER, "[]openai.ResponsesTool")?;
    let ask = Ask {
        model: model.clone(),
        prompt: Prompt::Chat(messages),
        tools: tools.iter().map(read_tool).collect::<Result<_, _>>()?,
        options: options_of(&object, &[("max_output_tokens", "num_predict")]),
        stream: go_json::flag(&object, "stream", OWNER)?.unwrap_or(false),
        ..Ask::default()
    };
    let or = |name: &str, default: Value| go_json::field(&object, name).cloned().unwrap_or(default);
    let echo = Echo {
        model,
        instructions: if instructions.is_empty() { Value::Null } else { json!(instructions) },
        tools: Value::from(tools.to_vec()),
        truncation: or("truncation", json!("disabled")),
        text: or("text", json!({"format": {"type": "text"}})),
        temperature: or("temperature", json!(1)),
        top_p: or("top_p", json!(1)),
        reasoning: or("reasoning", Value::Null),
        max_output_tokens: or("max_output_tokens", Value::Null),
        background: or("background", json!(false)),
    };
    Ok((ask, Box::new(Response::new(echo))))
}

fn read_tool(value: &Value) -> Result<Tool, Refusal> {
    let object = go_json::object(value, OWNER, "tools", "openai.ResponsesTool")?;
    let kind = go_json::text(object, "type", "ResponsesTool.tools")?;
    // The schema passes through a Go map on its way, which sorts it.
    let schema = go_json::field(object, "parameters").map(sorted);
    Tool::from_parts(&kind, object, schema.as_ref())
}

fn read_items(items: &[Value], messages: &mut Vec<Message>) -> Result<(), Refusal> {
    // Reasoning waits for the assistant's next message or call.
    let mut reasoning = String::new();
    for (index, value) in items.iter().enumerate() {
        let at = |refusal: Refusal| Refusal { message: format!("input[{index}]: {}", refusal.message), ..refusal };
        let item = value.as_object().ok_or_else(|| at(Refusal::reading("json: cannot unmarshal item")))?;
        let text = |name: &str| go_json::text(item, name, "ResponsesInputItem").map_err(at);
        let kind = text("type")?;
        match kind.as_str() {
            "" if !text("role")?.is_empty() => messages.push(read_message(item, &mut reasoning).map_err(at)?),
            "message" => messages.push(read_message(item, &mut reasoning).map_err(at)?),
            "function_call" => read_call(item, &mut reasoning, messages)?,
            "function_call_output" => {
                messages.push(Message { tool_call_id: text("call_id")?, ..Message::new("tool", text("output")?) })
            }
            "reasoning" => reasoning = text("encrypted_content")?,
            other => return Err(at(Refusal::reading(format!("unknown input item type: {other}")))),
        }
    }
    if !reasoning.is_empty() {
        messages.push(Message { thinking: reasoning, ..Message::new("assistant", "") });
    }
    Ok(())
}

fn read_message(item: &Object, reasoning: &mut String) -> Result<Message, Refusal> {
    let role = go_json::text(item, "role", "ResponsesInputMessage")?;
    let mut message = Message::new(&role, "");
    match go_json::field(item, "content") {
        None => {}
        Some(Value::String(text)) => message.content.clone_from(text),
        Some(Value::Array(parts)) => {
            for (index, part) in parts.iter().enumerate() {
                read_part(part, index, &mut message)?;
            }
        }
        Some(_) => return Err(Refusal::reading("content must be a string or array")),
    }
    if message.role == "assistant" {
        message.thinking = std::mem::take(reasoning);
    }
    Ok(message)
}

fn read_part(part: &Value, index: usize, message: &mut Message) -> Result<(), Refusal> {
    let text = |name: &str| part.get(name).and_then(Value::as_str).unwrap_or_default();
    match text("type") {
        "input_text" | "output_text" => message.content.push_str(text("text")),
        "input_image" if text("image_url").is_empty() => {}
        "input_image" => message.images.push(image(text("image_url"))?),
        other => return Err(Refusal::reading(format!("content[{index}]: unknown content type: {other}"))),
    }
    Ok(())
}

/// A call joins the assistant's message before it; without one it makes its own.
fn read_call(item: &Object, reasoning: &mut String, messages: &mut Vec<Message>) -> Result<(), Refusal> {
    let text = |name: &str| go_json::text(item, name, "ResponsesFunctionCall");
    let written = text("arguments")?;
    let arguments = if written.is_empty() { Some(Object::new()) } else { read_arguments(&written) };
    let arguments =
        arguments.ok_or_else(|| Refusal::reading("failed to parse function call arguments: not an object"))?;
    let call = ToolCall { id: text("call_id")?, name: text("name")?, arguments };
    let thinking = std::mem::take(reasoning);
    match messages.last_mut().filter(|last| last.role == "assistant") {
        Some(last) => {
            last.tool_calls.push(call);
            if !thinking.is_empty() {
                last.thinking = thinking;
            }
        }
        None => messages.push(Message { tool_calls: vec![call], thinking, ..Message::new("assistant", "") }),
    }
    Ok(())
}
