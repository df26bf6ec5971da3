//! `POST /api/conversations`: a history that was had elsewhere becomes a conversation of the user.
//!
//! The body is canonical JSONL or a list of messages; `preset=` says how a list is checked. What cannot be taken
//! is answered 422 with the reason, and nothing of it is stored.

use std::sync::Arc;

use http::{Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::Asked;
use super::query::invalid;
use crate::events::now_ms;
use crate::history::arrival::{self, Arrival};
use crate::history::import::Owner;
use crate::history::intake::Preset;
use crate::ollama::count::off_the_worker;
use crate::proxy::respond::{self, Refusal, ResponseBody};
use crate::store::Change;

pub(super) async fn import(asked: &Asked<'_>, body: Incoming) -> Result<Response<ResponseBody>, Refusal> {
    let gateway = asked.gateway;
    let query = asked.query()?;
    let preset: Preset = match query.get("preset") {
        None => Preset::default(),
        Some(name) => name.parse().map_err(|_| invalid("preset", "must be requirements-first or reasoning-first"))?,
    };
    let body = Limited::new(body, gateway.config.max_body_bytes).collect().await;
    let too_large = |_| {
        let reason = "the history is too large or incomplete (server.max_body_mb)";
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, reason)
    };
    let body = body.map_err(too_large)?.to_bytes();
    let (limits, now) = (&gateway.config.history, jiff::Timestamp::now());
    let read = off_the_worker(body.len(), || arrival::read(&body, preset, limits, now));
    let arrived = match read {
        Ok(arrived) => arrived,
        Err(refused) => {
            return Ok(respond::json(StatusCode::UNPROCESSABLE_ENTITY, refused.said().to_string()));
        }
    };
    let made = keep(asked, &arrived).await?;
    let mut said = json!({ "id": made.first().map(|one| one["id"].clone()), "conversations": made });
    if let (Value::Object(said), Value::Object(more)) = (&mut said, arrived.said()) {
        said.extend(more);
    }
    Ok(respond::json(StatusCode::CREATED, said.to_string()))
}

/// Stores everything, one conversation after the other, and waits until it is on disk.
async fn keep(asked: &Asked<'_>, arrived: &Arrival) -> Result<Vec<Value>, Refusal> {
    let gateway = asked.gateway;
    let user = Arc::clone(&asked.caller.user);
    let owner = Owner { key: gateway.conversations.key(), user: &user, conversation: 0, now_ms: now_ms() };
    let mut made = Vec::new();
    for (import, about) in arrived.imports(&owner, || gateway.store.next_conversation()) {
        gateway.events.submit(Change::Import(import)).await.map_err(|error| {
            tracing::error!(%error, "a history could not be stored");
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the history could not be stored: see Loadline's log")
        })?;
        made.push(about);
    }
    Ok(made)
}
