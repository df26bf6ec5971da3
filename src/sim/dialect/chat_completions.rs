//! `/v1/chat/completions`: OpenAI's chat, read as Ollama's middleware reads it.
//!
//! An array of content parts becomes one native message a part. Ollama drops what a tool result in parts
//! says about its call, and so do we: the point is to be wrong in the same way.

use serde_json::{Map, Value, json};

use super::native_wire::debug_info;
use super::openai::{DONE, data, image, now_seconds, read_arguments, usage, written_call};
use super::{Totals, Wire, joined};
use crate::sim::Flavour;
use crate::sim::answer::Piece;
use crate::sim::go_json::{self, Object};
use crate::sim::refusal::{Refusal, go_kind, random_below};
use crate::sim::request::{Ask, Message, Prompt, Think, ToolCall};
use crate::sim::runner::options_of;
use crate::sim::tools::Tool;

const OWNER: &str = "ChatCompletionRequest";

pub(super) fn read(body: &[u8], flavour: Flavour) -> Result<(Ask, Box<dyn Wire>), Refusal> {
    let object = go_json::decode(body, "openai.ChatCompletionRequest", "EOF")?;
    let model = go_json::text(&object, "model", OWNER)?;
    let wire_messages = go_json::list(&object, "messages", OWNER, "[]openai.Message")?;
    if wire_messages.is_empty() {
        return Err(Refusal::reading("[] is too short - 'messages'"));
    }
    go_json::whole(&object, "max_tokens", OWNER)?;
    let mut messages = Vec::with_capacity(wire_messages.len());
    for value in wire_messages {
        read_message(value, wire_messages, &mut messages)?;
    }
    let tools = go_json::list(&object, "tools", OWNER, "[]api.Tool")?;
    let ask = Ask {
        model: model.clone(),
        prompt: Prompt::Chat(messages),
        tools: tools.iter().map(Tool::from_native).collect::<Result<_, _>>()?,
        options: options_of(&object, &[("max_tokens", "num_predict")]),
        think: effort(&object)?,
        render_only: go_json::flag(&object, "_debug_render_only", OWNER)?.unwrap_or(false),
        stream: go_json::flag(&object, "stream", OWNER)?.unwrap_or(false),
        ..Ask::default()
    };
    let include_usage = go_json::field(&object, "stream_options")
        .and_then(Value::as_object)
        .is_some_and(|options| go_json::field(options, "include_usage") == Some(&Value::Bool(true)));
    let id = format!("chatcmpl-{}", random_below(999));
    Ok((ask, Box::new(ChatCompletion { id, model, include_usage, flavour, role_sent: false, called: false })))
}

fn read_message(value: &Value, all: &[Value], messages: &mut Vec<Message>) -> Result<(), Refusal> {
    let object = go_json::object(value, OWNER, "messages", "openai.Message")?;
    let role = go_json::text(object, "role", "Message.messages")?;
    let has_calls = go_json::field(object, "tool_calls").is_some_and(Value::is_array);
    let with_calls = Message {
        thinking: go_json::text(object, "reasoning", "Message.messages")?,
        tool_calls: tool_calls(object)?,
        tool_call_id: go_json::text(object, "tool_call_id", "Message.messages")?,
        ..Message::new(&role, "")
    };
    match go_json::field(object, "content") {
        Some(Value::String(text)) => {
            let tool_name = if role.eq_ignore_ascii_case("tool") { tool_name(object, all) } else { String::new() };
            messages.push(Message { content: text.clone(), tool_name, ..with_calls });
        }
        Some(Value::Array(parts)) => {
            for part in parts {
                messages.push(read_part(part, &role)?);
            }
            // Whatever message is last by now gets the calls, even if it is another one's.
            if !with_calls.tool_calls.is_empty()
                && let Some(last) = messages.last_mut()
            {
                last.tool_calls = with_calls.tool_calls;
                last.tool_call_id = with_calls.tool_call_id;
                last.thinking = with_calls.thinking;
            }
        }
        _ if has_calls => messages.push(with_calls),
        other => {
            let kind = other.map_or("<nil>", go_kind);
            return Err(Refusal::reading(format!("invalid message content type: {kind}")));
        }
    }
    Ok(())
}

fn read_part(part: &Value, role: &str) -> Result<Message, Refusal> {
    let wrong = || Refusal::reading("invalid message format");
    let text = |name: &str| part.get(name).and_then(Value::as_str);
    match text("type") {
        Some("text") => Ok(Message::new(role, text("text").ok_or_else(wrong)?)),
        Some("image_url") => {
            let url = text("image_url").or_else(|| part.get("image_url")?.get("url")?.as_str()).ok_or_else(wrong)?;
            Ok(Message { images: vec![image(url)?], ..Message::new(role, "") })
        }
        _ => Err(wrong()),
    }
}

fn tool_calls(message: &Object) -> Result<Vec<ToolCall>, Refusal> {
    let calls = go_json::list(message, "tool_calls", "Message.messages", "[]openai.ToolCall")?;
    let read = |call: &Value| {
        let call = go_json::object(call, "Message.messages", "tool_calls", "openai.ToolCall")?;
        let function = go_json::field(call, "function").and_then(Value::as_object).cloned().unwrap_or_default();
        let arguments = go_json::text(&function, "arguments", "ToolCall.messages.tool_calls.function")?;
        Ok(ToolCall {
            id: go_json::text(call, "id", "ToolCall.messages.tool_calls")?,
            name: go_json::text(&function, "name", "ToolCall.messages.tool_calls.function")?,
            arguments: read_arguments(&arguments).ok_or_else(|| Refusal::reading("invalid tool call arguments"))?,
        })
    };
    calls.iter().map(read).collect()
}

/// The tool's name as the result says it, else as the latest call with that id says it.
fn tool_name(message: &Object, all: &[Value]) -> String {
    if let Some(name) = go_json::field(message, "name").and_then(Value::as_str).filter(|name| !name.is_empty()) {
        return name.to_owned();
    }
    let id = go_json::field(message, "tool_call_id");
    let calls = all.iter().rev().filter_map(|other| other.get("tool_calls")?.as_array()).flatten();
    let mut matching = calls.filter(|call| id.is_some() && call.get("id") == id);
    matching.find_map(|call| call.get("function")?.get("name")?.as_str()).unwrap_or_default().to_owned()
}

fn effort(object: &Object) -> Result<Think, Refusal> {
    let effort = match go_json::field(object, "reasoning").and_then(Value::as_object) {
        Some(reasoning) => go_json::text(reasoning, "effort", "Reasoning.reasoning")?,
        None => go_json::text(object, "reasoning_effort", OWNER)?,
    };
    match effort.as_str() {
        "" => Ok(Think::Unset),
        "none" => Ok(Think::Off),
        "high" | "medium" | "low" => Ok(Think::Level(effort)),
        other => Err(Refusal::reading(format!(
            "invalid reasoning value: '{other}' (must be \"high\", \"medium\", \"low\", or \"none\")"
        ))),
    }
}

#[derive(Debug)]
struct ChatCompletion {
    id: String,
    model: String,
    include_usage: bool,
    flavour: Flavour,
    role_sent: bool,
    called: bool,
}

impl ChatCompletion {
    fn chunk(&self, model: &str, choices: Value) -> Value {
        json!({
            "id": self.id, "object": "chat.completion.chunk", "created": now_seconds(), "model": model,
            "system_fingerprint": "fp_ollama", "choices": choices,
        })
    }

    /// 0.17 repeats the role and an empty content in every chunk, 0.33 says each only where it is news.
    fn delta(&mut self, text: &str, extra: Option<(&str, Value)>, finish: Value) -> Value {
        let mut delta = Map::new();
        let verbose = self.flavour == Flavour::V0_17;
        if verbose || (!self.role_sent && finish.is_null()) {
            delta.insert("role".to_owned(), json!("assistant"));
            self.role_sent = true;
        }
        if verbose || !text.is_empty() {
            delta.insert("content".to_owned(), json!(text));
        }
        if let Some((name, value)) = extra {
            delta.insert(name.to_owned(), value);
        }
        json!([{"index": 0, "delta": delta, "finish_reason": finish}])
    }

    fn finish(&self, totals: &Totals) -> Value {
        json!(if self.called { "tool_calls" } else { totals.reason })
    }
}

impl Wire for ChatCompletion {
    fn piece(&mut self, piece: &Piece) -> String {
        let choices = match piece {
            Piece::Thinking(text) => self.delta("", Some(("reasoning", json!(text))), Value::Null),
            Piece::Text(text) => self.delta(text, None, Value::Null),
            Piece::Call(call) => {
                self.called = true;
                self.delta("", Some(("tool_calls", json!([written_call(call)]))), Value::Null)
            }
        };
        data(&self.chunk(&self.model, choices))
    }

    fn close(&mut self, totals: &Totals) -> String {
        let finish = self.finish(totals);
        let choices = self.delta("", None, finish);
        let mut out = data(&self.chunk(&self.model, choices));
        if self.include_usage {
            let mut last = self.chunk(&self.model, json!([]));
            last["usage"] = usage(totals);
            out.push_str(&data(&last));
        }
        out + DONE
    }

    fn failed(&mut self, _message: &str) -> String {
        // Ollama reads its own error as an empty answer and sends that.
        let choices = self.delta("", None, Value::Null);
        data(&self.chunk("", choices))
    }

    fn whole(&mut self, pieces: &[Piece], totals: &Totals) -> String {
        let (thinking, text) = joined(pieces);
        let mut message = json!({"role": "assistant", "content": text});
        if !thinking.is_empty() {
            message["reasoning"] = json!(thinking);
        }
        for piece in pieces {
            if let Piece::Call(call) = piece {
                self.called = true;
                message["tool_calls"] = json!([written_call(call)]);
            }
        }
        let body = json!({
            "id": self.id, "object": "chat.completion", "created": now_seconds(), "model": self.model,
            "system_fingerprint": "fp_ollama",
            "choices": [{"index": 0, "message": message, "finish_reason": self.finish(totals)}],
            "usage": usage(totals),
        });
        go_json::encode(&body) + "\n"
    }

    fn rendered(&mut self, text: &str, images: usize) -> String {
        let body = json!({
            "id": self.id, "object": "chat.completion", "created": now_seconds(), "model": self.model,
            "system_fingerprint": "fp_ollama",
            "choices": [{"index": 0, "message": {"role": "", "content": ""}, "finish_reason": null}],
            "usage": usage(&Totals::default()),
            "_debug_info": debug_info(text, images),
        });
        go_json::encode(&body) + "\n"
    }
}
