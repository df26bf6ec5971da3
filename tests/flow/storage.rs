//! Everything that was said is on disk before anybody sees "done", and is found again after a restart.

use loadline::sim::{Fault, SimConfig};
use serde_json::{Value, json};

use super::ladder::filled_to;
use crate::stage::{Stage, words};

fn texts(rows: &[loadline::store::MessageRow]) -> Vec<(&str, &str)> {
    rows.iter().map(|row| (row.role.as_str(), row.text.as_str())).collect()
}

#[tokio::test]
async fn whoever_has_seen_done_finds_the_turn_stored_streamed_or_not_in_every_dialect() {
    let stage = Stage::new().await;
    for path in
        ["/api/chat", "/api/generate", "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"]
    {
        for stream in [true, false] {
            let said = format!("hello on {path}, {stream}");
            let mut body = json!({ "model": "sim", "stream": stream, "max_tokens": 20 });
            match path {
                "/api/generate" | "/v1/completions" => body["prompt"] = json!(said),
                "/v1/responses" => body["input"] = json!(said),
                _ => body["messages"] = json!([{ "role": "user", "content": said }]),
            }
            let got = stage.post(path, body.to_string()).await;
            assert_eq!(got.status, 200, "{path}: {}", got.text);
            let stored = stage.stored(&got);
            assert_eq!(texts(&stored)[0], ("user", said.as_str()), "{path}");
            assert_eq!(
                (stored.len(), stored[1].role.as_str(), stored[1].status.as_str()),
                (2, "assistant", "complete"),
                "{path} {stream}"
            );
            assert!(!stored[1].text.is_empty() && stored[1].ours, "{path} {stream}");
        }
    }
}

#[tokio::test]
async fn a_history_is_stored_verbatim_with_its_system_prompt_and_tool_calls() {
    let mut model = crate::stage::MODEL.clone();
    model.tools = true;
    let stage = Stage::with(SimConfig { models: vec![model], ..SimConfig::default() }, &[]).await;
    let messages = json!([
        { "role": "system", "content": "Be\u{0} brief." },
        { "role": "user", "content": "  look\n\n" },
        { "role": "assistant", "content": "", "tool_calls": [{ "function": { "name": "look", "arguments": { "b": 1, "a": [2] } } }] },
        { "role": "tool", "tool_name": "look", "content": "ein Schiff ⛵" },
        { "role": "assistant", "content": "A ship.", "extra": { "kept": true } },
        { "role": "user", "content": "go on" },
    ]);
    let got = stage.chat(&messages, 4096).await;
    let stored = stage.stored(&got);
    assert_eq!(
        texts(&stored)[..5],
        [
            ("user", "  look\n\n"),
            ("assistant", ""),
            ("tool", "ein Schiff ⛵"),
            ("assistant", "A ship."),
            ("user", "go on")
        ]
    );
    assert_eq!(stored[1].tool_calls.as_deref(), Some(r#"[{"id":"","name":"look","arguments":{"b":1,"a":[2]}}]"#));
    assert_eq!(stored[3].raw.as_deref(), Some(r#"{"role":"assistant","content":"A ship.","extra":{"kept":true}}"#));
    let id = got.header("x-loadline-conversation").parse().expect("a number");
    let turns = stage.gateway.store.reader().and_then(|reader| reader.turns(id)).expect("readable");
    assert_eq!((turns[0].status.as_str(), turns[0].system.as_str()), ("complete", r#"["Be\u0000 brief."]"#));
    assert_eq!(turns[0].reported_tokens, turns[0].sent_tokens);
}

#[tokio::test]
async fn answers_that_break_off_and_clients_that_go_away_are_stored_as_such() {
    let stage = Stage::with(SimConfig { decode_us_per_token: 2000, ..SimConfig::default() }, &[]).await;
    let body = |text: &str| {
        json!({ "model": "sim", "stream": true, "messages": [{ "role": "user", "content": text }] }).to_string()
    };
    stage.sim.faults().push(Fault::EndAfterChunks(3));
    let got = stage.post("/api/chat", body("breaks")).await;
    assert!(got.text.contains("\"error\""), "{}", got.text);
    let ended = || async {
        // The turn is written beside the answer that never came to its end.
        loop {
            let turns = (1..=9)
                .flat_map(|id| stage.gateway.store.reader().and_then(|reader| reader.turns(id)).expect("readable"));
            let statuses: Vec<String> = turns.map(|turn| turn.status).collect();
            if !statuses.is_empty() && !statuses.contains(&"pending".to_owned()) {
                return statuses;
            }
            tokio::task::yield_now().await;
        }
    };
    assert_eq!(ended().await, ["incomplete"]);
    let stored = stage.stored(&got);
    assert_eq!((stored.len(), stored[1].status.as_str()), (2, "incomplete"));
    assert!(!stored[1].text.is_empty(), "what there was of it is kept");

    let mut response =
        stage.client.post(format!("{}/api/chat", stage.url)).body(body("leaves")).send().await.expect("an answer");
    response.chunk().await.expect("a chunk");
    drop(response);
    let statuses = loop {
        let statuses = ended().await;
        if statuses.len() == 2 {
            break statuses;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(statuses, ["incomplete", "cancelled"]);

    stage.sim.faults().push(Fault::CloseBeforeHeaders);
    assert_eq!(stage.post("/api/chat", body("fails")).await.status, 502);
    let statuses = loop {
        let statuses = ended().await;
        if statuses.len() == 3 {
            break statuses;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(statuses[2], "failed");
}

#[tokio::test]
async fn what_is_refused_is_stored_too() {
    let stage = Stage::with(SimConfig { default_window: 512, ..SimConfig::default() }, &[]).await;
    let giant = words("giant", 900);
    let got = stage
        .post("/api/chat", json!({ "model": "sim", "messages": [{ "role": "user", "content": giant }] }).to_string())
        .await;
    assert_eq!(got.status, 400);
    let stored = stage.stored(&got);
    assert_eq!(texts(&stored), [("user", giant.as_str())]);
    stage.chat(&json!([{ "role": "user", "content": "a turn later" }]), 512).await;
    let turns = stage.gateway.store.reader().and_then(|reader| reader.turns(1)).expect("readable");
    assert_eq!(turns[0].status, "refused");
    assert!(stage.events().iter().any(|event| event.kind == "refused"));
}

#[tokio::test]
async fn a_retried_request_is_one_logical_turn_and_a_second_answer_is_a_branch() {
    let stage = Stage::new().await;
    let first = stage.chat(&json!([{ "role": "user", "content": "start" }]), 2048).await;
    let next = json!([{ "role": "user", "content": "start" }, first.json()["message"], { "role": "user", "content": "go on" }]);
    let ids: Vec<String> = {
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.push(stage.chat(&next, 2048).await.header("x-loadline-conversation").to_owned());
        }
        ids
    };
    assert!(ids.iter().all(|id| id == first.header("x-loadline-conversation")), "{ids:?}");
    let stored = stage.stored(&first);
    assert_eq!(stored.len(), 4);
    assert_eq!(stored.iter().filter(|row| row.text == "go on").count(), 1);
}

#[tokio::test]
async fn after_a_restart_a_conversation_goes_on_where_it_was_front_included() {
    let stage = Stage::new().await;
    let messages = filled_to(&stage, 120.0, 2048).await;
    let got = stage.chat(&messages, 2048).await;
    assert_eq!(got.header("x-loadline-action"), "rollover");
    let before: Value = serde_json::from_str(&stage.forwarded("/api/chat")[0]).expect("json");
    let mut messages = messages.as_array().expect("messages").clone();
    messages.push(got.json()["message"].clone());
    messages.push(json!({ "role": "user", "content": "still there?" }));
    let id = got.header("x-loadline-conversation").to_owned();
    let stage = stage.restarted().await;
    let again = stage.chat(&json!(messages), 2048).await;
    assert_eq!((again.header("x-loadline-conversation"), again.header("x-loadline-action")), (id.as_str(), "none"));
    let after: Value = serde_json::from_str(stage.forwarded("/api/chat").last().expect("forwarded")).expect("json");
    let (before, after) =
        (before["messages"].as_array().expect("a list"), after["messages"].as_array().expect("a list"));
    assert_eq!(after[..before.len()], before[..], "the front is the same, byte by byte");
    assert_eq!(stage.stored(&again).len(), messages.len());
    let named = crate::stage::chat_body(&json!([{ "role": "user", "content": "else" }]), 2048);
    assert_eq!(
        stage
            .post_with("/api/chat", named, &[("x-loadline-conversation", &id)])
            .await
            .header("x-loadline-conversation"),
        id
    );
}

#[tokio::test]
async fn events_are_numbered_streamed_and_resumed_without_a_gap() {
    let stage = Stage::new().await;
    let messages = filled_to(&stage, 120.0, 2048).await;
    let read = |after: i64| {
        let request =
            stage.client.get(format!("{}/loadline/events", stage.url)).header("last-event-id", after.to_string());
        async move {
            let mut response = request.send().await.expect("a stream");
            assert_eq!(response.headers()["content-type"], "text/event-stream");
            String::from_utf8(response.chunk().await.expect("a chunk").expect("bytes").to_vec()).expect("text")
        }
    };
    let (got, live) = tokio::join!(stage.chat(&messages, 2048), read(0));
    assert!(live.starts_with("id: 1\nevent: rollover\ndata: {"), "{live}");
    let data: Value =
        serde_json::from_str(live.lines().nth(2).and_then(|line| line.strip_prefix("data: ")).expect("data"))
            .expect("json");
    assert_eq!(data["snapshot"], got.header("x-loadline-snapshot"));
    let resumed = read(1).await;
    assert!(resumed.starts_with("id: 2\nevent: warning\n"), "{resumed}");
    assert!(!live.contains("q0"), "an event says nothing of what was said");
}
