//! `POST /v1/messages`, Anthropic's.
//!
//! Of a message's blocks Ollama makes at most one message (all text, images, tool calls), followed by
//! one tool message for each tool result, whatever the order of the blocks was.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{Answer, List, Prompt, Request, answer_room, tool_call};
use crate::context::plan::Kind;
use crate::context::{Message, Role};
use crate::json::lenient::Names;
use crate::json::{self, Fields, JsonError};

/// Stands in for the tool that Ollama puts in place of Anthropic's own search; somewhat longer, to be safe.
const WEB_SEARCH: &str = r#"{"type":"function","function":{"name":"web_search","description":"Looks a query up on the web and returns titles, addresses and short extracts of current pages about it.","parameters":{"type":"object","required":["query"],"properties":{"query":{"type":"string","description":"What to look for, in the words of a search box"}}}}}"#;

/// Whether Anthropic's own search tool is among the tools.
fn has_search(tools: Option<&RawValue>) -> bool {
    tools.is_some_and(|tools| tools.get().contains("web_search"))
}

const MESSAGE: &[&str] = &["role", "content"];

pub(super) const NAMES: Names = Names {
    known: &[
        "model",
        "max_tokens",
        "messages",
        "system",
        "stream",
        "temperature",
        "top_p",
        "top_k",
        "stop_sequences",
        "tools",
        "tool_choice",
        "thinking",
        "metadata",
    ],
    lists: &[("messages", MESSAGE)],
};

pub(super) fn parse(body: &str) -> Result<Request<'_>, JsonError> {
    let fields = Fields::read(body, NAMES.known)?;
    let mut messages = Vec::new();
    let system = fields.get("system").map(system_text).transpose()?.unwrap_or_default();
    if !system.is_empty() {
        messages.push(Message::plain(Role::System, system, 0));
    }
    let before = messages.len();
    let elements = fields.array("messages")?;
    let mut kinds = Vec::new();
    for (source, raw) in elements.iter().copied().enumerate() {
        kinds.push(add_message(raw, source, &mut messages)?);
    }
    let mut render_with = Vec::new();
    if let Some(tools) = fields.get("tools") {
        render_with.push(("tools", Cow::Owned(native_tools(tools)?)));
    }
    if let Some(thinking) = fields.get("thinking")
        && Fields::read(thinking.get(), &["type"])?.text("type")?.as_deref() == Some("enabled")
    {
        render_with.push(("think", Cow::Borrowed("true")));
    }
    Ok(Request {
        model: fields.text("model")?.unwrap_or_default(),
        stream: fields.flag("stream")?.unwrap_or(false),
        prompt: Prompt::Chat(messages),
        kinds,
        num_ctx: None,
        answer_tokens: answer_room(fields.number("max_tokens")?),
        render_with,
        thinks_if_able: true,
        approximate: has_search(fields.get("tools")),
        list: List::of(body, fields.get("messages"), &elements, before),
        facts: Vec::new(),
        truncate: None,
    })
}

/// The system prompt, a text or blocks of text that are read as one.
fn system_text(raw: &RawValue) -> Result<Cow<'_, str>, JsonError> {
    if raw.get().starts_with('"') { json::text(raw) } else { joined_text(raw).map(Cow::Owned) }
}

/// All blocks of text, joined. What is no block of text is passed over, as Ollama does it.
fn joined_text(raw: &RawValue) -> Result<String, JsonError> {
    let mut joined = String::new();
    for block in json::array(raw).unwrap_or_default() {
        let Ok(block) = Fields::read(block.get(), &[]) else { continue };
        if lax(block.text("type"))?.as_deref() == Some("text") {
            joined.push_str(&lax(block.text("text"))?.unwrap_or_default());
        }
    }
    Ok(joined)
}

/// A field of another type than text is read as absent in blocks; what is not plain JSON stays an error.
fn lax<T>(read: Result<Option<T>, JsonError>) -> Result<Option<T>, JsonError> {
    match read {
        Err(JsonError::WrongType) => Ok(None),
        other => other,
    }
}

/// Reads one message and adds what Ollama makes of it.
fn add_message<'a>(raw: &'a RawValue, source: usize, messages: &mut Vec<Message<'a>>) -> Result<Kind, JsonError> {
    let fields = Fields::read(raw.get(), MESSAGE)?;
    let role = Role::named(fields.text("role")?.unwrap_or_default());
    let content = fields.get("content").ok_or(JsonError::WrongType)?;
    if content.get().starts_with('"') {
        let kind = super::openai::kind(&role);
        messages.push(Message::plain(role, json::text(content)?, source));
        return Ok(kind);
    }
    let mut main = Message::plain(role, "", source);
    let mut results = Vec::new();
    for block in json::array(content)? {
        add_block(block, source, &mut main, &mut results)?;
    }
    let says_something =
        !main.text.is_empty() || main.images > 0 || !main.tool_calls.is_empty() || !main.thinking.is_empty();
    let kind = if results.is_empty() { super::openai::kind(&main.role) } else { Kind::ToolResult };
    if says_something {
        messages.push(main);
    }
    messages.append(&mut results);
    Ok(kind)
}

fn add_block<'a>(
    block: &'a RawValue,
    source: usize,
    main: &mut Message<'a>,
    results: &mut Vec<Message<'a>>,
) -> Result<(), JsonError> {
    let fields = Fields::read(block.get(), &[])?;
    match lax(fields.text("type"))?.as_deref() {
        Some("text") => main.text.to_mut().push_str(&lax(fields.text("text"))?.unwrap_or_default()),
        Some("image") => main.images += 1,
        Some("thinking") => main.thinking = lax(fields.text("thinking"))?.unwrap_or_default(),
        Some("tool_use" | "server_tool_use") => {
            let input = fields.get("input").map(RawValue::get).filter(|input| input.starts_with('{')).unwrap_or("{}");
            main.tool_calls.push(tool_call(lax(fields.text("id"))?, lax(fields.text("name"))?, input.into()));
        }
        Some("tool_result") => {
            let text = match fields.get("content") {
                Some(content) if content.get().starts_with('"') => json::text(content)?,
                Some(content) => Cow::Owned(joined_text(content)?),
                None => Cow::Borrowed(""),
            };
            let tool_call_id = lax(fields.text("tool_use_id"))?;
            results.push(Message { tool_call_id, ..Message::plain(Role::Tool, text, source) });
        }
        // Ollama writes the results of its web search as a list of titles and addresses: counted as written.
        Some("web_search_tool_result") => {
            let text = fields.get("content").map_or("", RawValue::get);
            let tool_call_id = lax(fields.text("tool_use_id"))?;
            results.push(Message { tool_call_id, ..Message::plain(Role::Tool, text, source) });
        }
        _ => {}
    }
    Ok(())
}

/// Anthropic's tools in Ollama's own form.
fn native_tools(tools: &RawValue) -> Result<String, JsonError> {
    let mut native = Vec::new();
    for tool in json::array(tools)? {
        let tool = Fields::read(tool.get(), &["type", "name", "description", "input_schema"])?;
        if tool.text("type")?.is_some_and(|kind| kind.starts_with("web_search")) {
            native.push(WEB_SEARCH.to_owned());
            continue;
        }
        let name = json::quote(&tool.text("name")?.unwrap_or_default());
        let description = json::quote(&tool.text("description")?.unwrap_or_default());
        let parameters = tool.get("input_schema").map_or("{}", RawValue::get);
        native.push(format!(
            r#"{{"type":"function","function":{{"name":{name},"description":{description},"parameters":{parameters}}}}}"#
        ));
    }
    Ok(format!("[{}]", native.join(",")))
}

pub(super) fn read_frame(frame: &str, answer: &mut Answer) -> Result<(), JsonError> {
    let fields = Fields::read(frame, &[])?;
    match fields.text("type")?.as_deref() {
        Some("message") => {
            for block in fields.array("content")? {
                read_block(block, answer)?;
            }
            answer.done = true;
            answer.read_usage(fields.get("usage").map(RawValue::get), "input_tokens")?;
        }
        Some("content_block_start") => {
            if let Some(block) = fields.get("content_block") {
                read_block(block, answer)?;
            }
        }
        Some("content_block_delta") => {
            let delta = Fields::read(fields.get("delta").map_or("{}", RawValue::get), &[])?;
            answer.add_text(&delta.text("text")?.unwrap_or_default());
            answer.add_thinking(&delta.text("thinking")?.unwrap_or_default());
            if let Some(part) = delta.text("partial_json")? {
                answer.add_arguments(&part);
            }
        }
        Some("message_delta") => answer.read_usage(fields.get("usage").map(RawValue::get), "input_tokens")?,
        Some("message_stop") => answer.done = true,
        Some("error") => answer.failed = true,
        _ => {}
    }
    Ok(())
}

fn read_block(block: &RawValue, answer: &mut Answer) -> Result<(), JsonError> {
    let fields = Fields::read(block.get(), &[])?;
    match fields.text("type")?.as_deref() {
        Some("text") => answer.add_text(&fields.text("text")?.unwrap_or_default()),
        Some("thinking") => answer.add_thinking(&fields.text("thinking")?.unwrap_or_default()),
        Some("tool_use") => {
            let input = fields.get("input").map_or("{}", RawValue::get);
            answer.tool_calls.push(super::answer::owned(tool_call(
                fields.text("id")?,
                fields.text("name")?,
                input.into(),
            )));
        }
        _ => {}
    }
    Ok(())
}
