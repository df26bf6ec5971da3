//! What is told of one turn besides its answer: its fields in the log, and the tokens that it was spared.

use tracing::Span;

use super::fit::{Fitted, message_size};
use super::record::Recording;
use crate::context::Tokens;
use crate::context::plan::{current_exchange, whole_from};
use crate::dialect::{Prompt, Request};
use crate::ollama::count::rough_size;
use crate::ollama::models::Model;
use crate::telemetry::metrics::Tally;

/// What is known now of a request is noted in its span.
pub(super) fn note(recording: &Recording, model: &Model, fitted: &Fitted) {
    let (span, report) = (Span::current(), &fitted.report);
    // All at once: each time costs a log in JSON a reading of what it has.
    tracing::record_all!(
        span,
        conversation = recording.turn.conversation,
        turn = recording.id(),
        model = model.name,
        window = fitted.window,
        limit_tokens = report.sent.limit,
        arrived_tokens = report.arrived.total,
        forwarded_tokens = report.sent.total,
        basis = report.basis.name(),
        action = report.action.name(),
        snapshot = report.snapshot
    );
}

/// What a prompt was spared. Behind a front that an earlier turn has used already, the upstream reads only what is
/// new: the exchange that is being answered, and what was recalled for it.
pub(super) fn tally(model: &Model, request: &Request<'_>, fitted: &Fitted) -> Tally {
    let recalled = fitted.recalled.as_ref().map_or(0, |recalled| rough_size(model, &recalled.note.text));
    let (Some(covering), Prompt::Chat(messages)) = (&fitted.covering, &request.prompt) else {
        return Tally { recalled, ..Tally::default() };
    };
    let front = &covering.front;
    let sent = fitted.report.sent.total;
    let used_before = messages.len() > front.made_at + 1;
    let would_be_cut = sent.saturating_add(front.saved) > fitted.window;
    let begins = whole_from(&request.kinds, current_exchange(&request.kinds));
    let new = || messages.iter().rev().take_while(|message| message.source >= begins);
    let new = || new().map(|message| message_size(model, message)).sum::<Tokens>();
    let prefill_avoided =
        if used_before && would_be_cut { sent.saturating_sub(new().saturating_add(recalled)) } else { 0 };
    Tally { saved: front.saved, recalled, prefill_avoided }
}
