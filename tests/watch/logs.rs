//! Logs and traces: what a request was, never what was said in it.

use std::sync::mpsc;

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use serde_json::{Value, json};

use crate::cli::Running;

const CANARY: &str = "the-canary-sings";

/// Serves with some settings, has one chat with a secret in it, stops, and gives the log.
async fn logged(settings: &[(&str, &str)]) -> (String, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data").to_str().expect("text").to_owned();
    let sim = Running::start(&["sim", "--listen", "127.0.0.1:0"]);
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--upstream", sim.url(), "--data-dir", &data];
    let server = Running::with_log(&arguments, settings);
    let token = std::fs::read_to_string(dir.path().join("data/token")).expect("the first token").trim().to_owned();
    let client = reqwest::Client::new();
    let body = json!({ "model": "sim", "stream": false, "options": { "num_predict": 4 },
        "messages": [{ "role": "system", "content": CANARY }, { "role": "user", "content": CANARY }] });
    let chat = client.post(format!("{}/api/chat", server.url())).bearer_auth(&token).body(body.to_string());
    assert_eq!(chat.send().await.expect("an answer").status(), 200);
    // Refused, with the secrets where they do not belong.
    for path in [format!("/loadline/{CANARY}"), format!("/api/show?token={token}"), "/loadline/overview".to_owned()] {
        client.get(format!("{}{path}", server.url())).header("x-api-key", CANARY).send().await.expect("an answer");
    }
    // Whoever collects traces goes on meanwhile.
    (tokio::task::spawn_blocking(move || server.stopped()).await.expect("it ends"), token)
}

#[tokio::test]
async fn a_turn_is_one_line_with_the_names_that_receipts_have() {
    let (log, token) = logged(&[("LOADLINE_LOG_FORMAT", "json")]).await;
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect();
    let turn = lines.iter().find(|line| line["fields"]["message"] == "turn").expect("the turn was logged");
    let span = &turn["span"];
    assert_eq!(
        (&span["route"], &span["dialect"], &span["model"]),
        (&json!("/api/chat"), &json!("chat"), &json!("sim"))
    );
    assert_eq!((&span["action"], &span["basis"]), (&json!("none"), &json!("exact")));
    assert_eq!(span["forwarded_tokens"], span["reported_tokens"]);
    for name in ["conversation", "turn", "window", "limit_tokens", "arrived_tokens", "forwarded_tokens"] {
        assert!(!span[name].is_null(), "{name} is not in {span}");
    }
    assert_eq!(turn["fields"]["ending"], "complete");
    assert!(!log.contains(CANARY) && !log.contains(&token[3..]), "{log}");
}

#[tokio::test]
async fn people_get_lines_that_they_can_read() {
    let (log, token) = logged(&[("LOADLINE_LOG_FILTER", "debug")]).await;
    let turn = log.lines().find(|line| line.contains("turn ending=\"complete\"")).unwrap_or_else(|| panic!("{log}"));
    assert!(turn.contains("INFO") && turn.contains("forwarded_tokens=") && turn.contains("action=\"none\""), "{turn}");
    assert!(!log.contains(CANARY) && !log.contains(&token[3..]), "{log}");
}

#[tokio::test]
async fn a_collector_gets_the_request_as_a_trace_and_nothing_that_was_said() {
    let (got, traces) = mpsc::channel::<Bytes>();
    let app = Router::new().route(
        "/v1/traces",
        post(move |body: Bytes| {
            let _ = got.send(body);
            async {}
        }),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, app).await });
    let (_, token) = logged(&[("LOADLINE_LOG_OTLP_ENDPOINT", &endpoint)]).await;
    let sent: Vec<u8> = traces.try_iter().flat_map(|bytes| bytes.to_vec()).collect();
    let has = |text: &str| sent.windows(text.len()).any(|window| window == text.as_bytes());
    for wanted in ["loadline", "request", "/api/chat", "forwarded_tokens", "action"] {
        assert!(has(wanted), "{wanted} is not in the traces ({} bytes)", sent.len());
    }
    assert!(!has(CANARY) && !has(&token[3..]));
}
