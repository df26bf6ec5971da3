//! Bad inputs, one row each. What Ollama refuses is refused by Ollama: the client gets its very answer.
//! What Ollama accepts, however odd, is understood, gated and counted.

use serde_json::{Value, json};

use crate::stage::Stage;

const CHAT: &str = "/api/chat";
const GENERATE: &str = "/api/generate";
const OPENAI: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const RESPONSES: &str = "/v1/responses";
const ANTHROPIC: &str = "/v1/messages";

/// Rows that Ollama answers with an error of its own.
pub fn refused() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let mut rows: Vec<(&str, &str, Vec<u8>)> = Vec::new();
    for path in [CHAT, GENERATE, OPENAI, COMPLETIONS, RESPONSES, ANTHROPIC] {
        for (name, body) in [
            ("empty", ""),
            ("half a brace", "{"),
            ("a list", "[]"),
            ("a text", "\"x\""),
            ("null", "null"),
            ("NaN", "{\"model\":NaN}"),
            ("no model", "{}"),
            ("a number for a model", "{\"model\":5}"),
        ] {
            rows.push((name, path, body.into()));
        }
        rows.push(("a byte order mark", path, b"\xEF\xBB\xBF{\"model\":\"sim\"}".to_vec()));
        rows.push(("a raw NUL", path, b"{\"model\":\"s\x00im\"}".to_vec()));
        rows.push(("gzip", path, b"\x1f\x8b\x08\x00\x00".to_vec()));
        rows.push((
            "depth 100,000",
            path,
            format!("{{\"x\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000)).into_bytes(),
        ));
    }
    let mut row = |name, path, body: &str| rows.push((name, path, body.as_bytes().to_vec()));
    row("a text for messages", CHAT, r#"{"model":"sim","messages":"hi"}"#);
    row("a number for content", CHAT, r#"{"model":"sim","messages":[{"role":"user","content":5}]}"#);
    row(
        "content parts on the native route",
        CHAT,
        r#"{"model":"sim","messages":[{"role":"user","content":[{"type":"text","text":"x"}]}]}"#,
    );
    row("a number for a role", CHAT, r#"{"model":"sim","messages":[{"role":5,"content":"x"}]}"#);
    row("a text for stream", CHAT, r#"{"model":"sim","stream":"yes","messages":[{"role":"user","content":"x"}]}"#);
    row("a list for options", CHAT, r#"{"model":"sim","options":[],"messages":[{"role":"user","content":"x"}]}"#);
    row(
        "a text for num_ctx",
        CHAT,
        r#"{"model":"sim","options":{"num_ctx":"8192"},"messages":[{"role":"user","content":"x"}]}"#,
    );
    row("a path for a model", CHAT, r#"{"model":"../../etc/passwd","messages":[{"role":"user","content":"x"}]}"#);
    row("an unknown model", CHAT, r#"{"model":"nope","messages":[{"role":"user","content":"x"}]}"#);
    row("an unknown model", OPENAI, r#"{"model":"nope","messages":[{"role":"user","content":"x"}]}"#);
    row("an unknown model", ANTHROPIC, r#"{"model":"nope","max_tokens":5,"messages":[{"role":"user","content":"x"}]}"#);
    row("no messages", OPENAI, r#"{"model":"sim","messages":[]}"#);
    row("no content", OPENAI, r#"{"model":"sim","messages":[{"role":"user"}]}"#);
    row("an unknown part", OPENAI, r#"{"model":"sim","messages":[{"role":"user","content":[{"type":"hologram"}]}]}"#);
    row(
        "an image address",
        OPENAI,
        r#"{"model":"sim","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://x/y.png"}}]}]}"#,
    );
    row(
        "bad tool arguments",
        OPENAI,
        r#"{"model":"sim","messages":[{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{bad"}}]}]}"#,
    );
    row("half a token", OPENAI, r#"{"model":"sim","max_tokens":1.5,"messages":[{"role":"user","content":"x"}]}"#);
    row("a list for a prompt", COMPLETIONS, r#"{"model":"sim","prompt":["a","b"]}"#);
    row("no max_tokens", ANTHROPIC, r#"{"model":"sim","messages":[{"role":"user","content":"x"}]}"#);
    row(
        "negative max_tokens",
        ANTHROPIC,
        r#"{"model":"sim","max_tokens":-1,"messages":[{"role":"user","content":"x"}]}"#,
    );
    row("an unknown item", RESPONSES, r#"{"model":"sim","input":[{"type":"hologram"}]}"#);
    rows
}

/// Rows that Ollama accepts although a strict reader would not, and what it reads them as.
pub fn accepted() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let mut rows: Vec<(&str, &str, Vec<u8>)> = Vec::new();
    let mut row = |name, path, body: &str| rows.push((name, path, body.as_bytes().to_vec()));
    row(
        "text after the end",
        CHAT,
        r#"{"model":"sim","stream":false,"options":{"num_predict":2},"messages":[{"role":"user","content":"x"}]} trailing garbage"#,
    );
    row(
        "two objects",
        CHAT,
        r#"{"model":"sim","stream":false,"options":{"num_predict":2},"messages":[{"role":"user","content":"x"}]}{"model":"nope"}"#,
    );
    row(
        "a key twice",
        CHAT,
        r#"{"model":"nope","model":"sim","stream":false,"options":{"num_predict":2},"messages":[{"role":"user","content":"x"}]}"#,
    );
    row(
        "keys in capitals",
        CHAT,
        r#"{"MODEL":"sim","Stream":false,"Options":{"num_predict":2},"MESSAGES":[{"ROLE":"user","Content":"x"}]}"#,
    );
    row(
        "a long s in a key",
        CHAT,
        r#"{"model":"sim","ſtream":false,"optionſ":{"num_predict":2},"meſſages":[{"role":"user","content":"x"}]}"#,
    );
    row(
        "a lone surrogate",
        CHAT,
        r#"{"model":"sim","stream":false,"options":{"num_predict":2},"messages":[{"role":"user","content":"a\ud800b"}]}"#,
    );
    row(
        "an escaped NUL",
        CHAT,
        r#"{"model":"sim","stream":false,"options":{"num_predict":2},"messages":[{"role":"user","content":"a\u0000b"}]}"#,
    );
    row(
        "a role of one's own",
        CHAT,
        r#"{"model":"sim","stream":false,"options":{"num_predict":2},"messages":[{"role":"wizard","content":"x"},{"role":"user","content":"y"}]}"#,
    );
    row(
        "a result without a call",
        CHAT,
        r#"{"model":"sim","stream":false,"options":{"num_predict":2},"messages":[{"role":"tool","content":"x"},{"role":"user","content":"y"}]}"#,
    );
    row(
        "a broken number for a window",
        CHAT,
        r#"{"model":"sim","stream":false,"options":{"num_ctx":2048.7,"num_predict":2},"messages":[{"role":"user","content":"x"}]}"#,
    );
    row(
        "an unknown option",
        CHAT,
        r#"{"model":"sim","stream":false,"options":{"nonsense":1,"num_predict":2},"messages":[{"role":"user","content":"x"}]}"#,
    );
    row(
        "max_tokens in capitals",
        OPENAI,
        r#"{"model":"sim","MAX_TOKENS":2,"messages":[{"role":"user","content":"x"}]}"#,
    );
    rows.push((
        "bad UTF-8",
        CHAT,
        b"{\"model\":\"sim\",\"stream\":false,\"options\":{\"num_predict\":2},\"messages\":[{\"role\":\"user\",\"content\":\"a\xFF\xFEb\"}]}".to_vec(),
    ));
    rows
}

/// A row that the simulator's own reader cannot take, but Ollama can.
pub fn deep() -> Vec<u8> {
    format!(
        r#"{{"model":"sim","stream":false,"options":{{"num_predict":2}},"x":{}{},"messages":[{{"role":"user","content":"x"}}]}}"#,
        "[".repeat(9_900),
        "]".repeat(9_900)
    )
    .into_bytes()
}

/// What may differ between two answers to the same bad request.
pub fn without_ids(text: &str) -> String {
    match serde_json::from_str::<Value>(text) {
        Ok(mut value) => {
            if let Some(id) = value.get_mut("request_id") {
                *id = json!("req");
            }
            value.to_string()
        }
        Err(_) => text.to_owned(),
    }
}

#[tokio::test]
async fn what_ollama_refuses_gets_ollamas_own_answer() {
    let stage = Stage::new().await;
    for (name, path, body) in refused() {
        let through = stage.post(path, body.clone()).await;
        let direct =
            stage.client.post(format!("{}{path}", stage.sim.url())).body(body).send().await.expect("an answer");
        let status = direct.status().as_u16();
        let direct = direct.text().await.expect("a body");
        assert!(status >= 400, "{path}, {name}: the simulator takes it: {direct}");
        assert_eq!((through.status, without_ids(&through.text)), (status, without_ids(&direct)), "{path}, {name}");
    }
}

#[tokio::test]
async fn what_ollama_accepts_is_gated_and_forwarded_as_it_was_understood() {
    let stage = Stage::new().await;
    for (name, path, body) in accepted() {
        let got = stage.post(path, body).await;
        assert_eq!(got.status, 200, "{path}, {name}: {}", got.text);
        let (sent, _) = got.tokens();
        let reported = if path == CHAT {
            got.json()["prompt_eval_count"].clone()
        } else {
            got.json()["usage"]["prompt_tokens"].clone()
        };
        assert_eq!(reported, sent, "{path}, {name}");
        let forwarded = stage.forwarded(path).pop().expect("forwarded");
        let value: Value =
            serde_json::from_str(&forwarded).unwrap_or_else(|error| panic!("{name}: {error}: {forwarded}"));
        assert_eq!(value["model"], "sim", "{name}");
    }
}

#[tokio::test]
async fn a_compressed_body_is_not_let_past_the_gate() {
    let stage = Stage::new().await;
    let got = stage.post_with(CHAT, "{}", &[("content-encoding", "zstd")]).await;
    assert_eq!(got.status, 415);
    assert!(stage.forwarded(CHAT).is_empty());
}

#[tokio::test]
async fn what_is_read_differently_upstream_is_never_let_through_uncounted() {
    let stage = Stage::new().await;
    let long = "word ".repeat(5000);
    let rows = [
        // The last of two equal keys counts, at any depth.
        (
            OPENAI,
            format!(
                r#"{{"model":"sim","max_tokens":4,"messages":[{{"role":"user","content":[{{"type":"text","text":"hi","text":"{long}"}}]}}]}}"#
            ),
        ),
        (
            CHAT,
            format!(
                r#"{{"model":"sim","stream":false,"options":{{"num_ctx":2048,"num_ctx":512,"num_predict":2}},"messages":[{{"role":"user","content":"{long}"}}]}}"#
            ),
        ),
        (
            CHAT,
            format!(
                r#"{{"model":"sim","stream":false,"truncate":false,"truncate":null,"options":{{"num_ctx":512,"num_predict":2}},"messages":[{{"role":"user","content":"{long}"}}]}}"#
            ),
        ),
        (
            CHAT,
            format!(
                r#"{{"model":"sim","stream":false,"options":{{"num_ctx":512,"num_predict":2}},"messages":[null,{{"role":"user","content":"{long}"}}]}}"#
            ),
        ),
    ];
    for (path, body) in rows {
        let got = stage.post(path, body.clone()).await;
        assert_eq!(got.status, 400, "{path}: {}", &body[..120]);
    }
    assert_eq!(stage.sim.stats().truncations, 0);
    let null = r#"{"model":"sim","truncate":null,"stream":false,"messages":[{"role":"user","content":"x"}]}"#;
    assert_eq!(stage.post(CHAT, null).await.status, 200);
    let sent: Value = serde_json::from_str(stage.forwarded(CHAT).last().expect("forwarded")).expect("json");
    assert_eq!(sent["truncate"], false);
}

#[tokio::test]
async fn a_context_that_would_bring_ollama_down_does_not_reach_it() {
    let stage = Stage::new().await;
    let got = stage.post(GENERATE, r#"{"model":"sim","prompt":"x","context":[5,-1]}"#).await;
    assert_eq!(got.status, 400);
    assert!(got.json()["error"].as_str().expect("a text").contains("negative"), "{}", got.text);
    assert!(stage.sim.log().iter().all(|seen| seen.path != GENERATE));
}
