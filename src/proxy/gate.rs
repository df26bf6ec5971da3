//! The gate: what happens to a request on one of the six gated paths, as one straight line.
//!
//! What Ollama would refuse is passed on to it, byte by byte, so that the client gets Ollama's own
//! error. What Ollama would accept is counted first, and leaves only if it fits; in observe mode it leaves
//! as it came. Requests that only load or unload a model say nothing, and pass.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};
use http::request::Parts;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;

use super::Gateway;
use super::conversations::Turn;
use super::fit::{Arrived, Effects, Fitted, fit};
use super::headers::strip_hop_by_hop;
use super::observe::{Ending, Observed, Watcher};
use super::relay::forwarded;
use super::respond::{Refusal, ResponseBody};
use crate::context::{Basis, Tokens};
use crate::dialect::{Answer, Dialect, Prompt, Request};
use crate::framing::Framing;
use crate::json::JsonError;
use crate::ollama::client::full;
use crate::ollama::count::{Count, learn_from_report, off_the_worker};
use crate::ollama::models::{Model, ModelError};
use crate::ollama::overflow::{self, Overflow};

/// Whose conversation it is when nobody has to say who they are.
pub(super) const LOCAL_USER: &str = "local";

/// An error body is short; more than this is not looked at.
const MAX_ERROR_BYTES: usize = 64 << 10;

pub async fn gate(
    gateway: &Arc<Gateway>,
    dialect: Dialect,
    head: Parts,
    body: Incoming,
) -> Result<Response<ResponseBody>, Refusal> {
    let body = read(gateway, &head.headers, body).await?;
    // Bodies that Ollama cannot read, or whose fields have types it does not take, are its to refuse.
    let rewritten;
    let (plain, read) = match off_the_worker(body.len(), || dialect.read_plain(&body)) {
        Some(read) => read,
        None => {
            rewritten = off_the_worker(body.len(), || dialect.rewrite(&body));
            let Some(plain) = &rewritten else { return refused_upstream(gateway, dialect, head, body.clone()).await };
            (plain.as_str(), dialect.parse(plain))
        }
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
    let model = match gateway.models.get(&request.model).await {
        Ok(model) => model,
        // Ollama says best itself that it has no such model.
        Err(ModelError::Unknown) => return refused_upstream(gateway, dialect, head, body.clone()).await,
        Err(ModelError::Upstream(error)) => return Err(error.into()),
        // Odd names make `/api/show` fail; if the model is there all the same, it must not go uncounted.
        Err(error @ ModelError::Unreadable) => {
            let refused = refused_upstream(gateway, dialect, head, body.clone()).await;
            return refused.map_err(|_| Refusal::new(StatusCode::BAD_GATEWAY, error.to_string()));
        }
    };
    let turn = identify(gateway, &head.headers, &request)?;
    let mut correction = 0;
    let mut tries = 0;
    loop {
        let arrived = Arrived { dialect, body: plain, request: &request, turn: turn.as_ref(), correction };
        let fitted = fit(gateway, &model, &arrived, Effects::Real).await?.or_refuse(&gateway.counters)?;
        let upward = forwarded(clone_head(&head), dialect.path(), full(fitted.body.clone()));
        tries += 1;
        match classify(gateway, gateway.upstream().send(upward).await?).await? {
            Sent::Answer(response) => return Ok(answer(gateway, dialect, model, turn, fitted, response)),
            // The upstream says that it does not fit after all: learn from it and try once more.
            Sent::Overflow(said, _) if tries == 1 && fitted.enforced => {
                correction = learn(gateway, &model, &request, &fitted, said).await;
            }
            Sent::Overflow(_, response) | Sent::Error(response) => return Ok(error_answer(gateway, &fitted, response)),
        }
    }
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
    let response = gateway.upstream().send(forwarded(clone_head(&head), dialect.path(), full(body))).await?;
    let (mut head, body) = response.into_parts();
    strip_hop_by_hop(&mut head.headers);
    Ok(Response::from_parts(head, Observed::new(body, gateway.config.idle_timeout, Watcher::nobody()).boxed_unsync()))
}

/// The request's head without what described its old body.
fn clone_head(head: &Parts) -> Parts {
    let mut head = head.clone();
    head.headers.remove(CONTENT_LENGTH);
    // Answers are read along, and may get a last frame of ours: they must come as they are.
    head.headers.remove(ACCEPT_ENCODING);
    head
}

fn identify(gateway: &Gateway, headers: &HeaderMap, request: &Request<'_>) -> Result<Option<Turn>, Refusal> {
    let Prompt::Chat(messages) = &request.prompt else { return Ok(None) };
    let named = match headers.get("x-loadline-conversation") {
        None => None,
        Some(value) => {
            let number = value.to_str().ok().and_then(|value| value.trim().parse().ok());
            let not_found = || Refusal::new(StatusCode::NOT_FOUND, "there is no such conversation");
            let number = number.ok_or_else(not_found)?;
            if !gateway.conversations.owns(LOCAL_USER, number) {
                return Err(not_found());
            }
            Some(number)
        }
    };
    Ok(Some(gateway.conversations.place(LOCAL_USER, messages, named)))
}

/// What came back, sorted by what has to be done about it.
enum Sent {
    Answer(Response<Incoming>),
    Overflow(Overflow, Response<Bytes>),
    Error(Response<Bytes>),
}

/// Looks whether an answer is an overflow error. Only bodies of that status are read here, and only short ones.
async fn classify(gateway: &Gateway, response: Response<Incoming>) -> Result<Sent, Refusal> {
    if response.status() != StatusCode::BAD_REQUEST {
        return Ok(Sent::Answer(response));
    }
    let (mut head, body) = response.into_parts();
    let unreadable = |_| {
        Refusal::new(
            StatusCode::BAD_GATEWAY,
            format!("an error of upstream {} could not be read", gateway.upstream().name()),
        )
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
    gateway.counters.overflows.increment();
    tracing::warn!(
        model = model.name,
        predicted = fitted.count.tokens,
        reported = said.prompt_tokens,
        window_tokens = said.window,
        "the upstream says that the prompt does not fit: fitting it again"
    );
    if request.num_ctx.is_none() {
        match said.window {
            Some(window) => model.learn_window_from_overflow(window),
            None => gateway.models.look_up_loaded_window(model).await,
        }
    }
    if let Some(reported) = said.prompt_tokens {
        learn_from_report(model, fitted.count, reported);
        return reported.saturating_sub(fitted.count.tokens);
    }
    let (window, _) = gateway.models.window(model, request.num_ctx);
    // Nothing new was learnt about the window: then the count must have been too low.
    if window >= fitted.window { fitted.report.sent.limit / 8 } else { 0 }
}

/// An error of the upstream, with what we know added to its headers.
fn error_answer(gateway: &Gateway, fitted: &Fitted, response: Response<Bytes>) -> Response<ResponseBody> {
    gateway.counters.turns(fitted.report.action, false);
    let (head, body) = response.into_parts();
    let body = http_body_util::Full::new(body).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::from_parts(head, body);
    fitted.report.write(response.headers_mut());
    response
}

/// The answer on its way to the client, with somebody reading along.
fn answer(
    gateway: &Arc<Gateway>,
    dialect: Dialect,
    model: Arc<Model>,
    turn: Option<Turn>,
    fitted: Fitted,
    response: Response<Incoming>,
) -> Response<ResponseBody> {
    let (mut head, body) = response.into_parts();
    strip_hop_by_hop(&mut head.headers);
    fitted.report.write(&mut head.headers);
    let watcher = if head.status.is_success() {
        let framing = framing(&head.headers);
        if framing != Framing::Whole {
            // A frame of ours may follow the last of the upstream's.
            head.headers.remove(CONTENT_LENGTH);
        }
        let record = record(Arc::clone(gateway), model, turn, fitted);
        Watcher::new(dialect, framing, record)
    } else {
        Watcher::nobody()
    };
    Response::from_parts(head, Observed::new(body, gateway.config.idle_timeout, watcher).boxed_unsync())
}

fn framing(headers: &HeaderMap) -> Framing {
    let content_type = headers.get(CONTENT_TYPE).map_or("", |value| value.to_str().unwrap_or(""));
    match content_type.split(';').next().unwrap_or("").trim() {
        "application/x-ndjson" => Framing::Ndjson,
        "text/event-stream" => Framing::Sse,
        _ => Framing::Whole,
    }
}

/// What is done once the answer is over: compare the count, remember the turn.
fn record(
    gateway: Arc<Gateway>,
    model: Arc<Model>,
    turn: Option<Turn>,
    fitted: Fitted,
) -> impl FnOnce(Answer, Ending) + Send + 'static {
    move |answer, ending| {
        gateway.counters.turns(fitted.report.action, ending == Ending::Complete);
        gateway.counters.unreadable.add(u64::from(answer.unreadable));
        if let Some(reported) = answer.prompt_tokens.filter(|_| ending == Ending::Complete) {
            compare(&gateway, &model, &fitted, reported);
        }
        if let Some(turn) = turn.filter(|_| ending == Ending::Complete) {
            gateway.conversations.record(&turn, &answer.message());
        }
        tracing::info!(
            model = model.name,
            action = fitted.report.action.name(),
            basis = fitted.count.basis.name(),
            prompt_tokens = fitted.count.tokens,
            limit_tokens = fitted.report.sent.limit,
            reported_tokens = answer.prompt_tokens,
            ending = ?ending,
            "turn"
        );
    }
}

/// Holds the reported count against the predicted one.
fn compare(gateway: &Gateway, model: &Model, fitted: &Fitted, reported: Tokens) {
    let Count { tokens: predicted, basis, .. } = fitted.count;
    if !fitted.enforced && predicted > fitted.window {
        gateway.counters.cut_by_upstream.increment();
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
            window_tokens = fitted.window,
            predicted,
            reported,
            "the upstream has cut the prompt: its window is looked up again"
        );
        gateway.counters.cut_by_upstream.increment();
        model.forget_window();
        return;
    }
    gateway.counters.count_compared(basis, predicted, reported);
    learn_from_report(model, fitted.count, reported);
}
