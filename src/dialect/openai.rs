//! `POST /v1/chat/completions`, OpenAI's.
//!
//! Ollama makes one message of its own of each content part, and hangs the tool calls of a message with
//! parts on the last of them.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::value::RawValue;

use super::{Answer, List, Prompt, Request, answer_room, tool_call};
use crate::context::plan::Kind;
use crate::context::{Message, Role, ToolCall};
use crate::json::lenient::Names;
use crate::json::{self, Fields, JsonError};

const MESSAGE: &[&str] = &["role", "content", "reasoning", "tool_calls", "name", "tool_call_id"];

pub(super) const NAMES: Names = Names {
    known: &[
        "model",
        "messages",
        "stream",
        "stream_options",
        "max_tokens",
        "seed",
        "stop",
        "temperature",
        "frequency_penalty",
        "presence_penalty",
        "top_p",
        "response_format",
        "tools",
        "reasoning",
        "reasoning_effort",
        "logprobs",
        "top_logprobs",
        "_debug_render_only",
    ],
    lists: &[("messages", MESSAGE)],
};

pub(super) fn parse(body: &str) -> Result<Request<'_>, JsonError> {
    let fields = Fields::read(body, NAMES.known)?;
    let mut messages = Vec::new();
    let mut kinds = Vec::new();
    let elements = fields.array("messages")?;
    for (source, raw) in elements.iter().copied().enumerate() {
        kinds.push(add_message(raw, source, &mut messages)?);
    }
    name_tools(&mut messages);
    let mut render_with = Vec::new();
    if let Some(tools) = fields.get("tools") {
        render_with.push(("tools", Cow::Borrowed(tools.get())));
    }
    if let Some(think) = think(&fields)? {
        render_with.push(("think", think));
    }
    Ok(Request {
        model: fields.text("model")?.unwrap_or_default(),
        stream: fields.flag("stream")?.unwrap_or(false),
        prompt: Prompt::Chat(messages),
        kinds,
        num_ctx: None,
        answer_tokens: answer_room(fields.number("max_tokens")?),
        render_with,
        thinks_if_able: false,
        approximate: false,
        list: List::of(body, fields.get("messages"), &elements, 0),
        facts: Vec::new(),
        truncate: None,
    })
}

/// How much thinking the request asks for, as Ollama's own `think`.
fn think<'a>(fields: &Fields<'a>) -> Result<Option<Cow<'a, str>>, JsonError> {
    let effort = match fields.get("reasoning") {
        Some(reasoning) => Fields::read(reasoning.get(), &["effort"])?.text("effort")?,
        None => fields.text("reasoning_effort")?,
    };
    Ok(effort.filter(|effort| !effort.is_empty()).map(|effort| match effort.as_ref() {
        "none" => Cow::Borrowed("false"),
        other => Cow::Owned(json::quote(other)),
    }))
}

/// Reads one message and adds what Ollama makes of it.
fn add_message<'a>(raw: &'a RawValue, source: usize, messages: &mut Vec<Message<'a>>) -> Result<Kind, JsonError> {
    let fields = Fields::read(raw.get(), MESSAGE)?;
    let role = Role::named(fields.text("role")?.unwrap_or_default());
    let kind = kind(&role);
    let tool_calls = fields.array("tool_calls")?.into_iter().map(call).collect::<Result<Vec<_>, _>>()?;
    let thinking = fields.text("reasoning")?.unwrap_or_default();
    let tool_name = fields.text("name")?.filter(|name| role == Role::Tool && !name.is_empty());
    let tool_call_id = fields.text("tool_call_id")?;
    let content = fields.get("content");
    if let Some(parts) = content.filter(|content| content.get().starts_with('[')) {
        for part in json::array(parts)? {
            messages.push(part_message(part, role.clone(), source)?);
        }
        if !tool_calls.is_empty()
            && let Some(last) = messages.last_mut()
        {
            (last.tool_calls, last.thinking, last.tool_name, last.tool_call_id) =
                (tool_calls, thinking, tool_name, tool_call_id);
        }
        return Ok(kind);
    }
    let text = match content {
        Some(content) if content.get().starts_with('"') => json::text(content)?,
        // With a list of tool calls, even an empty one, anything that is no text is read as none.
        _ if fields.get("tool_calls").is_some() => Cow::Borrowed(""),
        _ => return Err(JsonError::WrongType),
    };
    messages.push(Message { thinking, tool_calls, tool_name, tool_call_id, ..Message::plain(role, text, source) });
    Ok(kind)
}

fn part_message<'a>(part: &'a RawValue, role: Role<'a>, source: usize) -> Result<Message<'a>, JsonError> {
    let fields = Fields::read(part.get(), &[])?;
    match fields.text("type")?.as_deref() {
        Some("text") => Ok(Message::plain(role, fields.text("text")?.ok_or(JsonError::WrongType)?, source)),
        Some("image_url") => Ok(Message { images: 1, ..Message::plain(role, "", source) }),
        _ => Err(JsonError::WrongType),
    }
}

pub(super) fn call(raw: &RawValue) -> Result<ToolCall<'_>, JsonError> {
    let fields = Fields::read(raw.get(), &["id", "function"])?;
    let function = fields.get("function").map_or("{}", RawValue::get);
    let function = Fields::read(function, &["name", "arguments"])?;
    let arguments = function.text("arguments")?.ok_or(JsonError::WrongType)?;
    if !json::is_json(&arguments) {
        return Err(JsonError::WrongType);
    }
    Ok(tool_call(fields.text("id")?, function.text("name")?, arguments))
}

/// A tool result without a name is given that of the call it answers; the last call with its id counts.
fn name_tools(messages: &mut [Message<'_>]) {
    let unnamed = |message: &Message<'_>| message.role == Role::Tool && message.tool_name.is_none();
    if !messages.iter().any(unnamed) {
        return;
    }
    let names: HashMap<String, String> = messages
        .iter()
        .flat_map(|message| &message.tool_calls)
        .map(|call| (call.id.clone().into_owned(), call.name.clone().into_owned()))
        .collect();
    for message in messages.iter_mut().filter(|message| unnamed(message)) {
        let name = message.tool_call_id.as_deref().and_then(|id| names.get(id));
        message.tool_name = name.map(|name| Cow::Owned(name.clone()));
    }
}

pub(super) fn kind(role: &Role<'_>) -> Kind {
    match role {
        Role::System => Kind::System,
        Role::User => Kind::User,
        Role::Assistant => Kind::Assistant,
        Role::Tool => Kind::ToolResult,
        // OpenAI's newer name for the system prompt; Ollama renders it or not, but it is never ours to drop.
        Role::Other(name) if name == "developer" => Kind::System,
        Role::Other(_) => Kind::Other,
    }
}

pub(super) fn read_frame(frame: &str, answer: &mut Answer) -> Result<(), JsonError> {
    if frame == "[DONE]" {
        answer.done = true;
        return Ok(());
    }
    let fields = Fields::read(frame, &[])?;
    answer.failed |= fields.get("error").is_some();
    for choice in fields.array("choices")? {
        let choice = Fields::read(choice.get(), &[])?;
        let Some(message) = choice.get("delta").or_else(|| choice.get("message")) else { continue };
        let message = Fields::read(message.get(), &[])?;
        answer.add_text(&message.text("content")?.unwrap_or_default());
        answer.add_thinking(&message.text("reasoning")?.unwrap_or_default());
        for raw in message.array("tool_calls")? {
            answer.tool_calls.push(super::answer::owned(call(raw)?));
        }
    }
    answer.read_usage(fields.get("usage").map(RawValue::get), "prompt_tokens")
}
