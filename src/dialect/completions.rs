//! `POST /v1/completions`, OpenAI's old one. Ollama runs it as a generate, template included.

use serde_json::value::RawValue;

use super::{Answer, Generate, Prompt, Request, answer_room};
use crate::json::lenient::Names;
use crate::json::{Fields, JsonError};

pub(super) const NAMES: Names = Names {
    known: &[
        "model",
        "prompt",
        "suffix",
        "max_tokens",
        "seed",
        "stop",
        "stream",
        "stream_options",
        "temperature",
        "top_p",
        "frequency_penalty",
        "presence_penalty",
        "logprobs",
        "_debug_render_only",
    ],
    lists: &[],
};

pub(super) fn parse(body: &str) -> Result<Request<'_>, JsonError> {
    let fields = Fields::read(body, NAMES.known)?;
    Ok(Request {
        model: fields.text("model")?.unwrap_or_default(),
        stream: fields.flag("stream")?.unwrap_or(false),
        prompt: Prompt::Generate(Box::new(Generate {
            prompt: fields.text("prompt")?.unwrap_or_default(),
            suffix: fields.text("suffix")?.filter(|suffix| !suffix.is_empty()),
            ..Generate::default()
        })),
        kinds: Vec::new(),
        num_ctx: None,
        answer_tokens: answer_room(fields.number("max_tokens")?),
        render_with: Vec::new(),
        thinks_if_able: false,
        list: None,
        approximate: false,
        facts: Vec::new(),
        truncate: None,
    })
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
        answer.add_text(&choice.text("text")?.unwrap_or_default());
    }
    answer.read_usage(fields.get("usage").map(RawValue::get), "prompt_tokens")?;
    Ok(())
}
