//! A user's conversations: which there are, what was said, how full the window was, what was kept.
//!
//! Somebody else's conversation and one that does not exist are answered alike.

use std::sync::Arc;

use http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

use super::query::invalid;
use super::{Asked, blocking, reading_much};
use crate::context::Usage;
use crate::context::identity::ConversationId;
use crate::events::now_ms;
use crate::history::{self, export};
use crate::proxy::respond::{self, Refusal, ResponseBody};
use crate::store::{Change, ConversationRow, MessageRow, Reads, Rejection, SnapshotRow, StoreError, TurnRow};

/// Messages, conversations and turns in one answer, unless asked otherwise.
const DEFAULT_LIMIT: u32 = 50;
const MAX_LIMIT: u32 = 200;

/// Characters of a title.
const TITLE_CHARS: usize = 80;

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
    let mut response = respond::json(StatusCode::OK, body.to_string());
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A time as people and programs write it.
pub fn time(at_ms: i64) -> String {
    jiff::Timestamp::from_millisecond(at_ms).map(|at| at.to_string()).unwrap_or_default()
}

/// What a list says of a conversation.
pub fn about(row: &ConversationRow) -> Value {
    let mut shown = json!({
        "id": row.id,
        "title": title(&row.title),
        "model": row.model,
        "messages": row.messages,
        "branches": row.branches,
        "created_at": time(row.created_at),
        "updated_at": time(row.updated_at),
    });
    if let Some(session) = &row.session {
        shown["imported_from"] = json!({ "session": session, "provider": row.provider });
    }
    shown
}

/// One line, not too long.
pub fn title(text: &str) -> String {
    let line: Vec<&str> = text.split_whitespace().collect();
    let line = line.join(" ");
    let clean: String = line.chars().filter(|char| !char.is_control()).collect();
    if clean.chars().count() <= TITLE_CHARS {
        return clean;
    }
    clean.chars().take(TITLE_CHARS - 1).chain(['…']).collect()
}

/// The five fields; whoever speaks for a model is the assistant, whatever is said to it comes from the user.
fn message(conversation: ConversationId, row: &MessageRow) -> Value {
    let role = if matches!(row.role.as_str(), "assistant" | "orchestrator") { "assistant" } else { "user" };
    json!({
        "id": row.id,
        "conversation_id": conversation,
        "role": role,
        "content": row.text,
        "created_at": time(row.created_at),
    })
}

/// The same with everything that is stored of it.
pub fn in_full(conversation: ConversationId, row: &MessageRow) -> Value {
    let calls = history::calls(row);
    json!({
        "id": row.id,
        "conversation_id": conversation,
        "seq": row.seq,
        "role": row.role,
        "content": row.text,
        "thinking": Some(&row.thinking).filter(|thinking| !thinking.is_empty()),
        "tool_calls": Some(calls).filter(|calls| !calls.is_empty()),
        "tool_name": row.tool_name,
        "tool_call_id": row.tool_call_id,
        "images": row.images,
        "status": row.status,
        "created_at": time(row.created_at),
    })
}

/// The end of a branch.
pub fn about_branch(tip: &MessageRow) -> Value {
    json!({ "to": tip.id, "messages": tip.seq, "ends_with": title(&tip.text), "created_at": time(tip.created_at) })
}

/// How full the window was in a turn that was counted.
pub fn load(turn: &TurnRow) -> Option<Value> {
    let (arrived, limit) = (turn.arrived_tokens?, turn.limit_tokens?);
    Some(json!({
        "turn": turn.number,
        "at": time(turn.at),
        "model": turn.model,
        "dialect": turn.dialect,
        "status": turn.status,
        "action": turn.action,
        "basis": turn.basis,
        "arrived_tokens": arrived,
        "sent_tokens": turn.sent_tokens,
        "limit_tokens": limit,
        "reported_tokens": turn.reported_tokens,
        "usage": Usage { total: arrived, limit }.to_string(),
        "receipt": turn.receipt,
    }))
}

pub fn about_snapshot(row: &SnapshotRow) -> Value {
    json!({
        "id": row.id,
        "conversation": row.conversation,
        "created_at": time(row.created_at),
        "reason": row.reason,
        "messages": row.messages,
        "checkpoints": row.checkpoints,
        "tokens": row.tokens,
        "limit_tokens": row.limit_tokens,
    })
}

/// A place that was found; in `marked`, what was found stands between « and ».
pub fn hit(hit: &crate::store::Hit) -> Value {
    let plain: String = hit.excerpt.chars().filter(|char| !matches!(char, '\u{2}' | '\u{3}')).collect();
    json!({
        "conversation_id": hit.conversation,
        "message_id": hit.message,
        "role": hit.role,
        "created_at": time(hit.created_at),
        "excerpt": plain,
        "marked": marked(hit),
    })
}

/// An excerpt with what was found between « and ».
pub fn marked(hit: &crate::store::Hit) -> String {
    hit.excerpt.replace('\u{2}', "«").replace('\u{3}', "»")
}

/// Now, as the API writes it.
pub(super) fn now() -> String {
    time(now_ms())
}
