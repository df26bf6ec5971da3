//! What one does the others know: conversations, fronts, checkpoints, events, tokens, deletions.

use std::time::{Duration, Instant};

use loadline::sim::{self, SimConfig};
use loadline::store::Lease;
use serde_json::{Value, json};

use crate::postgres;
use crate::stage::{MODEL, Stage, chat_body, words};

/// What everybody must know within this.
const SOON: Duration = Duration::from_secs(2);

/// Two Loadlines before one simulated Ollama; none where there is no PostgreSQL.
async fn two() -> Option<[Stage; 2]> {
    let url = postgres::schema()?;
    let config = || SimConfig { models: vec![MODEL.clone()], ..SimConfig::default() };
    let sim = sim::start(config()).await.expect("a free port");
    let upstream = sim.url();
    let variables = [("LOADLINE_STORE_URL", url.as_str())];
    let one = Stage::before(sim, &upstream, &variables).await;
    let other = Stage::before(sim::start(config()).await.expect("a free port"), &upstream, &variables).await;
    Some([one, other])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_whose_turns_go_now_here_and_now_there_is_one_chat_and_rolls_over_as_on_one() {
    let Some(both) = two().await else { return };
    let alone = Stage::with(SimConfig::default(), &[("LOADLINE_CHECKPOINT_ENABLED", "false")]).await;
    let mut actions = [Vec::new(), Vec::new()];
    for (stages, actions) in [[&both[0], &both[1]], [&alone, &alone]].iter().zip(&mut actions) {
        let mut said = vec![json!({ "role": "system", "content": "Be brief." })];
        let mut id = String::new();
        for turn in 0..24 {
            said.push(json!({ "role": "user", "content": words(&format!("turn{turn}"), 90) }));
            let stage = stages[turn % 2];
            stage.settled().await;
            let got = stage.chat(&json!(said), 1024).await;
            assert_eq!(got.status, 200, "{turn}: {}", got.text);
            let (sent, limit) = got.tokens();
            assert!(sent <= limit, "{turn}: {sent}/{limit}");
            let conversation = got.header("x-loadline-conversation").to_owned();
            assert!(id.is_empty() || id == conversation, "turn {turn} is in {conversation}, not in {id}");
            id = conversation;
            actions.push(got.header("x-loadline-action").to_owned());
            said.push(got.json()["message"].clone());
        }
        let stored = stages[1].gateway.store.reader().expect("a reader");
        let path = stored.path(id.parse().expect("a number"), None).expect("readable");
        let texts: Vec<&str> = path.iter().map(|row| row.text.as_str()).collect();
        let expected: Vec<&str> = said[1..].iter().map(|message| message["content"].as_str().expect("text")).collect();
        assert_eq!(texts, expected, "every message once, in order");
    }
    let compacted = |actions: &[String]| actions.iter().filter(|action| *action == "rollover").count();
    let [shared, alone] = &actions;
    assert!(compacted(alone) >= 2, "{alone:?}");
    // What one has made the other uses: it does not compact again what is compacted already.
    assert!(compacted(shared) <= compacted(alone) + 1, "{shared:?} {alone:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_that_one_makes_the_other_goes_on_from() {
    let Some([one, other]) = two().await else { return };
    let mut said = vec![json!({ "role": "user", "content": "first" })];
    let first = one.chat(&json!(said), 4096).await;
    said.push(first.json()["message"].clone());
    let branch = |text: &str| {
        let mut edited = said.clone();
        edited.push(json!({ "role": "user", "content": text }));
        edited
    };
    let mut left = branch("left");
    left.push(one.chat(&json!(left), 4096).await.json()["message"].clone());
    left.push(json!({ "role": "user", "content": "and then?" }));
    for got in [other.chat(&json!(branch("right")), 4096).await, other.chat(&json!(left), 4096).await] {
        assert_eq!(got.header("x-loadline-conversation"), first.header("x-loadline-conversation"));
    }
    assert_eq!(other.stored(&first).iter().filter(|row| row.text == "first").count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_one_are_heard_at_the_other_in_time() {
    let Some([one, other]) = two().await else { return };
    let mut response = other.client.get(format!("{}/loadline/events", other.url)).send().await.expect("an answer");
    let started = Instant::now();
    let asked = one.chat(&json!([{ "role": "user", "content": words("long", 900) }]), 1024).await;
    assert_eq!(asked.header("x-loadline-action"), "refused", "{}", asked.text);
    let mut heard = String::new();
    while !heard.contains("event: refused") {
        let left = SOON.checked_sub(started.elapsed()).expect("it is heard in time");
        let piece = tokio::time::timeout(left, response.chunk()).await.expect("it is heard in time");
        heard.push_str(std::str::from_utf8(&piece.expect("good").expect("more")).expect("text"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_one_revokes_the_other_refuses_in_time() {
    let Some([one, other]) = two().await else { return };
    let token = one.token("alice").await;
    assert_eq!(other.get_as(&token, "/api/conversations").await.status, 200);
    let row = one.gateway.store.reader().expect("a reader").tokens().expect("readable");
    let id = row.iter().find(|row| row.user == "alice").expect("there").id;
    one.gateway.store.submit(loadline::store::Change::RevokeToken { id, at: 2 }).await.expect("revoked");
    let started = Instant::now();
    while other.get_as(&token, "/api/conversations").await.status != 401 {
        assert!(started.elapsed() < SOON, "it is refused in time");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_that_one_deletes_is_gone_at_the_other() {
    let Some([one, other]) = two().await else { return };
    let alice = one.token("alice").await;
    let bearer = format!("Bearer {alice}");
    let as_alice = [("authorization", bearer.as_str())];
    let mut said = vec![json!({ "role": "user", "content": "forget me" })];
    let got = other.post_with("/api/chat", chat_body(&json!(said), 4096), &as_alice).await;
    let id = got.header("x-loadline-conversation").to_owned();
    said.push(got.json()["message"].clone());
    assert_eq!(one.send("DELETE", &format!("/api/conversations/{id}"), "", &as_alice).await.status, 204);
    said.push(json!({ "role": "user", "content": "do you remember?" }));
    let again = other.post_with("/api/chat", chat_body(&json!(said), 4096), &as_alice).await;
    assert_eq!(again.status, 200, "{}", again.text);
    assert_ne!(again.header("x-loadline-conversation"), id, "its number is nobody's any more");
    assert_eq!(other.get_as(&alice, &format!("/api/conversations/{id}/messages")).await.status, 404);
    let named = [as_alice[0], ("x-loadline-conversation", id.as_str())];
    assert_eq!(other.post_with("/api/chat", chat_body(&json!(said), 4096), &named).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_writes_a_checkpoint_and_the_other_waits_for_it() {
    let Some([one, other]) = two().await else { return };
    let mut said = vec![json!({ "role": "user", "content": "hello" })];
    let got = one.chat(&json!(said), 4096).await;
    said.push(got.json()["message"].clone());
    said.push(json!({ "role": "user", "content": "more" }));
    let conversation = got.header("x-loadline-conversation").parse().expect("a number");
    let name = loadline::store::checkpoint_lease(conversation);
    let lease = Lease::take(&one.gateway.store, name.clone()).await.expect("asked").expect("free");
    assert!(Lease::take(&other.gateway.store, name).await.expect("asked").is_none(), "one at a time");
    let body = json!(said);
    let mut waiting = std::pin::pin!(other.chat(&body, 4096));
    let early = tokio::time::timeout(Duration::from_millis(600), waiting.as_mut()).await;
    assert!(early.is_err(), "it waits while somebody writes");
    drop(lease);
    let answered = tokio::time::timeout(Duration::from_secs(5), waiting).await.expect("and then goes on");
    assert_eq!(answered.header("x-loadline-conversation"), got.header("x-loadline-conversation"));
}

#[tokio::test(flavor = "multi_thread")]
async fn both_have_the_same_dashboard() {
    let Some([one, other]) = two().await else { return };
    let token = one.token("alice").await;
    let bearer = format!("Bearer {token}");
    let body = chat_body(&json!([{ "role": "user", "content": "ahoy" }]), 4096);
    one.post_with("/api/chat", body, &[("authorization", &bearer)]).await;
    let seen = |got: Value| (got["conversations"][0]["id"].clone(), got["conversations"][0]["title"].clone());
    let here = seen(one.get_as(&token, "/loadline/overview").await.json());
    assert_eq!(here, seen(other.get_as(&token, "/loadline/overview").await.json()));
    assert!(here.0.is_i64(), "{here:?}");
}
