//! From a request to the request that may leave: count, decide, plan, and count again what the plan made.
//!
//! What is counted is always the very body that would be sent. What a compaction has left of the
//! beginning stands in for it; what bears on the newest message comes back from the archive; a plan that
//! turns out too large is made smaller and counted again, a few times; what cannot be made to fit is
//! refused with the reason.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::StatusCode;

use super::conversations::{Covering, Recalled, Turn};
use super::headers::Report;
use super::memo::Known;
use super::respond::Refusal;
use super::{Gateway, compact, recall};
use crate::api::auth::LOCAL_USER;
use crate::config::Mode;
use crate::context::clean::{self, Cleaning};
use crate::context::identity::Placement;
use crate::context::plan::{Kind, current_exchange, users_that_must_stay, whole_from};
use crate::context::{Action, Budget, Decision, Link, Message, Note, Plan, Tokens, Usage, Window};
use crate::dialect::{Dialect, Prompt, Request};
use crate::ollama::count::{Count, TOKENS_PER_IMAGE, count, load, off_the_worker, rough_size, seen};
use crate::ollama::models::{Model, WindowSource};
use crate::telemetry::metrics::{Compacting, Metrics};

/// A request as it arrived.
#[derive(Debug)]
pub struct Arrived<'a> {
    pub dialect: Dialect,
    pub body: &'a str,
    /// The same once more, to be sent as it is.
    pub bytes: Bytes,
    pub request: &'a Request<'a>,
    pub turn: Option<&'a Turn>,
    /// Tokens by which counts were too low, as the upstream has just said.
    pub correction: Tokens,
    pub prepared: &'a Prepared,
}

impl Arrived<'_> {
    /// The body, and where it says whether it may be cut.
    fn as_it_came(&self) -> (Bytes, Option<Range<usize>>) {
        (self.bytes.clone(), self.request.truncate.clone())
    }
}

/// What is done to the user's messages before they are counted.
#[derive(Debug, Default)]
pub struct Prepared {
    pub clean: bool,
    /// Texts that a model has condensed, by the index of the dialect's message.
    pub condensed: HashMap<usize, String>,
}

/// Whether anything may be written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effects {
    Real,
    DryRun,
}

/// What leaves, laid out and counted.
#[derive(Debug)]
pub struct Laid {
    pub body: Bytes,
    /// Where it says whether it may be cut.
    pub truncate: Option<Range<usize>>,
    pub count: Count,
    pub plan: Plan,
    pub covering: Option<Covering>,
    pub recalled: Option<Recalled>,
    pub rewritten: Vec<Rewritten>,
}

impl Laid {
    /// Notes in the front what it saves, with what the one before it saved.
    pub(super) fn note_saving(&mut self, before: &Self, total: Tokens) {
        let earlier = before.covering.as_ref().map_or(0, |covering| covering.front.saved);
        let now = total.saturating_sub(self.count.tokens);
        if let Some(covering) = &mut self.covering {
            Arc::make_mut(&mut covering.front).saved = earlier.saturating_add(now);
        }
    }
}

/// A message that leaves with another text than it came with.
#[derive(Debug, Clone)]
pub struct Rewritten {
    /// The index of the dialect's message.
    pub index: usize,
    pub text: String,
    pub done: Vec<&'static str>,
}

/// A request that may leave.
#[derive(Debug)]
pub struct Fitted {
    pub body: Bytes,
    pub count: Count,
    pub report: Report,
    pub plan: Plan,
    pub covering: Option<Covering>,
    pub recalled: Option<Recalled>,
    pub rewritten: Vec<Rewritten>,
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
    /// The upstream has something else against this request, and should be heard first.
    pub objected: bool,
}

#[derive(Debug)]
pub enum Fit {
    Fits(Box<Fitted>),
    TooLarge(Box<TooLarge>),
}

impl Fit {
    pub fn or_refuse(self, metrics: &Metrics) -> Result<Fitted, Refusal> {
        match self {
            Self::Fits(fitted) => Ok(*fitted),
            Self::TooLarge(too_large) => {
                metrics.arrived(too_large.report.arrived);
                let refusal = Refusal::new(StatusCode::BAD_REQUEST, too_large.message);
                Err(Refusal { report: Some(Box::new(too_large.report)), ..refusal })
            }
        }
    }

    /// Whether it is too large for us, and wrong for the upstream.
    pub fn is_objected_to(&self) -> bool {
        matches!(self, Self::TooLarge(too_large) if too_large.objected)
    }
}

/// Makes a request fit.
pub async fn fit(gateway: &Gateway, model: &Model, arrived: &Arrived<'_>, effects: Effects) -> Result<Fit, Refusal> {
    // Counting may have the model loaded with the window that the request asks for.
    let _other_window = arrived.request.num_ctx.map(|_| model.asks_for_another_window());
    let (window, source) = window(gateway, model, arrived.request).await;
    let mut budget = Budget::new(window, gateway.config.reserve, arrived.request.answer_tokens);
    budget.limit = budget.limit.saturating_sub(arrived.correction).max(1);
    let observe = gateway.config.mode == Mode::Observe;
    let now = as_it_stands(gateway, model, arrived, budget.limit).await;
    let usage = Usage { total: now.count.tokens, limit: budget.limit };
    let decision = Decision::of(usage);
    let mut report = Report {
        conversation: arrived.turn.map(|turn| turn.conversation).filter(|id| *id > 0),
        sent: usage,
        arrived: usage,
        basis: now.count.basis,
        action: decision.action(),
        warnings: decision.warning().into_iter().collect(),
        snapshot: None,
        receipt: None,
        observe,
    };
    let effects = if observe { Effects::DryRun } else { effects };
    let started = Instant::now();
    let (kind, compacted) = match decision {
        Decision::Under(_) | Decision::Told(_) | Decision::Checkpoint(_) => (None, Ok(None)),
        Decision::Compression(_) => {
            (Some(Compacting::Compression), compact::compress(gateway, model, arrived, &now, usage, effects).await)
        }
        Decision::Rollover(_) => {
            (Some(Compacting::Rollover), compact::roll_over(gateway, model, arrived, &now, usage, effects).await)
        }
    };
    if let Some(kind) = kind.filter(|_| effects == Effects::Real) {
        match &compacted {
            Ok(Some(_)) => gateway.metrics.compacted(kind, started.elapsed()),
            Ok(None) => {}
            Err(_) => gateway.metrics.compaction_failed(kind),
        }
    }
    let compacted = compacted?;
    if compacted.is_none() && matches!(decision, Decision::Rollover(_)) {
        // Exactly at the limit a prompt still fits, even if nothing can be left out of it.
        report.action = if usage.fits() { Action::None } else { Action::Refused };
    }
    let guessed = matches!(source, WindowSource::Loaded | WindowSource::Configured | WindowSource::OllamaDefault);
    let fitted = |laid: Laid, report: Report| {
        let body =
            if observe { laid.body } else { arrived.dialect.forbid_truncation(laid.body, laid.truncate.clone()) };
        Fit::Fits(Box::new(Fitted {
            body,
            count: laid.count,
            report,
            plan: laid.plan,
            covering: laid.covering,
            recalled: laid.recalled,
            rewritten: laid.rewritten,
            enforced: !observe,
            window,
            window_is_a_guess: guessed,
            comparable: is_read_once(arrived.request),
        }))
    };
    if observe {
        report.warnings.extend(what_ollama_will_drop(model, arrived, now.count.tokens, window));
        return Ok(fitted(now, report));
    }
    if report.action == Action::Refused {
        let message = off_the_worker(arrived.body.len(), || refusal(model, arrived, usage, window));
        return Ok(Fit::TooLarge(Box::new(TooLarge { report, message, objected: now.count.objected })));
    }
    let laid = recall::recall(gateway, model, arrived, compacted.unwrap_or(now), budget.limit, effects).await;
    report.sent.total = laid.count.tokens;
    report.basis = laid.count.basis;
    report.snapshot = laid.covering.as_ref().and_then(|covering| covering.front.snapshot().map(str::to_owned));
    Ok(fitted(laid, report))
}

/// The request with the front that its conversation has, counted.
async fn as_it_stands(gateway: &Gateway, model: &Model, arrived: &Arrived<'_>, limit: Tokens) -> Laid {
    let enforced = arrived.turn.filter(|_| gateway.config.mode == Mode::Enforce);
    for covering in enforced.map(|turn| gateway.conversations.fronts(turn, limit)).unwrap_or_default() {
        if let Some(laid) = lay(model, arrived, Some(covering), None).await {
            return laid;
        }
    }
    if let Some(laid) = lay(model, arrived, None, None).await {
        return laid;
    }
    // Nothing was edited, so nothing could go wrong with it; but a body that cannot be written again leaves as it is.
    let count = count(model.upstream(), model, arrived.request).await;
    let plan = Plan::identity(arrived.request.kinds.len());
    let (body, truncate) = arrived.as_it_came();
    Laid { body, truncate, count, plan, covering: None, recalled: None, rewritten: Vec::new() }
}

/// Lays out what leaves behind a front, and counts it. `None` if the front would cover something of the
/// exchange that is being answered.
pub(super) async fn lay(
    model: &Model,
    arrived: &Arrived<'_>,
    covering: Option<Covering>,
    recalled: Option<Recalled>,
) -> Option<Laid> {
    let kinds = &arrived.request.kinds;
    let note = || recalled.as_ref().map(|recalled| Note { text: recalled.note.text.clone() });
    let (plan, from) = match (&covering, &arrived.request.prompt) {
        (Some(covering), Prompt::Chat(messages)) => {
            let wire = messages.get(covering.covered)?.source;
            if wire > whole_from(kinds, current_exchange(kinds))
                || whole_from(kinds, wire) != wire
                || covering.front.users_kept < users_that_must_stay(kinds, wire)
            {
                return None;
            }
            (Plan::fronted(kinds, wire, &covering.front, note()), wire)
        }
        _ => (Plan::identity(kinds.len()), 0),
    };
    let rewritten = rewrite(arrived, &plan, from);
    let texts: Vec<_> = rewritten.iter().map(|one| (one.index, one.text.clone())).collect();
    let plan = plan.rewritten(&texts);
    if plan.is_identity() {
        let count = count(model.upstream(), model, arrived.request).await;
        let (body, truncate) = arrived.as_it_came();
        return Some(Laid { body, truncate, count, plan, covering, recalled, rewritten });
    }
    let body = arrived.dialect.apply(arrived.body, &plan, arrived.request.list.as_ref()).ok()?;
    let request = arrived.dialect.parse(&body).ok()?;
    let count = count(model.upstream(), model, &request).await;
    let truncate = request.truncate;
    Some(Laid { body: body.into(), truncate, count, plan, covering, recalled, rewritten })
}

/// Cleans the user's messages that leave. A block pasted again is left out only if its first copy leaves
/// too, so what a message becomes depends on the front alone and stays the same until the next one.
fn rewrite(arrived: &Arrived<'_>, plan: &Plan, from: usize) -> Vec<Rewritten> {
    let prepared = arrived.prepared;
    let Prompt::Chat(messages) = &arrived.request.prompt else { return Vec::new() };
    if !prepared.clean && prepared.condensed.is_empty() {
        return Vec::new();
    }
    let kinds = &arrived.request.kinds;
    let leaving: Vec<usize> = plan.kept().collect();
    let text_of = |index: usize| {
        let mut parts = messages.iter().filter(|message| message.source == index);
        parts.next().filter(|_| parts.next().is_none()).map(|message| message.text.as_ref())
    };
    let mut earlier: Vec<&str> = Vec::new();
    let mut rewritten = Vec::new();
    for index in leaving {
        let Some(text) = text_of(index) else { continue };
        if kinds[index] == Kind::User && is_plain_text(arrived, index) {
            if let Some(condensed) = prepared.condensed.get(&index) {
                rewritten.push(Rewritten { index, text: condensed.clone(), done: vec!["intent"] });
                continue;
            }
            if prepared.clean
                && let Some(cleaned) = clean::clean(text, &earlier)
            {
                let done = cleaned.done.iter().map(name_of).collect();
                rewritten.push(Rewritten { index, text: cleaned.text, done });
            }
        }
        if index >= from {
            earlier.push(text);
        }
    }
    rewritten
}

/// Whether a message's content is written as one text, so that another can take its place.
fn is_plain_text(arrived: &Arrived<'_>, index: usize) -> bool {
    let written = arrived.request.list.as_ref().and_then(|list| list.elements.get(index));
    let written = written.and_then(|range| arrived.body.get(range.clone()));
    let content = written.and_then(|written| crate::json::Fields::read(written, &[]).ok()?.get("content"));
    content.is_some_and(|content| content.get().starts_with('"'))
}

fn name_of(cleaning: &Cleaning) -> &'static str {
    match cleaning {
        Cleaning::TerminalEscapes => "terminal escapes",
        Cleaning::BlankLines => "blank lines",
        Cleaning::TrailingSpace => "trailing space",
        Cleaning::RepeatedBlock { .. } => "repeated block",
    }
}

/// The window that this request will get. What a model gets by default is looked up once, right after the
/// model was loaded as this request would load it.
async fn window(gateway: &Gateway, model: &Model, request: &Request<'_>) -> (Window, WindowSource) {
    if request.num_ctx.is_none() && !model.knows_default_window() {
        let quiet = model.no_other_window_asked_for();
        load(model.upstream(), request).await;
        model.look_up_loaded_window(quiet).await;
    }
    gateway.window(model, request.num_ctx)
}

/// Whether the reported count is of this prompt alone: with a schema for the answer, a model that thinks
/// reads the prompt a second time with more in it.
fn is_read_once(request: &Request<'_>) -> bool {
    !request.render_with.iter().any(|(name, _)| *name == "format")
}

/// The rough size of each of the dialect's messages, in tokens.
pub(super) fn sizes(model: &Model, messages: &[Message<'_>], count: usize) -> Vec<Tokens> {
    let mut sizes = vec![0; count];
    for message in messages {
        if let Some(size) = sizes.get_mut(message.source) {
            *size += message_size(model, message);
        }
    }
    sizes
}

/// The rough size of one message: all its texts.
pub(crate) fn message_size(model: &Model, message: &Message<'_>) -> Tokens {
    let calls =
        message.tool_calls.iter().map(|call| rough_size(model, &call.name) + rough_size(model, &call.arguments));
    let images = seen(model, message.images).saturating_mul(TOKENS_PER_IMAGE);
    rough_size(model, &message.text) + rough_size(model, &message.thinking) + calls.sum::<Tokens>() + images
}

/// Says the count, the limit, the largest part, and what to do.
fn refusal(model: &Model, arrived: &Arrived<'_>, usage: Usage, window: Window) -> String {
    let request = arrived.request;
    let Usage { total, limit } = usage;
    let mut parts: Vec<(Tokens, String)> = match &request.prompt {
        Prompt::Chat(messages) => messages
            .iter()
            .enumerate()
            .map(|(index, message)| {
                let with = if seen(model, message.images) > 0 { ", with its images" } else { "" };
                (message_size(model, message), format!("message {} ({}{with})", index + 1, message.role.name()))
            })
            .collect(),
        Prompt::Generate(generate) => {
            let parts = [
                ("the prompt", Some(&generate.prompt)),
                ("the system prompt", generate.system.as_ref()),
                ("the suffix", generate.suffix.as_ref()),
            ];
            let sized = parts.into_iter().filter_map(|(name, text)| Some((rough_size(model, text?), name.to_owned())));
            let context = (generate.context.unwrap_or(0) as Tokens, "the context of the earlier answer".to_owned());
            sized.chain([context]).collect()
        }
    };
    let tools = request.render_with.iter().find(|(name, _)| *name == "tools");
    parts.extend(tools.map(|(_, tools)| (rough_size(model, tools), "the list of tools".to_owned())));
    let largest = parts.into_iter().max_by_key(|(size, _)| *size);
    let largest = largest
        .map_or_else(String::new, |(size, name)| format!(" The largest part is {name} with about {size} tokens."));
    let asked = request.answer_tokens.filter(|asked| limit < window.saturating_sub(window / 5) && *asked > window / 5);
    let asked = asked.map_or_else(String::new, |asked| {
        format!(" The request asks for an answer of {asked} tokens, for which up to half of the window is kept: ask for fewer.")
    });
    let how = if arrived.dialect.has_truncate() {
        "options.num_ctx"
    } else {
        "num_ctx in a Modelfile, or OLLAMA_CONTEXT_LENGTH"
    };
    format!(
        "the prompt has {total} tokens but the limit is {limit} (window {window}, the rest is kept for the answer), \
         and it cannot be made to fit.{largest}{asked} Shorten it, or give the model a larger window ({how})."
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
    user: &Arc<str>,
    model: &Model,
    dialect: Dialect,
    body: &str,
    request: &Request<'_>,
    known: Option<&Known>,
) -> Result<Fit, Refusal> {
    let turn = match &request.prompt {
        Prompt::Chat(messages) => {
            let links = links(gateway, user, request, messages, known);
            let placement = gateway.conversations.find(&links);
            let conversation = match placement {
                Placement::New => 0,
                Placement::Continues { conversation, .. } | Placement::Branch { conversation, .. } => conversation,
            };
            Some(Turn { conversation, placement, user: Arc::clone(user), links })
        }
        Prompt::Generate(_) => None,
    };
    let prepared = Prepared { clean: gateway.config.preprocess.of(&request.model).clean, condensed: HashMap::new() };
    let bytes = Bytes::copy_from_slice(body.as_bytes());
    let arrived = Arrived { dialect, body, bytes, request, turn: turn.as_ref(), correction: 0, prepared: &prepared };
    fit(gateway, model, &arrived, Effects::DryRun).await
}

/// The links of a history, with what is known of its beginning.
pub(super) fn links(
    gateway: &Gateway,
    user: &str,
    request: &Request<'_>,
    messages: &[Message<'_>],
    known: Option<&Known>,
) -> Arc<[Link]> {
    let before = request.list.as_ref().map_or(0, |list| list.before);
    match known {
        Some(known) => gateway.conversations.links_after(user, messages, before, known.links()),
        None => {
            let bytes = messages.iter().map(|message| message.text.len()).sum();
            off_the_worker(bytes, || gateway.conversations.links(user, messages))
        }
    }
}

/// A whole rehearsal: reads a body as the gate would, and does what it would do with it.
pub async fn rehearse(gateway: &Gateway, model: &Model, dialect: Dialect, body: &str) -> Result<Fit, Refusal> {
    let unreadable = || Refusal::new(StatusCode::BAD_REQUEST, "the body is not a request that Ollama would take");
    let user: Arc<str> = LOCAL_USER.into();
    let known = gateway.memos.find(dialect, &user, body);
    if let Some(known) = &known
        && let Some(rest) = known.rest_of(body)
        && let Some(request) = dialect.parse(&rest).ok().and_then(|read| known.complete(body, &rest, read))
    {
        return dry_run(gateway, &user, model, dialect, body, &request, Some(known)).await;
    }
    let request = dialect.parse(body).map_err(|_| unreadable())?;
    dry_run(gateway, &user, model, dialect, body, &request, None).await
}
