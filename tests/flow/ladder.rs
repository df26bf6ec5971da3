//! The rungs of the ladder, and the eight claims of the design that it comes from.

use loadline::sim::SimConfig;
use serde_json::{Value, json};

use crate::stage::{Got, Stage, chat_body, words};

/// A chat that fills the given percentage of the limit of a window, found by asking for counts.
pub async fn filled_to(stage: &Stage, percent: f64, num_ctx: u32) -> Value {
    let limit = f64::from(num_ctx) * 0.85;
    let mut messages = vec![json!({ "role": "system", "content": "Be brief." })];
    for number in 0.. {
        messages.push(json!({ "role": "user", "content": words(&format!("q{number}"), 12) }));
        messages.push(json!({ "role": "assistant", "content": words(&format!("a{number}"), 12) }));
        messages.push(json!({ "role": "user", "content": "x" }));
        let body = chat_body(&json!(messages), num_ctx);
        let counted = stage.post("/loadline/count", body).await.json()["tokens"].as_f64().expect("a count");
        let missing = percent / 100.0 * limit - counted;
        if missing < 60.0 {
            assert!(missing >= 0.0, "the step is too coarse");
            // Each further x is one token.
            let last = messages.last_mut().expect("a message");
            *last = json!({ "role": "user", "content": vec!["x"; missing.ceil() as usize + 1].join(" ") });
            return json!(messages);
        }
        messages.pop();
    }
    unreachable!("the loop only ends by returning")
}

async fn check(stage: &Stage, messages: &Value, num_ctx: u32) -> Value {
    stage.post("/loadline/check/api/chat", chat_body(messages, num_ctx)).await.json()
}

fn assert_sent_as_counted(got: &Got) {
    let (sent, limit) = got.tokens();
    assert_eq!(got.status, 200, "{}", got.text);
    assert!(sent <= limit, "{sent} over {limit}");
    assert_eq!(got.json()["prompt_eval_count"], sent);
    assert_eq!(got.header("x-loadline-basis"), "exact");
}

#[tokio::test]
async fn validates_a_prompt_successfully_when_under_the_threshold() {
    let stage = Stage::new().await;
    let messages = filled_to(&stage, 40.0, 2048).await;
    let answer = check(&stage, &messages, 2048).await;
    assert_eq!(answer["valid"], true);
    assert_eq!(answer["warnings"], json!([]));
    assert_eq!(answer["emergencyAction"], Value::Null);
    assert_eq!(answer["ollamaLimit"], 1740);
    assert_eq!(answer["prompt"], messages);
    let got = stage.chat(&messages, 2048).await;
    assert_sent_as_counted(&got);
    assert_eq!(got.header("x-loadline-action"), "none");
    assert_eq!(got.json()["prompt_eval_count"], answer["totalTokens"]);
}

#[tokio::test]
async fn includes_the_new_message_in_the_token_calculation() {
    let stage = Stage::new().await;
    let before = json!([{ "role": "user", "content": "one" }]);
    let after = json!([{ "role": "user", "content": "one" }, { "role": "assistant", "content": "two" }, { "role": "user", "content": "three" }]);
    let (before, after) = (check(&stage, &before, 2048).await, check(&stage, &after, 2048).await);
    assert!(after["totalTokens"].as_u64() > before["totalTokens"].as_u64());
}

#[tokio::test]
async fn handles_validation_errors_gracefully() {
    let stage = Stage::new().await;
    let missing =
        stage.post("/loadline/check/api/chat", r#"{"model":"nope","messages":[{"role":"user","content":"x"}]}"#).await;
    assert_eq!((missing.status, missing.json()), (404, json!({ "error": "model 'nope' not found" })));
    assert_eq!(stage.post("/loadline/check/api/chat", "{").await.status, 400);
    assert_eq!(stage.post("/loadline/check/api/tags", "{}").await.status, 404);
}

#[tokio::test]
async fn calculates_the_budget_correctly() {
    let stage = Stage::new().await;
    let messages = json!([{ "role": "user", "content": "hello" }]);
    assert_eq!(check(&stage, &messages, 8192).await["ollamaLimit"], 6963);
    // More than the model was trained for is clamped, as Ollama does it.
    assert_eq!(check(&stage, &messages, 100_000).await["ollamaLimit"], 6963);
    let asks_for_much =
        json!({ "model": "sim", "messages": messages, "options": { "num_ctx": 8192, "num_predict": 2000 } });
    let answer = stage.post("/loadline/check/api/chat", asks_for_much.to_string()).await.json();
    assert_eq!(answer["ollamaLimit"], 6192);
}

#[tokio::test]
async fn triggers_emergency_compression_when_usage_is_high() {
    let stage = Stage::new().await;
    let messages = filled_to(&stage, 96.0, 2048).await;
    let answer = check(&stage, &messages, 2048).await;
    assert_eq!((answer["valid"].clone(), answer["emergencyAction"].clone()), (json!(true), json!("compression")));
    let got = stage.chat(&messages, 2048).await;
    assert_sent_as_counted(&got);
    assert_eq!(got.header("x-loadline-action"), "compression");
    let (sent, limit) = got.tokens();
    let arrived = answer["arrivedTokens"].as_u64().expect("a number") as u32;
    let expected = format!(
        "WARNING: Context at {} ({arrived}/{limit} tokens) - Triggering emergency compression",
        got.header("x-loadline-usage")
    );
    assert_eq!(got.warnings(), [expected]);
    assert!(sent * 10 <= limit * 6, "{sent} of {limit}: compression aims at half of the limit");
}

#[tokio::test]
async fn triggers_emergency_rollover_when_at_100_percent() {
    let stage = Stage::new().await;
    let messages = filled_to(&stage, 120.0, 2048).await;
    let got = stage.chat(&messages, 2048).await;
    assert_sent_as_counted(&got);
    assert_eq!(got.header("x-loadline-action"), "rollover");
    assert!(got.warnings()[0].starts_with("CRITICAL: Context at 120."), "{:?}", got.warnings());
    assert!(got.warnings()[0].ends_with(" tokens) - Triggering emergency rollover"));
    let snapshot = got.header("x-loadline-snapshot");
    assert!(snapshot.starts_with("snapshot-"));
    let kept = stage.history_of_snapshot(snapshot);
    let said: Vec<_> = messages.as_array().expect("a list")[1..].to_vec();
    let texts = |message: &Value| message["content"].as_str().expect("text").to_owned();
    assert_eq!(kept.iter().map(|row| row.text.clone()).collect::<Vec<_>>(), said.iter().map(texts).collect::<Vec<_>>());
    assert_eq!(stage.snapshots()[0].system, json!([texts(&messages[0])]).to_string());
}

#[tokio::test]
async fn returns_a_valid_result_after_a_successful_rollover() {
    let stage = Stage::new().await;
    let messages = filled_to(&stage, 120.0, 2048).await;
    let answer = check(&stage, &messages, 2048).await;
    assert_eq!((answer["valid"].clone(), answer["emergencyAction"].clone()), (json!(true), json!("rollover")));
    assert!(answer["totalTokens"].as_u64() <= answer["ollamaLimit"].as_u64());
    let prompt = answer["prompt"].as_array().expect("messages").clone();
    let all = messages.as_array().expect("messages");
    assert_eq!(prompt.first(), all.first(), "the system prompt stays");
    assert_eq!(prompt.last(), all.last(), "the current turn is untouched");
    let note = prompt[1]["content"].as_str().expect("the summary");
    assert_eq!(prompt[1]["role"], "user", "a summary is data, never the system's word");
    let lines: Vec<&str> = note.lines().collect();
    assert_eq!(lines[0], "[EMERGENCY ROLLOVER - Context exceeded limit]");
    assert!(lines[1].starts_with("Snapshot ID: snapshot-"));
    assert_eq!(lines[2], format!("Previous conversation: {} messages", all.len()));
    assert_eq!(lines[3], "Checkpoints: 0");
    assert_eq!(lines[4], format!("Total tokens before rollover: {}", answer["arrivedTokens"]));
    assert_eq!(lines[5..7], ["", "Key context preserved in snapshot. Continuing conversation with fresh context."]);
    assert!(lines.len() > 8 && lines[7..].iter().all(|line| line.starts_with("- ")), "then the gist: {lines:?}");
    let tokens = crate::stage::MODEL.tokenizer.count(note, Default::default()).tokens;
    assert!(tokens <= 400, "{tokens} tokens");
    let users = |list: &[Value]| list.iter().filter(|message| message["role"] == "user").count();
    assert!(users(&prompt) <= 11, "ten of the user's messages and the summary");
    assert_eq!(prompt.iter().filter(|message| message["role"] == "assistant").count(), 0);
    assert!(stage.snapshots().is_empty(), "a dry run leaves nothing behind");
    assert!(stage.forwarded("/api/chat").is_empty(), "a dry run sends nothing");
}

#[tokio::test]
async fn emits_warnings_at_different_thresholds() {
    let stage = Stage::new().await;
    for (percent, ending) in
        [(72.0, " tokens)"), (82.0, " tokens) - Normal compression will be triggered after this message")]
    {
        let got = stage.chat(&filled_to(&stage, percent, 2048).await, 2048).await;
        assert_sent_as_counted(&got);
        let warnings = got.warnings();
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].starts_with(&format!("INFO: Context at {percent}")), "{warnings:?}");
        assert!(warnings[0].ends_with(ending), "{warnings:?}");
    }
}

#[tokio::test]
async fn what_cannot_fit_is_refused_in_each_dialect() {
    let stage = Stage::with(SimConfig { default_window: 512, ..SimConfig::default() }, &[]).await;
    let giant = words("giant", 900);
    let chat = json!([{ "role": "user", "content": giant }]);
    let rows = [
        ("/api/chat", json!({ "model": "sim", "messages": chat })),
        ("/api/generate", json!({ "model": "sim", "prompt": giant })),
        ("/v1/chat/completions", json!({ "model": "sim", "messages": chat })),
        ("/v1/completions", json!({ "model": "sim", "prompt": giant })),
        ("/v1/responses", json!({ "model": "sim", "input": giant })),
        ("/v1/messages", json!({ "model": "sim", "max_tokens": 8, "messages": chat })),
    ];
    for (path, body) in rows {
        let got = stage.post(path, body.to_string()).await;
        assert_eq!((got.status, got.header("x-loadline-action")), (400, "refused"), "{path}: {}", got.text);
        let body = got.json();
        let message = match path {
            "/api/chat" | "/api/generate" => body["error"].as_str(),
            "/v1/messages" => {
                assert_eq!((&body["type"], &body["error"]["type"]), (&json!("error"), &json!("invalid_request_error")));
                assert!(body["request_id"].is_string());
                body["error"]["message"].as_str()
            }
            _ => {
                assert_eq!(body["error"]["type"], "invalid_request_error");
                assert!(body["error"]["param"].is_null() && body["error"]["code"].is_null());
                body["error"]["message"].as_str()
            }
        };
        let message = message.expect("a message");
        let (total, limit) = got.tokens();
        for part in [format!("{total} tokens"), format!("limit is {limit}"), "largest part".into(), "num_ctx".into()] {
            assert!(message.contains(&part), "{path}: `{part}` is missing in {message}");
        }
        assert!(stage.forwarded(path).is_empty(), "{path}: something was forwarded");
    }
}

#[tokio::test]
async fn observe_mode_changes_nothing_and_says_what_would_be_dropped() {
    let stage = Stage::with(SimConfig::default(), &[("LOADLINE_CONTEXT_MODE", "observe")]).await;
    let messages = filled_to(&stage, 150.0, 512).await;
    let body = chat_body(&messages, 512);
    let got = stage.post("/api/chat", body.clone()).await;
    assert_eq!(got.status, 200);
    assert_eq!((got.header("x-loadline-mode"), got.header("x-loadline-action")), ("observe", "rollover"));
    let warnings = got.warnings();
    assert!(warnings[0].starts_with("CRITICAL: Context at 150."), "{warnings:?}");
    assert!(warnings[1].starts_with("INFO: Observe mode - Ollama will drop about"), "{warnings:?}");
    assert_eq!(stage.forwarded("/api/chat"), [body], "byte by byte as it came, without truncate");
    assert!(stage.snapshots().is_empty());
}

#[tokio::test]
async fn below_the_marks_a_request_leaves_as_it_came_but_for_truncate() {
    let stage = Stage::new().await;
    let body = r#" {"model":"sim",  "messages":[ {"role":"user","content":"h\u00e9llo","x-unknown":[1, 2.50]} ],"future":{"a":null},"stream":false } "#;
    assert_eq!(stage.post("/api/chat", body).await.status, 200);
    assert_eq!(stage.forwarded("/api/chat"), [body.replacen('{', "{\"truncate\":false,", 1)]);
    let explicit = r#"{"truncate": true, "model":"sim","messages":[{"role":"user","content":"x"}],"stream":false}"#;
    stage.post("/api/chat", explicit).await;
    assert_eq!(stage.forwarded("/api/chat")[1], explicit.replace("true", "false"));
    let openai = r#"{"model":"sim", "messages":[{"role":"user","content":"x"}],"unknown":1}"#;
    stage.post("/v1/chat/completions", openai).await;
    assert_eq!(stage.forwarded("/v1/chat/completions"), [openai]);
}

#[tokio::test]
async fn an_empty_request_is_nothing_to_count_and_spoils_no_later_count() {
    let stage = Stage::new().await;
    for (path, body) in [
        ("/loadline/count", r#"{"model":"sim","messages":[]}"#),
        ("/v1/messages/count_tokens", r#"{"model":"sim","messages":[]}"#),
        ("/loadline/check/api/chat", r#"{"model":"sim"}"#),
    ] {
        assert_eq!(stage.post(path, body).await.status, 400, "{path}");
    }
    let counted =
        stage.post("/loadline/count", r#"{"model":"sim","messages":[{"role":"user","content":"hi"}]}"#).await.json();
    assert_eq!(counted["basis"], "exact");
}

#[tokio::test]
async fn an_image_tag_without_an_image_is_text_like_any_other() {
    let stage = Stage::new().await;
    let got = stage.chat(&json!([{ "role": "user", "content": "[img-0]".repeat(50) }]), 2048).await;
    assert_sent_as_counted(&got);
    let raw = json!({ "model": "sim", "prompt": "[img-0]".repeat(50), "raw": true, "stream": false, "options": { "num_predict": 2 } });
    let got = stage.post("/api/generate", raw.to_string()).await;
    assert_sent_as_counted(&got);
}

#[tokio::test]
async fn one_clients_num_ctx_is_not_everybodys_window() {
    let stage = Stage::with(SimConfig { default_window: 2048, ..SimConfig::default() }, &[]).await;
    let hello = json!([{ "role": "user", "content": "hello" }]);
    for _ in 0..2 {
        assert_eq!(stage.chat(&hello, 8192).await.tokens().1, 6963);
    }
    let body = json!({ "model": "library/sim", "max_tokens": 4, "messages": hello }).to_string();
    let got = stage.post("/v1/chat/completions", body.replace("library/", "")).await;
    assert_eq!(got.tokens().1, 1740);
}

#[tokio::test]
async fn trying_again_writes_no_second_snapshot() {
    let stage = Stage::new().await;
    let messages = filled_to(&stage, 120.0, 1024).await;
    let first = stage.chat(&messages, 1024).await.header("x-loadline-snapshot").to_owned();
    for _ in 0..3 {
        assert_eq!(stage.chat(&messages, 1024).await.header("x-loadline-snapshot"), first);
    }
    assert_eq!(stage.snapshots().len(), 1);
}

#[tokio::test]
async fn errors_have_the_shape_of_the_path_however_it_is_written() {
    let stage = Stage::with(SimConfig { default_window: 512, ..SimConfig::default() }, &[]).await;
    let body =
        json!({ "model": "sim", "max_tokens": 8, "messages": [{ "role": "user", "content": words("giant", 900) }] })
            .to_string();
    for path in ["/v1/messages", "/v1%2fmessages", "//v1/messages"] {
        let got = stage.post(path, body.clone()).await;
        assert_eq!((got.status, got.json()["type"].clone()), (400, json!("error")), "{path}");
    }
}

#[tokio::test]
async fn a_rollover_keeps_the_users_last_messages_however_long_the_history_is() {
    let stage = Stage::new().await;
    for turns in [60, 200, 400] {
        let mut messages: Vec<Value> = (0..turns)
            .flat_map(|turn| {
                [
                    json!({ "role": "user", "content": words(&format!("u{turn}"), 30) }),
                    json!({ "role": "assistant", "content": words(&format!("a{turn}"), 30) }),
                ]
            })
            .collect();
        messages.push(json!({ "role": "user", "content": "and now?" }));
        let answer = check(&stage, &json!(messages), 4096).await;
        assert_eq!(answer["emergencyAction"], "rollover", "{turns}");
        let prompt = answer["prompt"].as_array().expect("messages");
        let kept = prompt.iter().filter(|message| messages.contains(message)).count();
        assert_eq!(kept, 10, "{turns} turns: ten of the user's messages with the current one");
    }
}
