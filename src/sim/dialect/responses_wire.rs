//! `/v1/responses`, as an answer: one object, or the long row of events that builds it up.
//!
//! In a stream Ollama writes Go maps, whose keys come sorted; the single body is a struct and keeps its
//! order. Only the last event tells the usage. Text after a tool call is never written here.

use serde_json::{Value, json};

use super::openai::{event, now_seconds, written_arguments};
use super::{Totals, Wire, joined};
use crate::sim::answer::Piece;
use crate::sim::go_json;
use crate::sim::refusal::random_below;
use crate::sim::request::ToolCall;
use crate::sim::tools::sorted;

/// What of the request the answer repeats.
#[derive(Debug)]
pub(super) struct Echo {
    pub(super) model: String,
    pub(super) instructions: Value,
    pub(super) tools: Value,
    pub(super) truncation: Value,
    pub(super) text: Value,
    pub(super) temperature: Value,
    pub(super) top_p: Value,
    pub(super) reasoning: Value,
    pub(super) max_output_tokens: Value,
    pub(super) background: Value,
}

#[derive(Debug)]
pub(super) struct Response {
    echo: Echo,
    id: String,
    item_id: String,
    created: i64,
    sequence: u64,
    thinking: String,
    text: String,
    /// The item that is being written now.
    open_item: Item,
    output: Vec<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Item {
    None,
    Reasoning,
    Message,
}

impl Response {
    pub(super) fn new(echo: Echo) -> Self {
        Self {
            echo,
            id: format!("resp_{}", random_below(999_999)),
            item_id: format!("msg_{}", random_below(999_999)),
            created: now_seconds(),
            sequence: 0,
            thinking: String::new(),
            text: String::new(),
            open_item: Item::None,
            output: Vec::new(),
        }
    }

    fn object(&self, totals: Option<&Totals>) -> Value {
        let usage = totals.map_or(Value::Null, |totals| {
            json!({
                "input_tokens": totals.prompt_tokens, "output_tokens": totals.answer_tokens,
                "total_tokens": totals.prompt_tokens + totals.answer_tokens as i64,
                "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0},
            })
        });
        let echo = &self.echo;
        json!({
            "id": self.id, "object": "response", "created_at": self.created,
            "completed_at": totals.map(|_| now_seconds()),
            "status": if totals.is_some() { "completed" } else { "in_progress" },
            "incomplete_details": null, "model": echo.model, "previous_response_id": null,
            "instructions": echo.instructions, "output": self.output, "error": null, "tools": echo.tools,
            "tool_choice": "auto", "truncation": echo.truncation, "parallel_tool_calls": true, "text": echo.text,
            "top_p": echo.top_p, "presence_penalty": 0, "frequency_penalty": 0, "top_logprobs": 0,
            "temperature": echo.temperature, "reasoning": echo.reasoning, "usage": usage,
            "max_output_tokens": echo.max_output_tokens, "max_tool_calls": null, "store": false,
            "background": echo.background, "service_tier": "default", "metadata": {},
            "safety_identifier": null, "prompt_cache_key": null,
        })
    }

    fn emit(&mut self, kind: &str, mut fields: Value) -> String {
        fields["sequence_number"] = json!(self.sequence);
        fields["type"] = json!(kind);
        self.sequence += 1;
        event(kind, &sorted(&fields))
    }

    fn reasoning_id(&self) -> String {
        format!("rs_{}", self.id)
    }

    fn reasoning_item(&self, text: &str) -> Value {
        json!({
            "id": self.reasoning_id(), "type": "reasoning",
            "summary": [{"type": "summary_text", "text": text}], "encrypted_content": text,
        })
    }

    fn message_item(&self, text: &str) -> Value {
        let part = json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []});
        json!({"id": self.item_id, "type": "message", "status": "completed", "role": "assistant", "content": [part]})
    }

    fn call_item(&self, call: &ToolCall, arguments: &str, status: &str) -> Value {
        json!({
            "id": format!("fc_{}_0", self.id), "type": "function_call", "status": status,
            "call_id": call.id, "name": call.name, "arguments": arguments,
        })
    }

    fn think(&mut self, text: &str) -> String {
        let mut out = String::new();
        if self.open_item == Item::None {
            self.open_item = Item::Reasoning;
            let item = json!({"id": self.reasoning_id(), "type": "reasoning", "summary": []});
            out = self.emit("response.output_item.added", json!({"output_index": 0, "item": item}));
        }
        self.thinking.push_str(text);
        let fields = json!({"item_id": self.reasoning_id(), "output_index": 0, "summary_index": 0, "delta": text});
        out + &self.emit("response.reasoning_summary_text.delta", fields)
    }

    fn say(&mut self, text: &str) -> String {
        let mut out = String::new();
        if self.open_item != Item::Message {
            out = self.close_item();
            self.open_item = Item::Message;
            let index = self.output.len();
            let item = json!({"id": self.item_id, "type": "message", "status": "in_progress", "role": "assistant", "content": []});
            out.push_str(&self.emit("response.output_item.added", json!({"output_index": index, "item": item})));
            let part = json!({"type": "output_text", "text": "", "annotations": [], "logprobs": []});
            let fields = json!({"item_id": self.item_id, "output_index": index, "content_index": 0, "part": part});
            out.push_str(&self.emit("response.content_part.added", fields));
        }
        self.text.push_str(text);
        let index = self.output.len();
        let fields =
            json!({"item_id": self.item_id, "output_index": index, "content_index": 0, "delta": text, "logprobs": []});
        out + &self.emit("response.output_text.delta", fields)
    }

    fn call(&mut self, call: &ToolCall) -> String {
        let mut out = self.close_item();
        let index = self.output.len();
        let arguments = written_arguments(call);
        let (item, done) = (self.call_item(call, "", "in_progress"), self.call_item(call, &arguments, "completed"));
        let id = item["id"].clone();
        out.push_str(&self.emit("response.output_item.added", json!({"output_index": index, "item": item})));
        let delta = json!({"item_id": id, "output_index": index, "delta": arguments});
        out.push_str(&self.emit("response.function_call_arguments.delta", delta));
        let whole = json!({"item_id": id, "output_index": index, "arguments": arguments});
        out.push_str(&self.emit("response.function_call_arguments.done", whole));
        out.push_str(&self.emit("response.output_item.done", json!({"output_index": index, "item": done})));
        self.output.push(done);
        out
    }

    /// Ends the item that is being written, if there is one.
    fn close_item(&mut self) -> String {
        let index = self.output.len();
        match std::mem::replace(&mut self.open_item, Item::None) {
            Item::None => String::new(),
            Item::Reasoning => {
                let item = self.reasoning_item(&self.thinking);
                let fields =
                    json!({"item_id": item["id"], "output_index": index, "summary_index": 0, "text": self.thinking});
                let mut out = self.emit("response.reasoning_summary_text.done", fields);
                out.push_str(&self.emit("response.output_item.done", json!({"output_index": index, "item": item})));
                self.output.push(item);
                out
            }
            Item::Message => {
                let item = self.message_item(&self.text);
                let place = json!({"item_id": self.item_id, "output_index": index, "content_index": 0});
                let (mut text, mut part) = (place.clone(), place);
                text["text"] = json!(self.text);
                text["logprobs"] = json!([]);
                part["part"] = item["content"][0].clone();
                let mut out = self.emit("response.output_text.done", text);
                out.push_str(&self.emit("response.content_part.done", part));
                out.push_str(&self.emit("response.output_item.done", json!({"output_index": index, "item": item})));
                self.output.push(item);
                out
            }
        }
    }
}

impl Wire for Response {
    fn open(&mut self) -> String {
        let object = self.object(None);
        let created = self.emit("response.created", json!({"response": object}));
        created + &self.emit("response.in_progress", json!({"response": object}))
    }

    fn piece(&mut self, piece: &Piece) -> String {
        match piece {
            Piece::Thinking(text) => self.think(text),
            Piece::Text(text) => self.say(text),
            Piece::Call(call) => self.call(call),
        }
    }

    fn close(&mut self, totals: &Totals) -> String {
        let mut out = self.close_item();
        let object = self.object(Some(totals));
        out.push_str(&self.emit("response.completed", json!({"response": object})));
        out
    }

    fn failed(&mut self, _message: &str) -> String {
        String::new()
    }

    fn whole(&mut self, pieces: &[Piece], totals: &Totals) -> String {
        let (thinking, text) = joined(pieces);
        if !thinking.is_empty() {
            self.output.push(self.reasoning_item(&thinking));
        }
        let calls: Vec<Value> = pieces
            .iter()
            .filter_map(|piece| match piece {
                Piece::Call(call) => Some(self.call_item(call, &written_arguments(call), "completed")),
                Piece::Thinking(_) | Piece::Text(_) => None,
            })
            .collect();
        if calls.is_empty() {
            self.output.push(self.message_item(&text));
        }
        self.output.extend(calls);
        go_json::encode(&self.object(Some(totals))) + "\n"
    }

    fn rendered(&mut self, _text: &str, _images: usize) -> String {
        self.whole(&[], &Totals::default())
    }
}
