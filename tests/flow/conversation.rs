//! Conversations over several turns: recognised, rolled over once, kept stable in front.

use loadline::sim::SimConfig;
use serde_json::{Value, json};

use crate::stage::{Stage, words};

#[tokio::test]
async fn a_chat_is_recognised_from_turn_to_turn_in_every_chat_dialect() {
    let stage = Stage::new().await;
    let mut seen = Vec::new();
    for path in ["/api/chat", "/v1/chat/completions", "/v1/messages"] {
        let mut messages = vec![json!({ "role": "user", "content": format!("hello from {path}") })];
        let mut ids = Vec::new();
        for turn in 0..3 {
            let body = json!({ "model": "sim", "max_tokens": 8, "stream": false, "messages": messages });
            let got = stage.post(path, body.to_string()).await;
            assert_eq!(got.status, 200, "{}", got.text);
            ids.push(got.header("x-loadline-conversation").to_owned());
            messages.push(answer_of(path, &got.json()));
            messages.push(json!({ "role": "user", "content": format!("turn {turn}") }));
        }
        assert!(ids.iter().all(|id| *id == ids[0] && !id.is_empty()), "{path}: {ids:?}");
        seen.push(ids[0].clone());
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 3, "three chats are three conversations");
}

fn answer_of(path: &str, body: &Value) -> Value {
    match path {
        "/api/chat" => body["message"].clone(),
        "/v1/messages" => json!({ "role": "assistant", "content": body["content"] }),
        _ => json!({ "role": "assistant", "content": body["choices"][0]["message"]["content"] }),
    }
}

#[tokio::test]
async fn equal_openings_are_not_the_same_conversation() {
    let stage = Stage::new().await;
    let hello = json!([{ "role": "user", "content": "Hello!" }]);
    let first = stage.chat(&hello, 2048).await.header("x-loadline-conversation").to_owned();
    let second = stage.chat(&hello, 2048).await.header("x-loadline-conversation").to_owned();
    assert_ne!(first, second);
}

#[tokio::test]
async fn an_edit_stays_in_its_conversation_and_a_foreign_id_is_not_found() {
    let stage = Stage::new().await;
    let mut messages = vec![json!({ "role": "user", "content": "start" })];
    let first = stage.chat(&json!(messages), 2048).await;
    let id = first.header("x-loadline-conversation").to_owned();
    messages.push(first.json()["message"].clone());
    messages.push(json!({ "role": "user", "content": "next" }));
    stage.chat(&json!(messages), 2048).await;
    messages[2] = json!({ "role": "user", "content": "next, edited" });
    assert_eq!(stage.chat(&json!(messages), 2048).await.header("x-loadline-conversation"), id);
    let body = crate::stage::chat_body(&json!([{ "role": "user", "content": "else" }]), 2048);
    let named = stage.post_with("/api/chat", body.clone(), &[("x-loadline-conversation", &id)]).await;
    assert_eq!(named.header("x-loadline-conversation"), id);
    for unknown in ["999999", "-1", "abc"] {
        assert_eq!(
            stage.post_with("/api/chat", body.clone(), &[("x-loadline-conversation", unknown)]).await.status,
            404
        );
    }
}

#[tokio::test]
async fn after_a_rollover_the_front_stays_stable_until_the_next_one() {
    // Without checkpoints at 80 % and 95 %, it is rollovers alone that make room.
    let config = SimConfig { default_window: 1024, answer_tokens: 24, ..SimConfig::default() };
    let stage = Stage::with(config, &[("LOADLINE_CHECKPOINT_ENABLED", "false")]).await;
    let mut messages = vec![json!({ "role": "system", "content": "You keep a log." })];
    let mut previous: Option<Vec<Value>> = None;
    let mut rollovers = 0;
    for turn in 0..40 {
        messages.push(json!({ "role": "user", "content": words(&format!("day{turn}"), 70) }));
        let body = json!({ "model": "sim", "stream": false, "messages": messages }).to_string();
        let got = stage.post("/api/chat", body).await;
        assert_eq!(got.status, 200, "{}", got.text);
        let (sent, limit) = got.tokens();
        assert!(sent <= limit);
        assert_eq!(got.json()["prompt_eval_count"], sent, "turn {turn}");
        messages.push(got.json()["message"].clone());
        let last = stage.forwarded("/api/chat").pop().expect("forwarded");
        let sent: Value = serde_json::from_str(&last).expect("json");
        let sent = sent["messages"].as_array().expect("messages").clone();
        if ["compression", "rollover"].contains(&got.header("x-loadline-action")) {
            rollovers += usize::from(got.header("x-loadline-action") == "rollover");
        } else if let Some(previous) = &previous {
            assert_eq!(sent[..previous.len()], previous[..], "turn {turn}: what was sent before has changed");
        }
        previous = Some(without_recalled(sent));
    }
    assert!((2..=13).contains(&rollovers), "{rollovers} rollovers in 40 turns");
    assert_eq!(stage.sim.stats().truncations, 0);
    assert_eq!(stage.snapshots().len(), rollovers);
}

/// What was sent, up to where a recalled passage stood: that is only for the turn that needs it.
fn without_recalled(mut sent: Vec<Value>) -> Vec<Value> {
    let recalled = |message: &Value| message["content"].as_str().is_some_and(|text| text.starts_with("[RECALLED"));
    if let Some(at) = sent.iter().position(recalled) {
        sent.truncate(at);
    }
    sent
}

#[tokio::test]
async fn a_tool_call_never_leaves_its_result_in_a_rollover() {
    let mut model = crate::stage::MODEL.clone();
    model.tools = true;
    let config = SimConfig { default_window: 1024, models: vec![model], ..SimConfig::default() };
    let stage = Stage::with(config, &[]).await;
    let tools = json!([{ "type": "function", "function": { "name": "look", "description": "looks", "parameters": { "type": "object", "properties": { "at": { "type": "string" } } } } }]);
    let call = |number: usize| json!({ "role": "assistant", "content": "", "tool_calls": [{ "function": { "name": "look", "arguments": { "at": format!("place {number}") } } }] });
    let mut messages = vec![json!({ "role": "system", "content": "Use tools." })];
    for number in 0..12 {
        messages.push(json!({ "role": "user", "content": words(&format!("q{number}"), 20) }));
        messages.push(call(number));
        messages.push(json!({ "role": "tool", "tool_name": "look", "content": words("seen", 60) }));
        messages.push(json!({ "role": "assistant", "content": "It is there." }));
    }
    messages.push(json!({ "role": "user", "content": "now the last" }));
    messages.push(call(99));
    messages.push(json!({ "role": "tool", "tool_name": "look", "content": "the last result" }));
    let body = json!({ "model": "sim", "stream": false, "messages": messages, "tools": tools });
    let got = stage.post("/api/chat", body.to_string()).await;
    assert_eq!((got.status, got.header("x-loadline-action")), (200, "rollover"), "{}", got.text);
    assert_eq!(got.json()["prompt_eval_count"], got.tokens().0);
    let sent: Value = serde_json::from_str(&stage.forwarded("/api/chat")[0]).expect("json");
    assert_eq!(sent["tools"], tools, "tools always stay");
    let sent = sent["messages"].as_array().expect("messages");
    assert_eq!(sent[sent.len() - 3..], messages[messages.len() - 3..], "the current turn is whole");
    for (index, message) in sent.iter().enumerate() {
        if message["role"] == "tool" {
            assert!(sent[index - 1]["tool_calls"].is_array(), "a result without its call");
        }
    }
}

#[tokio::test]
async fn an_agent_with_one_user_message_goes_on_for_many_steps() {
    let mut model = crate::stage::MODEL.clone();
    model.tools = true;
    let stage = Stage::with(SimConfig { default_window: 1024, models: vec![model], ..SimConfig::default() }, &[]).await;
    let rules = json!({ "role": "system", "content": "Never touch the manifest." });
    let task = json!({ "role": "user", "content": "Count the crates, one hold after the other." });
    let tools = json!([{ "type": "function", "function": { "name": "look", "description": "looks", "parameters": { "type": "object", "properties": {} } } }]);
    let mut messages = vec![rules.clone(), task.clone()];
    let mut compactions = 0;
    for step in 0..30 {
        messages.push(json!({ "role": "assistant", "content": "", "tool_calls": [{ "function": { "name": "look", "arguments": { "hold": step } } }] }));
        messages.push(json!({ "role": "tool", "tool_name": "look", "content": words(&format!("hold{step}"), 40) }));
        let body = json!({ "model": "sim", "stream": false, "messages": messages, "tools": tools, "options": { "num_predict": 4 } });
        let got = stage.post("/api/chat", body.to_string()).await;
        assert_eq!(got.status, 200, "step {step}: {}", got.text);
        assert_eq!(got.json()["prompt_eval_count"], got.tokens().0, "step {step}");
        let sent: Value = serde_json::from_str(stage.forwarded("/api/chat").last().expect("forwarded")).expect("json");
        let sent = sent["messages"].as_array().expect("messages");
        assert_eq!(sent[0], rules, "step {step}");
        assert!(sent.contains(&task), "step {step}: the task is gone");
        assert_eq!(sent[sent.len() - 2..], messages[messages.len() - 2..], "step {step}: the open exchange is whole");
        let orphans =
            sent.windows(2).filter(|pair| pair[1]["role"] == "tool" && !pair[0]["tool_calls"].is_array()).count();
        assert_eq!(orphans, 0, "step {step}: a result without its call");
        compactions += usize::from(got.header("x-loadline-action") != "none");
        messages.push(got.json()["message"].clone());
    }
    assert!((1..=10).contains(&compactions), "{compactions} compactions in 30 steps");
}

#[tokio::test]
async fn a_larger_window_makes_an_earlier_rollover_unnecessary() {
    let stage = Stage::new().await;
    let mut messages = Vec::new();
    for turn in 0..12 {
        messages.push(json!({ "role": "user", "content": words(&format!("u{turn}"), 30) }));
        messages.push(json!({ "role": "assistant", "content": words("a", 30) }));
    }
    messages.push(json!({ "role": "user", "content": "go" }));
    let small = stage.chat(&json!(messages), 1024).await;
    assert_eq!(small.header("x-loadline-action"), "rollover");
    messages.push(small.json()["message"].clone());
    messages.push(json!({ "role": "user", "content": "on" }));
    let again = stage.chat(&json!(messages), 1024).await;
    assert_eq!(
        (again.header("x-loadline-action"), again.header("x-loadline-snapshot")),
        ("none", small.header("x-loadline-snapshot"))
    );
    let large = stage.chat(&json!(messages), 8192).await;
    assert_eq!((large.header("x-loadline-action"), large.header("x-loadline-snapshot")), ("none", ""));
    let sent: Value = serde_json::from_str(stage.forwarded("/api/chat").last().expect("forwarded")).expect("json");
    assert_eq!(sent["messages"], json!(messages), "everything fits, so everything is sent");
}
