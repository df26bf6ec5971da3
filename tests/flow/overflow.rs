//! When a count or a window was wrong after all: the upstream's error is learnt from, unseen by the client. And what is said
//! when nothing helps.

use loadline::sim::{Fault, Flavour, SimConfig, SimModel};
use serde_json::{Value, json};

use crate::stage::{MODEL, Stage, chat_body, words};

const OLDER: &str = r#"{"error":"the input length exceeds the context length"}"#;

fn newer(tokens: u32, window: u32) -> String {
    let inner = json!({ "error": { "code": 400, "message": format!("request ({tokens} tokens) exceeds the available context size ({window} tokens), try increasing it"), "type": "exceed_context_size_error", "n_prompt_tokens": tokens, "n_ctx": window } });
    json!({ "error": inner.to_string() }).to_string()
}

fn history() -> Value {
    let turns = (0..10).flat_map(|turn| {
        [
            json!({ "role": "user", "content": words(&format!("u{turn}"), 40) }),
            json!({ "role": "assistant", "content": words("a", 40) }),
        ]
    });
    turns.chain([json!({ "role": "user", "content": "and now?" })]).collect()
}

#[tokio::test]
async fn an_overflow_error_of_either_version_is_fitted_again_once_unseen() {
    for (flavour, error) in [(Flavour::V0_17, OLDER.to_owned()), (Flavour::V0_33, newer(2000, 1024))] {
        let stage = Stage::with(SimConfig { default_window: 4096, flavour, ..SimConfig::default() }, &[]).await;
        stage.sim.faults().push(Fault::Status { code: 400, body: error });
        let body = json!({ "model": "sim", "stream": true, "messages": history() }).to_string();
        let got = stage.post("/api/chat", body).await;
        assert_eq!(got.status, 200, "{flavour:?}: {}", got.text);
        assert!(got.text.contains("\"done\":true"));
        assert_eq!(stage.forwarded("/api/chat").len(), 2, "{flavour:?}: sent once more, and once only");
    }
}

#[tokio::test]
async fn a_window_smaller_than_believed_is_learnt_from_the_error() {
    let stage = Stage::with(SimConfig { default_window: 4096, ..SimConfig::default() }, &[]).await;
    let body = json!({ "model": "sim", "stream": false, "messages": history() }).to_string();
    stage.sim.faults().push(Fault::Status { code: 400, body: newer(900, 768) });
    let got = stage.post("/api/chat", body).await;
    assert_eq!(got.status, 200, "{}", got.text);
    let (sent, limit) = got.tokens();
    assert!(limit <= 652 && sent <= limit, "{sent}/{limit}");
    assert_eq!(got.header("x-loadline-action"), "rollover");
}

#[tokio::test]
async fn an_error_that_comes_twice_reaches_the_client() {
    let stage = Stage::new().await;
    let body = json!({ "model": "sim", "stream": false, "messages": history() }).to_string();
    for _ in 0..2 {
        stage.sim.faults().push(Fault::Status { code: 400, body: OLDER.to_owned() });
    }
    let got = stage.post("/api/chat", body).await;
    assert_eq!((got.status, got.text.as_str()), (400, OLDER));
}

#[tokio::test]
async fn a_wrong_count_is_noticed_and_the_template_learnt_again() {
    let stage = Stage::new().await;
    let body =
        json!({ "model": "sim", "stream": false, "messages": [{ "role": "user", "content": "hi" }] }).to_string();
    assert_eq!(stage.post("/api/chat", body.clone()).await.status, 200);
    stage.sim.faults().push(Fault::WrongCount(5));
    assert_eq!(stage.post("/api/chat", body.clone()).await.status, 200);
    let health = stage.get("/loadline/health").await.json();
    assert_eq!((&health["counts_compared"], &health["exact_mismatches"]), (&json!(2), &json!(1)));
    let got = stage.post("/api/chat", body).await;
    assert_eq!(got.json()["prompt_eval_count"], got.tokens().0, "the next count is right again");
}

fn many_tools() -> Value {
    let tool = |number: usize| json!({ "type": "function", "function": { "name": format!("tool_{number}"), "description": words("does", 40), "parameters": { "type": "object", "properties": {} } } });
    (0..30).map(tool).collect()
}

fn with_tools(model: &str) -> String {
    json!({ "model": model, "stream": false, "messages": [{ "role": "user", "content": "hi" }], "tools": many_tools(), "options": { "num_ctx": 1024 } }).to_string()
}

/// Some front ends offer dozens of tools to every model. That it cannot use any is what the user has to know.
#[tokio::test]
async fn what_the_upstream_has_against_a_request_is_heard_before_its_size() {
    let stage = Stage::new().await;
    let got = stage.post("/api/chat", with_tools("sim")).await;
    assert_eq!(
        (got.status, got.json()["error"].as_str()),
        (400, Some("registry.ollama.ai/library/sim:latest does not support tools")),
        "{}",
        got.text
    );
    assert_eq!(stage.gateway.store.reader().unwrap().turn(1).unwrap().expect("it is kept").1.status, "failed");
}

#[tokio::test]
async fn a_refusal_names_the_tools_where_they_are_the_largest_part() {
    let model = SimModel { tools: true, ..MODEL.clone() };
    let stage = Stage::with(SimConfig { models: vec![model], ..SimConfig::default() }, &[]).await;
    let got = stage.post("/api/chat", with_tools("sim")).await;
    assert_eq!((got.status, got.header("x-loadline-action")), (400, "refused"));
    assert!(got.text.contains("The largest part is the list of tools with about "), "{}", got.text);
}

/// What a request without `num_ctx` gets must not be read off while somebody else's has the model loaded.
#[tokio::test]
async fn a_window_that_somebody_else_has_asked_for_is_not_taken_for_the_default() {
    let stage = Stage::new().await;
    let models = &stage.gateway.fleet.any().models;
    let model = models.get("sim").await.expect("there is one");
    let theirs = model.asks_for_another_window();
    let loaded = stage
        .client
        .post(format!("{}/api/chat", stage.sim.url()))
        .body(chat_body(&json!([{ "role": "user", "content": "x" }]), 8192));
    assert_eq!(loaded.send().await.expect("an answer").status(), 200);
    model.look_up_loaded_window(model.no_other_window_asked_for()).await;
    assert!(!model.knows_default_window(), "while it is on its way");
    drop(theirs);
    let before = model.no_other_window_asked_for();
    drop(model.asks_for_another_window());
    model.look_up_loaded_window(before).await;
    assert!(!model.knows_default_window(), "when it came and went meanwhile");
    model.look_up_loaded_window(model.no_other_window_asked_for()).await;
    assert_eq!(models.window(&model, None).0, 8192, "when nobody else has asked");
}

/// A model that cannot see is not charged for pictures: Ollama leaves nothing of them but their tags.
#[tokio::test]
async fn pictures_cost_nothing_where_nobody_looks_at_them() {
    let pictured = json!([{ "role": "user", "content": "what is this?", "images": ["AAAA", "BBBB"] }]);
    let stage = Stage::new().await;
    let got = stage.chat(&pictured, 1024).await;
    assert_eq!((got.status, &got.json()["prompt_eval_count"]), (200, &json!(got.tokens().0)), "{}", got.text);
    let seeing = SimModel { vision: true, ..MODEL.clone() };
    let stage = Stage::with(SimConfig { models: vec![seeing], ..SimConfig::default() }, &[]).await;
    let got = stage.chat(&pictured, 1024).await;
    assert_eq!(got.status, 400);
    assert!(got.text.contains("message 1 (user, with its images) with about 15"), "{}", got.text);
}

#[tokio::test]
async fn a_token_that_the_model_does_not_have_never_reaches_it() {
    let stage = Stage::new().await;
    let ask = |id: u64| json!({ "model": "sim", "prompt": "x", "stream": false, "context": [1, id] }).to_string();
    let got = stage.post("/api/generate", ask(99_999_999)).await;
    assert_eq!(got.status, 400);
    assert!(got.text.contains("would bring Ollama down"), "{}", got.text);
    assert!(stage.forwarded("/api/generate").is_empty());
    assert_eq!(stage.post("/api/generate", ask(7)).await.status, 200);
}

#[tokio::test]
async fn a_refusal_says_when_the_answer_that_was_asked_for_takes_the_room() {
    let stage = Stage::new().await;
    let body = json!({ "model": "sim", "max_tokens": 32_000, "messages": [{ "role": "user", "content": words("rules", 1100) }] });
    let got = stage.post("/v1/chat/completions", body.to_string()).await;
    assert_eq!(got.status, 400, "{}", got.text);
    assert!(got.text.contains("asks for an answer of 32000 tokens"), "{}", got.text);
}
