//! The gate: what happens to a request on one of the six gated paths, as one straight line.
//!
//! What Ollama would refuse is passed on to it, byte by byte, so that the client gets Ollama's own
//! error. What Ollama would accept is counted first, and leaves only if it fits; in observe mode it leaves
//! as it came. Requests that only load or unload a model say nothing, and pass.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};
use http::request::Parts;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use tracing::Span;

use super::conversations::Turn;
use super::fit::{Arrived, Effects, Fit, Fitted, Prepared, fit};
use super::headers::{Report, strip_hop_by_hop};
use super::identify::identify;
use super::memo::Known;
use super::observe::{Commit, Ending, Observed, Watcher};
use super::record::Recording;
use super::relay::{forwarded, linger};
use super::respond::{Refusal, ResponseBody};
use super::tally::{note, tally};
use super::whole::whole;
use super::{Gateway, preprocess, receipt, restore};
use crate::checkpoint::{self, Active, Job, Waited};
use crate::config::Mode;
use crate::context::identity::ConversationId;
use crate::context::{Action, Basis, Tokens};
use crate::dialect::{Answer, Dialect, Prompt, Request};
use crate::events::{self, Event};
use crate::framing::Framing;
use crate::json::JsonError;
use crate::ollama::UpstreamError;
use crate::ollama::client::{UpstreamBody, full};
use crate::ollama::count::{Count, learn_from_report, off_the_worker, rough_size};
use crate::ollama::fleet::{MOST_TRIED, Seat};
use crate::ollama::models::{Model, ModelError};
use crate::ollama::overflow::{self, Overflow};
use crate::store::TurnStatus;
use crate::telemetry::metrics::UpstreamTrouble;

/// Waits for a checkpoint that nobody notices are not told.
const WORTH_TELLING: Duration = Duration::from_millis(100);

/// An error body is short; more than this is not looked at.
const MAX_ERROR_BYTES: usize = 64 << 10;

pub async fn gate(
    gateway: &Arc<Gateway>,
    user: &Arc<str>,
    dialect: Dialect,
    head: Parts,
    body: Incoming,
) -> Result<Response<ResponseBody>, Refusal> {
    let body = read(gateway, &head.headers, body).await?;
    // A history that was read before is not read again; only what follows it is.
    let text = simdutf8::basic::from_utf8(&body).ok();
    let (mut known, rest) = recognise(gateway, user, dialect, &head.headers, text.unwrap_or_default());
    // What is read may borrow from it, whatever becomes of the other.
    let source = known.clone();
    let recognised = source.as_ref().zip(rest.as_deref()).and_then(|(known, rest)| {
        let text = text?;
        Some((text, known.complete(text, rest, dialect.parse(rest).ok()?)?))
    });
    // Bodies that Ollama cannot read, or whose fields have types it does not take, are its to refuse.
    let rewritten;
    let mut memorable = true;
    let (plain, read) = match recognised {
        Some((text, request)) => (text, Ok(request)),
        None => {
            known = None;
            match off_the_worker(body.len(), || dialect.read_plain(text?)) {
                Some(read) => read,
                None => {
                    memorable = false;
                    rewritten = off_the_worker(body.len(), || dialect.rewrite(&body));
                    let Some(plain) = &rewritten else {
                        return refused_upstream(gateway, dialect, head, body.clone()).await;
                    };
                    (plain.as_str(), dialect.parse(plain))
                }
            }
        }
    };
    let restored = match &read {
        Ok(_) => restore::restored(gateway, user, dialect, &head.headers, plain).await?,
        Err(_) => None,
    };
    let (plain, read) = match &restored {
        Some(body) => {
            (known, memorable) = (None, false);
            (body.as_str(), dialect.parse(body))
        }
        None => (plain, read),
    };
    let request = match read {
        Ok(request) => request,
        Err(JsonError::Harmful(reason)) => return Err(Refusal::new(StatusCode::BAD_REQUEST, reason)),
        Err(JsonError::NotPlain | JsonError::WrongType) => {
            return refused_upstream(gateway, dialect, head, body.clone()).await;
        }
    };
    // Nothing to say means: load the model, or unload it.
    if request.prompt.is_empty() {
        return pass(gateway, dialect, head, Bytes::from(plain.to_owned())).await;
    }
    let known_model = match gateway.fleet.model(&request.model).await {
        Ok(model) => model,
        // Ollama says best itself that it has no such model.
        Err(ModelError::Unknown) => return refused_upstream(gateway, dialect, head, body.clone()).await,
        // What was said is kept, even if nobody is there to hear it.
        Err(ModelError::Upstream(error)) => {
            let turn = identify(gateway, user, &head.headers, &request, known.as_ref()).await?;
            let recording = Recording::begin(gateway, turn, dialect, plain, &request, None).await?;
            recording.end_without_answer(TurnStatus::Failed, None, None).await;
            return Err(error.into());
        }
        // Odd names make `/api/show` fail; if the model is there all the same, it must not go uncounted.
        Err(error @ ModelError::Unreadable) => {
            let refused = refused_upstream(gateway, dialect, head, body.clone()).await;
            return refused.map_err(|_| Refusal::new(StatusCode::BAD_GATEWAY, error.to_string()));
        }
    };
    if let Prompt::Generate(generate) = &request.prompt
        && generate.largest_context_id.zip(known_model.vocabulary_size()).is_some_and(|(id, size)| id >= size as u64)
    {
        let reason = "context holds a token id that this model does not have, which would bring Ollama down";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, reason));
    }
    let turn = identify(gateway, user, &head.headers, &request, known.as_ref()).await?;
    let conversation = turn.conversation;
    let mut avoided = Vec::new();
    let (seat, model) = seated(gateway, &known_model, Some(conversation), &mut avoided).await?;
    if gateway.conversations.is_buried(conversation) {
        // It was deleted while this waited.
        return Err(Refusal::new(StatusCode::NOT_FOUND, "there is no such conversation"));
    }
    let upstream = (!gateway.fleet.is_one()).then(|| seat.member.name().to_owned());
    let recording = Recording::begin(gateway, turn, dialect, plain, &request, upstream).await?;
    let waited = gateway.checkpoints.wait(conversation, gateway.config.checkpoint.wait).await;
    waited.iter().for_each(|waited| gateway.metrics.waited_for_checkpoint(waited.took));
    let bytes = if memorable { body.clone() } else { Bytes::copy_from_slice(plain.as_bytes()) };
    let line = Line { gateway, dialect, head: &head, plain, bytes, request: &request, model, known, memorable };
    line.walk(recording, waited, seat, avoided).await
}

/// A seat at an upstream, and what that one knows of the model. One that cannot be reached is passed over, and so is one
/// that turns out not to have the model.
async fn seated(
    gateway: &Gateway,
    known: &Arc<Model>,
    conversation: Option<ConversationId>,
    avoided: &mut Vec<usize>,
) -> Result<(Seat, Arc<Model>), Refusal> {
    loop {
        let seat = gateway.fleet.seat(&known.name, conversation, avoided).await?;
        if gateway.fleet.is_one() {
            return Ok((seat, Arc::clone(known)));
        }
        let error = match seat.member.models.get(&known.name).await {
            Ok(model) => return Ok((seat, model)),
            Err(error) => error,
        };
        if let ModelError::Upstream(error) = &error {
            seat.member.is_away(&error.to_string());
        }
        avoided.push(seat.number());
        if avoided.len() >= gateway.fleet.members().len().min(MOST_TRIED) {
            return Err(match error {
                ModelError::Upstream(error) => error.into(),
                other => Refusal::new(StatusCode::BAD_GATEWAY, other.to_string()),
            });
        }
        gateway.fleet.failed_over();
    }
}

/// What a request has as long as it is with an upstream.
struct Held {
    active: Active,
    seat: Seat,
}

/// A request that was understood, on its way through.
struct Line<'r> {
    gateway: &'r Arc<Gateway>,
    dialect: Dialect,
    head: &'r Parts,
    plain: &'r str,
    bytes: Bytes,
    request: &'r Request<'r>,
    model: Arc<Model>,
    /// What was known of the body, and whether it may be remembered.
    known: Option<Known>,
    memorable: bool,
}

impl Line<'_> {
    /// Fit, forward, and once more if the upstream knows better.
    async fn walk(
        mut self,
        mut recording: Recording,
        waited: Option<Waited>,
        mut seat: Seat,
        mut avoided: Vec<usize>,
    ) -> Result<Response<ResponseBody>, Refusal> {
        let Self { gateway, dialect, request, .. } = self;
        let prepared = match gateway.config.mode {
            Mode::Enforce => preprocess::prepare(gateway, &self.model, request).await,
            Mode::Observe => Prepared::default(),
        };
        let active = gateway.checkpoints.active();
        let mut correction = 0;
        let mut tries = 0;
        let mut first: Option<Report> = None;
        loop {
            let model = Arc::clone(&self.model);
            let _other_window = request.num_ctx.map(|_| model.asks_for_another_window());
            let turn = Some(&recording.turn);
            let (body, bytes) = (self.plain, self.bytes.clone());
            let arrived = Arrived { dialect, body, bytes, request, turn, correction, prepared: &prepared };
            let fitted = fit(gateway, &self.model, &arrived, Effects::Real).await;
            if fitted.as_ref().is_ok_and(Fit::is_objected_to)
                && let Some(objection) = self.objection().await
            {
                recording.end_without_answer(TurnStatus::Failed, None, None).await;
                return Ok(objection);
            }
            let mut fitted = match fitted.and_then(|fit| fit.or_refuse(&gateway.metrics)) {
                Ok(fitted) => fitted,
                Err(refusal) => return Err(refused(recording, refusal).await),
            };
            // What the first try did is part of this turn.
            if let Some(Report { action, warnings, arrived, .. }) = first.take() {
                (fitted.report.action, fitted.report.warnings, fitted.report.arrived) = (action, warnings, arrived);
            }
            let waited = waited.filter(|waited| waited.took >= WORTH_TELLING);
            fitted.report.warnings.extend(waited.map(|waited| told_of_waiting(gateway, &recording.turn, waited)));
            fitted.report.receipt = receipt::is_due(&fitted).then(receipt::new_id);
            let upward = forwarded(clone_head(self.head), dialect.path(), full(fitted.body.clone()));
            tries += 1;
            recording.leaves(&fitted.report);
            note(&recording, &self.model, &fitted);
            let sent_at = Instant::now();
            let sent = match model.upstream().send(upward).await {
                Ok(response) => classify(&model, response).await,
                Err(error) => {
                    // Nothing was sent, so another can be asked.
                    if let UpstreamError::Unreachable(_, reason) = &error
                        && let Some((other, model)) = self.elsewhere(&recording, &seat, reason, &mut avoided).await
                    {
                        recording.moves(other.member.name());
                        (seat, self.model, tries) = (other, model, tries - 1);
                        continue;
                    }
                    Err(error.into())
                }
            };
            match sent {
                Ok(Sent::Answer(response)) => {
                    gateway.metrics.first_byte(dialect.name(), sent_at.elapsed());
                    let (report, framing) = (fitted.report.clone(), framing(response.headers()));
                    let held = Held { active, seat };
                    return whole(self.answer(recording, held, fitted, response, sent_at), framing, report).await;
                }
                // The upstream says that it does not fit after all: learn from it and try once more.
                Ok(Sent::Overflow(said, _)) if tries == 1 && fitted.enforced => {
                    correction = learn(gateway, &self.model, request, &fitted, said).await;
                    let acted = matches!(fitted.report.action, Action::Compression | Action::Rollover);
                    first = acted.then_some(fitted.report);
                }
                Ok(Sent::Overflow(_, response) | Sent::Error(response)) => {
                    recording.end_without_answer(TurnStatus::Failed, Some(&fitted.report), None).await;
                    return Ok(error_answer(&fitted, response));
                }
                Err(refusal) => {
                    recording.end_without_answer(TurnStatus::Failed, Some(&fitted.report), None).await;
                    return Err(refusal);
                }
            }
        }
    }

    /// A seat elsewhere, after the upstream of this one could not be reached; none if there is nobody else.
    async fn elsewhere(
        &self,
        recording: &Recording,
        seat: &Seat,
        reason: &str,
        avoided: &mut Vec<usize>,
    ) -> Option<(Seat, Arc<Model>)> {
        seat.member.is_away(reason);
        avoided.push(seat.number());
        let fleet = &self.gateway.fleet;
        if avoided.len() >= fleet.members().len().min(MOST_TRIED) {
            return None;
        }
        fleet.failed_over();
        seated(self.gateway, &self.model, Some(recording.turn.conversation), avoided).await.ok()
    }

    /// What the upstream has against a request that is too large as well: that it cannot use tools, say. It says so
    /// best itself. `None` if it is only the size, or if it would answer after all; that answer nobody gets.
    async fn objection(&self) -> Option<Response<ResponseBody>> {
        let Self { dialect, .. } = self;
        let body = dialect.forbid_truncation(self.bytes.clone(), self.request.truncate.clone());
        let upward = forwarded(clone_head(self.head), dialect.path(), full(body));
        let response = self.model.upstream().send(upward).await.ok()?;
        match classify(&self.model, response).await.ok()? {
            Sent::Error(response) => {
                let (head, body) = response.into_parts();
                let body = http_body_util::Full::new(body).map_err(|never| match never {}).boxed_unsync();
                Some(Response::from_parts(head, body))
            }
            Sent::Answer(_) | Sent::Overflow(..) => None,
        }
    }

    /// The answer on its way to the client, with somebody reading along.
    fn answer(
        mut self,
        recording: Recording,
        held: Held,
        mut fitted: Fitted,
        response: Response<UpstreamBody>,
        sent_at: Instant,
    ) -> Response<ResponseBody> {
        if !response.status().is_success() {
            fitted.report.receipt = None;
        }
        if self.memorable {
            let turn = &recording.turn;
            let known = self.known.take();
            let body = (&self.bytes, self.plain);
            self.gateway.memos.remember(self.dialect, &turn.user, body, self.request, &turn.links, known);
        }
        let (mut head, body) = response.into_parts();
        strip_hop_by_hop(&mut head.headers);
        fitted.report.write(&mut head.headers);
        let idle_timeout = self.gateway.config.idle_timeout;
        let watcher = if head.status.is_success() {
            let framing = framing(&head.headers);
            if framing != Framing::Whole {
                // A frame of ours may follow the last of the upstream's.
                head.headers.remove(CONTENT_LENGTH);
            }
            let dialect = self.dialect;
            Watcher::new(dialect, framing, self.finish(recording, held, fitted, sent_at))
        } else {
            let report = fitted.report.clone();
            tokio::spawn(async move { recording.end_without_answer(TurnStatus::Failed, Some(&report), None).await });
            Watcher::nobody()
        };
        Response::from_parts(head, Observed::new(body, idle_timeout, watcher).boxed_unsync())
    }

    /// What is done once the answer is over: compare the count, store the turn, see whether a checkpoint is due.
    fn finish(
        self,
        recording: Recording,
        held: Held,
        fitted: Fitted,
        sent_at: Instant,
    ) -> impl FnOnce(Answer, Ending) -> Commit + Send + 'static {
        let (gateway, model, dialect) = (Arc::clone(self.gateway), self.model, self.dialect);
        let due = fitted.enforced && fitted.report.action == Action::Checkpoint && gateway.config.checkpoint.enabled;
        let body = if due { self.plain.to_owned() } else { String::new() };
        let receipt = fitted.report.receipt.is_some().then(|| {
            let facts = receipt::Facts {
                turn_id: recording.id().to_owned(),
                model: Arc::clone(&model),
                dialect,
                sources: sources(self.request),
                places: match &self.request.prompt {
                    Prompt::Chat(messages) => receipt::places(messages),
                    Prompt::Generate(_) => Vec::new(),
                },
                sizes_before: sizes_before(&model, self.request, &fitted),
                sent: fitted.body.clone(),
                report: fitted.report.clone(),
                plan: fitted.plan.clone(),
                covering: fitted.covering.clone(),
                recalled: fitted.recalled.clone(),
                rewritten: fitted.rewritten.clone(),
                window: fitted.window,
            };
            let written = tokio::task::spawn_blocking(move || facts.write());
            async move { written.await.ok() }.boxed()
        });
        let tally = tally(&model, self.request, &fitted);
        let span = Span::current();
        move |answer, ending| {
            let _in_span = span.enter();
            let complete = ending == Ending::Complete;
            let metrics = &gateway.metrics;
            metrics.prompt(fitted.report.arrived, fitted.report.sent.total, tally);
            metrics.upstream_took(dialect.name(), sent_at.elapsed());
            metrics.unreadable.inc_by(u64::from(answer.unreadable));
            if ending == Ending::Incomplete {
                metrics.upstream_trouble(UpstreamTrouble::Broken);
            }
            if let Some(reported) = answer.prompt_tokens.filter(|_| complete) {
                compare(&gateway, &model, &fitted, reported);
            }
            if let Some(reported) = answer.prompt_tokens {
                span.record("reported_tokens", reported);
            }
            tracing::info!(ending = ending.name(), "turn");
            let turn = recording.turn.clone();
            let commit = recording.end(&answer, ending, &fitted, receipt);
            let Held { active, seat } = held;
            drop((active, seat));
            if due && complete {
                checkpoint::schedule(&gateway, job(&gateway, turn, dialect, body, answer, fitted, model));
            }
            commit
        }
    }
}

/// Which of the dialect's messages each of Ollama's came from.
fn sources(request: &Request<'_>) -> Vec<usize> {
    match &request.prompt {
        Prompt::Chat(messages) => messages.iter().map(|message| message.source).collect(),
        Prompt::Generate(_) => Vec::new(),
    }
}

/// The sizes of messages that left with another text, as they came.
fn sizes_before(model: &Model, request: &Request<'_>, fitted: &Fitted) -> Vec<Tokens> {
    let Prompt::Chat(messages) = &request.prompt else { return Vec::new() };
    let size = |index: usize| {
        messages.iter().filter(|message| message.source == index).map(|message| rough_size(model, &message.text)).sum()
    };
    fitted.rewritten.iter().map(|one| size(one.index)).collect()
}

/// What a checkpoint is written from.
fn job(
    gateway: &Gateway,
    mut turn: Turn,
    dialect: Dialect,
    body: String,
    answer: Answer,
    fitted: Fitted,
    model: Arc<Model>,
) -> Job {
    let link = gateway.conversations.answer_link(&turn, &answer.message());
    turn.links = turn.links.iter().copied().chain([link]).collect();
    let recalled = fitted.recalled.as_ref().map_or(0, |recalled| rough_size(&model, &recalled.note.text));
    Job {
        turn,
        dialect,
        body,
        answer: answer.text,
        sent: fitted.body,
        plan: fitted.plan,
        covering: fitted.covering,
        tokens: fitted.count.tokens.saturating_sub(recalled),
        limit: fitted.report.sent.limit,
        window: fitted.window,
        model,
    }
}

/// A request that fits nowhere, or whose compaction could not be kept: stored as such.
async fn refused(recording: Recording, refusal: Refusal) -> Refusal {
    let report = refusal.report.as_deref();
    let event = report.map(|report| events::refused(report.arrived));
    recording.end_without_answer(TurnStatus::Refused, report, event).await;
    refusal
}

/// Says that a request has waited for its conversation's checkpoint.
fn told_of_waiting(gateway: &Gateway, turn: &Turn, waited: Waited) -> String {
    let seconds = waited.took.as_secs_f64();
    let body = serde_json::json!({ "seconds": seconds, "written": waited.written });
    gateway.events.publish(turn, Event { kind: "checkpoint.waited", body });
    let outcome = if waited.written { "" } else { ", and went on without it" };
    format!("INFO: Waited {seconds:.1} s for the checkpoint of this conversation{outcome}")
}

/// The known beginning of a body, and the rest that is to be read.
fn recognise(
    gateway: &Gateway,
    user: &str,
    dialect: Dialect,
    headers: &HeaderMap,
    text: &str,
) -> (Option<Known>, Option<String>) {
    if headers.contains_key(restore::HEADER) {
        return (None, None);
    }
    let known = gateway.memos.find(dialect, user, text);
    let rest = known.as_ref().and_then(|known| known.rest_of(text));
    (known, rest)
}

async fn read(gateway: &Gateway, headers: &HeaderMap, body: Incoming) -> Result<Bytes, Refusal> {
    let max = gateway.config.max_body_bytes;
    let too_large = || {
        Refusal::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the request body is larger than {} MB (server.max_body_mb)", max >> 20),
        )
    };
    let encoded = headers.get(CONTENT_ENCODING).is_some_and(|encoding| !encoding.is_empty() && encoding != "identity");
    if encoded {
        return Err(Refusal::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "compressed request bodies are not supported: send the body as it is",
        ));
    }
    let declared = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|length| length > max as u64) {
        linger(body);
        return Err(too_large());
    }
    match Limited::new(body, max).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(too_large()),
        Err(_) => Err(Refusal::new(StatusCode::BAD_REQUEST, "the request body ended before it was complete")),
    }
}

/// Sends a body that Ollama is expected to refuse, so that the client gets Ollama's own words. Should it be
/// taken after all, then it was read differently there than here, and nobody has counted it: it is not
/// let through.
async fn refused_upstream(
    gateway: &Gateway,
    dialect: Dialect,
    head: Parts,
    body: Bytes,
) -> Result<Response<ResponseBody>, Refusal> {
    let response = pass(gateway, dialect, head, body).await?;
    if response.status().is_success() {
        tracing::warn!(
            dialect = dialect.name(),
            "the upstream took a request that could not be understood here: refused"
        );
        return Err(Refusal::new(
            StatusCode::BAD_REQUEST,
            "this request could not be understood, so its size is not known and it was not let through: write it as plain JSON",
        ));
    }
    Ok(response)
}

/// Sends a body as it is and hands the answer through.
async fn pass(
    gateway: &Gateway,
    dialect: Dialect,
    head: Parts,
    body: Bytes,
) -> Result<Response<ResponseBody>, Refusal> {
    let member = match named_model(&body) {
        Some(name) if !gateway.fleet.is_one() => gateway.fleet.member_with(&name).await,
        _ => gateway.fleet.any(),
    };
    let response = member.upstream().send(forwarded(clone_head(&head), dialect.path(), full(body))).await?;
    let (mut head, body) = response.into_parts();
    strip_hop_by_hop(&mut head.headers);
    Ok(Response::from_parts(head, Observed::new(body, gateway.config.idle_timeout, Watcher::nobody()).boxed_unsync()))
}

/// The model that a body names, if it can be read at all.
fn named_model(body: &[u8]) -> Option<String> {
    let fields = crate::json::Fields::read(std::str::from_utf8(body).ok()?, &[]).ok()?;
    Some(fields.text("model").ok()??.into_owned())
}

/// The request's head without what described its old body.
fn clone_head(head: &Parts) -> Parts {
    let mut head = head.clone();
    head.headers.remove(CONTENT_LENGTH);
    // Answers are read along, and may get a last frame of ours: they must come as they are.
    head.headers.remove(ACCEPT_ENCODING);
    head
}

/// What came back, sorted by what has to be done about it.
enum Sent {
    Answer(Response<UpstreamBody>),
    Overflow(Overflow, Response<Bytes>),
    Error(Response<Bytes>),
}

/// Looks whether an answer is an overflow error. Only bodies of that status are read here, and only short ones.
async fn classify(model: &Model, response: Response<UpstreamBody>) -> Result<Sent, Refusal> {
    if response.status() != StatusCode::BAD_REQUEST {
        return Ok(Sent::Answer(response));
    }
    let (mut head, body) = response.into_parts();
    let unreadable = |_| {
        let name = model.upstream().name();
        let refusal = Refusal::new(StatusCode::BAD_GATEWAY, format!("an error of upstream {name} could not be read"));
        Refusal { trouble: Some(UpstreamTrouble::Broken), ..refusal }
    };
    let body = Limited::new(body, MAX_ERROR_BYTES).collect().await.map_err(unreadable)?.to_bytes();
    strip_hop_by_hop(&mut head.headers);
    let said = std::str::from_utf8(&body).ok().and_then(|body| overflow::read(head.status, body));
    let response = Response::from_parts(head, body);
    Ok(match said {
        Some(said) => Sent::Overflow(said, response),
        None => Sent::Error(response),
    })
}

/// Learns from an overflow error. Returns by how many tokens the prompt must become smaller than it
/// was thought to be.
async fn learn(gateway: &Gateway, model: &Model, request: &Request<'_>, fitted: &Fitted, said: Overflow) -> Tokens {
    gateway.metrics.overflows.inc();
    tracing::warn!(
        model = model.name,
        predicted = fitted.count.tokens,
        reported = said.prompt_tokens,
        window = said.window,
        "the upstream says that the prompt does not fit: fitting it again"
    );
    if request.num_ctx.is_none() {
        match said.window {
            Some(window) => model.learn_window_from_overflow(window),
            None => model.look_up_loaded_window(model.no_other_window_asked_for()).await,
        }
    }
    if let Some(reported) = said.prompt_tokens {
        learn_from_report(model, fitted.count, reported);
        return reported.saturating_sub(fitted.count.tokens);
    }
    let (window, _) = gateway.window(model, request.num_ctx);
    // Nothing new was learnt about the window: then the count must have been too low.
    if window >= fitted.window { fitted.report.sent.limit / 8 } else { 0 }
}

/// An error of the upstream, with what we know added to its headers.
fn error_answer(fitted: &Fitted, response: Response<Bytes>) -> Response<ResponseBody> {
    // A turn without an answer has no receipt.
    let report = Report { receipt: None, ..fitted.report.clone() };
    let (head, body) = response.into_parts();
    let body = http_body_util::Full::new(body).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::from_parts(head, body);
    report.write(response.headers_mut());
    response
}

fn framing(headers: &HeaderMap) -> Framing {
    let content_type = headers.get(CONTENT_TYPE).map_or("", |value| value.to_str().unwrap_or(""));
    match content_type.split(';').next().unwrap_or("").trim() {
        "application/x-ndjson" => Framing::Ndjson,
        "text/event-stream" => Framing::Sse,
        _ => Framing::Whole,
    }
}

/// Holds the reported count against the predicted one.
fn compare(gateway: &Gateway, model: &Model, fitted: &Fitted, reported: Tokens) {
    let Count { tokens: predicted, basis, .. } = fitted.count;
    if !fitted.enforced && predicted > fitted.window {
        gateway.metrics.cut_by_upstream.inc();
        return;
    }
    if !fitted.comparable {
        return;
    }
    // Far fewer than were sent: the upstream has cut the prompt. Its window is not what we thought.
    let far_fewer = reported.saturating_mul(4) < predicted.saturating_mul(3);
    if basis == Basis::Exact && far_fewer && fitted.window_is_a_guess {
        tracing::warn!(
            model = model.name,
            window = fitted.window,
            predicted,
            reported,
            "the upstream has cut the prompt: its window is looked up again"
        );
        gateway.metrics.cut_by_upstream.inc();
        model.forget_window();
        return;
    }
    gateway.metrics.count_compared(basis, predicted, reported);
    learn_from_report(model, fitted.count, reported);
}
