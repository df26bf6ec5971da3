//! `/api/chat` and `/api/generate`, as answers: a line of JSON for each piece, and a last line with the counts.
//!
//! Fields stand in the order of Ollama's structs, and those that are zero are left out, as Go does it.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{Totals, Wire, joined};
use crate::sim::answer::Piece;
use crate::sim::go_json;
use crate::sim::request::ToolCall;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Chat,
    Generate,
}

#[derive(Debug)]
pub(super) struct Native {
    model: String,
    kind: Kind,
}

impl Native {
    pub(super) fn new(model: &str, kind: Kind) -> Self {
        Self { model: model.to_owned(), kind }
    }

    /// One answer object up to `done`.
    fn object(&self, role: &str, text: &str, thinking: &str, calls: &[ToolCall], done: bool) -> Map<String, Value> {
        let mut object = Map::new();
        object.insert("model".to_owned(), json!(self.model));
        object.insert("created_at".to_owned(), json!(Timestamp::now().to_string()));
        match self.kind {
            Kind::Chat => {
                let mut message = Map::new();
                message.insert("role".to_owned(), json!(role));
                message.insert("content".to_owned(), json!(text));
                if !thinking.is_empty() {
                    message.insert("thinking".to_owned(), json!(thinking));
                }
                if !calls.is_empty() {
                    message.insert("tool_calls".to_owned(), calls.iter().map(tool_call).collect());
                }
                object.insert("message".to_owned(), Value::Object(message));
            }
            Kind::Generate => {
                object.insert("response".to_owned(), json!(text));
                if !thinking.is_empty() {
                    object.insert("thinking".to_owned(), json!(thinking));
                }
            }
        }
        object.insert("done".to_owned(), json!(done));
        object
    }
}

impl Wire for Native {
    fn piece(&mut self, piece: &Piece) -> String {
        line(match piece {
            Piece::Thinking(text) => self.object("assistant", "", text, &[], false),
            Piece::Text(text) => self.object("assistant", text, "", &[], false),
            Piece::Call(call) => self.object("assistant", "", "", std::slice::from_ref(call), false),
        })
    }

    fn close(&mut self, totals: &Totals) -> String {
        let mut object = self.object("assistant", "", "", &[], true);
        add_totals(&mut object, totals);
        line(object)
    }

    fn failed(&mut self, message: &str) -> String {
        go_json::encode(&json!({"error": message})) + "\n"
    }

    fn whole(&mut self, pieces: &[Piece], totals: &Totals) -> String {
        let (thinking, text) = joined(pieces);
        let calls: Vec<ToolCall> = pieces
            .iter()
            .filter_map(|piece| match piece {
                Piece::Call(call) => Some(call.clone()),
                Piece::Thinking(_) | Piece::Text(_) => None,
            })
            .collect();
        let mut object = self.object("assistant", &text, &thinking, &calls, true);
        add_totals(&mut object, totals);
        go_json::encode(&Value::Object(object))
    }

    fn rendered(&mut self, text: &str, images: usize) -> String {
        let mut object = self.object("", "", "", &[], false);
        object.insert("_debug_info".to_owned(), debug_info(text, images));
        go_json::encode(&Value::Object(object))
    }
}

/// What `_debug_render_only` tells, here and on OpenAI's chat route.
pub(super) fn debug_info(text: &str, images: usize) -> Value {
    if images == 0 {
        json!({"rendered_template": text})
    } else {
        json!({"rendered_template": text, "image_count": images})
    }
}

fn line(object: Map<String, Value>) -> String {
    go_json::encode(&Value::Object(object)) + "\n"
}

fn tool_call(call: &ToolCall) -> Value {
    json!({"id": call.id, "function": {"index": 0, "name": call.name, "arguments": call.arguments}})
}

fn add_totals(object: &mut Map<String, Value>, totals: &Totals) {
    object.insert("done_reason".to_owned(), json!(totals.reason));
    if let Some(context) = &totals.context {
        object.insert("context".to_owned(), json!(context));
    }
    let total_ns = totals.load_ns + totals.prompt_ns + totals.answer_ns;
    let numbers = [
        ("total_duration", json!(total_ns)),
        ("load_duration", json!(totals.load_ns)),
        ("prompt_eval_count", json!(totals.prompt_tokens)),
        ("prompt_eval_duration", json!(totals.prompt_ns)),
        ("eval_count", json!(totals.answer_tokens)),
        ("eval_duration", json!(totals.answer_ns)),
    ];
    for (name, number) in numbers {
        if number != json!(0) {
            object.insert(name.to_owned(), number);
        }
    }
}
