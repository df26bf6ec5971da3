//! `/metrics`: numbers that are there, true, and say nothing about anybody.

use std::collections::BTreeSet;

use loadline::api::auth::Scope;
use loadline::sim::{Fault, SimConfig};
use serde_json::json;

use crate::deploy::{documented_names, expressions, metric_of, names_in};
use crate::flow::filled_to;
use crate::stage::{Stage, words};

/// The value of a line of metrics.
pub fn value(text: &str, series: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} is not in\n{text}")).parse().expect("a number")
}

async fn walked() -> Stage {
    let stage = Stage::new().await;
    let messages = filled_to(&stage, 120.0, 2048).await;
    assert_eq!(stage.chat(&messages, 2048).await.header("x-loadline-action"), "rollover");
    stage
}

#[tokio::test]
async fn every_metric_that_the_dashboard_and_the_alerts_ask_for_exists() {
    let stage = walked().await;
    let text = stage.get("/metrics").await.text;
    let exists: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let is_histogram = |name: &str| text.contains(&format!("# TYPE {name} histogram"));
    let asked: BTreeSet<String> = expressions().iter().flat_map(|expression| names_in(expression)).collect();
    assert!(asked.len() > 20, "{asked:?}");
    let missing: Vec<&String> = asked.iter().filter(|name| !exists.contains(metric_of(name, is_histogram))).collect();
    assert!(missing.is_empty(), "nobody tells {missing:?}; there are {exists:?}");
    let documented = documented_names();
    assert_eq!(exists.iter().copied().collect::<Vec<_>>(), documented.iter().map(String::as_str).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_rollover_is_in_the_numbers_of_requests_tokens_and_compactions() {
    let stage = walked().await;
    let text = stage.get("/metrics").await.text;
    let rolled = "loadline_requests_total{action=\"rollover\",dialect=\"chat\",route=\"/api/chat\",status=\"200\"}";
    assert_eq!(value(&text, rolled), 1.0);
    assert_eq!(value(&text, "loadline_compactions_total{kind=\"rollover\"}"), 1.0);
    assert_eq!(value(&text, "loadline_compaction_duration_seconds_count{kind=\"rollover\"}"), 1.0);
    assert_eq!(value(&text, "loadline_events_total{kind=\"rollover\"}"), 1.0);
    assert_eq!(value(&text, "loadline_turns_total{action=\"rollover\",ending=\"complete\"}"), 1.0);
    assert!(value(&text, "loadline_tokens_saved_total") > 1000.0, "{text}");
    assert_eq!(value(&text, "loadline_count_mismatches_total{basis=\"exact\"}"), 0.0);
    assert!(value(&text, "loadline_counts_compared_total{basis=\"exact\"}") >= 1.0);
    assert_eq!(
        value(&text, "loadline_count_error_tokens_bucket{basis=\"exact\",le=\"-1\"}"),
        0.0,
        "nothing was counted too low"
    );
    assert!(value(&text, "loadline_context_usage_ratio_count") >= 1.0);
    assert!(value(&text, "loadline_store_commit_duration_seconds_count") >= 2.0);
    assert_eq!(value(&text, "loadline_upstream_up"), 1.0);
    assert!(value(&text, "loadline_store_size_bytes") > 0.0 && value(&text, "loadline_store_free_bytes") > 0.0);
}

#[tokio::test]
async fn what_was_read_again_by_nobody_is_counted_once_the_front_stays() {
    let stage = Stage::new().await;
    let mut messages = filled_to(&stage, 120.0, 2048).await;
    let avoided = async || value(&stage.get("/metrics").await.text, "loadline_prefill_tokens_avoided_total");
    let rolled = stage.chat(&messages, 2048).await;
    assert_eq!(avoided().await, 0.0, "the turn that is rolled over is read whole");
    let list = messages.as_array_mut().expect("a list");
    list.push(rolled.json()["message"].clone());
    list.push(json!({ "role": "user", "content": "and then?" }));
    let next = stage.chat(&messages, 2048).await;
    let (sent, _) = next.tokens();
    let avoided = avoided().await;
    assert!(avoided > 0.0 && avoided < f64::from(sent), "{avoided} of {sent}");
}

#[tokio::test]
async fn refusals_and_an_upstream_that_fails_are_counted_as_what_they_are() {
    let stage = Stage::new().await;
    let huge = json!([{ "role": "user", "content": words("huge", 3000) }]);
    assert_eq!(stage.chat(&huge, 1024).await.status, 400);
    stage.sim.faults().push(Fault::Status { code: 500, body: "{\"error\":\"out of memory\"}".into() });
    let short = json!([{ "role": "user", "content": "hello" }]);
    assert_eq!(stage.chat(&short, 1024).await.status, 500);
    let text = stage.get("/metrics").await.text;
    let refused = "loadline_requests_total{action=\"refused\",dialect=\"chat\",route=\"/api/chat\",status=\"400\"}";
    assert_eq!(value(&text, refused), 1.0);
    assert_eq!(value(&text, "loadline_turns_total{action=\"refused\",ending=\"refused\"}"), 1.0);
    assert_eq!(value(&text, "loadline_upstream_errors_total{reason=\"status\"}"), 1.0);
    assert_eq!(value(&text, "loadline_upstream_errors_total{reason=\"unreachable\"}"), 0.0);
}

#[tokio::test]
async fn an_upstream_that_is_not_there_is_told() {
    let sim = loadline::sim::start(SimConfig::default()).await.expect("a free port");
    let stage = Stage::before(sim, "http://127.0.0.1:1", &[]).await;
    assert_eq!(stage.chat(&json!([{ "role": "user", "content": "hello" }]), 1024).await.status, 502);
    let text = stage.get("/metrics").await.text;
    assert_eq!(value(&text, "loadline_upstream_up"), 0.0);
    assert_eq!(value(&text, "loadline_upstream_errors_total{reason=\"unreachable\"}"), 1.0);
    assert_eq!(value(&text, "loadline_turns_total{action=\"none\",ending=\"failed\"}"), 1.0);
}

#[tokio::test]
async fn nothing_that_a_client_says_becomes_a_label() {
    let stage = Stage::new().await;
    let canary = "canary-in-a-label";
    let body = json!({ "model": canary, "messages": [{ "role": "user", "content": canary }] }).to_string();
    stage.post_with(&format!("/api/{canary}"), body.clone(), &[("x-api-key", canary), ("user-agent", canary)]).await;
    stage.post("/api/chat", body).await;
    stage.send(canary, "/api/chat", "", &[]).await;
    stage.get(&format!("/loadline/{canary}")).await;
    let text = stage.get("/metrics").await.text;
    assert!(!text.contains(canary), "{text}");
    assert!(text.contains("route=\"relay\"") && text.contains("route=\"own\""), "{text}");
}

#[tokio::test]
async fn the_page_of_numbers_is_as_prometheus_wants_it_and_asks_for_a_token_where_all_do() {
    let stage = Stage::new().await;
    let got = stage.get("/metrics").await;
    assert_eq!(got.header("content-type"), "text/plain; version=0.0.4");
    for line in got.text.lines().filter(|line| line.starts_with("# TYPE ")) {
        let name = line.split(' ').nth(2).expect("a name");
        assert!(name.starts_with("loadline_"), "{line}");
        assert!(got.text.contains(&format!("# HELP {name} ")), "{name} has no help");
    }
    let guarded = Stage::with(SimConfig::default(), &[("LOADLINE_AUTH_REQUIRED", "true")]).await;
    assert_eq!(guarded.get("/metrics").await.status, 401);
    let reader = guarded.token_with("prometheus", &[Scope::Read], None).await;
    assert_eq!(guarded.get_as(&reader, "/metrics").await.status, 200);
    let talker = guarded.token_with("talker", &[Scope::Chat], None).await;
    assert_eq!(guarded.get_as(&talker, "/metrics").await.status, 403);
}

#[tokio::test]
async fn a_request_is_in_flight_until_its_last_byte() {
    let config = SimConfig { decode_us_per_token: 20_000, answer_tokens: 400, ..SimConfig::default() };
    let stage = Stage::with(config, &[]).await;
    let body = json!({ "model": "sim", "messages": [{ "role": "user", "content": "tell me a story" }] });
    let request = stage.client.post(format!("{}/api/chat", stage.url)).body(body.to_string());
    let mut response = request.send().await.expect("an answer");
    response.chunk().await.expect("a chunk").expect("bytes");
    assert_eq!(value(&stage.get("/metrics").await.text, "loadline_requests_in_flight"), 1.0);
    drop(response);
    let gone = async {
        while value(&stage.get("/metrics").await.text, "loadline_requests_in_flight") > 0.0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), gone).await.expect("it ends with its client");
    let text = stage.get("/metrics").await.text;
    assert_eq!(value(&text, "loadline_turns_total{action=\"none\",ending=\"cancelled\"}"), 1.0);
}
