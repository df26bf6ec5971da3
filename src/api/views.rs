//! Stored things as the API and the commands show them, as JSON.

use serde_json::{Value, json};

use crate::context::Usage;
use crate::context::identity::ConversationId;
use crate::events::now_ms;
use crate::history;
use crate::store::{ConversationRow, Hit, MessageRow, SnapshotRow, TurnRow};

/// Characters of a title.
const TITLE_CHARS: usize = 80;

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
pub(super) fn message(conversation: ConversationId, row: &MessageRow) -> Value {
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
        "attachments": history::attachments(row),
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
pub fn hit(hit: &Hit) -> Value {
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
pub fn marked(hit: &Hit) -> String {
    hit.excerpt.replace('\u{2}', "«").replace('\u{3}', "»")
}

/// Now, as the API writes it.
pub(super) fn now() -> String {
    time(now_ms())
}
