//! A user's conversations: which there are, what was said, how full the window was, what was kept.
//!
//! Somebody else's conversation and one that does not exist are answered alike.

use std::sync::Arc;

use http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

use super::query::invalid;
use super::views::{about, about_branch, about_snapshot, hit, in_full, load, message};
use super::{Asked, blocking, no_store, reading_much};
use crate::context::identity::ConversationId;
use crate::history::{self, export};
use crate::proxy::respond::{self, Refusal, ResponseBody};
use crate::store::{Change, ConversationRow, Reads, Rejection, StoreError};

/// Messages, conversations and turns in one answer, unless asked otherwise.
const DEFAULT_LIMIT: u32 = 50;
const MAX_LIMIT: u32 = 200;

pub(super) fn not_found() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "conversation not found")
}

fn is_owner(reads: &Reads, user: &str, id: ConversationId) -> Result<bool, StoreError> {
    Ok(reads.owner(id)?.as_deref() == Some(user))
}

/// One conversation, if it is that user's.
pub(super) fn owned(reads: &Reads, user: &str, id: ConversationId) -> Result<Option<ConversationRow>, StoreError> {
    Ok(reads.conversation(id)?.filter(|row| row.user == user))
}

/// `GET /api/conversations`
pub(super) async fn list(asked: &Asked<'_>) -> Result<Response<ResponseBody>, Refusal> {
    let query = asked.query()?;
    let (limit, after) = (query.limit(DEFAULT_LIMIT, MAX_LIMIT)?, query.number("after")?);
    let user = Arc::clone(&asked.caller.user);
    let rows = blocking(asked.gateway, move |reads| reads.conversations(Some(&user), after, limit + 1)).await?;
    let more = rows.len() > limit as usize;
    let shown: Vec<Value> = rows.iter().take(limit as usize).map(about).collect();
    let next = more.then(|| shown.last().map(|row| row["id"].clone())).flatten();
    Ok(ok(&json!({ "conversations": shown, "next": next })))
}

/// `GET /api/conversations/{id}/messages`: an array and nothing else, oldest first.
pub(super) async fn messages(asked: &Asked<'_>, id: ConversationId) -> Result<Response<ResponseBody>, Refusal> {
    let query = asked.query()?;
    let (limit, after, full) = (query.limit(DEFAULT_LIMIT, MAX_LIMIT)?, query.number("after")?, query.flag("full")?);
    let to = query.number("to")?;
    let user = Arc::clone(&asked.caller.user);
    let read = move |reads: &Reads| {
        if !is_owner(reads, &user, id)? {
            return Ok(None);
        }
        let after = match after {
            None => Some(0),
            Some(message) => reads.position(id, message)?,
        };
        let end = to.map(|message| reads.link(id, message)).transpose()?;
        let (Some(after), None | Some(Some(_))) = (after, end) else { return Ok(Some(None)) };
        reads.path_page(id, end.flatten(), after, limit).map(|rows| Some(Some(rows)))
    };
    let rows = blocking(asked.gateway, read).await?.ok_or_else(not_found)?;
    let rows = rows.ok_or_else(|| invalid("after, to", "there is no such message in this conversation"))?;
    let shown: Vec<Value> = rows.iter().map(|row| if full { in_full(id, row) } else { message(id, row) }).collect();
    let mut response = ok(&Value::from(shown));
    if let Some(last) = rows.last().filter(|_| rows.len() == limit as usize) {
        let full = if full { "&full=true" } else { "" };
        let to = to.map(|to| format!("&to={to}")).unwrap_or_default();
        let next =
            format!("</api/conversations/{id}/messages?limit={limit}&after={}{to}{full}>; rel=\"next\"", last.id);
        if let Ok(next) = HeaderValue::from_str(&next) {
            response.headers_mut().insert(header::LINK, next);
        }
    }
    Ok(response)
}

/// `GET /api/conversations/{id}`
pub(super) async fn details(asked: &Asked<'_>, id: ConversationId) -> Result<Response<ResponseBody>, Refusal> {
    let user = Arc::clone(&asked.caller.user);
    let read = move |reads: &Reads| {
        let Some(row) = owned(reads, &user, id)? else { return Ok(None) };
        let mut shown = about(&row);
        shown["system"] = history::system_prompts(&reads.latest_system(id)?.unwrap_or_default()).into();
        let (snapshots, checkpoints) = reads.kept(id)?;
        shown["snapshots"] = snapshots.into();
        shown["checkpoints"] = checkpoints.into();
        shown["load"] = reads.latest_turn(id)?.as_ref().and_then(load).into();
        if let Some(intake) = reads.intake(id)? {
            shown["conversation_history"] = serde_json::from_str(&intake).unwrap_or_default();
        }
        Ok(Some(shown))
    };
    Ok(ok(&blocking(asked.gateway, read).await?.ok_or_else(not_found)?))
}

/// `GET /api/conversations/{id}/branches`: where each ends; `to=` reads one.
pub(super) async fn branches(asked: &Asked<'_>, id: ConversationId) -> Result<Response<ResponseBody>, Refusal> {
    let user = Arc::clone(&asked.caller.user);
    let read = move |reads: &Reads| match is_owner(reads, &user, id)? {
        false => Ok(None),
        true => reads.tips(id).map(Some),
    };
    let tips = reading_much(asked.gateway, read).await?.ok_or_else(not_found)?;
    Ok(ok(&json!({ "branches": tips.iter().map(about_branch).collect::<Vec<_>>() })))
}

/// `GET /api/conversations/{id}/load`: how full the window was, turn by turn.
pub(super) async fn load_curve(asked: &Asked<'_>, id: ConversationId) -> Result<Response<ResponseBody>, Refusal> {
    let query = asked.query()?;
    let (limit, after) = (query.limit(MAX_LIMIT, 1000)?, query.number("after")?.unwrap_or(0));
    let user = Arc::clone(&asked.caller.user);
    let read = move |reads: &Reads| match is_owner(reads, &user, id)? {
        false => Ok(None),
        true => reads.turns_page(id, after, limit + 1).map(Some),
    };
    let turns = blocking(asked.gateway, read).await?.ok_or_else(not_found)?;
    let more = turns.len() > limit as usize;
    let page = &turns[..turns.len().min(limit as usize)];
    let next = page.last().filter(|_| more).map(|turn| turn.number);
    let shown: Vec<Value> = page.iter().filter_map(load).collect();
    Ok(ok(&json!({ "turns": shown, "next": next })))
}

/// `GET /api/conversations/{id}/snapshots`
pub(super) async fn snapshots(asked: &Asked<'_>, id: ConversationId) -> Result<Response<ResponseBody>, Refusal> {
    let user = Arc::clone(&asked.caller.user);
    let read = move |reads: &Reads| match is_owner(reads, &user, id)? {
        false => Ok(None),
        true => reads.snapshots(Some(id)).map(Some),
    };
    let rows = blocking(asked.gateway, read).await?.ok_or_else(not_found)?;
    Ok(ok(&json!({ "snapshots": rows.iter().map(about_snapshot).collect::<Vec<_>>() })))
}

/// `GET /api/conversations/{id}/export`
pub(super) async fn export(asked: &Asked<'_>, id: ConversationId) -> Result<Response<ResponseBody>, Refusal> {
    let to = asked.query()?.number("to")?;
    let user = Arc::clone(&asked.caller.user);
    let read = move |reads: &Reads| {
        let Some(row) = owned(reads, &user, id)? else { return Ok(None) };
        let end = to.map(|message| reads.link(id, message)).transpose()?;
        match end {
            Some(None) => Ok(Some(None)),
            end => export::conversation(reads, &row, end.flatten()).map(|lines| Some(Some(lines))),
        }
    };
    let lines = reading_much(asked.gateway, read).await?.ok_or_else(not_found)?;
    let lines = lines.ok_or_else(|| invalid("to", "there is no such message in this conversation"))?;
    Ok(respond::attachment(&format!("conversation-{id}.jsonl"), lines))
}

/// `DELETE /api/conversations/{id}`: everything of it goes, at once and for good.
pub(super) async fn delete(asked: &Asked<'_>, id: ConversationId) -> Result<Response<ResponseBody>, Refusal> {
    let user = Arc::clone(&asked.caller.user);
    let owner = Arc::clone(&user);
    let found = blocking(asked.gateway, move |reads| is_owner(reads, &user, id)).await?;
    if !found {
        return Err(not_found());
    }
    let gateway = Arc::clone(asked.gateway);
    // It goes on if the client does not wait for it.
    let deleted = tokio::spawn(async move { gateway.delete(&owner, id).await }).await;
    match deleted {
        Ok(Ok(())) => {}
        Ok(Err(StoreError::Rejected(Rejection::UnknownConversation(_)))) => return Err(not_found()),
        Ok(Err(error)) => {
            tracing::error!(%error, "a conversation could not be deleted");
            return Err(not_deleted());
        }
        Err(_) => return Err(not_deleted()),
    }
    let mut response = respond::json(StatusCode::NO_CONTENT, String::new());
    response.headers_mut().remove(header::CONTENT_TYPE);
    Ok(response)
}

fn not_deleted() -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the conversation could not be deleted: see Loadline's log")
}

/// `GET /api/conversations/search?q=`
pub(super) async fn search(asked: &Asked<'_>) -> Result<Response<ResponseBody>, Refusal> {
    let query = asked.query()?;
    let words = query.get("q").filter(|words| !words.trim().is_empty());
    let words = words.ok_or_else(|| invalid("q", "say what to search for"))?.to_owned();
    let (limit, within) = (query.limit(20, MAX_LIMIT)?, query.number("conversation")?);
    let user = Arc::clone(&asked.caller.user);
    // What was said a moment ago can be found, too.
    if let Err(error) = asked.gateway.events.submit(Change::Index).await {
        tracing::warn!(%error, "the search index could not be brought up to date");
    }
    let hits = reading_much(asked.gateway, move |reads| reads.search(Some(&user), within, &words, limit)).await?;
    let shown: Vec<Value> = hits.iter().map(hit).collect();
    Ok(ok(&json!({ "results": shown })))
}

fn ok(body: &Value) -> Response<ResponseBody> {
    no_store(respond::json(StatusCode::OK, body.to_string()))
}
