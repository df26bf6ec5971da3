//! From a request to the request that may leave: count, decide, plan, and count again what the plan made.
//!
//! What is counted is always the very body that would be sent. A plan that turns out too large is made
//! smaller and counted again, a few times; what cannot be made to fit is refused with the reason.

use bytes::Bytes;
use http::StatusCode;

use super::Gateway;
use super::conversations::Turn;
use super::gate::LOCAL_USER;
use super::headers::Report;
use super::respond::Refusal;
use crate::config::Mode;
use crate::context::plan::{
    Kind, current_exchange, current_turn, rollover_note, users_that_fit, users_that_must_stay, whole_from,
};
use crate::context::{Action, Budget, Decision, Fold, Message, Plan, Role, Tokens, Usage, Window};
use crate::dialect::{Dialect, Prompt, Request};
use crate::ollama::count::{Count, count, load, off_the_worker, rough_size};
use crate::ollama::models::{Model, WindowSource};
use crate::telemetry::Counters;

/// A request as it arrived.
#[derive(Debug)]
pub struct Arrived<'a> {
    pub dialect: Dialect,
    pub body: &'a str,
    pub request: &'a Request<'a>,
    pub turn: Option<&'a Turn>,
    /// Tokens by which counts were too low, as the upstream has just said.
    pub correction: Tokens,
}

/// Whether anything may be written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effects {
    Real,
    DryRun,
}

/// A request that may leave.
#[derive(Debug)]
pub struct Fitted {
    pub body: Bytes,
    pub count: Count,
    pub report: Report,
    /// Whether it was made to fit, or only looked at.
    pub enforced: bool,
    pub window: Window,
    pub window_is_a_guess: bool,
    /// Whether the reported count can be held against the predicted one.
    pub comparable: bool,
}

/// A request that fits nowhere.
#[derive(Debug)]
pub struct TooLarge {
    pub report: Report,
    pub message: String,
}

#[derive(Debug)]
pub enum Fit {
    Fits(Box<Fitted>),
    TooLarge(Box<TooLarge>),
}

impl Fit {
    pub fn or_refuse(self, counters: &Counters) -> Result<Fitted, Refusal> {
        match self {
            Self::Fits(fitted) => Ok(*fitted),
            Self::TooLarge(too_large) => {
                counters.turns(Action::Refused, false);
                Err(Refusal {
                    status: StatusCode::BAD_REQUEST,
                    message: too_large.message,
                    report: Some(Box::new(too_large.report)),
                })
            }
        }
    }
}

/// A body with its count.
struct Counted {
    body: String,
    count: Count,
}

/// Makes a request fit.
pub async fn fit(gateway: &Gateway, model: &Model, arrived: &Arrived<'_>, effects: Effects) -> Result<Fit, Refusal> {
    let (window, source) = window(gateway, model, arrived.request).await;
    let mut budget = Budget::new(window, gateway.config.reserve, arrived.request.answer_tokens);
    budget.limit = budget.limit.saturating_sub(arrived.correction).max(1);
    let (now, earlier_snapshot) = with_earlier_fold(gateway, model, arrived, budget.limit).await;
    let usage = Usage { total: now.count.tokens, limit: budget.limit };
    let decision = Decision::of(usage);
    let observe = gateway.config.mode == Mode::Observe;
    let mut report = Report {
        conversation: arrived.turn.map(|turn| turn.conversation),
        sent: usage,
        arrived: usage,
        basis: now.count.basis,
        action: decision.action(),
        warnings: decision.warning().into_iter().collect(),
        snapshot: earlier_snapshot,
        observe,
    };
    let fitted = |now: Counted, report: Report| {
        let body = if observe { now.body } else { arrived.dialect.forbid_truncation(&now.body) };
        Fit::Fits(Box::new(Fitted {
            body: body.into(),
            count: now.count,
            report,
            enforced: !observe,
            window,
            window_is_a_guess: matches!(
                source,
                WindowSource::Loaded | WindowSource::Configured | WindowSource::OllamaDefault
            ),
            comparable: is_read_once(arrived.request),
        }))
    };
    let effects = if observe { Effects::DryRun } else { effects };
    let rolled = match decision {
        // Compression works on checkpoints; while there are none, a prompt that fits leaves as it is.
        Decision::Under(_) | Decision::Told(_) | Decision::Checkpoint(_) | Decision::Compression(_) => None,
        Decision::Rollover(_) => roll_over(gateway, model, arrived, usage, effects).await?,
    };
    if rolled.is_none() && matches!(decision, Decision::Rollover(_)) {
        // Exactly at the limit a prompt still fits, even if nothing can be left out of it.
        report.action = if usage.fits() { Action::None } else { Action::Refused };
    }
    if observe {
        report.warnings.extend(what_ollama_will_drop(model, arrived, now.count.tokens, window));
        return Ok(fitted(now, report));
    }
    if report.action == Action::Refused {
        let message = off_the_worker(arrived.body.len(), || refusal(model, arrived, usage, window));
        return Ok(Fit::TooLarge(Box::new(TooLarge { report, message })));
    }
    let Some((rolled, snapshot)) = rolled else { return Ok(fitted(now, report)) };
    report.sent.total = rolled.count.tokens;
    report.basis = rolled.count.basis;
    report.snapshot = Some(snapshot);
    Ok(fitted(rolled, report))
}

/// The window that this request will get. What a model gets by default is looked up once, right after the
/// model was loaded as this request would load it.
async fn window(gateway: &Gateway, model: &Model, request: &Request<'_>) -> (Window, WindowSource) {
    if request.num_ctx.is_none() && !model.knows_default_window() {
        load(gateway.upstream(), request).await;
        gateway.models.look_up_loaded_window(model).await;
    }
    gateway.models.window(model, request.num_ctx)
}

/// Whether the reported count is of this prompt alone: with a schema for the answer, a model that thinks
/// reads the prompt a second time with more in it.
fn is_read_once(request: &Request<'_>) -> bool {
    !request.render_with.iter().any(|(name, _)| *name == "format")
}

/// The request with what an earlier rollover of its conversation left, counted; and that rollover's snapshot.
async fn with_earlier_fold(
    gateway: &Gateway,
    model: &Model,
    arrived: &Arrived<'_>,
    limit: Tokens,
) -> (Counted, Option<String>) {
    if gateway.config.mode == Mode::Enforce
        && let (Some(turn), Prompt::Chat(messages)) = (arrived.turn, &arrived.request.prompt)
        && let Some((covered, fold)) = gateway.conversations.fold(turn)
        && limit <= fold.limit
        && let Some(folded) = apply_fold(gateway, model, arrived, messages, covered, &fold).await
    {
        return (folded, Some(fold.snapshot));
    }
    let count = count(gateway.upstream(), model, arrived.request).await;
    (Counted { body: arrived.body.to_owned(), count }, None)
}

/// Applies a fold that covers the first `covered` of Ollama's messages; `None` if that would cover
/// something of the exchange that is being answered.
async fn apply_fold(
    gateway: &Gateway,
    model: &Model,
    arrived: &Arrived<'_>,
    messages: &[Message<'_>],
    covered: usize,
    fold: &Fold,
) -> Option<Counted> {
    let kinds = &arrived.request.kinds;
    let wire = messages.get(covered)?.source;
    if wire > whole_from(kinds, current_exchange(kinds))
        || whole_from(kinds, wire) != wire
        || fold.users_kept < users_that_must_stay(kinds, wire)
    {
        return None;
    }
    let plan = Plan::folded(kinds, wire, fold);
    let body = arrived.dialect.apply(arrived.body, &plan).ok()?;
    let request = arrived.dialect.parse(&body).ok()?;
    let count = count(gateway.upstream(), model, &request).await;
    drop(request);
    Some(Counted { body, count })
}

/// Rolls over: a snapshot of everything, then only what the table says.
async fn roll_over(
    gateway: &Gateway,
    model: &Model,
    arrived: &Arrived<'_>,
    usage: Usage,
    effects: Effects,
) -> Result<Option<(Counted, String)>, Refusal> {
    let kinds = &arrived.request.kinds;
    let Prompt::Chat(messages) = &arrived.request.prompt else { return Ok(None) };
    // The same history has the same snapshot: a client that tries again does not fill the disk.
    let snapshot = arrived.turn.map_or_else(|| format!("snapshot-{:032x}", 0), Turn::snapshot_id);
    let note = rollover_note(&snapshot, messages.len(), 0, usage.total);
    let sizes = off_the_worker(arrived.body.len(), || sizes(model, messages, kinds.len()));
    let fixed = rough_size(model, &note.text) + usage.total.saturating_sub(sizes.iter().sum());
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
        let fewest = users_that_must_stay(kinds, cut);
        // Aiming at half of the limit leaves room for turns to come: the next rollover is not the next turn's.
        let mut users_kept = users_that_fit(kinds, &sizes, cut, fixed, usage.limit / 2);
        loop {
            let fold = Fold { users_kept, limit: usage.limit, note: note.clone(), snapshot: snapshot.clone() };
            let Some(rolled) = apply_fold(gateway, model, arrived, messages, covered, &fold).await else { break };
            if rolled.count.tokens <= usage.limit {
                if effects == Effects::Real {
                    keep_snapshot(gateway, &snapshot, messages).await?;
                    if let Some(turn) = arrived.turn {
                        gateway.conversations.set_fold(turn, covered, fold);
                    }
                }
                return Ok(Some((rolled, snapshot)));
            }
            if users_kept <= fewest {
                break;
            }
            users_kept = (users_kept / 2).max(fewest);
        }
    }
    Ok(None)
}

/// The snapshot is on disk before anything that depends on it is sent.
async fn keep_snapshot(gateway: &Gateway, snapshot: &str, messages: &[Message<'_>]) -> Result<(), Refusal> {
    let failed = |error: String| {
        tracing::error!(error, "a snapshot could not be written");
        Refusal::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "the conversation could not be saved, so nothing was left out of it: free some disk space and try again",
        )
    };
    let (store, id) = (std::sync::Arc::clone(&gateway.store), snapshot.to_owned());
    let lines = crate::store::snapshot_lines(messages);
    let written = tokio::task::spawn_blocking(move || store.write_snapshot(&id, &lines)).await;
    written.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))?;
    Ok(())
}

/// The rough size of each of the dialect's messages.
fn sizes(model: &Model, messages: &[Message<'_>], count: usize) -> Vec<Tokens> {
    let mut sizes = vec![0; count];
    for message in messages {
        if let Some(size) = sizes.get_mut(message.source) {
            let calls: Tokens = message.tool_calls.iter().map(|call| rough_size(model, &call.arguments)).sum();
            *size += rough_size(model, &message.text) + rough_size(model, &message.thinking) + calls;
        }
    }
    sizes
}

/// Says the count, the limit, the largest part, and what to do.
fn refusal(model: &Model, arrived: &Arrived<'_>, usage: Usage, window: Window) -> String {
    let request = arrived.request;
    let Usage { total, limit } = usage;
    let largest = match &request.prompt {
        Prompt::Chat(messages) => messages
            .iter()
            .enumerate()
            .map(|(index, message)| {
                (rough_size(model, &message.text), format!("message {} ({})", index + 1, message.role.name()))
            })
            .max_by_key(|(size, _)| *size),
        Prompt::Generate(generate) => {
            let parts = [
                ("the prompt", Some(&generate.prompt)),
                ("the system prompt", generate.system.as_ref()),
                ("the suffix", generate.suffix.as_ref()),
            ];
            let sized = parts.into_iter().filter_map(|(name, text)| Some((rough_size(model, text?), name.to_owned())));
            let context = (generate.context.unwrap_or(0) as Tokens, "the context of the earlier answer".to_owned());
            sized.chain([context]).max_by_key(|(size, _)| *size)
        }
    };
    let largest = largest
        .map_or_else(String::new, |(size, name)| format!(" The largest part is {name} with about {size} tokens."));
    let how = if arrived.dialect.has_truncate() {
        "options.num_ctx"
    } else {
        "num_ctx in a Modelfile, or OLLAMA_CONTEXT_LENGTH"
    };
    format!(
        "the prompt has {total} tokens but the limit is {limit} (window {window}, the rest is kept for the answer), \
         and it cannot be made to fit.{largest} Shorten it, or give the model a larger window ({how})."
    )
}

/// What Ollama would leave out by itself, for observe mode.
fn what_ollama_will_drop(model: &Model, arrived: &Arrived<'_>, total: Tokens, window: Window) -> Option<String> {
    if total <= window {
        return None;
    }
    let Prompt::Chat(messages) = &arrived.request.prompt else {
        return Some(format!("INFO: Observe mode - Ollama will cut this prompt of {total} tokens to fit {window}"));
    };
    if messages.len() == 1 {
        return Some(format!("INFO: Observe mode - Ollama will cut this message of {total} tokens to fit {window}"));
    }
    let mut left = total;
    let mut dropped = 0;
    for message in
        messages.iter().take(messages.len().saturating_sub(1)).filter(|message| message.role.name() != "system")
    {
        if left <= window {
            break;
        }
        left = left.saturating_sub(rough_size(model, &message.text));
        dropped += 1;
    }
    Some(format!(
        "INFO: Observe mode - Ollama will drop about {dropped} of {} messages without saying so",
        messages.len()
    ))
}

/// For dry runs: the same as [`fit`] would do, for the user who asks, without a trace.
pub async fn dry_run(
    gateway: &Gateway,
    model: &Model,
    dialect: Dialect,
    body: &str,
    request: &Request<'_>,
) -> Result<Fit, Refusal> {
    let turn = match &request.prompt {
        Prompt::Chat(messages) => gateway.conversations.look(LOCAL_USER, messages),
        Prompt::Generate(_) => None,
    };
    let arrived = Arrived { dialect, body, request, turn: turn.as_ref(), correction: 0 };
    fit(gateway, model, &arrived, Effects::DryRun).await
}
