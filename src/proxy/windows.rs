//! Lists and descriptions of models that tell the window in force.
//!
//! Ollama's `/api/show` tells the window that a model was trained for, and `/v1/models` none at all, so a client's own
//! gauge shows a tenth of the load or nothing. Both pass through here and leave with the window that a request
//! without `num_ctx` really gets. Everything else in them stays as it came, byte by byte; what cannot be read passes
//! unchanged. `context.tell_window = false` leaves them alone.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, ETAG, HeaderName};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use serde_json::value::RawValue;

use super::headers::strip_hop_by_hop;
use super::relay::forwarded;
use super::respond::{Refusal, ResponseBody};
use super::{Gateway, respond, spread};
use crate::context::Window;
use crate::json::{Fields, array, range_in, splice};
use crate::ollama::client::full;
use crate::ollama::count::off_the_worker;
use crate::telemetry::metrics::UpstreamTrouble;

const SHOW: &str = "/api/show";
const LIST: &str = "/v1/models";

/// A question about a model is short.
const MAX_QUESTION_BYTES: usize = 1 << 20;

/// With all its lists, the description of a large vocabulary has 20 MB.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Models of a list that are asked for at once, and how long all of them may take.
const AT_ONCE: usize = 8;
const WITHIN: Duration = Duration::from_secs(3);

/// The fields in which servers of this kind tell a window.
const WINDOW_FIELDS: [&str; 3] = ["context_length", "context_window", "max_model_len"];

/// Whether the answer to a request tells of windows.
pub(super) fn tells(gateway: &Gateway, method: &Method, path: &str) -> bool {
    let lists = path == LIST || path.strip_prefix(LIST).is_some_and(|rest| rest.starts_with('/'));
    gateway.config.tell_window && (*method == Method::POST && path == SHOW || *method == Method::GET && lists)
}

/// Asks the upstream, and tells the windows in its answer.
pub(super) async fn told(
    gateway: &Gateway,
    mut head: Parts,
    path: &str,
    body: Incoming,
) -> Result<Response<ResponseBody>, Refusal> {
    let question = Limited::new(body, MAX_QUESTION_BYTES).collect().await;
    let too_long = |_| Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "the request body is too large or incomplete");
    let question = question.map_err(too_long)?.to_bytes();
    // The answer has to be read.
    head.headers.remove(ACCEPT_ENCODING);
    head.headers.remove(CONTENT_LENGTH);
    if let Some(list) = spread::listed(gateway, path).await {
        let list = Bytes::from(list);
        let told = rewritten(gateway, path, &question, &list).await.unwrap_or(list);
        let told = String::from_utf8_lossy(&told).into_owned();
        return Ok(respond::json(StatusCode::OK, told));
    }
    let member = match named(path, &question) {
        Some(name) => gateway.fleet.member_with(&name).await,
        None => gateway.fleet.any(),
    };
    let response = member.upstream().send(forwarded(head, path, full(question.clone()))).await?;
    let (mut head, body) = response.into_parts();
    strip_hop_by_hop(&mut head.headers);
    let broken = |_| {
        let name = member.name();
        let refusal = Refusal::new(StatusCode::BAD_GATEWAY, format!("the answer of upstream {name} could not be read"));
        Refusal { trouble: Some(UpstreamTrouble::Broken), ..refusal }
    };
    let answer = Limited::new(body, MAX_ANSWER_BYTES).collect();
    let silent = |_| {
        let refusal = Refusal::new(
            StatusCode::GATEWAY_TIMEOUT,
            "the upstream has been silent for too long (upstream.idle_timeout_s)",
        );
        Refusal { trouble: Some(UpstreamTrouble::Timeout), ..refusal }
    };
    let answer = tokio::time::timeout(gateway.config.idle_timeout, answer).await.map_err(silent)?;
    let answer = answer.map_err(broken)?.to_bytes();
    let answer = match head.status {
        StatusCode::OK => rewritten(gateway, path, &question, &answer).await.unwrap_or(answer),
        _ => answer,
    };
    for of_the_old_body in [CONTENT_LENGTH, ETAG, HeaderName::from_static("content-md5")] {
        head.headers.remove(of_the_old_body);
    }
    let body = Full::new(answer).map_err(|never| match never {}).boxed_unsync();
    Ok(Response::from_parts(head, body))
}

/// The model that a question is about.
fn named(path: &str, question: &[u8]) -> Option<String> {
    if let Some(name) = path.strip_prefix(LIST).and_then(|rest| rest.strip_prefix('/')) {
        return Some(name.to_owned());
    }
    let question = Fields::read(std::str::from_utf8(question).ok()?, &[]).ok()?;
    let name = match question.text("model").ok()? {
        Some(name) => name,
        None => question.text("name").ok()??,
    };
    Some(name.into_owned())
}

async fn rewritten(gateway: &Gateway, path: &str, question: &[u8], answer: &Bytes) -> Option<Bytes> {
    let answer = std::str::from_utf8(answer).ok()?;
    if path == SHOW {
        let name = named(path, question)?;
        let window = gateway.fleet.member_with(&name).await.models.window_by_name(&name).await?;
        return off_the_worker(answer.len(), || shown(answer, window)).map(Bytes::from);
    }
    let listed = listed(answer)?;
    let asked = listed.into_iter().map(|(name, end)| async move {
        let window = gateway.fleet.member_with(&name).await.models.window_by_name(&name).await;
        window.map(|window| (end, window))
    });
    // Those that cannot be asked in time are listed as they are.
    let mut windows: Vec<(usize, Window)> = Vec::new();
    let asking = async {
        let mut told = stream::iter(asked).buffer_unordered(AT_ONCE);
        while let Some(found) = told.next().await {
            windows.extend(found);
        }
    };
    let _in_time_or_not = tokio::time::timeout(WITHIN, asking).await;
    windows.sort_unstable();
    let part = |(end, window): (usize, Window)| {
        let fields = WINDOW_FIELDS.map(|name| format!(",\"{name}\":{window}")).concat();
        (end..end, fields)
    };
    let parts: Vec<_> = windows.into_iter().map(part).collect();
    Some(splice(answer, &parts).into())
}

/// A description with the window in force in place of the one it was trained for.
fn shown(answer: &str, window: Window) -> Option<Vec<u8>> {
    let fields = Fields::read(answer, &[]).ok()?;
    let info = Fields::read(fields.get("model_info")?.get(), &[]).ok()?;
    let architecture = info.text("general.architecture").ok()??;
    let length = info.get(&format!("{architecture}.context_length"))?;
    Some(splice(answer, &[(range_in(answer, length), window.to_string())]))
}

/// The models of a list, or the one model, each with the place where its object ends.
fn listed(answer: &str) -> Option<Vec<(String, usize)>> {
    let fields = Fields::read(answer, &[]).ok()?;
    let one = |text: &str, start: usize| {
        let fields = Fields::read(text, &[]).ok()?;
        let is_told = WINDOW_FIELDS.iter().any(|name| fields.written(name).is_some());
        let name = fields.text("id").ok()??.into_owned();
        let end = start + text.rfind('}')?;
        Some((name, end)).filter(|_| !is_told)
    };
    match fields.get("data") {
        Some(data) => {
            let each = |raw: &&RawValue| one(raw.get(), range_in(answer, raw).start);
            Some(array(data).ok()?.iter().filter_map(each).collect())
        }
        None => Some(one(answer, 0).into_iter().collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_window_changes_in_a_description() {
        let answer = r#"{ "license":"x", "model_info":{"general.architecture":"llama","llama.context_length":8192,"a":[1.50]}, "z":1e2 }"#;
        let told = String::from_utf8(shown(answer, 4096).expect("told")).expect("text");
        assert_eq!(told, answer.replace("8192", "4096"));
        assert_eq!(shown(r#"{"model_info":{}}"#, 4096), None);
    }

    #[test]
    fn the_models_of_a_list_are_found_with_their_ends() {
        let answer =
            r#"{"object":"list","data":[{"id":"a","owned_by":"library"} , {"id":"b"},{"id":"c","context_length":1}]}"#;
        let found = listed(answer).expect("a list");
        assert_eq!(found.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert!(found.iter().all(|(_, end)| answer.as_bytes()[*end] == b'}'));
        assert_eq!(listed("[]"), None);
    }
}
