//! `/v1/messages`, as an answer: one message, or Anthropic's row of events.
//!
//! Ollama's stream has no pings, and a failure in the middle shows as an end without `message_stop`.

use serde_json::{Value, json};

use super::openai::event;
use super::{Totals, Wire, joined};
use crate::sim::answer::Piece;
use crate::sim::go_json;
use crate::sim::refusal::random_hex;
use crate::sim::request::ToolCall;

#[derive(Debug)]
pub(super) struct MessageWire {
    id: String,
    model: String,
    estimated_input_tokens: u64,
    open_block: Block,
    index: u64,
    called: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    None,
    Thinking,
    Text,
}

impl MessageWire {
    pub(super) fn new(model: String, estimated_input_tokens: u64) -> Self {
        let id = format!("msg_{}", random_hex());
        Self { id, model, estimated_input_tokens, open_block: Block::None, index: 0, called: false }
    }

    fn start_block(&self, block: Value) -> String {
        event(
            "content_block_start",
            &json!({"type": "content_block_start", "index": self.index, "content_block": block}),
        )
    }

    fn delta(&self, delta: Value) -> String {
        event("content_block_delta", &json!({"type": "content_block_delta", "index": self.index, "delta": delta}))
    }

    /// Ends the block that is being written, if there is one.
    fn stop_block(&mut self) -> String {
        if self.open_block == Block::None {
            return String::new();
        }
        self.open_block = Block::None;
        self.end_of_block()
    }

    fn end_of_block(&mut self) -> String {
        let stop = event("content_block_stop", &json!({"type": "content_block_stop", "index": self.index}));
        self.index += 1;
        stop
    }

    fn call(&mut self, call: &ToolCall) -> String {
        self.called = true;
        let mut out = self.stop_block();
        out.push_str(&self.start_block(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}})));
        let arguments = go_json::encode(&Value::Object(call.arguments.clone()));
        out.push_str(&self.delta(json!({"type": "input_json_delta", "partial_json": arguments})));
        out + &self.end_of_block()
    }

    fn stop_reason(&self, totals: &Totals) -> &'static str {
        match totals.reason {
            _ if self.called => "tool_use",
            "stop" => "end_turn",
            "length" => "max_tokens",
            _ => "stop_sequence",
        }
    }
}

impl Wire for MessageWire {
    fn open(&mut self) -> String {
        let message = json!({
            "id": self.id, "type": "message", "role": "assistant", "model": self.model, "content": [],
            "usage": {"input_tokens": self.estimated_input_tokens, "output_tokens": 0},
        });
        event("message_start", &json!({"type": "message_start", "message": message}))
    }

    fn piece(&mut self, piece: &Piece) -> String {
        match piece {
            Piece::Thinking(text) => {
                let mut out = String::new();
                if self.open_block != Block::Thinking {
                    out = self.stop_block() + &self.start_block(json!({"type": "thinking", "thinking": ""}));
                    self.open_block = Block::Thinking;
                }
                out + &self.delta(json!({"type": "thinking_delta", "thinking": text}))
            }
            Piece::Text(text) => {
                let mut out = String::new();
                if self.open_block != Block::Text {
                    out = self.stop_block() + &self.start_block(json!({"type": "text", "text": ""}));
                    self.open_block = Block::Text;
                }
                out + &self.delta(json!({"type": "text_delta", "text": text}))
            }
            Piece::Call(call) => self.call(call),
        }
    }

    fn close(&mut self, totals: &Totals) -> String {
        let mut out = self.stop_block();
        let usage = json!({"input_tokens": totals.prompt_tokens, "output_tokens": totals.answer_tokens});
        let delta =
            json!({"type": "message_delta", "delta": {"stop_reason": self.stop_reason(totals)}, "usage": usage});
        out.push_str(&event("message_delta", &delta));
        out + &event("message_stop", &json!({"type": "message_stop"}))
    }

    fn failed(&mut self, _message: &str) -> String {
        String::new()
    }

    fn whole(&mut self, pieces: &[Piece], totals: &Totals) -> String {
        let (thinking, text) = joined(pieces);
        let mut content = Vec::new();
        if !thinking.is_empty() {
            content.push(json!({"type": "thinking", "thinking": thinking}));
        }
        if !text.is_empty() {
            content.push(json!({"type": "text", "text": text}));
        }
        for piece in pieces {
            if let Piece::Call(call) = piece {
                self.called = true;
                content.push(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}));
            }
        }
        let body = json!({
            "id": self.id, "type": "message", "role": "assistant", "model": self.model,
            "content": if content.is_empty() { Value::Null } else { Value::Array(content) },
            "stop_reason": self.stop_reason(totals),
            "usage": {"input_tokens": totals.prompt_tokens, "output_tokens": totals.answer_tokens},
        });
        go_json::encode(&body) + "\n"
    }

    fn rendered(&mut self, _text: &str, _images: usize) -> String {
        self.whole(&[], &Totals::default())
    }
}
