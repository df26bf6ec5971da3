//! Handing a conversation over: a stored history becomes a section of somebody else's prompt.
//!
//! What is handed over is cut to the limits of a preset, or condensed by a model where the preset would cut; with
//! a description of a task, only the passages that bear on it; with a budget, only as much as fits, the newest
//! last. What was left out is said. What is stored stays as it is.

use jiff::civil::DateTime;
use serde_json::{Value, json};

use super::export;
use super::intake::{History, HistoryMessage, Limits, Preset, section, truncate};
use crate::checkpoint::prompt::condense;
use crate::context::recall::{Index, Query};
use crate::context::{Budget, Message, Role, Tokens};
use crate::ollama::Models;
use crate::ollama::ask::{Question, ask};
use crate::ollama::count::rough_size;
use crate::ollama::models::Model;
use crate::store::MessageRow;

/// Put before the first message when earlier ones were left out for want of room.
const OMITTED: &str = "... (earlier messages omitted for brevity)\n\n";

/// Put before a message that a model has said in fewer words.
const CONDENSED: &str = "(condensed) ";

/// Characters to a word, about.
const CHARS_PER_WORD: usize = 6;

/// What is handed over.
#[derive(Debug, Clone)]
pub struct Handed {
    pub section: String,
    pub history: History,
    /// Messages that had no room, or did not bear on the task.
    pub left_out: usize,
    /// What the section takes.
    pub tokens: Tokens,
    /// Messages that a model has said in fewer words.
    pub condensed: usize,
}

/// The budget is too small for anything.
#[derive(Debug, thiserror::Error)]
#[error("{budget} tokens are too few: the section's heading and one line take {least}")]
pub struct TooSmall {
    pub budget: Tokens,
    pub least: Tokens,
}

/// The messages of a stored history, whole, with what hangs on them.
pub fn messages(rows: &[MessageRow]) -> Vec<HistoryMessage> {
    rows.iter().map(message).collect()
}

fn message(row: &MessageRow) -> HistoryMessage {
    let mut content = row.text.clone();
    let calls: Vec<Value> =
        row.tool_calls.as_deref().and_then(|calls| serde_json::from_str(calls).ok()).unwrap_or_default();
    for call in calls {
        let name = call["name"].as_str().unwrap_or_default();
        let separator = if content.is_empty() { "" } else { "\n" };
        content.push_str(&format!("{separator}[calls {name} with {}]", call["arguments"]));
    }
    let at = jiff::Timestamp::from_millisecond(row.created_at).map(|at| at.to_string()).unwrap_or_default();
    let mut message = HistoryMessage::new(row.role.as_str(), content, at);
    if let Some(raw) = &row.raw {
        let read: Value = serde_json::from_str(raw).unwrap_or_default();
        let own = read["attachments"].as_array().cloned().unwrap_or_default();
        message.attachments = own.into_iter().chain(export::images(raw)).collect();
    }
    if message.attachments.is_empty() {
        message.attachments = (0..row.images).map(|_| json!({ "type": "image" })).collect();
    }
    message
}

/// Only what bears on a task: the messages that speak of it, each with the one it answers or is answered by.
pub fn thread(messages: Vec<HistoryMessage>, task: &str) -> Vec<HistoryMessage> {
    let index = Index::build(messages.iter().map(|message| message.content.as_str()));
    let hits = index.rank(&Query { newest: task, before: None, semantic: None, keen: 0.0 });
    let mut wanted = vec![false; messages.len()];
    eprintln!("{hits:?}");
    for hit in hits {
        wanted[hit.index] = true;
        let partner = if messages[hit.index].role == "user" { Some(hit.index + 1) } else { hit.index.checked_sub(1) };
        if let Some(partner) = partner.filter(|partner| *partner < messages.len()) {
            wanted[partner] = true;
        }
    }
    messages.into_iter().zip(wanted).filter_map(|(message, wanted)| wanted.then_some(message)).collect()
}

/// Has a model say in fewer words what the preset would cut. What it cannot do is cut after all. Returns how many
/// it has done.
pub async fn compress(
    messages: &mut [HistoryMessage],
    preset: Preset,
    limits: &Limits,
    models: &Models,
    model: &Model,
    reserve: f64,
) -> usize {
    let limits = limits.of(preset);
    let surplus = messages.len().saturating_sub(limits.max_messages);
    let mut condensed = 0;
    for message in &mut messages[surplus..] {
        let limit = if message.role == "user" { limits.user_chars } else { limits.assistant_chars };
        if message.original_length <= limit {
            continue;
        }
        if let Some(text) = shorter(&message.content, limit, models, model, reserve).await {
            message.content = format!("{CONDENSED}{text}");
            message.truncated = true;
            condensed += 1;
        }
    }
    condensed
}

async fn shorter(text: &str, limit_chars: usize, models: &Models, model: &Model, reserve: f64) -> Option<String> {
    let words = ((limit_chars.saturating_sub(CONDENSED.len())) / CHARS_PER_WORD).max(8) as Tokens;
    let question = [Message::plain(Role::User, condense(text, words), 0)];
    let (window, _) = models.window(model, None);
    let limit = Budget::new(window, reserve, Some(words * 2)).limit;
    if rough_size(model, &question[0].text) + 32 > limit {
        return None;
    }
    let asked =
        Question { model: &model.name, messages: &question, options: None, keep_alive: None, answer_tokens: words * 2 };
    let reply = match ask(models.upstream(), &asked).await {
        Ok(reply) => reply,
        Err(error) => {
            tracing::warn!(model = model.name, %error, "a message could not be condensed: it is cut");
            return None;
        }
    };
    let one_line: Vec<&str> = reply.text.split_whitespace().collect();
    let said = one_line.join(" ");
    let fits = said.chars().count() + CONDENSED.len() <= limit_chars;
    (fits && crate::proxy::preprocess::speaks_of(text, &said)).then_some(said)
}

/// The section, cut to the preset and fitted into the budget. None: there is nothing to hand over.
pub fn hand_over(
    messages: Vec<HistoryMessage>,
    preset: Preset,
    limits: &Limits,
    budget: Option<Tokens>,
    count: impl Fn(&str) -> Tokens,
    now: DateTime,
) -> Result<Option<Handed>, TooSmall> {
    let given = messages.len();
    let whole = truncate(messages, preset, limits, now);
    if whole.messages.is_empty() {
        return Ok(None);
    }
    let handed = |history: History| {
        let section = section(&history);
        let tokens = count(&section);
        Handed { left_out: given - history.messages.len(), section, history, tokens, condensed: 0 }
    };
    let all = handed(whole.clone());
    let Some(budget) = budget.filter(|budget| all.tokens > *budget) else { return Ok(Some(all)) };
    // The fewer messages, the smaller the section: halving finds the most that fit.
    let (mut fits, mut too_many) = (0, whole.messages.len());
    while too_many - fits > 1 {
        let middle = fits + (too_many - fits) / 2;
        if handed(newest(&whole, middle)).tokens <= budget {
            fits = middle;
        } else {
            too_many = middle;
        }
    }
    match fits {
        0 => shortened(&whole, budget, handed),
        kept => Ok(Some(handed(newest(&whole, kept)))),
    }
}

/// The newest messages, with a word about those before them.
fn newest(whole: &History, kept: usize) -> History {
    let mut history = whole.clone();
    history.messages.drain(..whole.messages.len() - kept);
    if let Some(first) = history.messages.first_mut() {
        first.content.insert_str(0, OMITTED);
    }
    counted(history)
}

/// The newest message alone, as much of it as fits.
fn shortened(whole: &History, budget: Tokens, handed: impl Fn(History) -> Handed) -> Result<Option<Handed>, TooSmall> {
    let last = newest(whole, 1);
    let text: Vec<char> = last.messages.first().map(|message| message.content.chars().collect()).unwrap_or_default();
    let cut = |chars: usize| {
        let mut history = last.clone();
        if let Some(message) = history.messages.first_mut() {
            message.content = text[..chars].iter().collect::<String>() + " ... (truncated)";
            message.truncated = true;
        }
        handed(counted(history))
    };
    let least = cut(OMITTED.chars().count().min(text.len()));
    if least.tokens > budget {
        return Err(TooSmall { budget, least: least.tokens });
    }
    let (mut fits, mut too_many) = (OMITTED.chars().count().min(text.len()), text.len());
    while too_many - fits > 1 {
        let middle = fits + (too_many - fits) / 2;
        if cut(middle).tokens <= budget { fits = middle } else { too_many = middle }
    }
    Ok(Some(cut(fits)))
}

fn counted(mut history: History) -> History {
    history.total_messages = history.messages.len();
    history.truncated_count = history.messages.iter().filter(|message| message.truncated).count();
    let times = || history.messages.iter().map(|message| &message.timestamp);
    history.metadata.oldest_message = times().min().cloned();
    history.metadata.newest_message = times().max().cloned();
    history
}
