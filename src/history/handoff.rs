//! Handing a conversation over: a stored history becomes a section of somebody else's prompt.
//!
//! What is handed over is cut to the limits of a preset, or condensed by a model where the preset would cut; with
//! a description of a task, only the passages that bear on it; with a budget, only as much as fits, the newest
//! last. What was left out is said. What is stored stays as it is.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::civil::DateTime;
use serde_json::{Value, json};

use super::calls;
use super::images;
use super::intake::{History, HistoryMessage, Limits, Preset, section, truncate};
use crate::checkpoint::prompt::{condense, speaks_of};
use crate::context::recall::{Index, Query};
use crate::context::{Budget, Message, Role, Tokens};
use crate::ollama::Models;
use crate::ollama::ask::{Question, ask};
use crate::ollama::count::{off_the_worker, rough_size};
use crate::ollama::models::Model;
use crate::store::MessageRow;
use crate::tokenize::fallback;

/// Put before a message that a model has said in fewer words.
const CONDENSED: &str = "(condensed) ";

/// More than the index reaches to either side.
const APART: usize = 8;

/// More is no shortening.
const MAX_WORDS: usize = 2000;

/// Characters to a word, about.
const CHARS_PER_WORD: usize = 6;

/// What is asked for.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    pub preset: Preset,
    /// The room there is.
    pub tokens: Option<Tokens>,
    /// The task that it must bear on.
    pub thread: Option<String>,
    /// Whether a model shortens what the preset would cut.
    pub compress: bool,
    /// The model to count and shorten with; none: the conversation's own.
    pub model: Option<String>,
}

/// What it takes besides the conversation.
#[derive(Debug)]
pub struct Means<'a> {
    pub models: &'a Models,
    pub limits: &'a Limits,
    /// The share of a window that is kept for an answer.
    pub reserve: f64,
    /// What shortening may take in all.
    pub patience: Duration,
}

/// Why it cannot be handed over.
#[derive(Debug, thiserror::Error)]
pub enum CannotHandOver {
    #[error("tokens: {budget} are too few: the section's heading and one line take {least}")]
    TooSmall { budget: Tokens, least: Tokens },
    #[error(
        "compress: model `{0}` is not there: is Ollama running? Another one can be named; without compress it is cut"
    )]
    NoModel(String),
}

/// What is handed over.
#[derive(Debug, Clone)]
pub struct Handed {
    pub section: String,
    pub history: History,
    /// Messages that had no room, or did not bear on the task.
    pub left_out: usize,
    /// What the section takes, and how that was counted.
    pub tokens: Tokens,
    pub basis: &'static str,
    /// Messages that a model has said in fewer words.
    pub condensed: usize,
}

/// Hands over a stored history. The model is only needed for counting and for shortening. None: there is nothing
/// to hand over.
pub async fn made(
    means: &Means<'_>,
    model: &str,
    said: &[MessageRow],
    wanted: &Wanted,
) -> Result<Option<Handed>, CannotHandOver> {
    let Wanted { preset, tokens, .. } = *wanted;
    let model = wanted.model.as_deref().unwrap_or(model);
    let mut messages = messages(said);
    let given = messages.len();
    let bytes = messages.iter().map(|message| message.content.len()).sum();
    if let Some(task) = &wanted.thread {
        messages = off_the_worker(bytes, || thread(messages, task));
    }
    let known: Option<Arc<Model>> = means.models.get(model).await.ok();
    let mut condensed = 0;
    if wanted.compress {
        let known = known.as_deref().ok_or_else(|| CannotHandOver::NoModel(model.to_owned()))?;
        let effort = (means.reserve, means.patience);
        condensed = compress(&mut messages, preset, means.limits, means.models, known, effort).await;
    }
    let count = |text: &str| known.as_deref().map_or_else(|| fallback::estimate(text), |model| rough_size(model, text));
    let exact = known.as_deref().is_some_and(|model| model.tokenizer.is_ok());
    let clock = jiff::tz::TimeZone::UTC.to_datetime(jiff::Timestamp::now());
    let handed =
        off_the_worker(bytes, || hand_over(messages, given, truncated_by(preset, means.limits, clock), tokens, count))?;
    Ok(handed.map(|handed| Handed { condensed, basis: if exact { "exact" } else { "estimated" }, ..handed }))
}

/// The messages of a stored history, whole, with what hangs on them.
fn messages(rows: &[MessageRow]) -> Vec<HistoryMessage> {
    rows.iter().map(message).collect()
}

fn message(row: &MessageRow) -> HistoryMessage {
    let mut content = row.text.clone();
    for call in calls(row) {
        let separator = if content.is_empty() { "" } else { "\n" };
        content.push_str(&format!("{separator}[calls {} with {}]", call.name, call.arguments));
    }
    let at = jiff::Timestamp::from_millisecond(row.created_at).map(|at| at.to_string()).unwrap_or_default();
    let mut message = HistoryMessage::new(row.role.as_str(), content, at);
    if let Some(raw) = &row.raw {
        let read: Value = serde_json::from_str(raw).unwrap_or_default();
        let own = read["attachments"].as_array().cloned().unwrap_or_default();
        message.attachments = own.into_iter().chain(images::blocks(&read)).collect();
    }
    if message.attachments.is_empty() {
        message.attachments = (0..row.images).map(|_| json!({ "type": "image" })).collect();
    }
    message
}

/// Only what bears on a task: the exchanges that speak of it, each a question with what followed it.
fn thread(messages: Vec<HistoryMessage>, task: &str) -> Vec<HistoryMessage> {
    let mut exchanges: Vec<Vec<HistoryMessage>> = Vec::new();
    for message in messages {
        match exchanges.last_mut() {
            Some(exchange) if message.role != "user" => exchange.push(message),
            _ => exchanges.push(vec![message]),
        }
    }
    // The index reads a text together with its neighbours. Here neighbours are other exchanges, and say nothing
    // of this one: they are kept apart by silence.
    let said = |exchange: &Vec<HistoryMessage>| {
        exchange.iter().map(|message| message.content.as_str()).collect::<Vec<_>>().join("\n")
    };
    let texts: Vec<String> = exchanges.iter().map(said).collect();
    let silence = std::iter::repeat_n("", APART);
    let index = Index::build(texts.iter().flat_map(|text| std::iter::once(text.as_str()).chain(silence.clone())));
    let hits = index.rank(&Query { newest: task, before: None, semantic: None, keen: 0.0 });
    let wanted: HashSet<usize> =
        hits.iter().filter(|hit| hit.index.is_multiple_of(APART + 1)).map(|hit| hit.index / (APART + 1)).collect();
    let kept = exchanges.into_iter().enumerate().filter(|(number, _)| wanted.contains(number));
    kept.flat_map(|(_, exchange)| exchange).collect()
}

/// Has a model say in fewer words what the preset would cut. What it cannot do in time is cut after all. Returns
/// how many it has done.
async fn compress(
    messages: &mut [HistoryMessage],
    preset: Preset,
    limits: &Limits,
    models: &Models,
    model: &Model,
    (reserve, patience): (f64, Duration),
) -> usize {
    let limits = limits.of(preset);
    let surplus = messages.len().saturating_sub(limits.max_messages);
    let mut condensed = 0;
    let given_up_at = tokio::time::Instant::now() + patience;
    for message in &mut messages[surplus..] {
        let limit = if message.role == "user" { limits.user_chars } else { limits.assistant_chars };
        if message.original_length <= limit {
            continue;
        }
        let asked = shorter(&message.content, limit, models, model, reserve);
        let Ok(answer) = tokio::time::timeout_at(given_up_at, asked).await else { break };
        if let Some(text) = answer {
            message.content = format!("{CONDENSED}{text}");
            message.truncated = true;
            condensed += 1;
        }
    }
    condensed
}

async fn shorter(text: &str, limit_chars: usize, models: &Models, model: &Model, reserve: f64) -> Option<String> {
    let words = (limit_chars.saturating_sub(CONDENSED.len()) / CHARS_PER_WORD).clamp(8, MAX_WORDS) as Tokens;
    let question = [Message::plain(Role::User, condense(text, words), 0)];
    let (window, _) = models.window(model, None);
    let limit = Budget::new(window, reserve, Some(words * 2)).limit;
    if rough_size(model, &question[0].text) + 32 > limit {
        return None;
    }
    let asked =
        Question { model: &model.name, messages: &question, options: None, keep_alive: None, answer_tokens: words * 2 };
    let reply = match ask(model.upstream(), &asked).await {
        Ok(reply) => reply,
        Err(error) => {
            tracing::warn!(model = model.name, %error, "a message could not be condensed: it is cut");
            return None;
        }
    };
    let one_line: Vec<&str> = reply.text.split_whitespace().collect();
    let said = one_line.join(" ");
    let fits = said.chars().count() + CONDENSED.len() <= limit_chars;
    (fits && speaks_of(text, &said)).then_some(said)
}

/// What a preset makes of messages.
fn truncated_by(preset: Preset, limits: &Limits, now: DateTime) -> impl FnOnce(Vec<HistoryMessage>) -> History + '_ {
    move |messages| truncate(messages, preset, limits, now)
}

/// The section, cut to the preset and fitted into the budget. `given` is how many messages there are in all.
fn hand_over(
    messages: Vec<HistoryMessage>,
    given: usize,
    cut: impl FnOnce(Vec<HistoryMessage>) -> History,
    budget: Option<Tokens>,
    count: impl Fn(&str) -> Tokens,
) -> Result<Option<Handed>, CannotHandOver> {
    let whole = cut(messages);
    if whole.messages.is_empty() {
        return Ok(None);
    }
    let handed = |history: History| {
        let left_out = given - history.messages.len();
        let section = told(&section(&history), left_out);
        let tokens = count(&section);
        Handed { left_out, section, history, tokens, condensed: 0, basis: "estimated" }
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
        0 => shortened(&newest(&whole, 1), budget, handed),
        kept => Ok(Some(handed(newest(&whole, kept)))),
    }
}

/// The section with a word of ours about what is not in it, where nobody can be taken to have said it.
fn told(section: &str, left_out: usize) -> String {
    match left_out {
        0 => section.to_owned(),
        1 => section.replacen("\n[1] ", "\n... (1 message omitted for brevity)\n\n[1] ", 1),
        some => section.replacen("\n[1] ", &format!("\n... ({some} messages omitted for brevity)\n\n[1] "), 1),
    }
}

/// The newest messages.
fn newest(whole: &History, kept: usize) -> History {
    let mut history = whole.clone();
    history.messages.drain(..whole.messages.len() - kept);
    counted(history)
}

/// One message alone, as much of it as fits.
fn shortened(
    last: &History,
    budget: Tokens,
    handed: impl Fn(History) -> Handed,
) -> Result<Option<Handed>, CannotHandOver> {
    let text: Vec<char> = last.messages.first().map(|message| message.content.chars().collect()).unwrap_or_default();
    let cut = |chars: usize| {
        let mut history = last.clone();
        if let Some(message) = history.messages.first_mut() {
            message.content = text[..chars].iter().collect::<String>() + " ... (truncated)";
            message.truncated = true;
        }
        handed(counted(history))
    };
    let least = cut(0).tokens;
    if least > budget {
        return Err(CannotHandOver::TooSmall { budget, least });
    }
    let (mut fits, mut too_many) = (0, text.len());
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
