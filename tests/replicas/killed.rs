//! Two processes and a database that are killed again and again, under load.
//!
//! Clients do what clients do behind a balancer: the same request goes to another replica when one does not answer.
//! Whatever was acknowledged must be there in the end: once, in order, in one conversation.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use loadline::sim::{self, SimConfig};
use loadline::store::{Address, open_server_read_only};
use serde_json::{Value, json};

use crate::cli::loadline;
use crate::postgres::{self, Postgres};
use crate::stage::{MODEL, words};

/// How often a replica is killed, and how often the database: they take turns.
const KILLS: usize = 16;

/// Turns that must be acknowledged between two kills.
const TURNS: usize = 25;

const CLIENTS: usize = 6;

struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _gone_already = self.0.kill();
        let _reaped = self.0.wait();
    }
}

fn serve(upstream: &str, dir: &Path, url: &str) -> (Served, String) {
    let mut child = loadline()
        .args(["serve", "--listen", "127.0.0.1:0", "--upstream", upstream, "--data-dir"])
        .arg(dir)
        .env("LOADLINE_LOG_FILTER", "off")
        .env("LOADLINE_STORE_URL", url)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("stdout")).lines();
    let line = lines.next().expect("a line").expect("text");
    let url = line.strip_prefix("listening on ").expect("the address").to_owned();
    (Served(child), url)
}

struct Load {
    replicas: [RwLock<String>; 2],
    acknowledged: AtomicUsize,
    retried: AtomicUsize,
    over: AtomicBool,
}

/// One chat after the other until it is over; the messages of each, as the client knows them.
async fn chat(load: Arc<Load>, client: usize) -> Vec<Vec<Value>> {
    let http = reqwest::Client::builder().timeout(Duration::from_secs(30)).build().expect("a client");
    let mut chats = Vec::new();
    let mut next = client;
    while !load.over.load(Ordering::Relaxed) {
        let mut said = Vec::new();
        for turn in 0..12 {
            let text = words(&format!("c{client}.{}.{turn}", chats.len()), 40);
            said.push(json!({ "role": "user", "content": text }));
            let body = json!({ "model": "sim", "stream": turn % 2 == 0, "messages": said }).to_string();
            let answer = loop {
                // Now here, now there.
                next += 1;
                let url = load.replicas[next % 2].read().expect("urls").clone();
                if let Some(answer) = ask(&http, &url, body.clone()).await {
                    break answer;
                }
                load.retried.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(20)).await;
            };
            said.push(answer);
            load.acknowledged.fetch_add(1, Ordering::Relaxed);
            if load.over.load(Ordering::Relaxed) {
                break;
            }
        }
        chats.push(said);
    }
    chats
}

/// The message of an answer that was whole.
async fn ask(http: &reqwest::Client, url: &str, body: String) -> Option<Value> {
    let response = http.post(format!("{url}/api/chat")).body(body).send().await.ok()?;
    if response.status() != 200 {
        return None;
    }
    let text = response.text().await.ok()?;
    let pieces: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>().ok()?;
    if pieces.last()?["done"] != true {
        return None;
    }
    let said: String = pieces.iter().filter_map(|piece| piece["message"]["content"].as_str()).collect();
    Some(json!({ "role": "assistant", "content": said }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_and_the_database_killed_in_turns_lose_and_double_nothing_acknowledged() {
    let server = match tokio::task::spawn_blocking(Postgres::start).await.expect("no panic") {
        Ok(server) => Arc::new(server),
        Err(reason) => return postgres::skip(&reason),
    };
    let url = server.schema();
    let sim = sim::start(SimConfig { default_window: 512, models: vec![MODEL.clone()], ..SimConfig::default() })
        .await
        .expect("a free port");
    let dirs = [tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory")];
    let (first, second) = (serve(&sim.url(), dirs[0].path(), &url), serve(&sim.url(), dirs[1].path(), &url));
    let mut processes = [first.0, second.0];
    let load = Arc::new(Load {
        replicas: [RwLock::new(first.1), RwLock::new(second.1)],
        acknowledged: AtomicUsize::new(0),
        retried: AtomicUsize::new(0),
        over: AtomicBool::new(false),
    });
    let clients: Vec<_> = (0..CLIENTS).map(|client| tokio::spawn(chat(Arc::clone(&load), client))).collect();
    for kill in 0..KILLS {
        let (before, started) = (load.acknowledged.load(Ordering::Relaxed), Instant::now());
        while load.acknowledged.load(Ordering::Relaxed) < before + TURNS {
            assert!(started.elapsed() < Duration::from_secs(60), "it is used again after kill {kill}");
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(Duration::from_micros(kill as u64 * 1900)).await;
        match kill % 4 {
            which @ (0 | 2) => {
                let which = which / 2;
                processes[which].0.kill().expect("killed");
                processes[which].0.wait().expect("gone");
                let (process, address) = serve(&sim.url(), dirs[which].path(), &url);
                processes[which] = process;
                *load.replicas[which].write().expect("urls") = address;
            }
            _ => {
                let server = Arc::clone(&server);
                let crash = move || {
                    server.crash();
                    server.revive();
                };
                tokio::task::spawn_blocking(crash).await.expect("it comes back");
            }
        }
    }
    load.over.store(true, Ordering::Relaxed);
    let mut chats = Vec::new();
    for client in clients {
        chats.extend(client.await.expect("no panic"));
    }
    // Nobody writes any more.
    drop(processes);
    let (acknowledged, retried) = (load.acknowledged.load(Ordering::Relaxed), load.retried.load(Ordering::Relaxed));
    let checked = tokio::task::spawn_blocking(move || inspect(&url, &chats)).await.expect("all is well");
    eprintln!(
        "{acknowledged} turns acknowledged over {KILLS} kills, {retried} tried again, {checked} messages checked"
    );
    assert!(acknowledged >= KILLS * TURNS && retried > 0, "{acknowledged} turns, {retried} tried again");
}

/// What must hold of the store; how many messages were looked at.
fn inspect(url: &str, chats: &[Vec<Value>]) -> usize {
    let store = open_server_read_only(Address::new(url, None, None).expect("an address")).expect("it opens");
    let conversations = store.conversations(None, None, 10_000).expect("readable");
    let mut checked = 0;
    // Everything that is stored, on every branch, by what was said.
    let mut users: std::collections::HashMap<String, Vec<(i64, i64, u32)>> = std::collections::HashMap::new();
    for conversation in &conversations {
        let mut places = std::collections::HashSet::new();
        for tip in store.tips(conversation.id).expect("readable") {
            let path = store.path(conversation.id, Some(tip.link)).expect("readable");
            for (at, row) in path.iter().enumerate() {
                assert_eq!(row.seq as usize, at + 1, "no hole in a history");
                if places.insert((row.branch, row.seq)) && row.role == "user" {
                    users.entry(row.text.clone()).or_default().push((conversation.id, row.branch, row.seq));
                }
            }
        }
    }
    for chat in chats {
        let said: Vec<&str> = chat.iter().map(|message| message["content"].as_str().expect("text")).collect();
        let Some(last) = said.len().checked_sub(2) else { continue };
        let places = &users[said[last]];
        assert_eq!(places.len(), 1, "a question is stored once, however often it was sent: {places:?}");
        let found = store.tips(places[0].0).expect("readable").into_iter().any(|tip| {
            let path = store.path(places[0].0, Some(tip.link)).expect("readable");
            path.len() >= said.len()
                && path.iter().zip(&said).all(|(row, text)| row.text == *text && row.status == "complete")
        });
        assert!(found, "an acknowledged chat of {} messages is not there in its order", said.len());
        checked += said.len();
    }
    checked
}
