//! `POST /api/conversations`: a history that was had elsewhere becomes a conversation of the user.
//!
//! The body is canonical JSONL or a list of messages; `preset=` says how a list is checked. What cannot be taken
//! is answered 422 with the reason, and nothing of it is stored.

use std::sync::Arc;

use http::{Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;

use super::Asked;
use crate::events::now_ms;
use crate::history::arrival::{self, Arrival};
use crate::history::import::Owner;
use crate::ollama::count::off_the_worker;
use crate::proxy::respond::{self, Refusal, ResponseBody};

pub(super) async fn import(asked: &Asked<'_>, body: Incoming) -> Result<Response<ResponseBody>, Refusal> {
    let gateway = asked.gateway;
    let query = asked.query()?;
    let preset = query.preset()?;
    let body = Limited::new(body, gateway.config.max_body_bytes).collect().await;
    let too_large = |_| {
        let reason = "the history is too large or incomplete (server.max_body_mb)";
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, reason)
    };
    let body = body.map_err(too_large)?.to_bytes();
    // Only now: whoever sends slowly holds up nobody.
    let turn = Arc::clone(&gateway.imports).acquire_owned().await.ok();
    let (limits, now) = (&gateway.config.history, jiff::Timestamp::now());
    let read = off_the_worker(body.len(), || arrival::read(&body, preset, limits, now));
    let arrived = match read {
        Ok(arrived) => arrived,
        Err(refused) => {
            return Ok(respond::json(StatusCode::UNPROCESSABLE_ENTITY, refused.said().to_string()));
        }
    };
    let said = keep(asked, &arrived, turn).await?;
    Ok(respond::json(StatusCode::CREATED, said.to_string()))
}

/// Stores all of it or nothing, and waits until it is on disk. It goes on if the client does not wait.
async fn keep(asked: &Asked<'_>, arrived: &Arrival, turn: Option<OwnedSemaphorePermit>) -> Result<Value, Refusal> {
    let gateway = asked.gateway;
    let user = Arc::clone(&asked.caller.user);
    let owner = Owner { key: gateway.conversations.key(), user: &user, conversation: 0, now_ms: now_ms() };
    let failed =
        || Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the history could not be stored: see Loadline's log");
    // Taking numbers may mean asking a server.
    let wait = if gateway.store.is_shared() { usize::MAX } else { 0 };
    let numbered = off_the_worker(wait, || arrived.imports(&owner, || gateway.store.next_conversation()));
    let (imports, said) = numbered.map_err(|_| failed())?;
    let store = Arc::clone(&gateway.store);
    let stored = tokio::spawn(async move {
        let _until_it_is_stored = turn;
        store.import(imports).await
    })
    .await;
    stored.map_err(|_| failed())?.map_err(|error| {
        tracing::error!(%error, "a history could not be stored");
        failed()
    })?;
    Ok(said)
}
