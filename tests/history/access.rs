//! Who may do what: scopes, headers, and what never leaves.

use std::sync::Arc;

use loadline::api::auth::Scope;
use loadline::config::{Config, Flags};
use loadline::sim::SimConfig;
use loadline::store::Change;
use serde_json::json;

use crate::stage::{Stage, chat_body};

const REQUIRED: &[(&str, &str)] = &[("LOADLINE_AUTH_REQUIRED", "true")];

#[tokio::test]
async fn with_auth_required_only_probes_are_open() {
    let stage = Stage::with(SimConfig::default(), REQUIRED).await;
    for path in ["/api/tags", "/", "/v1/models", "/loadline/events", "/api/version", "/loadline/nothing"] {
        assert_eq!(stage.get(path).await.status, 401, "{path}");
    }
    for path in ["/api/chat", "/v1/chat/completions", "/v1/messages", "/loadline/count", "/loadline/check/api/chat"] {
        let got = stage.post(path, chat_body(&json!([{ "role": "user", "content": "hi" }]), 4096)).await;
        assert_eq!(got.status, 401, "{path}");
    }
    assert!(stage.sim.log().is_empty(), "nothing reached the upstream");
    assert_eq!(stage.get("/loadline/health").await.status, 200);
    let alice = stage.token("alice").await;
    assert_eq!(stage.get_as(&alice, "/api/tags").await.status, 200);
}

#[tokio::test]
async fn errors_of_access_are_in_the_clients_dialect() {
    let stage = Stage::with(SimConfig::default(), REQUIRED).await;
    let body = || chat_body(&json!([{ "role": "user", "content": "hi" }]), 4096);
    let native = stage.post("/api/chat", body()).await.json();
    assert!(native["error"].is_string());
    let openai = stage.post("/v1/chat/completions", body()).await.json();
    assert!(openai["error"]["message"].is_string());
    let anthropic = stage.post("/v1/messages", body()).await.json();
    assert_eq!((&anthropic["type"], anthropic["error"]["message"].is_string()), (&json!("error"), true));
}

#[tokio::test]
async fn a_token_is_good_for_its_scopes_only() {
    let stage = Stage::with(SimConfig::default(), REQUIRED).await;
    let chat = stage.token_with("alice", &[Scope::Chat], None).await;
    let read = stage.token_with("alice", &[Scope::Read], None).await;
    let admin = stage.token_with("alice", &[Scope::Admin], None).await;
    let body = || chat_body(&json!([{ "role": "user", "content": "hi" }]), 4096);
    for (token, chats, reads, manages) in [(&chat, 200, 403, 403), (&read, 403, 200, 403), (&admin, 200, 200, 404)] {
        let bearer = [("authorization", &*format!("Bearer {token}"))];
        assert_eq!(stage.post_with("/api/chat", body(), &bearer).await.status, chats);
        assert_eq!(stage.get_as(token, "/api/conversations").await.status, reads);
        // Whoever may manage models gets the upstream's own answer.
        let deleted = stage.send("DELETE", "/api/delete", "{\"model\":\"not there\"}", &bearer).await;
        assert_eq!(deleted.status, manages);
    }
    let reached = stage.sim.log().into_iter().filter(|seen| seen.path == "/api/delete").count();
    assert_eq!(reached, 1);
}

#[tokio::test]
async fn whose_token_it_is_is_whose_conversation_it_is() {
    let stage = Stage::new().await;
    let (alice, bob) = (stage.token("alice").await, stage.token("bob").await);
    let as_user = |token: &str| format!("Bearer {token}");
    let mut said = json!([{ "role": "user", "content": "the same words" }]);
    let first = stage.post_with("/api/chat", chat_body(&said, 4096), &[("authorization", &as_user(&alice))]).await;
    let id = first.header("x-loadline-conversation").to_owned();
    said.as_array_mut()
        .expect("an array")
        .extend([first.json()["message"].clone(), json!({ "role": "user", "content": "more" })]);
    for (name, value) in [("authorization", as_user(&bob)), ("x-none", String::new())] {
        let got = stage.post_with("/api/chat", chat_body(&said, 4096), &[(name, &value)]).await;
        assert_ne!(got.header("x-loadline-conversation"), id, "equal words of another user are another conversation");
        let named = [(name, value.as_str()), ("x-loadline-conversation", id.as_str())];
        assert_eq!(stage.post_with("/api/chat", chat_body(&said, 4096), &named).await.status, 404);
    }
    let got = stage.post_with("/api/chat", chat_body(&said, 4096), &[("x-api-key", &alice)]).await;
    assert_eq!(got.header("x-loadline-conversation"), id);
}

#[tokio::test]
async fn a_token_never_reaches_the_upstream_and_other_keys_do() {
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    let body = || chat_body(&json!([{ "role": "user", "content": "hi" }]), 4096);
    let both = [("authorization", &*format!("Bearer {alice}")), ("x-api-key", "a key of the upstream")];
    stage.post_with("/api/chat", body(), &both).await;
    stage.send("GET", "/api/tags", "", &both).await;
    stage.send("GET", "/v1/models", "", &[("api-key", &alice)]).await;
    let log = stage.sim.log();
    assert!(log.len() >= 3);
    for seen in log {
        assert!(!format!("{seen:?}").contains(&alice[3..]), "{}", seen.path);
    }
}

#[tokio::test]
async fn revoking_a_token_ends_its_event_stream_and_its_requests() {
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    let digest = loadline::api::token::Token::parse(&alice).expect("a token").digest();
    let request = stage.client.get(format!("{}/loadline/events", stage.url)).bearer_auth(&alice);
    let mut stream = request.send().await.expect("an answer");
    assert_eq!(stream.status(), 200);
    let id = stage.gateway.store.reader().expect("reader").token(&digest).expect("read").expect("there").id;
    stage.gateway.store.submit(Change::RevokeToken { id, at: 2 }).await.expect("revoked");
    let ended = async { while stream.chunk().await.expect("readable").is_some() {} };
    tokio::time::timeout(std::time::Duration::from_secs(10), ended).await.expect("the stream ends");
    assert_eq!(stage.get_as(&alice, "/api/conversations").await.status, 401);
}

#[tokio::test]
async fn events_and_receipts_are_ones_own() {
    let stage = Stage::new().await;
    let mut told = Vec::new();
    for user in ["alice", "bob"] {
        let token = stage.token(user).await;
        let said = json!([{ "role": "user", "content": crate::stage::words(user, 160) }]);
        let got =
            stage.post_with("/api/chat", chat_body(&said, 512), &[("authorization", &format!("Bearer {token}"))]).await;
        assert_eq!((got.status, got.warnings().len()), (200, 1), "{}", got.text);
        told.push((token, format!("\"conversation\":{}", got.header("x-loadline-conversation"))));
    }
    for (own, other) in [(0, 1), (1, 0)] {
        let request = stage.client.get(format!("{}/loadline/events", stage.url)).bearer_auth(&told[own].0);
        let mut stream = request.header("last-event-id", "0").send().await.expect("an answer");
        // Both users' events are on disk; the first words of the stream are all that there is for this one.
        let heard = tokio::time::timeout(std::time::Duration::from_secs(20), stream.chunk()).await.expect("something");
        let heard = heard.expect("readable").expect("not over");
        let heard = String::from_utf8_lossy(&heard);
        assert!(heard.contains(&told[own].1) && !heard.contains(&told[other].1), "{heard}");
    }
}

#[tokio::test]
async fn the_first_serve_leaves_a_token_that_only_its_owner_can_read() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("a directory");
    let flags = Flags { data_dir: Some(dir.path().to_owned()), ..Flags::default() };
    let config = Config::load(None, [], flags).expect("valid");
    let gateway = Arc::new(loadline::proxy::Gateway::new(config).expect("a gateway"));
    let ensure = || loadline::api::first_token::ensure(&gateway.store, dir.path());
    let path = ensure().await.expect("made").expect("a file");
    assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
    let token = std::fs::read_to_string(&path).expect("readable");
    assert_eq!(ensure().await.expect("there").as_deref(), Some(path.as_path()));
    assert_eq!(std::fs::read_to_string(&path).expect("readable"), token, "it is made once");
    let digest = loadline::api::token::Token::parse(token.trim()).expect("a token").digest();
    let row = gateway.store.reader().expect("reader").token(&digest).expect("read").expect("known");
    assert_eq!((row.user.as_str(), row.scopes.as_str()), ("local", "chat,read,admin"));
    // A token that was revoked is not made good again by its file.
    gateway.store.submit(Change::RevokeToken { id: row.id, at: 5 }).await.expect("revoked");
    ensure().await.expect("fine");
    let row = gateway.store.reader().expect("reader").token(&digest).expect("read").expect("known");
    assert_eq!(row.revoked_at, Some(5));
}

#[tokio::test]
async fn a_token_in_an_address_is_refused_and_one_in_the_wrong_header_is_no_anonymity() {
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    let escaped = alice.replacen('l', "%6c", 1);
    for path in [format!("/api/tags?key={alice}"), format!("/api/tags?key={escaped}"), format!("/v1/models/{escaped}")]
    {
        assert_eq!(stage.get(&path).await.status, 400, "{path}");
    }
    for (name, value) in [("authorization", format!("Token {alice}")), ("x-auth-token", alice.clone())] {
        assert_eq!(stage.send("GET", "/api/tags", "", &[(name, &value)]).await.status, 401, "{name}");
    }
    let credentials = format!("{}alice:{alice}@{}", "http://", stage.addr);
    let got = stage.client.get(format!("{credentials}/api/conversations")).send().await.expect("an answer");
    assert_eq!(got.status(), 200, "as a password in the client's address");
    assert!(stage.sim.log().is_empty());
}
