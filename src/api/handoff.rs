//! `GET /api/conversations/{id}/handoff`: a conversation as a section of somebody else's prompt.
//!
//! `preset=` cuts it one way or the other, `tokens=` is the room there is, `thread=` a task that it must bear on,
//! `compress=model` has a model shorten what the preset would cut, `model=` names another than the conversation's. Text by default, JSON with `format=json`.

use std::sync::Arc;

use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::auth::{Scope, forbidden};
use super::conversations::{not_found, owned};
use super::query::{Query, invalid};
use super::views::now;
use super::{Asked, reading_much};
use crate::context::identity::ConversationId;
use crate::history::handoff::{self, Handed, Means, Wanted};
use crate::proxy::respond::{self, Refusal, ResponseBody};
use crate::store::{ConversationRow, Reads};

pub(super) async fn hand_over(asked: &Asked<'_>, id: ConversationId) -> Result<Response<ResponseBody>, Refusal> {
    let query = asked.query()?;
    let wanted = wanted(&query)?;
    // Whoever may only read may not have a model work.
    if wanted.compress && !asked.caller.scopes.allow(Scope::Chat) {
        return Err(forbidden(Scope::Chat));
    }
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
    let (row, said) = reading_much(asked.gateway, read).await?.ok_or_else(not_found)?;
    let config = &asked.gateway.config;
    let means = Means {
        models: &asked.gateway.fleet.member_with(&row.model).await.models,
        limits: &config.history,
        reserve: config.reserve,
        patience: config.checkpoint.timeout,
    };
    let handed = handoff::made(&means, &row.model, &said, &wanted).await;
    let handed = handed.map_err(|error| Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()))?;
    let mut response = if as_json {
        respond::json(StatusCode::OK, said_of(&row, &wanted, handed.as_ref()).to_string())
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
    let model = query.get("model").filter(|model| !model.is_empty()).map(str::to_owned);
    Ok(Wanted { preset: query.preset()?, tokens, thread, compress, model })
}

/// The same for programs.
pub fn said_of(row: &ConversationRow, wanted: &Wanted, handed: Option<&Handed>) -> Value {
    json!({
        "conversation_id": row.id,
        "preset": wanted.preset.name(),
        "made_at": now(),
        "section": handed.map_or("", |handed| &handed.section),
        "tokens": handed.map_or(0, |handed| handed.tokens),
        "basis": handed.map(|handed| handed.basis),
        "left_out": handed.map_or(0, |handed| handed.left_out),
        "condensed": handed.map_or(0, |handed| handed.condensed),
        "conversation_history": handed.map(|handed| &handed.history),
    })
}
