//! `POST /v1/responses`, OpenAI's newest: a text, or a list of items of several kinds.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{Answer, Prompt, Request, answer_room, tool_call};
use crate::context::plan::Kind;
use crate::context::{Message, Role};
use crate::json::lenient::Names;
use crate::json::{self, Fields, JsonError};

const ITEM: &[&str] = &["type", "role", "content", "call_id", "name", "arguments", "output", "encrypted_content"];

pub(super) const NAMES: Names = Names {
    known: &[
        "model",
        "input",
        "instructions",
        "max_output_tokens",
        "temperature",
        "top_p",
        "text",
        "tools",
        "stream",
        "reasoning",
        "truncation",
        "background",
    ],
    lists: &[("input", ITEM)],
};

pub(super) fn parse(body: &str) -> Result<Request<'_>, JsonError> {
    let fields = Fields::read(body, NAMES.known)?;
    let mut messages = Vec::new();
    let mut kinds = Vec::new();
    if let Some(instructions) = fields.text("instructions")?.filter(|text| !text.is_empty()) {
        messages.push(Message::plain(Role::System, instructions, 0));
    }
    match fields.get("input") {
        Some(input) if input.get().starts_with('"') => {
            let text = json::text(input)?;
            if !text.is_empty() {
                messages.push(Message::plain(Role::User, text, 0));
            }
        }
        Some(input) => {
            let mut pending_thinking = Cow::Borrowed("");
            // Reasoning is no message of its own: it begins the one that follows it.
            let mut begun_at = None;
            for (source, raw) in json::array(input)?.into_iter().enumerate() {
                let before = messages.len();
                kinds.push(add_item(raw, source, &mut pending_thinking, &mut messages)?);
                if let Some(message) = messages.get_mut(before) {
                    message.source = begun_at.take().unwrap_or(source);
                } else if !pending_thinking.is_empty() {
                    begun_at.get_or_insert(source);
                }
            }
            if !pending_thinking.is_empty() {
                let source = kinds.len().saturating_sub(1);
                messages.push(Message { thinking: pending_thinking, ..Message::plain(Role::Assistant, "", source) });
            }
        }
        None => {}
    }
    let render_with = match fields.get("tools") {
        Some(tools) => vec![("tools", Cow::Owned(native_tools(tools)?))],
        None => Vec::new(),
    };
    Ok(Request {
        model: fields.text("model")?.unwrap_or_default(),
        stream: fields.flag("stream")?.unwrap_or(false),
        prompt: Prompt::Chat(messages),
        kinds,
        num_ctx: None,
        answer_tokens: answer_room(fields.number("max_output_tokens")?),
        render_with,
        thinks_if_able: false,
        list: None,
        approximate: false,
        facts: Vec::new(),
        truncate: None,
    })
}

fn add_item<'a>(
    raw: &'a RawValue,
    source: usize,
    pending_thinking: &mut Cow<'a, str>,
    messages: &mut Vec<Message<'a>>,
) -> Result<Kind, JsonError> {
    let fields = Fields::read(raw.get(), ITEM)?;
    let role = fields.text("role")?;
    let kind = fields.text("type")?.filter(|kind| !kind.is_empty());
    match kind.as_deref() {
        Some("message") => add_message(&fields, role.unwrap_or_default(), source, pending_thinking, messages),
        None if role.is_some() => add_message(&fields, role.unwrap_or_default(), source, pending_thinking, messages),
        Some("function_call") => {
            let arguments = fields.text("arguments")?.filter(|text| !text.is_empty()).unwrap_or(Cow::Borrowed("{}"));
            if !json::is_json(&arguments) {
                return Err(JsonError::WrongType);
            }
            let call = tool_call(fields.text("call_id")?, fields.text("name")?, arguments);
            if !matches!(messages.last(), Some(last) if last.role == Role::Assistant) {
                messages.push(Message::plain(Role::Assistant, "", source));
            }
            if let Some(last) = messages.last_mut() {
                last.tool_calls.push(call);
                if !pending_thinking.is_empty() {
                    last.thinking = std::mem::take(pending_thinking);
                }
            }
            Ok(Kind::Assistant)
        }
        Some("function_call_output") => {
            let text = fields.text("output")?.unwrap_or_default();
            let tool_call_id = fields.text("call_id")?;
            messages.push(Message { tool_call_id, ..Message::plain(Role::Tool, text, source) });
            Ok(Kind::ToolResult)
        }
        Some("reasoning") => {
            *pending_thinking = fields.text("encrypted_content")?.unwrap_or_default();
            Ok(Kind::Assistant)
        }
        _ => Err(JsonError::WrongType),
    }
}

fn add_message<'a>(
    fields: &Fields<'a>,
    role: Cow<'a, str>,
    source: usize,
    pending_thinking: &mut Cow<'a, str>,
    messages: &mut Vec<Message<'a>>,
) -> Result<Kind, JsonError> {
    let mut message = Message::plain(Role::named(role), "", source);
    match fields.get("content") {
        None => {}
        Some(content) if content.get().starts_with('"') => message.text = json::text(content)?,
        Some(content) => {
            for part in json::array(content)? {
                let part = Fields::read(part.get(), &["type", "text", "image_url"])?;
                match part.text("type")?.as_deref() {
                    Some("input_text" | "output_text") => {
                        message.text.to_mut().push_str(&part.text("text")?.unwrap_or_default());
                    }
                    Some("input_image") => message.images += 1,
                    _ => return Err(JsonError::WrongType),
                }
            }
        }
    }
    if message.role == Role::Assistant && !pending_thinking.is_empty() {
        message.thinking = std::mem::take(pending_thinking);
    }
    let kind = super::openai::kind(&message.role);
    messages.push(message);
    Ok(kind)
}

/// The tools in Ollama's own form. On this way Ollama sorts the keys of the parameters.
fn native_tools(tools: &RawValue) -> Result<String, JsonError> {
    let mut native = Vec::new();
    for tool in json::array(tools)? {
        let tool = Fields::read(tool.get(), &["type", "name", "description", "parameters"])?;
        let kind = json::quote(&tool.text("type")?.unwrap_or_default());
        let name = json::quote(&tool.text("name")?.unwrap_or_default());
        let description = json::quote(&tool.text("description")?.unwrap_or_default());
        let parameters = super::canonical(tool.get("parameters").map_or("{}", RawValue::get));
        native.push(format!(
            r#"{{"type":{kind},"function":{{"name":{name},"description":{description},"parameters":{parameters}}}}}"#
        ));
    }
    Ok(format!("[{}]", native.join(",")))
}

pub(super) fn read_frame(frame: &str, answer: &mut Answer) -> Result<(), JsonError> {
    let fields = Fields::read(frame, &[])?;
    if fields.text("object")?.as_deref() == Some("response") {
        return read_response(&fields, answer);
    }
    match fields.text("type")?.as_deref() {
        Some("response.output_text.delta") => answer.add_text(&fields.text("delta")?.unwrap_or_default()),
        Some("response.output_item.done") => {
            let item = Fields::read(fields.get("item").map_or("{}", RawValue::get), &[])?;
            read_call(&item, answer)?;
        }
        Some("response.completed") => {
            let response = Fields::read(fields.get("response").map_or("{}", RawValue::get), &[])?;
            answer.read_usage(response.get("usage").map(RawValue::get), "input_tokens")?;
            answer.done = true;
        }
        Some("error" | "response.failed") => answer.failed = true,
        _ => {}
    }
    Ok(())
}

fn read_response(response: &Fields<'_>, answer: &mut Answer) -> Result<(), JsonError> {
    for item in response.array("output")? {
        let item = Fields::read(item.get(), &[])?;
        read_call(&item, answer)?;
        for part in item.array("content")? {
            let part = Fields::read(part.get(), &[])?;
            answer.add_text(&part.text("text")?.unwrap_or_default());
        }
    }
    answer.done = true;
    answer.read_usage(response.get("usage").map(RawValue::get), "input_tokens")
}

fn read_call(item: &Fields<'_>, answer: &mut Answer) -> Result<(), JsonError> {
    if item.text("type")?.as_deref() == Some("function_call") {
        let arguments = item.text("arguments")?.unwrap_or(Cow::Borrowed("{}"));
        answer.tool_calls.push(super::answer::owned(tool_call(item.text("call_id")?, item.text("name")?, arguments)));
    }
    Ok(())
}
