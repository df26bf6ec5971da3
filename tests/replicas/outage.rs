//! A database that is away, or hangs: what is not stored is refused, everything else goes on, and it comes back by itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use loadline::sim::{self, SimConfig};
use serde_json::json;

use crate::postgres::{self, Postgres};
use crate::stage::{MODEL, Stage, chat_body, words};

/// What has nothing to do with the database answers within this.
const AT_ONCE: Duration = Duration::from_secs(2);

async fn stage() -> Option<(Arc<Postgres>, Stage)> {
    let server = match tokio::task::spawn_blocking(Postgres::start).await.expect("no panic") {
        Ok(server) => Arc::new(server),
        Err(reason) => {
            postgres::skip(&reason);
            return None;
        }
    };
    let sim = sim::start(SimConfig { models: vec![MODEL.clone()], ..SimConfig::default() }).await.expect("a free port");
    let (upstream, url) = (sim.url(), server.schema());
    let stage = Stage::before(sim, &upstream, &[("LOADLINE_STORE_URL", url.as_str())]).await;
    Some((server, stage))
}

async fn told(server: &Arc<Postgres>, word: fn(&Postgres)) {
    let server = Arc::clone(server);
    tokio::task::spawn_blocking(move || word(&server)).await.expect("it does as it is told");
}

/// Many chats at once, each new; the statuses that they got.
async fn chats(stage: &Stage, tag: &str, count: usize) -> Vec<tokio::task::JoinHandle<u16>> {
    let ask = |number: usize| {
        let (client, url) = (stage.client.clone(), format!("{}/api/chat", stage.url));
        let body = chat_body(&json!([{ "role": "user", "content": words(&format!("{tag}{number}"), 9) }]), 4096);
        tokio::spawn(async move { client.post(url).body(body).send().await.expect("an answer").status().as_u16() })
    };
    (0..count).map(ask).collect()
}

/// What a client or a balancer must notice, whatever is wrong: refusals within bounds, and a process that answers.
async fn is_bounded(stage: &Stage, tag: &str) {
    let asked = chats(stage, tag, 60).await;
    for _ in 0..5 {
        let health = tokio::time::timeout(AT_ONCE, stage.get("/loadline/health")).await;
        assert_eq!(health.expect("it answers at once").status, 200);
    }
    for one in asked {
        let status =
            tokio::time::timeout(Duration::from_secs(60), one).await.expect("within bounds").expect("no panic");
        assert!(status == 503 || status == 500, "{status}: nothing that is not stored is said to be");
    }
}

async fn works_again(stage: &Stage, tag: &str) {
    let started = Instant::now();
    loop {
        let got = stage.chat(&json!([{ "role": "user", "content": words(tag, 9) }]), 4096).await;
        if got.status == 200 {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "it comes back by itself");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_away_stops_chats_and_nothing_else_and_is_used_again_when_it_is_back() {
    let Some((server, stage)) = stage().await else { return };
    works_again(&stage, "before").await;
    told(&server, Postgres::crash).await;
    is_bounded(&stage, "away").await;
    let ready = stage.get("/loadline/ready").await;
    assert_eq!(ready.status, 503, "a balancer asks others meanwhile: {}", ready.text);
    told(&server, Postgres::revive).await;
    works_again(&stage, "after").await;
    let started = Instant::now();
    while stage.get("/loadline/ready").await.status != 200 {
        assert!(started.elapsed() < Duration::from_secs(10), "it is ready again");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_hangs_is_as_good_as_away_after_a_while() {
    let Some((server, stage)) = stage().await else { return };
    works_again(&stage, "before").await;
    told(&server, Postgres::freeze).await;
    is_bounded(&stage, "frozen").await;
    told(&server, Postgres::thaw).await;
    works_again(&stage, "after").await;
}
