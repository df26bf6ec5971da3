//! When a count or a window was wrong after all: the upstream's error is learnt from, unseen by the client.

use loadline::sim::{Fault, Flavour, SimConfig};
use serde_json::{Value, json};

use crate::stage::{Stage, words};

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
