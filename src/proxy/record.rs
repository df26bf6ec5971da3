//! Writing a turn down: the user's part before the upstream is asked, the answer when it is over.
//!
//! Nothing waits when a turn begins; only the end of its answer waits, for all of it. A turn that is
//! dropped half-way says so in the store: whoever asked went away.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either};
use http::StatusCode;

use super::Gateway;
use super::compact::system_prompts;
use super::conversations::Turn;
use super::fit::Fitted;
use super::headers::Report;
use super::observe::{Commit, Ending};
use super::respond::Refusal;
use crate::context::{Action, Message, Role};
use crate::dialect::{Answer, Dialect, Prompt, Request};
use crate::events::{self, Event};
use crate::store::{BeginTurn, Change, FinishTurn, NewMessage, Rejection, StoreError, TurnStatus};

/// What a client is told when its answer could not be kept.
const NOT_KEPT: &str =
    "the answer could not be stored, so it must not count as finished: see Loadline's log (disk space?)";

/// The same where a server keeps everything.
const NOT_KEPT_THERE: &str =
    "the answer could not be stored, so it must not count as finished: the database did not take it (store.url)";

/// What a client is told whose conversation went meanwhile.
const DELETED: &str = "the conversation was deleted while it was being answered, so the answer was not stored";

/// A receipt that is being written.
pub(super) type Written = BoxFuture<'static, Option<String>>;

/// A turn that has begun.
#[derive(Debug)]
pub(super) struct Recording {
    gateway: Arc<Gateway>,
    pub turn: Turn,
    id: String,
    /// What is known of it by now, should it end early.
    so_far: Option<Report>,
    /// Who answers it instead of who was to.
    moved: Option<String>,
    ended: bool,
}

impl Recording {
    /// Hands the user's part to the store. Nothing waits for it, unless the store has just failed: then
    /// nobody is asked before it works again.
    pub(super) async fn begin(
        gateway: &Arc<Gateway>,
        turn: Turn,
        dialect: Dialect,
        body: &str,
        request: &Request<'_>,
        upstream: Option<String>,
    ) -> Result<Self, Refusal> {
        let id = uuid::Uuid::now_v7().simple().to_string();
        let (messages, system) = match &request.prompt {
            Prompt::Chat(messages) => (new_messages(&turn, dialect, body, request, messages), system_prompts(messages)),
            Prompt::Generate(generate) => {
                let system: Vec<&str> = generate.system.as_deref().into_iter().collect();
                let prompt =
                    Message { images: generate.images, ..Message::plain(Role::User, generate.prompt.as_ref(), 0) };
                let link = turn.links.first().copied();
                let more = generate.images > 0 || generate.suffix.is_some() || generate.context.is_some();
                let raw = more.then_some(body);
                let messages = link.map(|link| NewMessage::of(link, &prompt, raw)).into_iter().collect();
                (messages, serde_json::json!(system).to_string())
            }
        };
        let shared = turn.shared();
        let change = Change::Begin(BeginTurn {
            turn: id.clone(),
            conversation: turn.conversation,
            user: turn.user.to_string(),
            at: events::now_ms(),
            model: request.model.clone().into_owned(),
            dialect: dialect.name(),
            upstream,
            system,
            after: shared.checked_sub(1).and_then(|last| turn.links.get(last)).copied(),
            messages,
        });
        let conversations = Arc::clone(&gateway.conversations);
        let begun = gateway.store.submit_then(change, move |stored| {
            if let Err(StoreError::Rejected(Rejection::UnknownLink(gone))) = stored {
                // What memory knew of it is stored no more: the next turn stores it anew.
                conversations.forget(*gone);
            }
        });
        if !gateway.store.healthy() && begun.await.is_err() {
            let why = if gateway.store.is_shared() { "the database is away (store.url)" } else { "disk space?" };
            return Err(Refusal::new(
                StatusCode::SERVICE_UNAVAILABLE,
                format!(
                    "conversations cannot be stored right now, so nothing is forwarded: see Loadline's log ({why})"
                ),
            ));
        }
        Ok(Self { gateway: Arc::clone(gateway), turn, id, so_far: None, moved: None, ended: false })
    }

    /// It leaves like this now.
    pub(super) fn leaves(&mut self, report: &Report) {
        self.so_far = Some(Report { receipt: None, ..report.clone() });
    }

    /// Another upstream answers it.
    pub(super) fn moves(&mut self, upstream: &str) {
        self.moved = Some(upstream.to_owned());
    }

    /// The name of this turn.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// The turn ends without an answer. Ready when that is on disk, or cannot be.
    pub(super) async fn end_without_answer(
        mut self,
        status: TurnStatus,
        report: Option<&Report>,
        event: Option<Event>,
    ) {
        self.ended = true;
        self.count(status, report);
        let events = event.map(|event| event.of(&self.turn, events::now_ms())).into_iter().collect();
        let finish = FinishTurn { events, ..self.finish(status, report) };
        if let Err(error) = self.gateway.events.submit(Change::Finish(finish)).await {
            tracing::error!(%error, "a turn could not be stored");
        }
    }

    /// The answer is over. Ready when the whole turn is on disk.
    pub(super) fn end(mut self, answer: &Answer, ending: Ending, fitted: &Fitted, receipt: Option<Written>) -> Commit {
        self.ended = true;
        let status = match ending {
            Ending::Complete => TurnStatus::Complete,
            Ending::Incomplete => TurnStatus::Incomplete,
            Ending::Cancelled => TurnStatus::Cancelled,
        };
        self.count(status, Some(&fitted.report));
        let message = answer.message();
        let said_something = !message.text.is_empty() || !message.tool_calls.is_empty() || !message.thinking.is_empty();
        // A whole answer that says nothing is an answer: the client will send it back.
        let known = said_something || ending == Ending::Complete;
        let link = self.gateway.conversations.answer_link(&self.turn, &message);
        let mut finish = FinishTurn {
            answer: known.then(|| NewMessage::of(link, &message, None)),
            reported_tokens: answer.prompt_tokens,
            ..self.finish(status, Some(&fitted.report))
        };
        let at = events::now_ms();
        finish.events = fitted.report.warnings.iter().map(|text| events::warning(text).of(&self.turn, at)).collect();
        let (gateway, turn) = (Arc::clone(&self.gateway), self.turn.clone());
        let (asked, conversation) = (Arc::clone(&self.gateway), self.turn.conversation);
        // Only what is stored is known, and at once: a later turn is stored behind it.
        let conversations = Arc::clone(&self.gateway.conversations);
        let then = move |stored: &Result<(), StoreError>| {
            if stored.is_ok() && known {
                conversations.record(&turn, link);
            }
        };
        let kept = match receipt.zip(fitted.report.receipt.clone()) {
            None => Either::Left(gateway.events.submit_then(Change::Finish(finish), then)),
            Some((receipt, id)) => Either::Right(
                // It is stored also if nobody waits for it.
                tokio::spawn(async move {
                    finish.receipt = receipt.await.map(|body| (id, body));
                    gateway.events.submit_then(Change::Finish(finish), then).await
                })
                .map(|kept| kept.unwrap_or(Err(StoreError::Stopped))),
            ),
        };
        Box::pin(kept.map(move |kept| match kept {
            Ok(()) => Ok(()),
            Err(_) if asked.conversations.is_buried(conversation) => Err(DELETED.to_owned()),
            Err(error) => {
                tracing::error!(%error, "a turn could not be stored");
                Err(if asked.store.is_shared() { NOT_KEPT_THERE } else { NOT_KEPT }.to_owned())
            }
        }))
    }

    fn count(&self, status: TurnStatus, report: Option<&Report>) {
        self.gateway.metrics.turn(report.map_or(Action::None, |report| report.action), status);
    }

    fn finish(&self, status: TurnStatus, report: Option<&Report>) -> FinishTurn {
        FinishTurn {
            turn: self.id.clone(),
            conversation: self.turn.conversation,
            at: events::now_ms(),
            status,
            answer: None,
            arrived_tokens: report.map_or(0, |report| report.arrived.total),
            sent_tokens: report.filter(|_| status != TurnStatus::Refused).map_or(0, |report| report.sent.total),
            limit_tokens: report.map_or(0, |report| report.sent.limit),
            reported_tokens: None,
            basis: report.map_or("", |report| report.basis.name()),
            action: report.map_or("", |report| report.action.name()),
            receipt: None,
            upstream: self.moved.clone(),
            events: Vec::new(),
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if !self.ended && tokio::runtime::Handle::try_current().is_ok() {
            self.count(TurnStatus::Cancelled, self.so_far.as_ref());
            let finish = self.finish(TurnStatus::Cancelled, self.so_far.as_ref());
            tokio::spawn(self.gateway.events.submit(Change::Finish(finish)));
        }
    }
}

/// The messages that are new, as the store takes them.
fn new_messages(
    turn: &Turn,
    dialect: Dialect,
    body: &str,
    request: &Request<'_>,
    messages: &[Message<'_>],
) -> Vec<NewMessage> {
    let shared = turn.shared();
    if shared >= messages.len() {
        return Vec::new();
    }
    let found = if request.list.is_some() { Vec::new() } else { dialect.written_messages(body) };
    let written = |source: usize| match &request.list {
        Some(list) => list.elements.get(source).map(|range| &body[range.clone()]),
        None => found.get(source).map(|raw| raw.get()),
    };
    let mut last_source = None;
    let new = messages.iter().zip(turn.links.iter()).skip(shared).filter(|(message, _)| message.role != Role::System);
    new.map(|(message, link)| {
        // What the dialect wrote as one message and Ollama reads as several is kept with the first.
        let first_of_source = last_source.replace(message.source) != Some(message.source);
        let raw = written(message.source).filter(|_| first_of_source).and_then(more_than_text);
        NewMessage::of(*link, message, raw)
    })
    .collect()
}

/// A message as it was written, if it says more than a role and a text.
fn more_than_text(raw: &str) -> Option<&str> {
    let fields = crate::json::Fields::read(raw, &[]).ok()?;
    let plain = fields.len() == 2
        && fields.get("role").is_some()
        && fields.get("content").is_some_and(|content| content.get().starts_with('"'));
    (!plain).then_some(raw)
}
