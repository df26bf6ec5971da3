//! The history of chats with a real Ollama: read back, exported, imported, gone on with, handed over.

use loadline::sim::SimConfig;
use serde_json::{Value, json};

use super::server::ollama;
use crate::history::contents;
use crate::stage::{MODEL, Stage};

fn body(model: &str, messages: &[Value]) -> String {
    json!({ "model": model, "stream": false, "messages": messages, "options": { "num_ctx": 1024, "num_predict": 24, "temperature": 0 } }).to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_said_to_a_real_model_comes_back_and_goes_on() {
    let Some(ollama) = ollama("what_was_said_to_a_real_model") else { return };
    let model = ollama.smollm2();
    let config = SimConfig { models: vec![MODEL.clone()], ..SimConfig::default() };
    let sim = loadline::sim::start(config).await.expect("a free port");
    let stage = Stage::before(sim, &ollama.url, &[]).await;
    let alice = stage.token("alice").await;
    let bearer = format!("Bearer {alice}");
    let as_alice = [("authorization", bearer.as_str())];
    let manifest = "42 crates of oolong tea are in hold four and 17 barrels of tar in hold five. ".repeat(6);
    let mut said = vec![
        json!({ "role": "system", "content": "You are the mate of a ship. Answer in one sentence." }),
        json!({ "role": "user", "content": format!("Remember the manifest: {manifest}Where is the tea?") }),
    ];
    let first = stage.post_with("/api/chat", body(model, &said), &as_alice).await;
    assert_eq!(first.status, 200, "{}", first.text);
    let answer = first.json()["message"].clone();
    let id = first.header("x-loadline-conversation").to_owned();
    let rows = stage.get_as(&alice, &format!("/api/conversations/{id}/messages")).await;
    assert_eq!(contents(&rows)[1], answer["content"].as_str().expect("text"));

    let export = stage.get_as(&alice, &format!("/api/conversations/{id}/export")).await.text;
    crate::history::round_trip::assert_strict(&export);
    assert_eq!(stage.send("DELETE", &format!("/api/conversations/{id}"), "", &as_alice).await.status, 204);
    let copy = stage.import(&alice, &export).await.json()["id"].to_string();
    said.extend([answer, json!({ "role": "user", "content": "And the tar?" })]);
    let second = stage.post_with("/api/chat", body(model, &said), &as_alice).await;
    assert_eq!(second.header("x-loadline-conversation"), copy, "the imported conversation goes on");
    let load = stage.get_as(&alice, &format!("/api/conversations/{copy}/load")).await.json();
    let turn = &load["turns"][0];
    assert_eq!((&turn["basis"], &turn["sent_tokens"]), (&json!("exact"), &turn["reported_tokens"]), "{load}");

    let handed =
        stage.get_as(&alice, &format!("/api/conversations/{copy}/handoff?format=json&tokens=200")).await.json();
    assert_eq!(handed["basis"], "exact", "{handed}");
    assert!(handed["tokens"].as_u64().expect("a number") <= 200, "{handed}");
    // A small model may not manage to shorten anything; then it is cut, and the section is there all the same.
    let path = format!("/api/conversations/{copy}/handoff?preset=reasoning-first&compress=model&format=json");
    let shortened = stage.get_as(&alice, &path).await.json();
    let question = &shortened["conversation_history"]["messages"][0];
    assert_eq!(question["truncated"], true, "{shortened}");
    let content = question["content"].as_str().expect("text");
    assert!(content.starts_with("(condensed) ") || content.ends_with("... [truncated]"), "{content}");
}
