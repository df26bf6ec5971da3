//! The routes that are ours: exact counts, dry runs, probes.

use std::sync::Arc;

use http::header::{CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::fit::{Fit, dry_run};
use super::headers::Report;
use super::respond::{self, Refusal, ResponseBody};
use super::{Gateway, feed};
use crate::api::auth::Caller;
use crate::api::{no_store, overview, turn};
use crate::context::Action;
use crate::dialect::{Dialect, Request};
use crate::ollama::count::count;
use crate::ollama::models::{Model, ModelError};
use crate::ollama::probe::Seen;
use crate::store::Disk;
use crate::telemetry::metrics::{Metrics, Now};

const CHECK: &str = "/loadline/check";
const RECEIPTS: &str = "/loadline/receipts/";
const TURNS: &str = "/loadline/turns/";
const UPSTREAMS: &str = "/loadline/upstreams";

/// Whether a path is ours to answer.
pub(super) fn is_ours(path: &str) -> bool {
    path == "/loadline" || path.starts_with("/loadline/") || path == "/metrics" || path == "/v1/messages/count_tokens"
}

pub(super) async fn answer(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    head: Parts,
    path: &str,
    body: Incoming,
) -> Result<Response<ResponseBody>, Refusal> {
    let post = head.method == Method::POST;
    let reads = head.method == Method::GET || head.method == Method::HEAD;
    match path {
        "/loadline/health" => Ok(respond::json(StatusCode::OK, health(gateway).to_string())),
        "/loadline/ready" => ready(gateway).await,
        "/loadline/count" if post => {
            let body = read(gateway, body).await?;
            count_request(gateway, &body).await
        }
        "/v1/messages/count_tokens" if post => {
            let body = read(gateway, body).await?;
            let (_, count) = counted(gateway, Dialect::Anthropic, &body).await?;
            Ok(respond::json(StatusCode::OK, json!({ "input_tokens": count.tokens }).to_string()))
        }
        "/metrics" if reads => metrics(gateway).await,
        "/loadline/events" if head.method == Method::GET => feed::stream(gateway, caller, &head).await,
        "/loadline/overview" if reads => overview::overview(gateway, caller, &head).await,
        UPSTREAMS if reads => Ok(no_store(respond::json(StatusCode::OK, overview::upstreams(gateway).to_string()))),
        change if post && change.starts_with(UPSTREAMS) => drain(gateway, &change[UPSTREAMS.len()..]),
        turn if reads && turn.starts_with(TURNS) => turn::turn(gateway, caller, &head, &turn[TURNS.len()..]).await,
        receipt if head.method == Method::GET && receipt.starts_with(RECEIPTS) => {
            read_receipt(gateway, caller, receipt[RECEIPTS.len()..].to_owned()).await
        }
        checked if post && checked.starts_with(CHECK) => {
            let dialect = Dialect::of_path(&checked[CHECK.len()..]).ok_or_else(not_found)?;
            let body = read(gateway, body).await?;
            let answer = check(gateway, &caller.user, dialect, &body).await?;
            Ok(respond::json(StatusCode::OK, answer.to_string()))
        }
        "/metrics" | "/loadline/overview" | "/loadline/events" => {
            Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "this route takes GET"))
        }
        "/loadline/count" | "/v1/messages/count_tokens" => {
            Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "this route takes POST"))
        }
        checked if checked.starts_with("/loadline/check/") => {
            Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "this route takes POST"))
        }
        _ => Err(not_found()),
    }
}

fn not_found() -> Refusal {
    Refusal::new(
        StatusCode::NOT_FOUND,
        "there is no such route; gated paths can be checked under /loadline/check, as in /loadline/check/api/chat",
    )
}

fn health(gateway: &Gateway) -> Value {
    let metrics = &gateway.metrics;
    json!({
        "status": "ok",
        "version": env!("CARGO_PKG_VERSION"),
        "mode": gateway.config.mode.name(),
        "upstream": gateway.upstream().name(),
        "turns": turns_by_action(metrics),
        "counts_compared": metrics.compared(),
        "exact_mismatches": metrics.exact_mismatches(),
        "overflows": metrics.overflows.get(),
        "cut_by_upstream": metrics.cut_by_upstream.get(),
        "conversations": gateway.conversations.len(),
        "checkpoints_under_way": gateway.checkpoints.under_way(),
        "store_healthy": gateway.store.healthy(),
    })
}

pub(crate) fn turns_by_action(metrics: &Metrics) -> Value {
    let turns = Action::ALL.into_iter().map(|action| (action.name().to_owned(), metrics.of_action(action).into()));
    Value::Object(turns.collect())
}

/// `GET /metrics`
async fn metrics(gateway: &Arc<Gateway>) -> Result<Response<ResponseBody>, Refusal> {
    let up = gateway.upstreams_up().await;
    let store = Arc::clone(&gateway.store);
    let looked =
        move || (store.disk().unwrap_or_default(), store.reader().and_then(|reader| reader.conversation_count()));
    let (disk, conversations) = tokio::task::spawn_blocking(looked).await.unwrap_or((Disk::default(), Ok(0)));
    let stats = gateway.store.stats();
    let now = Now {
        upstream_up: up > 0,
        upstreams_up: up,
        upstreams_down: gateway.fleet.members().len() - up,
        upstream_queue: gateway.fleet.waiting(),
        checkpoints_under_way: gateway.checkpoints.under_way(),
        store_healthy: gateway.store.healthy(),
        queue_changes: stats.waiting,
        queue_bytes: stats.waiting_bytes,
        size_bytes: disk.size_bytes(),
        free_bytes: disk.free_bytes,
        conversations: conversations.unwrap_or_default(),
        conversations_in_memory: gateway.conversations.len(),
        webhook_lag_events: gateway.webhooks.lag(),
    };
    let text = gateway.metrics.text(now).map_err(|error| {
        tracing::error!(%error, "the metrics could not be written");
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be written: see Loadline's log")
    })?;
    let mut response = respond::json(StatusCode::OK, text);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(prometheus::TEXT_FORMAT));
    Ok(response)
}

/// `POST /loadline/upstreams/2/drain` and `…/resume`: the second gets nothing new from this Loadline, or does again.
fn drain(gateway: &Gateway, which: &str) -> Result<Response<ResponseBody>, Refusal> {
    let (number, word) = which.strip_prefix('/').and_then(|which| which.split_once('/')).ok_or_else(not_found)?;
    let draining = match word {
        "drain" => true,
        "resume" => false,
        _ => return Err(not_found()),
    };
    let number = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    let unknown = || {
        let most = gateway.fleet.members().len();
        Refusal::new(StatusCode::NOT_FOUND, format!("there is no such upstream: they are numbered from 1 to {most}"))
    };
    let member = number.and_then(|number| gateway.fleet.members().get(number)).ok_or_else(unknown)?;
    member.drain(draining);
    Ok(respond::json(StatusCode::OK, overview::upstreams(gateway).to_string()))
}

/// The receipt of a turn, if it is that user's.
async fn read_receipt(gateway: &Gateway, caller: &Caller, id: String) -> Result<Response<ResponseBody>, Refusal> {
    let store = Arc::clone(&gateway.store);
    let read = tokio::task::spawn_blocking(move || store.reader().and_then(|reader| reader.receipt(&id))).await;
    let failed = || Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the store cannot be read right now");
    let row = read.map_err(|_| failed())?.map_err(|_| failed())?.filter(|row| *row.user == *caller.user);
    let row = row.ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, "there is no such receipt"))?;
    Ok(no_store(respond::json(StatusCode::OK, row.body)))
}

/// Ready when an upstream answers, and the database, if it is a server.
async fn ready(gateway: &Gateway) -> Result<Response<ResponseBody>, Refusal> {
    let looks = gateway.fleet.members().iter().map(|member| member.seen());
    let seen = futures_util::future::join_all(looks).await;
    let error = if seen.iter().any(Seen::is_up) { None } else { seen.into_iter().find_map(|seen| seen.error) };
    let drained = gateway.fleet.members().iter().all(|member| member.is_draining());
    let error = if drained { Some("all upstreams are being drained".to_owned()) } else { error };
    let error = if gateway.store.is_reached() { error } else { Some("the database is away (store.url)".to_owned()) };
    match error {
        None => Ok(respond::json(StatusCode::OK, json!({ "status": "ready" }).to_string())),
        Some(error) => Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error)),
    }
}

async fn read(gateway: &Gateway, body: Incoming) -> Result<bytes::Bytes, Refusal> {
    let max = gateway.config.max_body_bytes;
    let body = Limited::new(body, max).collect().await;
    let refused = |_| {
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "the request body is too large or incomplete (server.max_body_mb)")
    };
    Ok(body.map_err(refused)?.to_bytes())
}

async fn count_request(gateway: &Gateway, body: &[u8]) -> Result<Response<ResponseBody>, Refusal> {
    let dialect = Dialect::of_body(body);
    let (model, count) = counted(gateway, dialect, body).await?;
    let plain = dialect.plain(body).ok_or_else(bad_body)?;
    let num_ctx = dialect.parse(&plain).map_err(|_| bad_body())?.num_ctx;
    if num_ctx.is_none() && !model.knows_default_window() {
        // Counting has just had the model loaded, unless the count was composed; then it is only a guess.
        model.look_up_loaded_window(model.no_other_window_asked_for()).await;
    }
    let (window, source) = gateway.window(&model, num_ctx);
    let answer = json!({
        "model": model.name,
        "tokens": count.tokens,
        "basis": count.basis.name(),
        "window": window,
        "window_from": source.name(),
    });
    Ok(respond::json(StatusCode::OK, answer.to_string()))
}

async fn counted(
    gateway: &Gateway,
    dialect: Dialect,
    body: &[u8],
) -> Result<(Arc<Model>, crate::ollama::Count), Refusal> {
    let plain = dialect.plain(body).ok_or_else(bad_body)?;
    let request = dialect.parse(&plain).map_err(|_| bad_body())?;
    if request.prompt.is_empty() {
        return Err(nothing_said());
    }
    let model = model(gateway, &request).await?;
    let count = count(model.upstream(), &model, &request).await;
    Ok((model, count))
}

/// What the gate would do with a request. Nothing is stored or sent.
pub async fn check(gateway: &Gateway, user: &Arc<str>, dialect: Dialect, body: &[u8]) -> Result<Value, Refusal> {
    let plain = dialect.plain(body).ok_or_else(bad_body)?;
    let request = dialect.parse(&plain).map_err(|_| bad_body())?;
    if request.prompt.is_empty() {
        return Err(nothing_said());
    }
    let model = model(gateway, &request).await?;
    let fit = dry_run(gateway, user, &model, dialect, &plain, &request, None).await?;
    Ok(checked(dialect, &plain, fit))
}

/// The answer of a dry run, in the words of the original design.
fn checked(dialect: Dialect, plain: &str, fit: Fit) -> Value {
    let (valid, body, report, reason) = match fit {
        Fit::Fits(fitted) => {
            let body = String::from_utf8_lossy(&fitted.body).into_owned();
            (fitted.report.sent.fits(), body, fitted.report, None)
        }
        Fit::TooLarge(too_large) => (false, plain.to_owned(), too_large.report, Some(too_large.message)),
    };
    let Report { sent, arrived, basis, action, warnings, .. } = report;
    let emergency = match action {
        Action::Compression => Some("compression"),
        Action::Rollover | Action::Refused => Some("rollover"),
        Action::None | Action::Checkpoint => None,
    };
    let prompt: Value = serde_json::from_str(&dialect.messages_json(&body)).unwrap_or_default();
    let mut answer = json!({
        "valid": valid,
        "prompt": prompt,
        "totalTokens": sent.total,
        "ollamaLimit": sent.limit,
        "warnings": warnings,
        "emergencyAction": emergency,
        "arrivedTokens": arrived.total,
        "usage": arrived.to_string(),
        "action": action.name(),
        "basis": basis.name(),
    });
    if let Some(reason) = reason {
        answer["error"] = reason.into();
    }
    answer
}

fn nothing_said() -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, "there is nothing to count: the request has no messages and no prompt")
}

fn bad_body() -> Refusal {
    Refusal::new(
        StatusCode::BAD_REQUEST,
        "the body is not a request that Ollama would take: it must be one JSON object with the fields of a gated route",
    )
}

async fn model(gateway: &Gateway, request: &Request<'_>) -> Result<Arc<Model>, Refusal> {
    gateway.fleet.model(&request.model).await.map_err(|error| match error {
        ModelError::Unknown if request.model.is_empty() => Refusal::new(StatusCode::BAD_REQUEST, "model is required"),
        ModelError::Unknown => Refusal::new(StatusCode::NOT_FOUND, format!("model '{}' not found", request.model)),
        ModelError::Upstream(error) => error.into(),
        ModelError::Unreadable => Refusal::new(StatusCode::BAD_GATEWAY, error.to_string()),
    })
}
