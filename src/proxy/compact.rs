//! What happens before sending at 95 % and at 100 %: in milliseconds, without asking a model.
//!
//! Compression makes the checkpoints shorter, and where that is not enough makes notes on older messages
//! on the spot. A rollover takes a snapshot of everything and starts afresh from a note, the user's last
//! messages and the current turn. Both are on disk before anything that depends on them is sent.

use std::sync::Arc;

use http::StatusCode;
use serde_json::json;

use super::Gateway;
use super::conversations::{Covering, Turn};
use super::fit::{Arrived, Effects, Laid, lay, sizes};
use super::respond::Refusal;
use crate::context::extract::{Said, extract, shorten};
use crate::context::front::{Level, summary_budget};
use crate::context::ladder::CHECKPOINT_PERCENT;
use crate::context::plan::{
    Kind, current_exchange, current_turn, cut_for, rollover_note, users_that_fit, users_that_must_stay, whole_from,
};
use crate::context::{Checkpoint, Front, Message, Role, Rollover, Tokens, Usage};
use crate::dialect::Prompt;
use crate::events;
use crate::ollama::count::{off_the_worker, rough_size};
use crate::ollama::models::Model;
use crate::store::{Change, Compaction, NewCheckpoint, NewSnapshot};

/// Compresses: checkpoints to level 1 and half of their space; then, if that is not enough, notes on older
/// messages too. `None` if there is nothing to gain.
pub(super) async fn compress(
    gateway: &Gateway,
    model: &Model,
    arrived: &Arrived<'_>,
    now: &Laid,
    usage: Usage,
    effects: Effects,
) -> Result<Option<Laid>, Refusal> {
    let (Some(turn), Prompt::Chat(messages)) = (arrived.turn, &arrived.request.prompt) else { return Ok(None) };
    let size = |text: &str| rough_size(model, text);
    let mut best = None;
    if let Some(covering) = now.covering.as_ref().filter(|covering| !covering.front.checkpoints.is_empty()) {
        let front = Front { made_at: messages.len(), limit: usage.limit, ..covering.front.compressed(&size) };
        let covering = Covering { front: Arc::new(front), ..covering.clone() };
        best = lay(model, arrived, Some(covering), None).await;
    }
    let total = |laid: &Option<Laid>| laid.as_ref().map_or(usage.total, |laid| laid.count.tokens);
    if u64::from(total(&best)) * 100 >= u64::from(usage.limit) * CHECKPOINT_PERCENT {
        let from = best.as_ref().unwrap_or(now);
        let noted = off_the_worker(arrived.body.len(), || note_older(gateway, model, arrived, messages, from, usage));
        if let Some(covering) = noted {
            let laid = lay(model, arrived, Some(covering), None).await;
            best = laid.filter(|laid| laid.count.tokens < total(&best)).or(best);
        }
    }
    // Below 100 % nothing forces it: what gains little only costs the prefix cache.
    let least = (f64::from(usage.limit) * gateway.config.compaction.min_gain) as Tokens;
    let Some(mut laid) = best.filter(|laid| laid.count.tokens + least <= usage.total) else { return Ok(None) };
    laid.note_saving(now, usage.total);
    if effects == Effects::Real {
        keep(gateway, turn, &laid, None, events::compression(usage, laid.count.tokens)).await?;
    }
    Ok(Some(laid))
}

/// A front with notes on older messages, made without a model, aiming at the target.
fn note_older(
    gateway: &Gateway,
    model: &Model,
    arrived: &Arrived<'_>,
    messages: &[Message<'_>],
    now: &Laid,
    usage: Usage,
) -> Option<Covering> {
    let kinds = &arrived.request.kinds;
    let before = now.covering.as_ref().map(|covering| covering.front.as_ref().clone()).unwrap_or_default();
    let covered = now.covering.as_ref().map_or(0, |covering| covering.covered);
    let start = messages.get(covered)?.source;
    let mut sizes = sizes(model, &messages[covered..], kinds.len());
    let overhead = now.count.tokens.saturating_sub(sizes.iter().sum());
    let fixed = spread(overhead, &mut sizes[start..]) + Level::Compact.budget(usage.limit);
    let target = (f64::from(usage.limit) * gateway.config.compaction.target) as Tokens;
    let cut = cut_for(kinds, &sizes, start, fixed, target)?;
    let size = |text: &str| rough_size(model, text);
    let said: Vec<Said<'_>> = said_between(messages, kinds, &before, covered, cut);
    let end = messages.iter().position(|message| message.source >= cut && message.role != Role::System)?;
    let texts = Level::ALL.map(|level| extract(&said, level.budget(usage.limit), &size));
    let mut checkpoint = checkpoint(&before, end, EXTRACT, texts);
    checkpoint.level = Level::Compact;
    let front = Front {
        users_kept: users_that_must_stay(kinds, cut),
        made_at: messages.len(),
        ..before.with(checkpoint, usage.limit, &size)
    };
    let link = *arrived.turn?.links.get(end.checked_sub(1)?)?;
    Some(Covering { front: Arc::new(front), covered: end, link })
}

/// Who wrote notes that no model wrote.
pub(crate) const EXTRACT: &str = "extract";

/// A new, detailed checkpoint behind a front, up to the first `end` messages.
pub(crate) fn checkpoint(front: &Front, end: usize, author: &str, texts: [String; 3]) -> Checkpoint {
    Checkpoint {
        id: format!("checkpoint-{}", uuid::Uuid::now_v7().simple()),
        first: front.last() + 1,
        last: end,
        level: Level::Detailed,
        author: author.to_owned(),
        texts,
    }
}

/// What was said between a front and a cut, with the user's messages that the front had kept.
pub(crate) fn said_between<'m>(
    messages: &'m [Message<'_>],
    kinds: &[Kind],
    front: &Front,
    covered: usize,
    cut: usize,
) -> Vec<Said<'m>> {
    let said = |message: &'m Message<'_>| Said { role: message.role.name(), text: message.text.as_ref() };
    let is_user = |message: &&'m Message<'_>| kinds.get(message.source) == Some(&Kind::User);
    let mut kept: Vec<_> = messages[..covered].iter().rev().filter(is_user).take(front.users_kept).map(said).collect();
    kept.reverse();
    let between = messages[covered..].iter().filter(|message| message.source < cut && message.role != Role::System);
    kept.extend(between.map(said));
    kept
}

/// Rolls over: a snapshot of everything, then only what the table says.
pub(super) async fn roll_over(
    gateway: &Gateway,
    model: &Model,
    arrived: &Arrived<'_>,
    now: &Laid,
    usage: Usage,
    effects: Effects,
) -> Result<Option<Laid>, Refusal> {
    let kinds = &arrived.request.kinds;
    let (Some(turn), Prompt::Chat(messages)) = (arrived.turn, &arrived.request.prompt) else { return Ok(None) };
    // The same history has the same snapshot: a client that tries again does not fill the disk.
    let snapshot = turn.snapshot_id();
    let checkpoints = now.covering.as_ref().map_or(&[][..], |covering| &covering.front.checkpoints);
    let opening = rollover_note(&snapshot, messages.len(), checkpoints.len(), usage.total).text;
    let mut sizes = off_the_worker(arrived.body.len(), || sizes(model, messages, kinds.len()));
    let target = (f64::from(usage.limit) * gateway.config.compaction.target) as Tokens;
    // What the template and the tools take; what an earlier front took is no longer there.
    let overhead = template_overhead(now, model, &sizes);
    let overhead = spread(overhead, &mut sizes);
    let mut cuts = vec![whole_from(kinds, current_turn(kinds)), whole_from(kinds, current_exchange(kinds))];
    cuts.dedup();
    for cut in cuts {
        // With nothing but system messages before the cut there is nothing to leave out.
        if !kinds[..cut].iter().any(|kind| *kind != Kind::System) {
            continue;
        }
        let Some(covered) = messages.iter().position(|message| message.source >= cut && message.role != Role::System)
        else {
            continue;
        };
        let Some(link) = covered.checked_sub(1).and_then(|last| turn.links.get(last)).copied() else { continue };
        let fewest = users_that_must_stay(kinds, cut);
        let note = off_the_worker(arrived.body.len(), || {
            with_gist(model, &opening, &messages[..covered], checkpoints, summary_budget(usage.limit))
        });
        let fixed = rough_size(model, &note) + overhead;
        // Aiming below the limit leaves room for turns to come: the next rollover is not the next turn's.
        let mut users_kept = users_that_fit(kinds, &sizes, cut, fixed, target);
        let mut note = note;
        loop {
            let rollover = Rollover { snapshot: snapshot.clone(), note: note.clone(), last: covered };
            let front = Front {
                rollover: Some(rollover),
                checkpoints: Vec::new(),
                users_kept,
                limit: usage.limit,
                made_at: messages.len(),
                saved: 0,
            };
            let covering = Covering { front: Arc::new(front), covered, link };
            let Some(mut laid) = lay(model, arrived, Some(covering), None).await else { break };
            if laid.count.tokens <= usage.limit {
                laid.note_saving(now, usage.total);
                if effects == Effects::Real {
                    let taken = NewSnapshot {
                        id: snapshot.clone(),
                        link: *turn.links.last().unwrap_or(&link),
                        system: system_prompts(messages),
                        messages: messages.len() as u32,
                        checkpoints: checkpoints.len() as u32,
                        tokens: usage.total,
                        limit_tokens: usage.limit,
                        reason: "rollover".to_owned(),
                    };
                    let event = events::rollover(&snapshot, usage, laid.count.tokens, messages.len());
                    keep(gateway, turn, &laid, Some(taken), event).await?;
                }
                return Ok(Some(laid));
            }
            // First the gist goes, then the user's earlier messages.
            if note.len() > opening.len() {
                note.clone_from(&opening);
            } else if users_kept > fewest {
                users_kept = (users_kept / 2).max(fewest);
            } else {
                break;
            }
        }
    }
    Ok(None)
}

/// What a template adds to one message, at most.
const MOST_PER_MESSAGE: Tokens = 12;

/// Gives each message its part of what the template adds, so that what is left out takes it along. Returns what
/// remains: tools, and what is there only once.
pub(crate) fn spread(overhead: Tokens, sizes: &mut [Tokens]) -> Tokens {
    let count = (sizes.len() as Tokens).max(1);
    let each = (overhead / count).min(MOST_PER_MESSAGE);
    for size in sizes {
        *size = size.saturating_add(each);
    }
    overhead.saturating_sub(each.saturating_mul(count))
}

/// What of a count is neither a message nor a note of ours.
fn template_overhead(now: &Laid, model: &Model, sizes: &[Tokens]) -> Tokens {
    let notes: Tokens =
        now.covering.iter().flat_map(|covering| covering.front.notes()).map(|note| rough_size(model, &note.text)).sum();
    let kept: u64 = now.plan.kept().filter_map(|index| sizes.get(index)).map(|size| u64::from(*size)).sum();
    u64::from(now.count.tokens).saturating_sub(kept + u64::from(notes)) as Tokens
}

/// The six lines, then as much of the gist as the summary has room for: what checkpoints say, and the most
/// telling sentences of everything that is left out.
fn with_gist(
    model: &Model,
    opening: &str,
    covered: &[Message<'_>],
    checkpoints: &[Checkpoint],
    budget: Tokens,
) -> String {
    let size = |text: &str| rough_size(model, text);
    // A line break or two more than the parts by themselves.
    let room = budget.saturating_sub(size(opening) + 4);
    if room < 16 {
        return opening.to_owned();
    }
    let notes: Vec<&str> = checkpoints.iter().map(|checkpoint| checkpoint.texts[0].as_str()).collect();
    let noted = shorten(&notes.join("\n"), room / 2, &size);
    let said: Vec<Said<'_>> = covered
        .iter()
        .filter(|message| message.role != Role::System)
        .map(|message| Said { role: message.role.name(), text: message.text.as_ref() })
        .collect();
    let extracted = extract(&said, room.saturating_sub(size(&noted)), &size);
    let mut note = opening.to_owned();
    for part in [noted, extracted].into_iter().filter(|part| !part.is_empty()) {
        note.push('\n');
        note.push_str(&part);
    }
    if size(&note) > budget { opening.to_owned() } else { note }
}

/// The system prompts of a history, as JSON.
pub(super) fn system_prompts(messages: &[Message<'_>]) -> String {
    let prompts: Vec<&str> =
        messages.iter().filter(|message| message.role == Role::System).map(|message| message.text.as_ref()).collect();
    json!(prompts).to_string()
}

/// Writes a compaction down, all of it or nothing, and waits until it is on disk. Only then it counts.
async fn keep(
    gateway: &Gateway,
    turn: &Turn,
    laid: &Laid,
    snapshot: Option<NewSnapshot>,
    event: events::Event,
) -> Result<(), Refusal> {
    let Some(covering) = &laid.covering else { return Ok(()) };
    let stored = gateway.events.submit(Change::Compaction(compaction(turn, covering, snapshot, event)));
    stored.await.map_err(|error| {
        tracing::error!(%error, "a compaction could not be stored");
        Refusal::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "the conversation could not be saved, so nothing was left out of it: free some disk space and try again",
        )
    })?;
    gateway.conversations.set_front(turn.conversation, covering.link, Arc::clone(&covering.front));
    Ok(())
}

/// A compaction as the store takes it.
pub(crate) fn compaction(
    turn: &Turn,
    covering: &Covering,
    snapshot: Option<NewSnapshot>,
    event: events::Event,
) -> Compaction {
    let checkpoints = covering.front.checkpoints.last().map(|checkpoint| NewCheckpoint {
        id: checkpoint.id.clone(),
        covered: covering.link,
        first_message: checkpoint.first as u32,
        last_message: checkpoint.last as u32,
        level: checkpoint.level.number(),
        author: checkpoint.author.clone(),
        texts: checkpoint.texts.clone(),
    });
    let at = events::now_ms();
    Compaction {
        conversation: turn.conversation,
        at,
        front: Some((covering.link, serde_json::to_string(covering.front.as_ref()).unwrap_or_default())),
        checkpoints: checkpoints.into_iter().collect(),
        snapshot,
        events: vec![event.of(turn, at)],
    }
}
