//! A long chat with a real model: every answer comes back, every count is as predicted, everything is stored.

use loadline::sim::SimConfig;
use serde_json::json;

use super::server::{ollama, tell};
use crate::stage::{MODEL, Stage};

const TURNS: usize = 36;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_chat_with_a_real_model_is_compacted_without_a_wrong_count_or_a_lost_message() {
    let Some(ollama) = ollama("a_long_chat_with_a_real_model") else { return };
    let model = ollama.smollm2();
    let config = SimConfig { models: vec![MODEL.clone()], ..SimConfig::default() };
    let sim = loadline::sim::start(config).await.expect("a free port");
    // Other live tests keep the machine busy: a checkpoint may take long, and this is not about how long.
    let stage = Stage::before(sim, &ollama.url, &[("LOADLINE_CHECKPOINT_WAIT_S", "600")]).await;
    let mut messages = vec![json!({ "role": "system", "content": "You keep the log of a small harbour." })];
    let (mut compacted, mut conversation) = (0, String::new());
    for turn in 0..TURNS {
        let fact = if turn == 1 { " The code of the harbour gate is 7341." } else { "" };
        let text =
            format!("Day {turn}: the tide was {} cm high and {} boats came in.{fact}", turn * 13 % 97, turn * 7 % 31);
        messages.push(json!({ "role": "user", "content": text }));
        let body = json!({ "model": model, "stream": false, "messages": messages, "options": { "num_ctx": 768, "num_predict": 16, "temperature": 0 } });
        let got = stage.post("/api/chat", body.to_string()).await;
        assert_eq!(got.status, 200, "turn {turn}: {}", got.text);
        assert_eq!(got.header("x-loadline-basis"), "exact", "turn {turn}");
        assert_eq!(got.json()["prompt_eval_count"], got.tokens().0, "turn {turn}");
        compacted += usize::from(!got.header("x-loadline-receipt").is_empty());
        conversation = got.header("x-loadline-conversation").to_owned();
        messages.push(got.json()["message"].clone());
    }
    stage.settled().await;
    let reader = stage.gateway.store.reader().expect("readable");
    let stored = reader.path(conversation.parse().expect("a number"), None).expect("readable");
    let said: Vec<&str> = messages[1..].iter().map(|message| message["content"].as_str().expect("text")).collect();
    assert_eq!(stored.iter().map(|row| row.text.as_str()).collect::<Vec<_>>(), said, "every message, in order");
    let checkpoints = reader.checkpoints(conversation.parse().expect("a number")).expect("readable");
    assert!(
        !checkpoints.is_empty() && compacted > TURNS / 3,
        "{compacted} compacted turns, {} checkpoints",
        checkpoints.len()
    );
    let by_model = checkpoints.iter().filter(|checkpoint| checkpoint.author != "extract").count();
    tell(&format!("live: {} checkpoints in {TURNS} turns, {by_model} written by the model", checkpoints.len()));
    drop(reader);
    messages.push(json!({ "role": "user", "content": "What is the code of the harbour gate?" }));
    let body = json!({ "model": model, "messages": messages, "options": { "num_ctx": 768, "num_predict": 16 } });
    let checked = stage.post("/loadline/check/api/chat", body.to_string()).await;
    assert!(checked.text.contains("7341"), "the fact is in what would be forwarded: {}", checked.text);
    assert_eq!(stage.gateway.metrics.cut_by_upstream.get() + stage.gateway.metrics.overflows.get(), 0);
}
