//! What is not gated, where there are several upstreams: lists are everybody's, embeddings go to one that has the model,
//! and what changes an upstream (pull, create, delete) goes to the one that the request names, or to the first.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderMap;
use http::request::Parts;
use http::{Method, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::value::RawValue;

use super::Gateway;
use super::headers::strip_hop_by_hop;
use super::observe::{Observed, Watcher};
use super::relay::forwarded;
use super::respond::{self, Refusal, ResponseBody};
use crate::json::Fields;
use crate::ollama::UpstreamError;
use crate::ollama::client::full;
use crate::ollama::fleet::{MOST_TRIED, Member};

/// Which upstream is meant, counted from 1 in the order of the configuration.
pub(super) const HEADER: &str = "x-loadline-upstream";

/// A list of models is short.
const MAX_LIST_BYTES: usize = 8 << 20;

const SHOW: &str = "/api/show";

const LIST_WITHIN: Duration = Duration::from_millis(1500);

const EMBEDDINGS: [&str; 3] = ["/api/embed", "/api/embeddings", "/v1/embeddings"];

/// Answers what several upstreams answer together, or one of them by its model; none if it can go to any of them.
pub(super) async fn answer(
    gateway: &Gateway,
    head: &Parts,
    path: &str,
    body: Incoming,
) -> Result<Result<Response<ResponseBody>, Incoming>, Refusal> {
    if gateway.fleet.is_one() {
        return Ok(Err(body));
    }
    // These are for everybody, and take their turn whatever header they have.
    if head.method == Method::POST && (EMBEDDINGS.contains(&path) || path == SHOW) {
        return by_model(gateway, head, path, body).await.map(Ok);
    }
    if head.headers.contains_key(HEADER) {
        return Ok(Err(body));
    }
    if head.method == Method::GET
        && let Some(list) = listed(gateway, path).await
    {
        return Ok(Ok(respond::json(StatusCode::OK, list)));
    }
    Ok(Err(body))
}

/// The upstream that a request names, or one that is there.
pub(super) fn named<'g>(gateway: &'g Gateway, headers: &HeaderMap) -> Result<&'g Arc<Member>, Refusal> {
    let Some(value) = headers.get(HEADER) else { return Ok(gateway.fleet.any()) };
    let number = value.to_str().ok().and_then(|value| value.trim().parse::<usize>().ok());
    let member = number.and_then(|number| gateway.fleet.members().get(number.checked_sub(1)?));
    let most = gateway.fleet.members().len();
    let wrong =
        || Refusal::new(StatusCode::BAD_REQUEST, format!("X-Loadline-Upstream must be a number from 1 to {most}"));
    member.ok_or_else(wrong)
}

/// The models of all upstreams that answer, each once.
pub(super) async fn listed(gateway: &Gateway, path: &str) -> Option<String> {
    let (list, key, rest) = match path {
        "/api/tags" | "/api/ps" => ("models", "name", ""),
        "/v1/models" => ("data", "id", "\"object\":\"list\","),
        _ => return None,
    };
    if gateway.fleet.is_one() {
        return None;
    }
    gateway.fleet.watch();
    let asked = gateway.fleet.members().iter().filter(|member| member.is_up()).map(|member| async move {
        let asked = member.upstream().ask(path, MAX_LIST_BYTES);
        // One that hangs is left out.
        let (status, body) = tokio::time::timeout(LIST_WITHIN, asked).await.ok()?.ok()?;
        (status == StatusCode::OK).then_some(body)
    });
    let answers: Vec<Bytes> = futures_util::future::join_all(asked).await.into_iter().flatten().collect();
    let mut seen = HashSet::new();
    let mut models: Vec<String> = Vec::new();
    for answer in &answers {
        let fields = Fields::read(std::str::from_utf8(answer).ok()?, &[]).ok()?;
        for raw in fields.array(list).ok()? {
            if name_of(raw, key).is_none_or(|name| seen.insert(name)) {
                models.push(raw.get().to_owned());
            }
        }
    }
    // If nobody answers, one of them says best why.
    (!answers.is_empty()).then(|| format!("{{{rest}\"{list}\":[{}]}}", models.join(",")))
}

fn name_of(raw: &RawValue, key: &str) -> Option<String> {
    Some(Fields::read(raw.get(), &[]).ok()?.text(key).ok()??.into_owned())
}

/// Asks one that has the model that the body names; the next, if that one cannot be reached.
async fn by_model(
    gateway: &Gateway,
    head: &Parts,
    path: &str,
    body: Incoming,
) -> Result<Response<ResponseBody>, Refusal> {
    let too_large = |_| {
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "the request body is too large or incomplete (server.max_body_mb)")
    };
    let body = Limited::new(body, gateway.config.max_body_bytes).collect().await.map_err(too_large)?.to_bytes();
    let model = Fields::read(std::str::from_utf8(&body).unwrap_or_default(), &[]).ok();
    let named = |fields: &Fields<'_>, key: &str| Some(fields.text(key).ok()??.into_owned());
    let model = model.and_then(|fields| named(&fields, "model").or_else(|| named(&fields, "name")));
    let model = model.unwrap_or_default();
    let mut head = head.clone();
    head.headers.remove(http::header::CONTENT_LENGTH);
    let mut avoided = Vec::new();
    let response = loop {
        // The whole answer is made before its first byte comes, so that the seat is not needed after it.
        let seat = gateway.fleet.seat(&model, None, &avoided).await?;
        let sent = seat.member.upstream().send(forwarded(head.clone(), path, full(body.clone()))).await;
        match sent {
            Err(UpstreamError::Unreachable(_, reason))
                if avoided.len() + 1 < gateway.fleet.members().len().min(MOST_TRIED) =>
            {
                seat.member.is_away(&reason);
                avoided.push(seat.number());
                gateway.fleet.failed_over();
            }
            sent => break sent?,
        }
    };
    let (mut head, body) = response.into_parts();
    strip_hop_by_hop(&mut head.headers);
    let body = Observed::new(body, gateway.config.idle_timeout, Watcher::nobody());
    Ok(Response::from_parts(head, body.boxed_unsync()))
}
