//! `POST /api/generate`, Ollama's own: one prompt, and perhaps the tokens of what came before.

use super::chat::{count, read_options};
use super::{Answer, Generate, Prompt, Request, answer_room};
use crate::json::lenient::Names;
use crate::json::{self, Fields, JsonError};

pub(super) const NAMES: Names = Names {
    known: &[
        "model",
        "prompt",
        "suffix",
        "system",
        "template",
        "context",
        "stream",
        "raw",
        "format",
        "keep_alive",
        "images",
        "options",
        "think",
        "truncate",
        "shift",
        "_debug_render_only",
        "logprobs",
        "top_logprobs",
    ],
    lists: &[],
};

pub(super) fn parse(body: &str) -> Result<Request<'_>, JsonError> {
    let fields = Fields::read(body, NAMES.known)?;
    let (num_ctx, num_predict) = read_options(fields.get("options"))?;
    let context = fields
        .get("context")
        .map(|raw| serde_json::from_str::<Vec<Option<i64>>>(raw.get()).map_err(|_| JsonError::WrongType))
        .transpose()?;
    if context.iter().flatten().flatten().any(|id| *id < 0) {
        return Err(JsonError::Harmful("context holds a negative token id, which would bring Ollama down"));
    }
    let render_with = ["options", "keep_alive", "think", "template", "context"]
        .into_iter()
        .filter_map(|name| Some((name, fields.get(name)?.get().into())))
        .collect();
    let text = |name| Ok::<_, JsonError>(fields.text(name)?.filter(|text| !text.is_empty()));
    Ok(Request {
        model: fields.text("model")?.unwrap_or_default(),
        stream: fields.flag("stream")?.unwrap_or(true),
        prompt: Prompt::Generate(Box::new(Generate {
            prompt: fields.text("prompt")?.unwrap_or_default(),
            system: text("system")?,
            suffix: text("suffix")?,
            template: text("template")?,
            largest_context_id: context.iter().flatten().flatten().max().and_then(|id| u64::try_from(*id).ok()),
            context: context.map(|ids| ids.len()),
            raw: fields.flag("raw")?.unwrap_or(false),
            images: count(fields.get("images"))?,
        })),
        kinds: Vec::new(),
        num_ctx,
        answer_tokens: answer_room(num_predict),
        render_with,
        thinks_if_able: false,
        list: None,
        approximate: false,
        facts: Vec::new(),
        truncate: fields.written("truncate").map(|raw| json::range_in(body, raw)),
    })
}

pub(super) fn read_frame(frame: &str, answer: &mut Answer) -> Result<(), JsonError> {
    let fields = Fields::read(frame, &[])?;
    answer.failed |= fields.get("error").is_some();
    answer.add_text(&fields.text("response")?.unwrap_or_default());
    answer.add_thinking(&fields.text("thinking")?.unwrap_or_default());
    if fields.flag("done")? == Some(true) {
        answer.done = true;
        answer.prompt_tokens = fields.number("prompt_eval_count")?.map(|count| count as u32);
    }
    Ok(())
}
