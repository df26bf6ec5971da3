//! Streams: chunk by chunk as they come, and an error at the end of one that dies.

use loadline::sim::{Fault, SimConfig};
use serde_json::{Value, json};

use crate::stage::Stage;

fn streamed(path: &str) -> String {
    let messages = json!([{ "role": "user", "content": "tell me" }]);
    match path {
        "/api/generate" => json!({ "model": "sim", "prompt": "tell me", "stream": true }),
        "/v1/completions" => json!({ "model": "sim", "prompt": "tell me", "stream": true }),
        "/v1/responses" => json!({ "model": "sim", "input": "tell me", "stream": true }),
        "/v1/messages" => json!({ "model": "sim", "max_tokens": 30, "messages": messages, "stream": true }),
        _ => json!({ "model": "sim", "messages": messages, "stream": true }),
    }
    .to_string()
}

const PATHS: [&str; 6] =
    ["/api/chat", "/api/generate", "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"];

#[tokio::test]
async fn a_stream_through_the_gate_is_byte_by_byte_the_upstreams() {
    let stage = Stage::new().await;
    for path in PATHS {
        let through = stage.post(path, streamed(path)).await;
        let direct = stage
            .client
            .post(format!("{}{path}", stage.sim.url()))
            .body(streamed(path))
            .send()
            .await
            .expect("an answer");
        let content_type = direct.headers()["content-type"].clone();
        let direct = direct.text().await.expect("a body");
        assert_eq!(through.headers["content-type"], content_type, "{path}");
        assert_eq!(shape(&through.text), shape(&direct), "{path}");
    }
}

/// Everything but what differs from request to request: ids, times, durations.
fn shape(body: &str) -> Vec<String> {
    let volatile = [
        "id",
        "created",
        "created_at",
        "completed_at",
        "item_id",
        "total_duration",
        "load_duration",
        "prompt_eval_duration",
        "eval_duration",
    ];
    fn strip(value: &mut Value, volatile: &[&str]) {
        match value {
            Value::Object(map) => {
                map.retain(|name, _| !volatile.contains(&name.as_str()));
                map.values_mut().for_each(|value| strip(value, volatile));
            }
            Value::Array(items) => items.iter_mut().for_each(|item| strip(item, volatile)),
            _ => {}
        }
    }
    body.lines()
        .map(|line| {
            let text = line.strip_prefix("data: ").unwrap_or(line);
            serde_json::from_str::<Value>(text).map_or_else(
                |_| line.to_owned(),
                |mut value| {
                    strip(&mut value, &volatile);
                    value.to_string()
                },
            )
        })
        .collect()
}

#[tokio::test]
async fn a_stream_that_dies_ends_in_an_error_never_in_a_made_up_end() {
    let stage = Stage::new().await;
    for path in PATHS {
        for fault in [Fault::EndAfterChunks(2), Fault::ResetAfterChunks(2), Fault::EndWithinChunk(2)] {
            stage.sim.faults().push(fault.clone());
            let got = stage.post(path, streamed(path)).await;
            assert_eq!(got.status, 200);
            for end in ["\"done\":true", "[DONE]", "message_stop", "response.completed"] {
                assert!(!got.text.contains(end), "{path} {fault:?}: a made-up end:\n{}", got.text);
            }
            let last = got.text.trim_end().lines().last().expect("a last line");
            let last: Value = serde_json::from_str(last.strip_prefix("data: ").unwrap_or(last))
                .unwrap_or_else(|_| panic!("{path} {fault:?}: {}", got.text));
            let message = if path.starts_with("/api") { &last["error"] } else { &last["error"]["message"] };
            assert!(message.is_string(), "{path} {fault:?}: {last}");
        }
    }
}

#[tokio::test]
async fn an_error_line_of_the_upstream_is_relayed_as_it_is() {
    let stage = Stage::new().await;
    stage.sim.faults().push(Fault::ErrorLineAfterChunks(1));
    let got = stage.post("/api/chat", streamed("/api/chat")).await;
    assert_eq!(got.text.matches("\"error\"").count(), 1, "{}", got.text);
}

#[tokio::test]
async fn a_malformed_line_passes_and_is_counted() {
    let stage = Stage::new().await;
    stage.sim.faults().push(Fault::Garbage);
    let got = stage.post("/api/chat", streamed("/api/chat")).await;
    assert_eq!(got.status, 200);
    let direct = Stage::new().await;
    direct.sim.faults().push(Fault::Garbage);
    let raw = direct
        .client
        .post(format!("{}/api/chat", direct.sim.url()))
        .body(streamed("/api/chat"))
        .send()
        .await
        .expect("an answer");
    assert!(got.text.starts_with(raw.text().await.expect("a body").as_str()));
    assert!(stage.gateway.metrics.unreadable.get() > 0);
}

#[tokio::test]
async fn chunks_are_not_held_back() {
    // A slow upstream: the first chunk must arrive long before the last one is made.
    let config = SimConfig { decode_us_per_token: 50_000, answer_tokens: 40, ..SimConfig::default() };
    let stage = Stage::with(config, &[]).await;
    let url = format!("{}/api/chat", stage.url);
    let mut response = stage.client.post(url).body(streamed("/api/chat")).send().await.expect("an answer");
    let first = response.chunk().await.expect("a body").expect("a chunk");
    let first = String::from_utf8(first.to_vec()).expect("text");
    assert!(first.lines().count() < 10, "the first piece already holds {} lines of 41", first.lines().count());
    drop(response);
}
