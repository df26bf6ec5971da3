//! `GET /api/conversations/{id}/handoff`: a conversation as a section of somebody else's prompt.
//!
//! `preset=` cuts it one way or the other, `tokens=` is the room there is, `thread=` a task that it must bear on,
//! `compress=model` has a model shorten what the preset would cut. Text by default, JSON with `format=json`.

use std::sync::Arc;

use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::conversations::{not_found, now, owned};
use super::query::{Query, invalid};
use super::{Asked, blocking};
use crate::context::Tokens;
use crate::context::identity::ConversationId;
use crate::history::handoff::{self, Handed};
use crate::history::intake::{Limits, Preset};
use crate::ollama::count::rough_size;
use crate::ollama::models::Model;
use crate::ollama::{Models, count::off_the_worker};
use crate::proxy::respond::{self, Refusal, ResponseBody};
use crate::store::{ConversationRow, MessageRow, Reads};
use crate::tokenize::fallback;

/// What was asked for.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    pub preset: Preset,
    pub tokens: Option<Tokens>,
    pub thread: Option<String>,
    pub compress: bool,
}

pub(super) async fn hand_over(asked: &Asked<'_>, id: ConversationId) -> Result<Response<ResponseBody>, Refusal> {
    let query = asked.query()?;
    let wanted = wanted(&query)?;
    let as_json = match query.get("format") {
        None => asked.head.headers.get(ACCEPT).is_some_and(|accept| accept == "application/json"),
        Some("json") => true,
        Some("text") => false,
        Some(_) => return Err(invalid("format", "must be text or json")),
    };
    let user = Arc::clone(&asked.caller.user);
    let read = move |reads: &Reads| match owned(reads, &user, id)? {
        None => Ok(None),
        Some(row) => reads.path(id, None).map(|said| Some((row, said))),
    };
    let (row, said) = blocking(asked.gateway, read).await?.ok_or_else(not_found)?;
    let gateway = asked.gateway;
    let handed = made(&gateway.models, &gateway.config.history, gateway.config.reserve, &row, &said, &wanted).await;
    let (handed, basis) = handed.map_err(|refusal| Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, refusal))?;
    let mut response = if as_json {
        respond::json(StatusCode::OK, said_of(&row, &wanted, handed.as_ref(), basis).to_string())
    } else {
        let text = handed.as_ref().map(|handed| handed.section.clone()).unwrap_or_default();
        let mut response = respond::json(StatusCode::OK, text);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        response
    };
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

fn wanted(query: &Query) -> Result<Wanted, Refusal> {
    let preset = match query.get("preset") {
        None => Preset::default(),
        Some(name) => name.parse().map_err(|_| invalid("preset", "must be requirements-first or reasoning-first"))?,
    };
    let tokens = match query.number("tokens")? {
        None => None,
        Some(number) => {
            let number = u32::try_from(number).ok().filter(|number| *number > 0);
            Some(number.ok_or_else(|| invalid("tokens", "must be at least 1"))?)
        }
    };
    let compress = match query.get("compress") {
        None => false,
        Some("model") => true,
        Some(_) => return Err(invalid("compress", "must be `model`")),
    };
    let thread = query.get("thread").map(str::trim).filter(|task| !task.is_empty()).map(str::to_owned);
    Ok(Wanted { preset, tokens, thread, compress })
}

/// Makes the section. The model is only asked for where it is needed: for counting, and for shortening.
pub async fn made(
    models: &Models,
    limits: &Limits,
    reserve: f64,
    row: &ConversationRow,
    said: &[MessageRow],
    wanted: &Wanted,
) -> Result<(Option<Handed>, &'static str), String> {
    let mut messages = handoff::messages(said);
    let given = messages.len();
    if let Some(task) = &wanted.thread {
        messages = handoff::thread(messages, task);
    }
    let model: Option<Arc<Model>> = models.get(&row.model).await.ok();
    let mut condensed = 0;
    if wanted.compress {
        let model = model.as_deref().ok_or_else(|| {
            format!("compress: model `{}` is not there; is Ollama running? Without compress=model it is cut", row.model)
        })?;
        condensed = handoff::compress(&mut messages, wanted.preset, limits, models, model, reserve).await;
    }
    let count = |text: &str| match model.as_deref() {
        Some(model) => rough_size(model, text),
        None => fallback::estimate(text),
    };
    let basis = match model.as_deref() {
        Some(model) if model.tokenizer.is_ok() => "exact",
        Some(_) | None => "estimated",
    };
    let clock = jiff::tz::TimeZone::UTC.to_datetime(jiff::Timestamp::now());
    let size = messages.iter().map(|message| message.content.len()).sum();
    let handed =
        off_the_worker(size, || handoff::hand_over(messages, wanted.preset, limits, wanted.tokens, count, clock));
    let handed = handed.map_err(|error| format!("tokens: {error}"))?;
    let handed = handed.map(|handed| Handed { left_out: given - handed.history.messages.len(), condensed, ..handed });
    Ok((handed, basis))
}

/// The same for programs.
pub fn said_of(row: &ConversationRow, wanted: &Wanted, handed: Option<&Handed>, basis: &str) -> Value {
    json!({
        "conversation_id": row.id,
        "preset": wanted.preset.name(),
        "made_at": now(),
        "section": handed.map_or("", |handed| &handed.section),
        "tokens": handed.map_or(0, |handed| handed.tokens),
        "basis": basis,
        "left_out": handed.map(|handed| handed.left_out),
        "condensed": handed.map_or(0, |handed| handed.condensed),
        "conversation_history": handed.map(|handed| &handed.history),
    })
}
