//! `/v1/completions`: OpenAI's older route, which Ollama sends through the chat template all the same.
//!
//! Only a string is a prompt here. Thinking is left out of the text, as Ollama leaves it out.

use serde_json::{Value, json};

use super::openai::{DONE, data, now_seconds, usage};
use super::{Totals, Wire, joined};
use crate::sim::answer::Piece;
use crate::sim::go_json;
use crate::sim::refusal::{Refusal, random_below};
use crate::sim::request::{Ask, Generate, Prompt};
use crate::sim::runner::options_of;

const OWNER: &str = "CompletionRequest";

pub(super) fn read(body: &[u8]) -> Result<(Ask, Box<dyn Wire>), Refusal> {
    let object = go_json::decode(body, "openai.CompletionRequest", "EOF")?;
    let model = go_json::text(&object, "model", OWNER)?;
    go_json::whole(&object, "max_tokens", OWNER)?;
    let generate = Generate {
        prompt: go_json::text(&object, "prompt", OWNER)?,
        suffix: go_json::text(&object, "suffix", OWNER)?,
        ..Generate::default()
    };
    let ask = Ask {
        model: model.clone(),
        prompt: Prompt::Generate(Box::new(generate)),
        options: options_of(&object, &[("max_tokens", "num_predict")]),
        stream: go_json::flag(&object, "stream", OWNER)?.unwrap_or(false),
        ..Ask::default()
    };
    let include_usage = go_json::field(&object, "stream_options").and_then(|options| options.get("include_usage"));
    let id = format!("cmpl-{}", random_below(999));
    Ok((ask, Box::new(Completion { id, model, include_usage: include_usage == Some(&Value::Bool(true)) })))
}

#[derive(Debug)]
struct Completion {
    id: String,
    model: String,
    include_usage: bool,
}

impl Completion {
    /// Unlike the chat route, each chunk has a usage once usage is asked for.
    fn chunk(&self, model: &str, choices: Value, totals: &Totals) -> String {
        let mut chunk = json!({
            "id": self.id, "object": "text_completion", "created": now_seconds(), "choices": choices,
            "model": model, "system_fingerprint": "fp_ollama",
        });
        if self.include_usage {
            chunk["usage"] = usage(totals);
        }
        data(&chunk)
    }

    fn text_chunk(&self, text: &str, finish: Value) -> String {
        self.chunk(&self.model, json!([{"text": text, "index": 0, "finish_reason": finish}]), &Totals::default())
    }
}

impl Wire for Completion {
    fn piece(&mut self, piece: &Piece) -> String {
        let text = if let Piece::Text(text) = piece { text } else { "" };
        self.text_chunk(text, Value::Null)
    }

    fn close(&mut self, totals: &Totals) -> String {
        let mut out = self.text_chunk("", json!(totals.reason));
        if self.include_usage {
            out.push_str(&self.chunk(&self.model, json!([]), totals));
        }
        out + DONE
    }

    fn failed(&mut self, _message: &str) -> String {
        // Ollama reads its own error as an empty answer and sends that.
        self.chunk("", json!([{"text": "", "index": 0, "finish_reason": null}]), &Totals::default())
    }

    fn whole(&mut self, pieces: &[Piece], totals: &Totals) -> String {
        let (_, text) = joined(pieces);
        let body = json!({
            "id": self.id, "object": "text_completion", "created": now_seconds(), "model": self.model,
            "system_fingerprint": "fp_ollama",
            "choices": [{"text": text, "index": 0, "finish_reason": totals.reason}],
            "usage": usage(totals),
        });
        go_json::encode(&body) + "\n"
    }

    fn rendered(&mut self, _text: &str, _images: usize) -> String {
        self.whole(&[], &Totals::default())
    }
}
