//! Several upstreams: who gets a request, who gets none, and what a client notices of it.

use std::time::Duration;

use loadline::sim::{self, Sim, SimConfig, SimModel};
use serde_json::{Value, json};

use crate::stage::{MODEL, Stage, chat_body, words};

/// A Loadline before several simulated Ollamas.
struct Fleet {
    stage: Stage,
    sims: Vec<Sim>,
}

impl Fleet {
    async fn with(configs: Vec<SimConfig>, variables: &[(&str, &str)]) -> Self {
        let mut sims = Vec::new();
        for mut config in configs {
            if config.models.is_empty() {
                config.models.push(MODEL.clone());
            }
            sims.push(sim::start(config).await.expect("a free port"));
        }
        let urls: Vec<String> = sims.iter().map(Sim::url).collect();
        // The stage's own stands aside.
        let aside =
            sim::start(SimConfig { models: vec![MODEL.clone()], ..SimConfig::default() }).await.expect("a port");
        Self { stage: Stage::before(aside, &urls.join(","), variables).await, sims }
    }

    async fn of(count: usize, variables: &[(&str, &str)]) -> Self {
        Self::with(vec![SimConfig::default(); count], variables).await
    }

    /// How many chats each upstream was asked to answer.
    fn chats(&self) -> Vec<usize> {
        let count = |sim: &Sim| {
            let chats = sim.log().into_iter().filter(|seen| seen.path == "/api/chat");
            let bodies = chats.map(|seen| String::from_utf8_lossy(&seen.body).into_owned());
            bodies.filter(|body| !crate::stage::is_loadlines_own(body)).count()
        };
        self.sims.iter().map(count).collect()
    }

    async fn metric(&self, name: &str) -> f64 {
        let text = self.stage.get("/metrics").await.text;
        let line = text.lines().find(|line| line.starts_with(&format!("{name} "))).expect("the metric is there");
        line.rsplit(' ').next().expect("a number").parse().expect("a number")
    }
}

/// A chat of so many turns.
async fn chat(stage: &Stage, name: &str, turns: usize) {
    let mut said: Vec<Value> = Vec::new();
    for turn in 0..turns {
        said.push(json!({ "role": "user", "content": words(&format!("{name}.{turn}"), 12) }));
        let got = stage.chat(&json!(said), 4096).await;
        assert_eq!(got.status, 200, "{}", got.text);
        said.push(got.json()["message"].clone());
    }
}

#[tokio::test]
async fn a_conversation_stays_with_the_upstream_that_has_read_it_and_new_ones_are_spread() {
    let fleet = Fleet::of(3, &[]).await;
    for number in 0..6 {
        let before = fleet.chats();
        chat(&fleet.stage, &format!("c{number}"), 5).await;
        let used: Vec<usize> = fleet.chats().iter().zip(&before).map(|(after, before)| after - before).collect();
        let mut sorted = used.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 0, 5], "chat {number} went to {used:?}");
    }
    assert!(fleet.chats().iter().all(|chats| *chats > 0), "{:?}", fleet.chats());
    assert_eq!(fleet.metric("loadline_upstream_choices_total{choice=\"affine\"}").await, 24.0);
    assert_eq!(fleet.metric("loadline_upstream_choices_total{choice=\"moved\"}").await, 0.0);
}

#[tokio::test]
async fn after_a_restart_a_conversation_goes_back_to_where_it_was() {
    let fleet = Fleet::of(3, &[]).await;
    let mut said = vec![json!({ "role": "user", "content": "where was I?" })];
    for _ in 0..2 {
        let got = fleet.stage.chat(&json!(said), 4096).await;
        said.push(got.json()["message"].clone());
        said.push(json!({ "role": "user", "content": "and then?" }));
    }
    let before = fleet.chats();
    let mut urls: Vec<String> = fleet.sims.iter().map(Sim::url).collect();
    // The order is another one now.
    urls.rotate_left(1);
    let Fleet { stage, sims } = fleet;
    let fleet = Fleet { stage: stage.restarted_on(&urls.join(",")).await, sims };
    assert_eq!(fleet.stage.chat(&json!(said), 4096).await.status, 200);
    let after = fleet.chats();
    let home = before.iter().position(|chats| *chats == 2).expect("it was with one of them");
    assert_eq!(after[home], 3, "{before:?} {after:?}");
}

#[tokio::test]
async fn a_model_that_only_one_has_is_asked_of_that_one_and_lists_are_everybodys() {
    let named = |name: &str| SimConfig {
        models: vec![SimModel { name: name.to_owned(), ..MODEL.clone() }],
        ..SimConfig::default()
    };
    let fleet = Fleet::with(vec![named("one"), named("two")], &[]).await;
    for _ in 0..3 {
        let body =
            json!({ "model": "two", "stream": false, "messages": [{ "role": "user", "content": words("a", 9) }] });
        let got = fleet.stage.post("/api/chat", body.to_string()).await;
        assert_eq!(got.status, 200, "{}", got.text);
    }
    assert_eq!(fleet.chats(), [0, 3]);
    for (path, list, key) in [("/api/tags", "models", "name"), ("/v1/models", "data", "id")] {
        let got = fleet.stage.get(path).await.json();
        let mut names: Vec<String> =
            got[list].as_array().expect("a list").iter().map(|one| one[key].to_string()).collect();
        names.sort();
        assert_eq!(names, ["\"one:latest\"", "\"two:latest\""], "{path}");
    }
    let shown = fleet.stage.post("/api/show", json!({ "model": "two" }).to_string()).await;
    assert_eq!(shown.status, 200, "{}", shown.text);
    // What nobody has, somebody says that they have not.
    let body = json!({ "model": "three", "stream": false, "messages": [{ "role": "user", "content": "hello" }] });
    assert_eq!(fleet.stage.post("/api/chat", body.to_string()).await.status, 404);
}

#[tokio::test]
async fn when_an_upstream_dies_its_chats_go_on_elsewhere_and_nobody_notices() {
    let mut fleet = Fleet::of(2, &[]).await;
    let mut said = vec![json!({ "role": "user", "content": "hello" })];
    for turn in 0..6 {
        if turn == 2 {
            let home = fleet.chats().iter().position(|chats| *chats == 2).expect("one of them has answered");
            fleet.sims.remove(home).stop().await;
        }
        let got = fleet.stage.chat(&json!(said), 4096).await;
        assert_eq!(got.status, 200, "turn {turn}: {}", got.text);
        said.push(got.json()["message"].clone());
        said.push(json!({ "role": "user", "content": words(&format!("turn{turn}"), 9) }));
    }
    assert_eq!(fleet.chats(), [4]);
    assert_eq!(fleet.metric("loadline_upstream_failovers_total").await, 1.0, "then it is known to be away");
    assert_eq!(fleet.metric("loadline_upstreams_down").await, 1.0);
    assert_eq!(fleet.stage.get("/loadline/ready").await.status, 200, "somebody is there");
}

#[tokio::test]
async fn an_upstream_that_is_drained_gets_nothing_new_until_it_is_used_again() {
    let fleet = Fleet::of(2, &[]).await;
    let admin = fleet.stage.token_with("boss", &loadline::api::auth::Scope::ALL, None).await;
    let chatter = fleet.stage.token("alice").await;
    let change = async |token: &str, path: &str| {
        fleet.stage.send("POST", path, "", &[("authorization", &format!("Bearer {token}"))]).await
    };
    assert_eq!(change(&chatter, "/loadline/upstreams/1/drain").await.status, 403);
    let told = change(&admin, "/loadline/upstreams/1/drain").await.json();
    assert_eq!((told[0]["draining"].as_bool(), told[1]["draining"].as_bool()), (Some(true), Some(false)));
    for number in 0..4 {
        chat(&fleet.stage, &format!("d{number}"), 1).await;
    }
    assert_eq!(fleet.chats(), [0, 4]);
    change(&admin, "/loadline/upstreams/2/drain").await;
    let got = fleet.stage.chat(&json!([{ "role": "user", "content": "anybody?" }]), 4096).await;
    assert_eq!(got.status, 503, "{}", got.text);
    assert!(got.headers.contains_key("retry-after"));
    change(&admin, "/loadline/upstreams/1/resume").await;
    chat(&fleet.stage, "again", 1).await;
    assert_eq!(fleet.chats(), [1, 4]);
    for path in ["/loadline/upstreams/3/drain", "/loadline/upstreams/0/drain", "/loadline/upstreams/1/paint"] {
        assert_eq!(change(&admin, path).await.status, 404, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_the_limit_chats_wait_and_beyond_the_queue_they_are_told_to_come_back() {
    let slow = SimConfig { decode_us_per_token: 40_000, ..SimConfig::default() };
    let fleet = Fleet::with(
        vec![slow.clone(), slow],
        &[("LOADLINE_UPSTREAM_MAX_CONCURRENT", "1"), ("LOADLINE_UPSTREAM_QUEUE", "2")],
    )
    .await;
    // So that the model is known, and the rest is about waiting alone.
    chat(&fleet.stage, "first", 1).await;
    let ask = |number: usize| {
        let (client, url) = (fleet.stage.client.clone(), format!("{}/api/chat", fleet.stage.url));
        let body = chat_body(&json!([{ "role": "user", "content": words(&format!("q{number}"), 9) }]), 4096);
        tokio::spawn(async move {
            let got = client.post(url).body(body).send().await.expect("an answer");
            (got.status().as_u16(), got.headers().contains_key("retry-after"))
        })
    };
    let asked: Vec<_> = (0..8).map(ask).collect();
    let mut got = Vec::new();
    for one in asked {
        got.push(one.await.expect("no panic"));
    }
    let answered = got.iter().filter(|(status, _)| *status == 200).count();
    let shed = got.iter().filter(|got| **got == (503, true)).count();
    assert_eq!((answered, shed), (4, 4), "two at a time, two wait, the others come back: {got:?}");
    assert_eq!(fleet.metric("loadline_upstream_shed_total").await, 4.0);
    assert_eq!(fleet.metric("loadline_upstream_queue_requests").await, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_goes_away_frees_its_place_and_is_nobodys_fault() {
    let slow = SimConfig { decode_us_per_token: 100_000, ..SimConfig::default() };
    let fleet = Fleet::with(vec![slow], &[("LOADLINE_UPSTREAM_MAX_CONCURRENT", "1")]).await;
    let body =
        |tag: &str| json!({ "model": "sim", "messages": [{ "role": "user", "content": words(tag, 9) }] }).to_string();
    let url = format!("{}/api/chat", fleet.stage.url);
    for number in 0..3 {
        let mut begun = fleet.stage.client.post(&url).body(body(&format!("gone{number}"))).send().await.expect("begun");
        begun.chunk().await.expect("a first piece");
        drop(begun);
        // Its place is free again, or this would wait for all of the answer.
        let waits = fleet.stage.client.post(&url).body(body(&format!("next{number}"))).send();
        let mut next = tokio::time::timeout(Duration::from_secs(2), waits).await.expect("in time").expect("begun");
        next.chunk().await.expect("a first piece");
    }
    assert_eq!(fleet.metric("loadline_upstreams_up").await, 1.0);
}

#[tokio::test]
async fn windows_are_each_upstreams_own() {
    let with = |window: u32| SimConfig { default_window: window, ..SimConfig::default() };
    let fleet = Fleet::with(vec![with(512), with(2048)], &[]).await;
    let body = |tag: &str| {
        json!({ "model": "sim", "stream": false, "messages": [{ "role": "user", "content": words(tag, 600) }] })
            .to_string()
    };
    // Too much for the one, not for the other: whoever answers, nothing over its line is forwarded.
    let mut seen = Vec::new();
    for number in 0..6 {
        let got = fleet.stage.post("/api/chat", body(&format!("w{number}"))).await;
        seen.push((got.status, got.header("x-loadline-tokens").rsplit('/').next().expect("a limit").to_owned()));
    }
    assert!(seen.contains(&(200, "1740".to_owned())), "{seen:?}");
    assert!(seen.contains(&(400, "435".to_owned())), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_whose_place_is_taken_goes_elsewhere_rather_than_away() {
    let slow = SimConfig { decode_us_per_token: 60_000, ..SimConfig::default() };
    let fleet = Fleet::with(
        vec![slow.clone(), slow],
        &[("LOADLINE_UPSTREAM_MAX_CONCURRENT", "1"), ("LOADLINE_UPSTREAM_QUEUE", "0")],
    )
    .await;
    let mut said = vec![json!({ "role": "user", "content": "mine" })];
    said.push(fleet.stage.chat(&json!(said), 4096).await.json()["message"].clone());
    let branch = |text: &str| {
        let mut said = said.clone();
        said.push(json!({ "role": "user", "content": text }));
        json!(said)
    };
    // Both want the one that has read it.
    let (left, right) = (branch("left"), branch("right"));
    let (one, other) = tokio::join!(fleet.stage.chat(&left, 4096), fleet.stage.chat(&right, 4096));
    assert_eq!((one.status, other.status), (200, 200), "{} {}", one.text, other.text);
    assert_eq!(fleet.metric("loadline_upstream_choices_total{choice=\"moved\"}").await, 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_hangs_holds_up_no_list() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let there = sim::start(SimConfig { models: vec![MODEL.clone()], ..SimConfig::default() }).await.expect("a port");
    let aside = sim::start(SimConfig { models: vec![MODEL.clone()], ..SimConfig::default() }).await.expect("a port");
    let urls = format!("http://{},{}", silent.local_addr().expect("an address"), there.url());
    let stage = Stage::before(aside, &urls, &[]).await;
    for path in ["/api/tags", "/v1/models"] {
        let got = tokio::time::timeout(Duration::from_secs(10), stage.get(path)).await.expect("in time");
        assert!(got.text.contains("sim:latest"), "{path}: {}", got.text);
    }
    assert_eq!(stage.chat(&json!([{ "role": "user", "content": "hello" }]), 4096).await.status, 200);
}
