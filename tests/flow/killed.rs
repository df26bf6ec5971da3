//! A process that is killed at any moment leaves the state before or the state after, and nothing that was
//! acknowledged is missing.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use loadline::context::Front;
use loadline::sim::{self, SimConfig};
use loadline::store::open_read_only;
use serde_json::{Value, json};

use crate::stage::{MODEL, words};

/// How often the process is killed; each time a little later than the last.
const KILLS: u64 = 12;

struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _gone_already = self.0.kill();
        let _reaped = self.0.wait();
    }
}

fn serve(upstream: &str, dir: &Path) -> (Served, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_loadline"))
        .args(["serve", "--listen", "127.0.0.1:0", "--upstream", upstream, "--data-dir"])
        .arg(dir)
        .env("LOADLINE_LOG_FILTER", "error")
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("stdout")).lines();
    let line = lines.next().expect("a line").expect("text");
    let url = line.strip_prefix("listening on ").expect("the address").to_owned();
    (Served(child), url)
}

/// Chats that climb and roll over again and again, until the server is gone. What came back whole is counted.
async fn chat_until_gone(url: String, name: String, acknowledged: Arc<AtomicUsize>) -> Vec<Value> {
    let client = reqwest::Client::new();
    let mut messages = Vec::new();
    for turn in 0.. {
        messages.push(json!({ "role": "user", "content": words(&format!("{name}.{turn}"), 90) }));
        let body = json!({ "model": "sim", "stream": false, "messages": messages });
        let Ok(response) = client.post(format!("{url}/api/chat")).body(body.to_string()).send().await else { break };
        let Ok(text) = response.text().await else { break };
        let Ok(answer) = serde_json::from_str::<Value>(&text) else { break };
        if answer["done"] != true {
            break;
        }
        messages.push(answer["message"].clone());
        acknowledged.fetch_add(1, Ordering::Relaxed);
    }
    messages.truncate(messages.len() / 2 * 2);
    messages
}

/// What must hold of a store whose process was killed.
fn inspect(dir: &Path, chats: &[Vec<Value>]) -> (usize, usize) {
    let store = open_read_only(dir).expect("it opens");
    let (mut rollovers, mut found) = (0, 0);
    let conversations = store.conversations(None, None, 1000).expect("readable");
    for conversation in &conversations {
        let snapshots = store.snapshots(Some(conversation.id)).expect("readable");
        for (_, body, _) in store.fronts(conversation.id).expect("readable") {
            let front: Front = serde_json::from_str(&body).expect("a whole front");
            if let Some(rollover) = &front.rollover {
                rollovers += 1;
                let snapshot =
                    snapshots.iter().find(|row| row.id == rollover.snapshot).expect("a front has its snapshot");
                let history = store.path(conversation.id, Some(snapshot.link)).expect("readable");
                assert_eq!(history.len(), snapshot.messages as usize, "a snapshot is whole");
            }
        }
    }
    for chat in chats.iter().filter(|chat| !chat.is_empty()) {
        let said: Vec<&str> = chat.iter().map(|message| message["content"].as_str().expect("text")).collect();
        let stored = conversations.iter().any(|conversation| {
            let path = store.path(conversation.id, None).expect("readable");
            path.len() >= said.len() && path.iter().zip(&said).all(|(row, text)| row.text == *text)
        });
        assert!(stored, "a turn that was acknowledged is missing: {} messages", said.len());
        found += 1;
    }
    (rollovers, found)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_point_of_a_rollover_leaves_the_old_or_the_new_state_and_loses_nothing_acknowledged() {
    let sim = sim::start(SimConfig { default_window: 512, models: vec![MODEL.clone()], ..SimConfig::default() })
        .await
        .expect("a free port");
    let dir = tempfile::tempdir().expect("a directory");
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let mut chats = Vec::new();
    for kill in 0..KILLS {
        let (mut server, url) = serve(&sim.url(), dir.path());
        let before = acknowledged.load(Ordering::Relaxed);
        let talking: Vec<_> = (0..4)
            .map(|chat| {
                tokio::spawn(chat_until_gone(url.clone(), format!("k{kill}c{chat}"), Arc::clone(&acknowledged)))
            })
            .collect();
        // Let some turns through, then some moments more, different each time.
        let under_way = async {
            while acknowledged.load(Ordering::Relaxed) < before + 12 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), under_way).await.expect("turns are answered");
        tokio::time::sleep(Duration::from_micros(kill * 1700)).await;
        server.0.kill().expect("killed");
        server.0.wait().expect("gone");
        for chat in talking {
            chats.push(chat.await.expect("no panic"));
        }
        inspect(dir.path(), &chats);
    }
    let (rollovers, found) = inspect(dir.path(), &chats);
    assert!(rollovers > KILLS as usize, "only {rollovers} rollovers were under way");
    assert_eq!(found, chats.iter().filter(|chat| !chat.is_empty()).count());
    // And it starts again.
    let (_server, url) = serve(&sim.url(), dir.path());
    let health = reqwest::get(format!("{url}/loadline/health")).await.expect("an answer");
    assert_eq!(health.status(), 200);
}
