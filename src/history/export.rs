//! Canonical JSONL: one message a line, in the form that session tools share.
//!
//! Tool calls are blocks of the assistant's message, tool results blocks of a user's message, system prompts
//! are `meta` lines. Ids follow from what is stored, so exporting twice gives the same bytes.

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::store::MessageRow;

/// What stands for a tool result that said nothing: the format wants something.
const NO_OUTPUT: &str = "(no output)";

/// A history as canonical lines.
pub fn lines(session: &str, model: &str, system: &[String], rows: &[MessageRow]) -> String {
    let mut out = String::new();
    let mut parent: Option<String> = None;
    let started = rows.first().map_or(0, |row| row.created_at);
    for (number, text) in system.iter().enumerate() {
        let uuid = uuid::Uuid::from_bytes(digest(session, &format!("system {number} {text}"))).to_string();
        let message = json!({ "role": "system", "content": text });
        add(&mut out, session, &uuid, parent.as_deref(), "meta", started, message);
        parent = Some(uuid);
    }
    let mut open_calls = VecDeque::new();
    for row in rows {
        let uuid = uuid::Uuid::from_bytes(digest(session, &row.link.to_hex())).to_string();
        let (kind, message) = content(row, model, &uuid, &mut open_calls);
        add(&mut out, session, &uuid, parent.as_deref(), kind, row.created_at, message);
        parent = Some(uuid);
    }
    out
}

fn digest(session: &str, name: &str) -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(&blake3::hash(format!("{session}\n{name}").as_bytes()).as_bytes()[..16]);
    half
}

fn add(out: &mut String, session: &str, uuid: &str, parent: Option<&str>, kind: &str, at_ms: i64, message: Value) {
    let at = jiff::Timestamp::from_millisecond(at_ms).map(|at| format!("{at:.3}")).unwrap_or_default();
    let line = json!({
        "uuid": uuid,
        "parentUuid": parent,
        "timestamp": at,
        "type": kind,
        "sessionId": session,
        "provider": "loadline",
        "message": message,
    });
    out.push_str(&line.to_string());
    out.push('\n');
}

/// The kind of line a message is, and its content. Calls without an id of their own get one, and the
/// results that follow are matched in order.
fn content(row: &MessageRow, model: &str, uuid: &str, open_calls: &mut VecDeque<String>) -> (&'static str, Value) {
    if row.role == "tool" {
        let named = row.tool_call_id.clone().filter(|id| !id.is_empty());
        let id = match named {
            Some(id) => {
                open_calls.retain(|open| *open != id);
                id
            }
            None => open_calls.pop_front().unwrap_or_default(),
        };
        let text = if row.text.is_empty() { NO_OUTPUT } else { &row.text };
        if id.is_empty() {
            // A result that no call asked for is told as what it is: something that was said to the model.
            return ("user", json!({ "role": "user", "content": text }));
        }
        let result = json!({ "type": "tool_result", "tool_use_id": id, "content": text });
        return ("user", json!({ "role": "user", "content": [result] }));
    }
    let (kind, role) = if row.role == "assistant" { ("assistant", "assistant") } else { ("user", "user") };
    let mut blocks = Vec::new();
    if !row.thinking.is_empty() {
        blocks.push(json!({ "type": "thinking", "thinking": row.thinking }));
    }
    let calls: Vec<Value> =
        row.tool_calls.as_deref().and_then(|calls| serde_json::from_str(calls).ok()).unwrap_or_default();
    if !row.text.is_empty() && (!blocks.is_empty() || !calls.is_empty()) {
        blocks.push(json!({ "type": "text", "text": row.text }));
    }
    for (number, call) in calls.iter().enumerate() {
        let id = call["id"]
            .as_str()
            .filter(|id| !id.is_empty())
            .map_or_else(|| format!("call-{uuid}-{number}"), str::to_owned);
        blocks.push(json!({ "type": "tool_use", "id": id, "name": call["name"], "input": call["arguments"] }));
        open_calls.push_back(id);
    }
    let content = if blocks.is_empty() { json!(row.text) } else { Value::from(blocks) };
    let mut message = json!({ "role": role, "content": content });
    if kind == "assistant" {
        message["model"] = model.into();
    }
    (kind, message)
}
