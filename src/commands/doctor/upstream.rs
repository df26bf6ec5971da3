//! The upstream: is it there, is it an Ollama and not ourselves, what does it know, and which models has it.
//!
//! Whether it knows a field is found out by sending that field with a wrong type and a model that does not
//! exist: who knows it complains about the type, who does not complains about the model. Nothing is loaded.

use std::time::{Duration, Instant};

use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;

use super::finding::{Check, Status};
use super::place::{Health, Place, version};
use crate::config::Config;
use crate::context::Window;
use crate::ollama::client::full;
use crate::ollama::{Upstream, UpstreamError};

const CONNECT: Duration = Duration::from_secs(2);

/// An answer that needs no model takes milliseconds.
const ANSWER: Duration = Duration::from_secs(3);
const SLOW: Duration = Duration::from_millis(500);

/// What later checks need of it.
#[derive(Debug)]
pub(super) struct There {
    /// The names of its models.
    pub(super) listed: Vec<String>,
    /// Those that are loaded, and their windows where they are told.
    pub(super) loaded: Vec<(String, Option<Window>)>,
    /// What its clock said, when ours said the second; in milliseconds.
    pub(super) clock: Option<(i64, i64)>,
    pub(super) renders: Knows,
}

/// Whether the upstream knows a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Knows {
    Yes,
    No,
    Unclear,
}

/// All checks of the upstream, and what it has, if it is there.
pub(super) async fn look(config: &Config, announced: Option<&str>) -> (Vec<Check>, Option<There>) {
    let mut checks = Vec::new();
    let there = ask(config, announced, &mut checks).await;
    let host = std::env::var("OLLAMA_HOST").ok();
    checks.push(ollama_host(host.as_deref(), config, there.is_some()));
    (checks, there)
}

/// Asks one thing after the other. What cannot be answered ends it.
async fn ask(config: &Config, announced: Option<&str>, checks: &mut Vec<Check>) -> Option<There> {
    let upstream = match Upstream::new(&config.upstream_url, CONNECT, ANSWER) {
        Ok(upstream) => upstream,
        Err(error) => {
            checks.push(Check::fail("reachable", error.to_string(), WHERE));
            return None;
        }
    };
    let place = Place::of_url(&config.upstream_url)?;
    if place.is(config.listen) {
        checks.push(itself(&upstream.name()));
        return None;
    }
    let name = upstream.name();
    let health = match upstream.call(Method::GET, "/loadline/health", None).await {
        Ok((_, body)) => Health::read(&body),
        Err(error) => {
            checks.push(unreachable(&error));
            return None;
        }
    };
    let own = announced.and_then(Place::of_url);
    let is_us = |place: &Place| place.is(config.listen) || own.as_ref().is_some_and(|own| own.is_same(place));
    let looped = looped(&name, health.as_ref(), is_us(&place), |other| is_us(other) || other.is_same(&place));
    let is_ollama = health.is_none();
    let goes_round = looped.status == Status::Fail;
    checks.push(looped);
    if goes_round {
        return None;
    }
    let (told, took, clock) = match asked_version(&upstream).await {
        Ok(answer) => answer,
        Err(error) => {
            checks.push(unreachable(&error));
            return None;
        }
    };
    checks.push(reachable(&name, told.as_deref(), took));
    told?;
    let (mut truncates, mut renders) = (Knows::Unclear, Knows::Unclear);
    if is_ollama {
        truncates = asked_whether_known(&upstream, "truncate").await;
        renders = asked_whether_known(&upstream, "_debug_render_only").await;
    }
    checks.push(truncate(truncates));
    checks.push(renderings(renders));
    let listed = models(&upstream, "/api/tags").await;
    checks.push(present(listed.as_ref().map(Vec::len)));
    let listed = listed?.into_iter().map(|(name, _)| name).collect();
    let loaded = models(&upstream, "/api/ps").await.unwrap_or_default();
    Some(There { listed, loaded, clock, renders })
}

const WHERE: &str =
    "set upstream.url (LOADLINE_UPSTREAM_URL, or --upstream) to where Ollama listens, usually http://127.0.0.1:11434";

fn itself(name: &str) -> Check {
    Check::fail("loop", format!("upstream.url is {name}, and that is Loadline itself"), WHERE)
}

fn unreachable(error: &UpstreamError) -> Check {
    let seen = match error {
        // The seconds are ours, and no key sets them here.
        UpstreamError::Timeout { upstream, .. } => format!("{upstream} takes the connection and does not answer"),
        other => other.to_string(),
    };
    Check::fail("reachable", seen, format!("start Ollama (`ollama serve`), or {WHERE}"))
}

/// `is_us`: the upstream is the loadline of this directory. `leads_back`: so is, or leads there, what is behind it.
fn looped(name: &str, health: Option<&Health>, is_us: bool, leads_back: impl Fn(&Place) -> bool) -> Check {
    let Some(health) = health else { return Check::ok("loop", format!("{name} is no Loadline")) };
    if is_us {
        return itself(name);
    }
    if Place::of_url(&health.upstream).is_some_and(|behind| leads_back(&behind)) {
        let seen = format!("{name} is a Loadline whose own upstream {} leads back here", health.upstream);
        return Check::fail("loop", seen, WHERE);
    }
    Check::warn(
        "loop",
        format!("{name} is another Loadline: every message is counted and stored twice"),
        format!("set upstream.url (LOADLINE_UPSTREAM_URL) to the Ollama behind it, {}", health.upstream),
    )
}

type Answered = (Option<String>, Duration, Option<(i64, i64)>);

async fn asked_version(upstream: &Upstream) -> Result<Answered, UpstreamError> {
    let unreadable = |reason: String| UpstreamError::Unreadable(upstream.name(), reason);
    let request = Request::get("/api/version").body(full("")).map_err(|error| unreadable(error.to_string()))?;
    let began = Instant::now();
    let response = upstream.send(request).await?;
    let took = began.elapsed();
    let date = response.headers().get(http::header::DATE).and_then(|date| date.to_str().ok());
    let clock = date.and_then(read_date).map(|theirs| (theirs, crate::events::now_ms()));
    let ok = response.status() == StatusCode::OK;
    let body = http_body_util::Limited::new(response.into_body(), 64 << 10).collect();
    let body = tokio::time::timeout(ANSWER, body).await.map_err(|_| unreadable("it does not end".to_owned()))?;
    let body = body.map_err(|error| unreadable(error.to_string()))?.to_bytes();
    Ok((version(&body).filter(|_| ok), took, clock))
}

fn read_date(text: &str) -> Option<i64> {
    Some(jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?.as_millisecond())
}

fn reachable(name: &str, version: Option<&str>, took: Duration) -> Check {
    let Some(version) = version else {
        return Check::fail("reachable", format!("something answers at {name}, but it is no Ollama"), WHERE);
    };
    let seen = format!("{name} is Ollama {version} and answers in {:.1} ms", took.as_secs_f64() * 1000.0);
    if took > SLOW {
        let mend = "see what keeps that machine or the way to it busy: every request waits for it";
        return Check::warn("reachable", seen, mend);
    }
    Check::ok("reachable", seen)
}

async fn asked_whether_known(upstream: &Upstream, field: &str) -> Knows {
    let body = format!(r#"{{"model":"loadline-doctor-asks","messages":[],"{field}":"?"}}"#);
    match upstream.call(Method::POST, "/api/chat", Some(body)).await {
        Ok((status, body)) => knows(field, status, &body),
        Err(_) => Knows::Unclear,
    }
}

fn knows(field: &str, status: StatusCode, body: &[u8]) -> Knows {
    match status {
        StatusCode::BAD_REQUEST if String::from_utf8_lossy(body).contains(field) => Knows::Yes,
        StatusCode::NOT_FOUND => Knows::No,
        _ => Knows::Unclear,
    }
}

fn truncate(knows: Knows) -> Check {
    match knows {
        Knows::Yes => Check::ok("truncate", "it can be told to refuse a prompt that is too long (truncate: false)"),
        Knows::No => Check::warn(
            "truncate",
            "it is too old to know `truncate: false`: should a count ever be too low, it cuts the prompt silently",
            "update Ollama (0.17 has it)",
        ),
        Knows::Unclear => Check::skip("truncate", "whether it knows `truncate: false` could not be found out"),
    }
}

fn renderings(knows: Knows) -> Check {
    match knows {
        Knows::Yes => {
            Check::ok("renderings", "it shows how it lays out a prompt (_debug_render_only): counts can be exact")
        }
        Knows::No => Check::warn(
            "renderings",
            "it does not show how it lays out a prompt: counts are calibrated, not exact",
            "update Ollama (0.17 has `_debug_render_only`)",
        ),
        Knows::Unclear => Check::skip("renderings", "whether it shows how it lays out a prompt could not be found out"),
    }
}

/// Names and windows, as `/api/tags` and `/api/ps` list them.
async fn models(upstream: &Upstream, path: &str) -> Option<Vec<(String, Option<Window>)>> {
    let (status, body) = upstream.call(Method::GET, path, None).await.ok()?;
    let body: Value = serde_json::from_slice(&body).ok().filter(|_| status == StatusCode::OK)?;
    let one = |model: &Value| {
        let window = model["context_length"].as_u64().filter(|window| *window > 0);
        Some((model["name"].as_str()?.to_owned(), window.and_then(|window| window.try_into().ok())))
    };
    // A list of nothing is null in some versions.
    Some(body["models"].as_array().map(|models| models.iter().filter_map(one).collect()).unwrap_or_default())
}

fn present(count: Option<usize>) -> Check {
    match count {
        None => Check::fail("models", "it does not list its models (/api/tags)", format!("restart Ollama, or {WHERE}")),
        Some(0) => Check::fail("models", "it has no models", "`ollama pull llama3.2` fetches one"),
        Some(1) => Check::ok("models", "1 model"),
        Some(count) => Check::ok("models", format!("{count} models")),
    }
}

fn ollama_host(written: Option<&str>, config: &Config, reachable: bool) -> Check {
    const NAME: &str = "ollama-host";
    let Some(written) = written.filter(|written| !written.trim().is_empty()) else {
        return Check::ok(NAME, "OLLAMA_HOST is not set here");
    };
    let Some(place) = Place::of_ollama_host(written) else {
        return Check::warn(NAME, "OLLAMA_HOST is not an address", "set it to HOST:PORT, or `unset OLLAMA_HOST`");
    };
    if place.is(config.listen) {
        let seen = format!("OLLAMA_HOST is {place}, Loadline's own address: `ollama run` goes through Loadline");
        if reachable {
            return Check::ok(NAME, seen);
        }
        return Check::warn(
            NAME,
            format!("{seen}, but `ollama serve` would want that port for itself"),
            "start the server with its own address: `OLLAMA_HOST=127.0.0.1:11434 ollama serve`",
        );
    }
    if Place::of_url(&config.upstream_url).is_some_and(|upstream| upstream.is_same(&place)) {
        return Check::ok(NAME, format!("OLLAMA_HOST is {place}, the upstream: `ollama run` goes past Loadline"));
    }
    Check::warn(
        NAME,
        format!("OLLAMA_HOST is {place}, neither Loadline nor its upstream: `ollama pull` fetches models for that one"),
        format!("set upstream.url to http://{place} if that is the Ollama you mean, or OLLAMA_HOST={}", config.listen),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Flags;

    fn config() -> Config {
        Config::load(None, [], Flags::default()).expect("the defaults")
    }

    #[test]
    fn who_complains_of_the_type_knows_the_field() {
        let typed =
            br#"{"error":"json: cannot unmarshal string into Go struct field ChatRequest.truncate of type bool"}"#;
        assert_eq!(knows("truncate", StatusCode::BAD_REQUEST, typed), Knows::Yes);
        assert_eq!(knows("truncate", StatusCode::NOT_FOUND, br#"{"error":"model 'x' not found"}"#), Knows::No);
        assert_eq!(knows("truncate", StatusCode::BAD_REQUEST, br#"{"error":"no"}"#), Knows::Unclear);
        assert_eq!(knows("truncate", StatusCode::BAD_GATEWAY, typed), Knows::Unclear);
        for judge in [truncate, renderings] {
            assert_eq!(
                [Knows::Yes, Knows::No, Knows::Unclear].map(|knows| judge(knows).status),
                [Status::Ok, Status::Warn, Status::Skip]
            );
        }
    }

    #[test]
    fn a_way_that_leads_back_is_a_loop_and_a_second_loadline_only_a_waste() {
        let behind = |upstream: &str| Health { upstream: upstream.to_owned(), ..Health::default() };
        let back = |place: &Place| *place == Place::of_url("http://127.0.0.1:11435").expect("a place");
        let status = |health: Option<&Health>, is_us| looped("http://a:1", health, is_us, back).status;
        assert_eq!(status(None, false), Status::Ok);
        assert_eq!(status(Some(&behind("http://127.0.0.1:11434")), true), Status::Fail);
        assert_eq!(status(Some(&behind("http://127.0.0.1:11435")), false), Status::Fail);
        let waste = looped("http://a:1", Some(&behind("http://127.0.0.1:11434")), false, back);
        assert_eq!(waste.status, Status::Warn);
        assert!(waste.mend.is_some_and(|mend| mend.contains("http://127.0.0.1:11434")));
    }

    #[test]
    fn something_that_tells_no_version_is_no_ollama_and_slowness_is_told() {
        let status = |version, ms| reachable("http://a:1", version, Duration::from_millis(ms)).status;
        assert_eq!(status(None, 1), Status::Fail);
        assert_eq!(status(Some("0.17.4"), 1), Status::Ok);
        assert_eq!(status(Some("0.17.4"), 900), Status::Warn);
    }

    #[test]
    fn without_models_the_command_that_fetches_one_is_told() {
        assert!(present(Some(0)).mend.is_some_and(|mend| mend.contains("ollama pull")));
        assert_eq!((present(Some(3)).status, present(None).status), (Status::Ok, Status::Fail));
    }

    #[test]
    fn ollama_host_may_be_loadline_for_clients_but_not_for_the_server() {
        let judge = |written, reachable| ollama_host(written, &config(), reachable).status;
        assert_eq!(judge(None, true), Status::Ok);
        assert_eq!(judge(Some("127.0.0.1:11435"), true), Status::Ok);
        assert_eq!(judge(Some("localhost:11435"), false), Status::Warn);
        assert_eq!(judge(Some("0.0.0.0"), true), Status::Ok);
        assert_eq!(judge(Some("box:11434"), true), Status::Warn);
        assert_eq!(judge(Some("a:b"), true), Status::Warn);
    }

    #[test]
    fn the_date_of_an_answer_is_read() {
        assert_eq!(read_date("Mon, 16 Nov 2026 14:14:03 GMT"), Some(1_794_838_443_000));
        assert_eq!(read_date("soon"), None);
    }
}
