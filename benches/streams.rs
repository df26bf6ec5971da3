//! What 200 open event streams cost the gate: two Loadlines side by side, one of them watched, asked in turns.
//!
//! `cargo bench --bench streams`. Each request goes to one and then to the other, so that whatever else the machine
//! does hits both. Once without events, once with an event in every tenth turn, which all 200 readers get.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use loadline::config::{Config, Flags};
use loadline::proxy::Gateway;
use loadline::proxy::server::Server;
use loadline::sim::{self, SimConfig, SimModel};
use serde_json::json;

const STREAMS: usize = 200;
const TURNS: usize = 3000;
const WARM_UP: usize = 300;

struct Side {
    url: String,
    gateway: Arc<Gateway>,
    _dir: tempfile::TempDir,
    _stop: tokio_util::sync::DropGuard,
}

async fn side(upstream: &str) -> Side {
    let dir = tempfile::tempdir().expect("a directory");
    let flags = Flags {
        listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        upstream: Some(upstream.to_owned()),
        data_dir: Some(dir.path().to_owned()),
        observe: false,
    };
    let normal = [("LOADLINE_STORE_DURABILITY".to_owned(), "normal".to_owned())];
    let gateway = Arc::new(Gateway::new(Config::load(None, normal, flags).expect("valid")).expect("a gateway"));
    let server = Server::bind(Arc::clone(&gateway)).await.expect("a free port");
    let url = format!("http://{}", server.addr());
    let stop = tokio_util::sync::CancellationToken::new();
    tokio::spawn(server.run(stop.clone().cancelled_owned()));
    Side { url, gateway, _dir: dir, _stop: stop.drop_guard() }
}

/// Opens the streams and reads them for good. Counts the bytes that come.
async fn watch(side: &Side, read: &Arc<AtomicU64>) {
    let client = reqwest::Client::new();
    for _ in 0..STREAMS {
        let mut stream = client.get(format!("{}/loadline/events", side.url)).send().await.expect("a stream");
        let read = Arc::clone(read);
        tokio::spawn(async move {
            while let Ok(Some(bytes)) = stream.chunk().await {
                read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
        });
    }
    assert_eq!(side.gateway.metrics.event_streams.get(), STREAMS as i64, "all are open");
}

/// A chat of one message; a long one passes 70 % and makes an event.
async fn turn(client: &reqwest::Client, side: &Side, number: usize, long: bool) -> Duration {
    let words = if long { 700 } else { 20 };
    let text: String = (0..words).map(|word| format!(" w{}", word % 9)).collect();
    let body = json!({ "model": "sim", "stream": false, "options": { "num_ctx": 2048 },
        "messages": [{ "role": "user", "content": format!("{number}{text}") }] })
    .to_string();
    let started = Instant::now();
    let response = client.post(format!("{}/api/chat", side.url)).body(body).send().await.expect("an answer");
    assert_eq!(response.status(), 200);
    response.bytes().await.expect("a body");
    started.elapsed()
}

fn at(sorted: &[Duration], share: f64) -> f64 {
    let index = ((sorted.len() - 1) as f64 * share) as usize;
    sorted[index].as_secs_f64() * 1e6
}

async fn compare(quiet: &Side, watched: &Side, event_every: Option<usize>) {
    let client = reqwest::Client::new();
    let (mut alone, mut seen) = (Vec::new(), Vec::new());
    for number in 0..WARM_UP + TURNS {
        let long = event_every.is_some_and(|every| number.is_multiple_of(every));
        // Whoever is asked first pays for a cold cache: that changes from turn to turn.
        let sides = if number.is_multiple_of(2) { [quiet, watched] } else { [watched, quiet] };
        for side in sides {
            let took = turn(&client, side, number, long).await;
            // The turn that makes the event is another kind of turn: only the ordinary ones are compared.
            if number >= WARM_UP && !long {
                if std::ptr::eq(side, quiet) { alone.push(took) } else { seen.push(took) }
            }
        }
    }
    alone.sort_unstable();
    seen.sort_unstable();
    for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)] {
        let (alone, seen) = (at(&alone, share), at(&seen, share));
        println!(
            "  {name}   nobody watches {alone:>7.0} µs   {STREAMS} streams {seen:>7.0} µs   ratio {:.3}",
            seen / alone
        );
    }
}

#[tokio::main]
async fn main() {
    let config =
        SimConfig { models: vec![SimModel::standard().expect("a model")], answer_tokens: 8, ..SimConfig::default() };
    let sim = sim::start(config).await.expect("a free port");
    let (quiet, watched) = (side(&sim.url()).await, side(&sim.url()).await);
    let read = Arc::new(AtomicU64::new(0));
    watch(&watched, &read).await;
    println!("{TURNS} turns each, in turns, no events");
    compare(&quiet, &watched, None).await;
    println!("{TURNS} turns each, in turns, an event for all streams in every tenth");
    compare(&quiet, &watched, Some(10)).await;
    println!("  the streams have brought {} KiB", read.load(Ordering::Relaxed) >> 10);
    assert!(read.load(Ordering::Relaxed) > 0, "events were read");
}
