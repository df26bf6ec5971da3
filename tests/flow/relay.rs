//! What is not gated passes through; what must not pass does not.

use std::time::Duration;

use loadline::sim::{Fault, SimConfig};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::stage::{Stage, chat_body};

#[tokio::test]
async fn every_other_route_goes_straight_through() {
    let stage = Stage::new().await;
    assert_eq!(stage.get("/").await.text, "Ollama is running");
    assert_eq!(stage.get("/api/version").await.status, 200);
    assert_eq!(stage.get("/api/tags").await.json()["models"][0]["name"], "sim:latest");
    let missing = stage.get("/nope?a=1").await;
    assert_eq!((missing.status, missing.text.as_str()), (404, "404 page not found"));
    let pulled = stage.post("/api/pull", r#"{"model":"sim"}"#).await;
    assert!(pulled.text.lines().count() > 1, "progress comes line by line");
    let seen = stage.sim.log();
    assert!(seen.iter().any(|request| request.path.starts_with("/nope")), "the upstream decides what exists");
}

#[tokio::test]
async fn loading_and_unloading_a_model_pass_through() {
    let stage = Stage::new().await;
    let loaded = stage.post("/api/chat", r#"{"model":"sim","messages":[]}"#).await;
    assert_eq!(loaded.json()["done_reason"], "load");
    let unloaded = stage.post("/api/generate", r#"{"model":"sim","keep_alive":0}"#).await;
    assert_eq!(unloaded.json()["done_reason"], "unload");
}

#[tokio::test]
async fn every_spelling_of_a_gated_path_is_gated() {
    let stage = Stage::new().await;
    let body = chat_body(&json!([{ "role": "user", "content": "x" }]), 2048);
    for path in ["/api/chat", "/api%2fchat", "/api%2Fchat", "//api/chat", "/api/%63hat", "/api/chat/"] {
        let raw = raw_request(
            &stage,
            &format!(
                "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            ),
        )
        .await;
        assert!(raw.contains("x-loadline-tokens"), "{path} slipped past the gate:\n{raw}");
    }
}

#[tokio::test]
async fn headers_of_one_hop_do_not_reach_the_other_side() {
    let stage = Stage::new().await;
    let body = chat_body(&json!([{ "role": "user", "content": "x" }]), 2048);
    let request = format!(
        "POST /api/chat HTTP/1.1\r\nHost: localhost\r\nConnection: close, X-Secret\r\nX-Secret: 1\r\nTE: trailers\r\nX-Kept: yes\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    raw_request(&stage, &request).await;
    let seen = stage.sim.log().into_iter().rev().find(|seen| seen.path == "/api/chat").expect("it arrived");
    assert!(seen.headers.get("x-secret").is_none() && seen.headers.get("te").is_none());
    assert_eq!(seen.headers.get("x-kept").expect("kept"), "yes");
}

#[tokio::test]
async fn an_upstream_that_is_not_there_is_a_502_in_the_clients_dialect() {
    let sim = loadline::sim::start(SimConfig { models: vec![crate::stage::MODEL.clone()], ..SimConfig::default() })
        .await
        .expect("a port");
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let nobody = format!("http://{}", free.local_addr().expect("an address"));
    drop(free);
    let stage = Stage::before(sim, &nobody, &[]).await;
    let native = stage.chat(&json!([{ "role": "user", "content": "x" }]), 2048).await;
    assert_eq!(native.status, 502);
    assert!(native.json()["error"].as_str().expect("a text").contains("is Ollama running"), "{}", native.text);
    let anthropic = stage
        .post("/v1/messages", r#"{"model":"sim","max_tokens":5,"messages":[{"role":"user","content":"x"}]}"#)
        .await;
    assert_eq!((anthropic.status, anthropic.json()["type"].clone()), (502, json!("error")));
    assert_eq!(stage.get("/api/tags").await.status, 502);
    assert_eq!(stage.get("/loadline/ready").await.status, 503);
    assert_eq!(stage.get("/loadline/health").await.status, 200);
}

#[tokio::test]
async fn a_client_that_goes_away_cancels_the_upstream() {
    let stage = Stage::new().await;
    let body = chat_body(&json!([{ "role": "user", "content": "x" }]), 2048);
    stage.chat(&json!([{ "role": "user", "content": "warm" }]), 2048).await;
    stage.sim.faults().push(Fault::SilentBeforeHeaders);
    let mut stream = TcpStream::connect(stage.addr).await.expect("connects");
    let request = format!("POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await.expect("sent");
    eventually(|| stage.sim.faults().pending() == 0).await;
    drop(stream);
    eventually(|| stage.sim.stats().cancelled == 1).await;
}

#[tokio::test]
async fn a_body_over_the_cap_is_413_and_a_broken_one_400() {
    let stage = Stage::with(SimConfig::default(), &[("LOADLINE_SERVER_MAX_BODY_MB", "1")]).await;
    let large = format!(r#"{{"model":"sim","prompt":"{}"}}"#, "x".repeat(2 << 20));
    assert_eq!(stage.post("/api/generate", large).await.status, 413);
    let chunked = "POST /api/chat HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n";
    let answer = raw_request(&stage, chunked).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert!(stage.forwarded("/api/chat").is_empty());
}

/// Waits for something that is about to be true. Bounded: a test that waits for what never comes fails.
async fn eventually(mut condition: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(10), async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    });
    waited.await.expect("it never happened");
}

async fn raw_request(stage: &Stage, request: &str) -> String {
    let mut stream = TcpStream::connect(stage.addr).await.expect("connects");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = Vec::new();
    let _reset_is_an_answer_too = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// An upstream that answers before it has read the request, as Ollama does for a blob that it already has.
#[tokio::test]
async fn a_client_that_is_still_sending_gets_the_answer_that_came_early() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let upstream = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        // Like Go's server, it does not hang up while the other side may still be writing.
        let mut lingering = Vec::new();
        loop {
            let (mut early, _) = listener.accept().await.expect("a connection");
            let mut some = [0; 1024];
            let _read = early.read(&mut some).await;
            let _written =
                early.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").await;
            lingering.push(early);
        }
    });
    let sim = loadline::sim::start(SimConfig { models: vec![crate::stage::MODEL.clone()], ..SimConfig::default() })
        .await
        .expect("a port");
    let stage = Stage::before(sim, &upstream, &[]).await;
    let blob = vec![b'x'; 32 << 20];
    for round in 0..5 {
        let mut client = TcpStream::connect(stage.addr).await.expect("a connection");
        let head = format!(
            "POST /api/blobs/sha256:00 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            blob.len()
        );
        client.write_all(head.as_bytes()).await.expect("a head");
        client
            .write_all(&blob)
            .await
            .unwrap_or_else(|error| panic!("round {round}: hung up on while sending: {error}"));
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.expect("the answer");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "round {round}: {answer}");
    }
}

/// A page that may talk to us must be able to read what we say, refusals above all.
#[tokio::test]
async fn a_page_of_a_known_origin_can_read_refusals_and_headers() {
    let stage = Stage::new().await;
    let origin = [("origin", "http://localhost:3000")];
    let giant = json!([{ "role": "user", "content": crate::stage::words("giant", 3000) }]);
    for (messages, status) in [(giant, 400), (json!([{ "role": "user", "content": "x" }]), 200)] {
        let got = stage.post_with("/api/chat", chat_body(&messages, 1024), &origin).await;
        assert_eq!((got.status, got.header("access-control-allow-origin")), (status, "http://localhost:3000"));
        assert!(got.header("access-control-expose-headers").contains("X-Loadline-Tokens"));
    }
    let got = stage.post_with("/api/chat", "{}", &[("origin", "http://evil.example")]).await;
    assert_eq!((got.status, got.header("access-control-allow-origin")), (403, ""));
    let got = stage.chat(&json!([{ "role": "user", "content": "x" }]), 1024).await;
    assert_eq!(got.header("access-control-allow-origin"), "", "nobody asked");
}
