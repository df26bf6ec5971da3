//! `/api/chat` and `/api/generate`, as requests.
//!
//! Types are checked where Go's decoder would stumble over them, in its words. Base64 of images is not
//! looked into, and `format`, `logprobs` and sampling options are read over: they change no count.

use serde_json::Value;

use super::Wire;
use super::native_wire::{Kind, Native};
use crate::sim::go_json::{self, Object};
use crate::sim::refusal::Refusal;
use crate::sim::request::{Ask, Generate, Message, Prompt, Think, ToolCall, fingerprint, is_zero_duration};
use crate::sim::tools::Tool;

pub(super) fn read_chat(body: &[u8]) -> Result<(Ask, Box<dyn Wire>), Refusal> {
    const OWNER: &str = "ChatRequest";
    let object = go_json::decode(body, "api.ChatRequest", "missing request body")?;
    let mut ask = common(&object, OWNER)?;
    let messages = go_json::list(&object, "messages", OWNER, "[]api.Message")?;
    ask.prompt = Prompt::Chat(messages.iter().map(message).collect::<Result<_, _>>()?);
    ask.tools =
        go_json::list(&object, "tools", OWNER, "api.Tools")?.iter().map(Tool::from_native).collect::<Result<_, _>>()?;
    let wire = Native::new(&ask.model, Kind::Chat);
    Ok((ask, Box::new(wire)))
}

pub(super) fn read_generate(body: &[u8]) -> Result<(Ask, Box<dyn Wire>), Refusal> {
    const OWNER: &str = "GenerateRequest";
    let object = go_json::decode(body, "api.GenerateRequest", "missing request body")?;
    let mut ask = common(&object, OWNER)?;
    let context = match go_json::field(&object, "context") {
        None => None,
        Some(_) => {
            let ids = go_json::list(&object, "context", OWNER, "[]int")?;
            Some(ids.iter().filter_map(Value::as_u64).filter_map(|id| u32::try_from(id).ok()).collect())
        }
    };
    ask.prompt = Prompt::Generate(Box::new(Generate {
        prompt: go_json::text(&object, "prompt", OWNER)?,
        system: go_json::text(&object, "system", OWNER)?,
        suffix: go_json::text(&object, "suffix", OWNER)?,
        raw: go_json::flag(&object, "raw", OWNER)?.unwrap_or(false),
        context,
        images: images(&object, OWNER)?,
    }));
    let wire = Native::new(&ask.model, Kind::Generate);
    Ok((ask, Box::new(wire)))
}

fn common(object: &Object, owner: &str) -> Result<Ask, Refusal> {
    let options = match go_json::field(object, "options") {
        None => Object::new(),
        Some(Value::Object(options)) => options.clone(),
        Some(other) => return Err(go_json::mismatch(other, owner, "options", "map[string]interface {}")),
    };
    Ok(Ask {
        model: go_json::text(object, "model", owner)?,
        options,
        think: think(go_json::field(object, "think"))?,
        refuse_overflow: go_json::flag(object, "truncate", owner)? == Some(false),
        stop_at_window: go_json::flag(object, "shift", owner)? == Some(false),
        unload: go_json::field(object, "keep_alive").is_some_and(is_zero_duration),
        render_only: go_json::flag(object, "_debug_render_only", owner)?.unwrap_or(false),
        stream: go_json::flag(object, "stream", owner)?.unwrap_or(true),
        ..Ask::default()
    })
}

fn think(value: Option<&Value>) -> Result<Think, Refusal> {
    match value {
        None => Ok(Think::Unset),
        Some(Value::Bool(true)) => Ok(Think::On),
        Some(Value::Bool(false)) => Ok(Think::Off),
        Some(Value::String(level)) if matches!(level.as_str(), "high" | "medium" | "low") => {
            Ok(Think::Level(level.clone()))
        }
        Some(Value::String(other)) => Err(Refusal::reading(format!(
            "invalid think value: \"{other}\" (must be \"high\", \"medium\", \"low\", true, or false)"
        ))),
        Some(_) => {
            Err(Refusal::reading("think must be a boolean or string (\"high\", \"medium\", \"low\", true, or false)"))
        }
    }
}

fn message(value: &Value) -> Result<Message, Refusal> {
    const OWNER: &str = "ChatRequest.messages";
    let object = go_json::object(value, "ChatRequest", "messages", "api.Message")?;
    let calls = go_json::list(object, "tool_calls", OWNER, "[]api.ToolCall")?;
    Ok(Message {
        thinking: go_json::text(object, "thinking", OWNER)?,
        images: images(object, OWNER)?,
        tool_calls: calls.iter().map(tool_call).collect::<Result<_, _>>()?,
        tool_name: go_json::text(object, "tool_name", OWNER)?,
        tool_call_id: go_json::text(object, "tool_call_id", OWNER)?,
        ..Message::new(&go_json::text(object, "role", OWNER)?, go_json::text(object, "content", OWNER)?)
    })
}

fn tool_call(value: &Value) -> Result<ToolCall, Refusal> {
    const OWNER: &str = "ChatRequest.messages.tool_calls";
    let object = go_json::object(value, "ChatRequest.messages", "tool_calls", "api.ToolCall")?;
    let function = go_json::field(object, "function").and_then(Value::as_object).cloned().unwrap_or_default();
    let arguments = match go_json::field(&function, "arguments") {
        None => Object::new(),
        Some(Value::Object(arguments)) => arguments.clone(),
        Some(_) => return Err(Refusal::reading("Value looks like object, but can't find closing '}' symbol")),
    };
    Ok(ToolCall { id: go_json::text(object, "id", OWNER)?, name: go_json::text(&function, "name", OWNER)?, arguments })
}

fn images(object: &Object, owner: &str) -> Result<Vec<u32>, Refusal> {
    let images = go_json::list(object, "images", owner, "[]api.ImageData")?;
    Ok(images.iter().filter_map(Value::as_str).map(fingerprint).collect())
}
