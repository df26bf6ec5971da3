//! `GET /loadline/turns/{number}`: what became of each message in a turn, with the texts.
//!
//! A receipt names messages by their numbers; here they are put beside it. A turn without a receipt left as it
//! came. Somebody else's turn does not exist.

use std::collections::HashMap;
use std::sync::Arc;

use http::request::Parts;
use http::{Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::auth::Caller;
use super::query::Query;
use super::views::{self, time};
use super::{no_store, reading_much};
use crate::context::Front;
use crate::context::identity::ConversationId;
use crate::history;
use crate::proxy::Gateway;
use crate::proxy::respond::{self, Refusal, ResponseBody};
use crate::store::{MessageRow, Reads, StoreError, TurnRow};

/// Messages in one answer.
const AT_ONCE: u32 = 500;

/// Characters of a text; the whole is in the conversation.
const TEXT_CHARS: usize = 4000;

/// What a receipt says, as far as it is needed here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Receipt {
    snapshot: Option<String>,
    parts: Vec<Value>,
    verbatim: Vec<[u32; 2]>,
    summarised: Vec<Summarised>,
    archived: Vec<[u32; 2]>,
    recalled: Vec<u32>,
    cleaned: Vec<Cleaned>,
    places: Vec<[u32; 3]>,
}

#[derive(Debug, Deserialize)]
struct Summarised {
    messages: [Option<u32>; 2],
}

#[derive(Debug, Deserialize)]
struct Cleaned {
    message: u32,
}

impl Receipt {
    fn fate(&self, number: u32) -> &'static str {
        let within = |ranges: &[[u32; 2]]| ranges.iter().any(|[first, last]| (*first..=*last).contains(&number));
        let covered = |one: &Summarised| match one.messages {
            [Some(first), Some(last)] => (first..=last).contains(&number),
            _ => false,
        };
        if self.recalled.contains(&number) {
            "recalled"
        } else if self.cleaned.iter().any(|cleaned| cleaned.message == number) {
            "cleaned"
        } else if within(&self.verbatim) {
            "verbatim"
        } else if self.summarised.iter().any(covered) {
            "summarised"
        } else if within(&self.archived) {
            "archived"
        } else {
            "verbatim"
        }
    }

    /// The number that a message had in the client's list, by its place in the history. System prompts are not in
    /// the history, and mostly come first.
    fn number(&self, seq: u32, system_prompts: u32) -> u32 {
        let after = self.places.partition_point(|[place, _, _]| *place <= seq);
        let run = after.checked_sub(1).map(|index| self.places[index]).filter(|[place, _, count]| seq < place + count);
        run.map_or(seq + system_prompts, |[place, number, _]| number + (seq - place))
    }
}

pub(crate) async fn turn(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    head: &Parts,
    number: &str,
) -> Result<Response<ResponseBody>, Refusal> {
    let not_found = || Refusal::new(StatusCode::NOT_FOUND, "there is no such turn");
    let before = Query::read(head.uri.query())?.number("before")?;
    let number: i64 = number.parse().map_err(|_| not_found())?;
    let user = Arc::clone(&caller.user);
    let read = move |reads: &Reads| {
        let Some((conversation, row)) = reads.turn(number)? else { return Ok(None) };
        if reads.owner(conversation)?.as_deref() != Some(&*user) {
            return Ok(None);
        }
        shown(reads, conversation, &row, before).map(Some)
    };
    let shown = reading_much(gateway, read).await?.ok_or_else(not_found)?;
    Ok(no_store(respond::json(StatusCode::OK, shown.to_string())))
}

fn shown(reads: &Reads, conversation: ConversationId, row: &TurnRow, before: Option<i64>) -> Result<Value, StoreError> {
    let stored = row.receipt.as_deref().map(|id| reads.receipt(id)).transpose()?.flatten();
    let receipt: Receipt = stored.and_then(|row| serde_json::from_str(&row.body).ok()).unwrap_or_default();
    let system = history::system_prompts(&row.system);
    let prompts = if row.dialect == "anthropic" { 0 } else { system.len() as u32 };
    // The last place that is wanted: the turn's own end, or the one before a place.
    let end = before.map_or(row.last_seq, |before| (before - 1).clamp(0, i64::from(row.last_seq)) as u32);
    let left = row.status != "refused" && row.arrived_tokens.is_some();
    let first = end.saturating_sub(AT_ONCE);
    let mut messages = match row.branch {
        Some(branch) => reads.path_to(branch, end, first)?,
        None => Vec::new(),
    };
    let is_answer = |message: &MessageRow| message.seq == row.last_seq && message.ours && message.role == "assistant";
    let answer = messages.pop_if(|message| is_answer(message));
    let listed = |message: &MessageRow| {
        let number = receipt.number(message.seq, prompts);
        let (text, cut) = shortened(&message.text);
        let calls = history::calls(message);
        json!({
            "place": message.seq,
            "number": number,
            "fate": if left { receipt.fate(number) } else { "kept" },
            "role": message.role,
            "text": text,
            "cut": cut,
            "at": time(message.created_at),
            "images": message.images,
            "tool_calls": Some(calls).filter(|calls| !calls.is_empty()),
            "tool_name": message.tool_name,
        })
    };
    let answered = |message: &MessageRow| {
        let (text, cut) = shortened(&message.text);
        json!({ "role": message.role, "text": text, "cut": cut, "at": time(message.created_at), "status": message.status })
    };
    let mut shown = views::load(row).unwrap_or_else(|| uncounted(row));
    shown["conversation"] = conversation.into();
    shown["finished_at"] = row.finished_at.map(time).into();
    shown["snapshot"] = receipt.snapshot.as_deref().into();
    shown["notes"] = notes(reads, conversation, &receipt)?.into();
    shown["parts"] = receipt.parts.clone().into();
    shown["system"] = system.into();
    shown["messages"] = messages.iter().map(listed).collect::<Vec<_>>().into();
    shown["earlier"] = first.into();
    shown["answer"] = answer.as_ref().map(answered).into();
    Ok(shown)
}

/// A turn that ended before it was counted.
fn uncounted(row: &TurnRow) -> Value {
    json!({
        "turn": row.number, "at": time(row.at), "model": row.model, "dialect": row.dialect, "status": row.status,
        "action": null, "basis": null, "arrived_tokens": null, "sent_tokens": null, "limit_tokens": null,
        "reported_tokens": null, "usage": null, "receipt": null,
    })
}

/// What left instead of messages, with its text.
fn notes(reads: &Reads, conversation: ConversationId, receipt: &Receipt) -> Result<Vec<Value>, StoreError> {
    let is_note = |part: &&Value| matches!(part["what"].as_str(), Some("rollover" | "checkpoint"));
    let parts: Vec<&Value> = receipt.parts.iter().filter(is_note).collect();
    if parts.is_empty() {
        return Ok(Vec::new());
    }
    let mut texts: HashMap<(String, u64), String> = HashMap::new();
    for row in reads.checkpoints(conversation)? {
        for (level, text) in (1..).zip(row.texts) {
            texts.insert((row.id.clone(), level), text);
        }
    }
    // Fronts say it as it left: merged and shortened.
    for (_, body, _) in reads.fronts(conversation)? {
        let Ok(front) = serde_json::from_str::<Front>(&body) else { continue };
        if let Some(rollover) = front.rollover {
            texts.insert((rollover.snapshot, 0), rollover.note);
        }
        for checkpoint in front.checkpoints {
            texts.insert((checkpoint.id.clone(), checkpoint.level.number().into()), checkpoint.text().to_owned());
        }
    }
    let note = |part: &&Value| {
        let (name, level) = match part["what"].as_str() {
            Some("rollover") => ("snapshot", 0),
            _ => ("checkpoint", part["level"].as_u64().unwrap_or(0)),
        };
        let id = part[name].as_str().unwrap_or_default().to_owned();
        let text = texts.get(&(id.clone(), level)).map(|text| shortened(text).0);
        json!({
            "what": part["what"],
            "id": id,
            "level": part["level"],
            "author": part["author"],
            "covers": part["covers"],
            "tokens": part["tokens"],
            "text": text,
        })
    };
    Ok(parts.iter().map(note).collect())
}

/// A text of bounded length, and whether something is missing.
fn shortened(text: &str) -> (String, bool) {
    match text.char_indices().nth(TEXT_CHARS) {
        Some((end, _)) => (text[..end].to_owned(), true),
        None => (text.to_owned(), false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_has_one_fate_and_recalling_is_the_last_word() {
        let receipt: Receipt = serde_json::from_value(json!({
            "verbatim": [[1, 1], [9, 10]], "archived": [[2, 5]], "recalled": [4],
            "summarised": [{ "checkpoint": "c", "level": 3, "messages": [6, 8] }], "cleaned": [{ "message": 10 }],
        }))
        .expect("a receipt");
        let fates: Vec<&str> = (1..=10).map(|number| receipt.fate(number)).collect();
        let wanted = [
            "verbatim",
            "archived",
            "archived",
            "recalled",
            "archived",
            "summarised",
            "summarised",
            "summarised",
            "verbatim",
            "cleaned",
        ];
        assert_eq!(fates, wanted);
    }

    #[test]
    fn places_give_the_numbers_and_without_them_system_prompts_come_first() {
        let receipt = Receipt { places: vec![[1, 2, 3], [4, 9, 1]], ..Receipt::default() };
        let numbers: Vec<u32> = (1..=5).map(|seq| receipt.number(seq, 1)).collect();
        assert_eq!(numbers, [2, 3, 4, 9, 6]);
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let (text, cut) = shortened(&"é".repeat(TEXT_CHARS + 1));
        assert!(cut && text.chars().count() == TEXT_CHARS);
        assert_eq!(shortened("short"), ("short".to_owned(), false));
    }
}
