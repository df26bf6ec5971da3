//! What compaction costs us: a long history that arrives at once, and the turns after it.
//!
//!   cargo bench --bench compaction
//!
//! Everything is timed that Loadline does before it sends: reading the body, finding the conversation, counting,
//! deciding, planning, recalling, writing the body again. The upstream is the simulator and is not asked in the
//! timed part; the disk is not either.

#![allow(clippy::expect_used, clippy::panic, reason = "a benchmark that cannot be set up has nothing to say")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use loadline::config::{Config, Flags};
use loadline::context::Action;
use loadline::dialect::Dialect;
use loadline::ollama::models::Model;
use loadline::proxy::Gateway;
use loadline::proxy::fit::{Fit, Fitted, rehearse};
use loadline::proxy::server::Server;
use loadline::sim::{self, Sim, SimConfig};
use serde_json::{Value, json};

const MESSAGES: usize = 2000;
const WINDOW: u32 = 4096;

struct Bench {
    gateway: Arc<Gateway>,
    model: Arc<Model>,
    url: String,
    _sim: Sim,
    _data: tempfile::TempDir,
}

/// A message of about a hundred bytes; `salt` makes it one that nobody has seen.
fn message(index: usize, salt: usize) -> Value {
    const CARGO: [&str; 5] = ["tea", "tar", "oranges", "rope", "salt herring"];
    let role = if index.is_multiple_of(2) { "user" } else { "assistant" };
    let text = format!(
        "Entry {salt}-{index}: {} crates of {} are in hold {}, and mate number {} has the list of them.",
        index * 7 % 93,
        CARGO[index % CARGO.len()],
        index * 3 % 17,
        index * 5 % 41
    );
    json!({ "role": role, "content": text })
}

fn body(messages: &[Value]) -> String {
    json!({ "model": "sim", "stream": false, "messages": messages, "options": { "num_ctx": WINDOW, "num_predict": 8 } })
        .to_string()
}

impl Bench {
    async fn new() -> Self {
        let sim = sim::start(SimConfig::default()).await.expect("a free port");
        let data = tempfile::tempdir().expect("a directory");
        let flags = Flags {
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            upstream: Some(sim.url()),
            data_dir: Some(data.path().to_owned()),
            observe: false,
        };
        let gateway = Arc::new(Gateway::new(Config::load(None, [], flags).expect("valid")).expect("a gateway"));
        let server = Server::bind(Arc::clone(&gateway)).await.expect("a free port");
        let url = format!("http://{}", server.addr());
        tokio::spawn(server.run(std::future::pending()));
        let model = gateway.fleet.model("sim").await.expect("the model");
        Self { gateway, model, url, _sim: sim, _data: data }
    }

    /// Everything up to the body that would be sent.
    async fn fit(&self, body: &str) -> Fitted {
        match rehearse(&self.gateway, &self.model, Dialect::Chat, body).await {
            Ok(Fit::Fits(fitted)) => *fitted,
            Ok(Fit::TooLarge(_)) | Err(_) => panic!("it can be made to fit"),
        }
    }

    async fn chat(&self, messages: &[Value]) -> Value {
        let sent = reqwest::Client::new().post(format!("{}/api/chat", self.url)).body(body(messages)).send().await;
        let text = sent.expect("an answer").text().await.expect("a body");
        serde_json::from_str::<Value>(&text).expect("json")["message"].clone()
    }
}

fn compaction(criterion: &mut Criterion) {
    static SALT: AtomicUsize = AtomicUsize::new(1);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let bench = runtime.block_on(Bench::new());
    let history = |salt: usize| -> Vec<Value> { (0..=MESSAGES).map(|index| message(index, salt)).collect() };
    // The template is learnt once, as the first requests of a model teach it.
    runtime.block_on(bench.fit(&body(&history(0))));
    let mut group = criterion.benchmark_group("2,000 messages");
    group.sample_size(20);
    group.bench_function("arrive at once and are compacted", |bencher| {
        bencher.iter_custom(|rounds| {
            let mut took = Duration::ZERO;
            for _ in 0..rounds {
                let body = body(&history(SALT.fetch_add(1, Ordering::Relaxed)));
                let started = Instant::now();
                let fitted = runtime.block_on(bench.fit(&body));
                took += started.elapsed();
                assert_eq!(fitted.report.action, Action::Rollover);
            }
            took
        });
    });
    // A conversation that was rolled over for real, and one turn more.
    let mut messages = history(0);
    let answer = runtime.block_on(bench.chat(&messages));
    messages.push(answer);
    for (name, question) in [
        ("and a turn after it that needs nothing", "ok, go on"),
        ("and a turn after it that recalls", "where are the crates of oranges, and which mate has the list?"),
    ] {
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|rounds| {
                let mut took = Duration::ZERO;
                for _ in 0..rounds {
                    let salt = SALT.fetch_add(1, Ordering::Relaxed);
                    let mut messages = messages.clone();
                    messages.push(json!({ "role": "user", "content": format!("{question} ({salt})") }));
                    let body = body(&messages);
                    let started = Instant::now();
                    let fitted = runtime.block_on(bench.fit(&body));
                    took += started.elapsed();
                    assert!(fitted.covering.is_some(), "the front of the rollover is used");
                }
                took
            });
        });
    }
    group.finish();
}

criterion_group!(benches, compaction);
criterion_main!(benches);
