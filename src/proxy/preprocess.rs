//! What is done to a user's very long message before it is counted: a model says it in fewer words.
//!
//! Off unless configured. The condensed text is remembered under a digest of the original, so that every
//! later turn sends the same; the original is what is stored as said, and what recall finds.

use std::collections::HashMap;
use std::sync::PoisonError;

use super::Gateway;
use super::fit::Prepared;
use crate::checkpoint::prompt::{condense, speaks_of};
use crate::context::plan::Kind;
use crate::context::{Budget, Message, Role};
use crate::dialect::{Prompt, Request};
use crate::events::now_ms;
use crate::ollama::ask::{Question, ask};
use crate::ollama::count::{off_the_worker, rough_size};
use crate::ollama::models::Model;
use crate::store::Change;

/// A condensed message must be at most this share of the original to be worth it.
const WORTH: f64 = 0.7;

/// A condensed message is asked to be of this share of the mark, in tokens.
const TARGET_SHARE: u32 = 4;

/// Failures remembered.
const MAX_FAILURES: usize = 1000;

/// Looks which messages have to be condensed, and has it done where it was not done before.
pub(super) async fn prepare(gateway: &Gateway, model: &Model, request: &Request<'_>) -> Prepared {
    let settings = gateway.config.preprocess.of(&request.model);
    let mut prepared = Prepared { clean: settings.clean, condensed: HashMap::new() };
    let (Some(over), Prompt::Chat(messages)) = (settings.condense_over, &request.prompt) else { return prepared };
    let newest = request.kinds.iter().rposition(|kind| *kind == Kind::User);
    for message in messages.iter().filter(|message| is_long_user_text(request, message, over)) {
        let tokens = off_the_worker(message.text.len(), || rough_size(model, &message.text));
        if tokens <= over {
            continue;
        }
        let digest = *blake3::hash(message.text.as_bytes()).as_bytes();
        let look_up = || gateway.store.reader().ok().and_then(|reader| reader.condensed(&digest).ok().flatten());
        let known = off_the_worker(usize::MAX, look_up);
        let text = match known {
            Some(text) => Some(text),
            // Only the newest message is worth a wait; earlier ones leave as they always did.
            None if Some(message.source) == newest && !failed_before(gateway, &digest) => {
                let asked = condensed(gateway, model, request, message, over);
                let text = tokio::time::timeout(gateway.config.preprocess.intent_timeout, asked).await.ok().flatten();
                if text.is_none() {
                    remember_failure(gateway, digest);
                }
                if let Some(text) = &text {
                    let change = Change::Condensed { digest, body: text.clone(), at: now_ms() };
                    tokio::spawn(gateway.events.submit(change));
                }
                text
            }
            None => None,
        };
        if let Some(text) = text {
            prepared.condensed.insert(message.source, text);
        }
    }
    prepared
}

/// Whether a model has failed on this text already: the steps of a turn must not each wait for it again.
fn failed_before(gateway: &Gateway, digest: &[u8; 32]) -> bool {
    gateway.condense_failed.lock().unwrap_or_else(PoisonError::into_inner).contains(digest)
}

fn remember_failure(gateway: &Gateway, digest: [u8; 32]) {
    let mut failed = gateway.condense_failed.lock().unwrap_or_else(PoisonError::into_inner);
    if failed.len() >= MAX_FAILURES {
        failed.clear();
    }
    failed.insert(digest);
}

fn is_long_user_text(request: &Request<'_>, message: &Message<'_>, over: u32) -> bool {
    // A token is at least a byte.
    request.kinds.get(message.source) == Some(&Kind::User) && message.images == 0 && message.text.len() > over as usize
}

async fn condensed(
    gateway: &Gateway,
    model: &Model,
    request: &Request<'_>,
    message: &Message<'_>,
    over: u32,
) -> Option<String> {
    let own = gateway.config.preprocess.intent_model.is_none();
    let writer = gateway.config.preprocess.intent_model.as_deref().unwrap_or(&model.name);
    let target = over / TARGET_SHARE;
    let question = [Message::plain(Role::User, condense(&message.text, target * 2 / 3), 0)];
    let (window, _) = gateway.window(model, request.num_ctx.filter(|_| own));
    let limit = Budget::new(window, gateway.config.reserve, Some(target)).limit;
    let tokens = rough_size(model, &message.text);
    if rough_size(model, &question[0].text) + 32 > limit {
        return None;
    }
    let field =
        |name: &str| request.render_with.iter().find(|(field, _)| *field == name).map(|(_, json)| json.as_ref());
    let asked = Question {
        model: writer,
        messages: &question,
        options: field("options").filter(|_| own),
        keep_alive: field("keep_alive").filter(|_| own),
        answer_tokens: target * 2,
    };
    // Another model may be elsewhere.
    let other = if own { None } else { gateway.fleet.model(writer).await.ok() };
    let upstream = other.as_deref().unwrap_or(model).upstream();
    match ask(upstream, &asked).await {
        Ok(reply) => {
            let after = rough_size(model, &reply.text);
            let shorter = f64::from(after) <= f64::from(tokens) * WORTH;
            (shorter && speaks_of(&message.text, &reply.text)).then_some(reply.text)
        }
        Err(error) => {
            tracing::warn!(model = writer, %error, "a message could not be condensed: it is sent as it is");
            None
        }
    }
}
