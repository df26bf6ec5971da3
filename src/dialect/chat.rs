//! `POST /api/chat`, Ollama's own.

use serde_json::value::RawValue;

use super::{List, Prompt, Request, answer_room, tool_call};
use crate::context::plan::Kind;
use crate::context::{Message, Role, ToolCall};
use crate::json::lenient::Names;
use crate::json::{self, Fields, JsonError};

const MESSAGE: &[&str] = &["role", "content", "thinking", "images", "tool_calls", "tool_name", "tool_call_id"];

pub(super) const NAMES: Names = Names {
    known: &[
        "model",
        "messages",
        "stream",
        "format",
        "keep_alive",
        "tools",
        "options",
        "think",
        "truncate",
        "shift",
        "_debug_render_only",
        "logprobs",
        "top_logprobs",
    ],
    lists: &[("messages", MESSAGE)],
};

pub(super) fn parse(body: &str) -> Result<Request<'_>, JsonError> {
    let fields = Fields::read(body, NAMES.known)?;
    let options = fields.get("options");
    let (num_ctx, num_predict) = read_options(options)?;
    let elements = fields.array("messages")?;
    let messages =
        elements.iter().enumerate().map(|(source, raw)| message(raw, source)).collect::<Result<Vec<_>, _>>()?;
    let render_with = ["tools", "options", "keep_alive", "think", "format"]
        .into_iter()
        .filter_map(|name| Some((name, fields.get(name)?.get().into())))
        .collect();
    Ok(Request {
        model: fields.text("model")?.unwrap_or_default(),
        stream: fields.flag("stream")?.unwrap_or(true),
        kinds: messages.iter().map(kind).collect(),
        prompt: Prompt::Chat(messages),
        num_ctx,
        answer_tokens: answer_room(num_predict),
        render_with,
        thinks_if_able: false,
        approximate: false,
        list: List::of(body, fields.get("messages"), &elements, 0),
        facts: Vec::new(),
        truncate: fields.written("truncate").map(|raw| json::range_in(body, raw)),
    })
}

/// `num_ctx` and `num_predict` of an options object. A value of another type is an error upstream.
pub(super) fn read_options(options: Option<&RawValue>) -> Result<(Option<f64>, Option<f64>), JsonError> {
    let Some(options) = options else { return Ok((None, None)) };
    // Options are a map to Go: names are exact, and the last of equals counts.
    let options = Fields::read(options.get(), &[])?;
    Ok((options.number("num_ctx")?, options.number("num_predict")?))
}

fn message(raw: &RawValue, source: usize) -> Result<Message<'_>, JsonError> {
    let fields = Fields::read(raw.get(), MESSAGE)?;
    let tool_calls = fields.array("tool_calls")?.into_iter().map(call).collect::<Result<_, _>>()?;
    Ok(Message {
        role: Role::named(fields.text("role")?.unwrap_or_default()),
        text: fields.text("content")?.unwrap_or_default(),
        thinking: fields.text("thinking")?.unwrap_or_default(),
        images: fields.array("images")?.len() as u32,
        tool_calls,
        tool_name: fields.text("tool_name")?,
        tool_call_id: fields.text("tool_call_id")?,
        source,
    })
}

fn call(raw: &RawValue) -> Result<ToolCall<'_>, JsonError> {
    let fields = Fields::read(raw.get(), &["id", "function"])?;
    let function = fields.get("function").map_or("{}", RawValue::get);
    let function = Fields::read(function, &["name", "arguments"])?;
    let arguments = function.get("arguments").map_or("{}", RawValue::get);
    Ok(tool_call(fields.text("id")?, function.text("name")?, arguments.into()))
}

fn kind(message: &Message<'_>) -> Kind {
    match message.role {
        Role::System => Kind::System,
        Role::User => Kind::User,
        Role::Assistant => Kind::Assistant,
        Role::Tool => Kind::ToolResult,
        Role::Other(_) => Kind::Other,
    }
}

/// Reads one frame of an answer, streamed or whole.
pub(super) fn read_frame(frame: &str, answer: &mut super::Answer) -> Result<(), JsonError> {
    let fields = Fields::read(frame, &[])?;
    answer.failed |= fields.get("error").is_some();
    if let Some(message) = fields.get("message") {
        let message = Fields::read(message.get(), &[])?;
        answer.add_text(&message.text("content")?.unwrap_or_default());
        answer.add_thinking(&message.text("thinking")?.unwrap_or_default());
        for raw in message.array("tool_calls")? {
            answer.tool_calls.push(super::answer::owned(call(raw)?));
        }
    }
    if fields.flag("done")? == Some(true) {
        answer.done = true;
        answer.prompt_tokens = fields.number("prompt_eval_count")?.map(|count| count as u32);
    }
    Ok(())
}

/// An array that is only counted.
pub(super) fn count(raw: Option<&RawValue>) -> Result<u32, JsonError> {
    Ok(raw.map(json::array).transpose()?.map_or(0, |elements| elements.len() as u32))
}
