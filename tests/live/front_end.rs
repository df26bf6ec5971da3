//! Open WebUI, a front end that people use, in a real browser: one long chat through Loadline, in a window that is far
//! too small for it. `scripts/open-webui` prepares it; where it is missing, this test says so and passes, unless
//! `LOADLINE_REQUIRE` names `open-webui`.

use std::collections::HashMap;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use loadline::sim::SimConfig;
use serde_json::Value;

use super::scripted::Cast;
use super::server::{cache, ollama, required, tell};
use crate::stage::{MODEL, Stage};

const TURNS: usize = 14;
const WORDS: usize = 300;

/// Ends with the test.
struct FrontEnd(Child);

impl Drop for FrontEnd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Why it cannot be run here.
fn missing() -> Option<&'static str> {
    if !cache().join("open-webui/installed.txt").is_file() {
        return Some("Open WebUI is not installed (scripts/open-webui prepares it)");
    }
    let driver = Command::new("chromedriver").arg("--version").output();
    driver.is_err().then_some("there is no chromedriver")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_chat_in_open_webui_stays_one_conversation_under_the_line() {
    let test = "a_long_chat_in_open_webui";
    let Some(ollama) = ollama(test) else { return };
    if let Some(reason) = missing() {
        assert!(!required("open-webui"), "LOADLINE_REQUIRE names open-webui, but {reason}");
        tell(&format!("skipped {test}: {reason}"));
        return;
    }
    let cast = tokio::task::spawn_blocking(|| Cast::on(ollama)).await.expect("models are made");
    let model = cast.names["small"].as_str().expect("a name").to_owned();
    let config = SimConfig { models: vec![MODEL.clone()], ..SimConfig::default() };
    let sim = loadline::sim::start(config).await.expect("a free port");
    let stage = Stage::before(sim, &ollama.url, &[("LOADLINE_CHECKPOINT_WAIT_S", "300")]).await;
    let data = tempfile::tempdir().expect("a directory");
    let (url, _front_end) = start(&stage.url, data.path()).await;
    let output = chat(url, model.clone()).await;
    let told = String::from_utf8_lossy(&output.stdout);
    let saw: Value = serde_json::from_str(told.trim())
        .unwrap_or_else(|error| panic!("{error}: {told}\n{}", String::from_utf8_lossy(&output.stderr)));
    for places in ["answers", "in_page", "in_store"] {
        assert_eq!(saw[places], TURNS, "{places}: {saw:#}");
    }
    for complaints in ["errors", "store_errors", "console"] {
        assert_eq!(saw[complaints].as_array().map(Vec::len), Some(0), "{complaints}: {saw:#}");
    }
    // Of what pops up, only the greeting is no complaint.
    let popped_up: Vec<&Value> = saw["toasts"].as_array().into_iter().flatten().collect();
    assert!(popped_up.iter().all(|text| *text == "You're now logged in."), "{saw:#}");
    is_one_conversation(&stage).await;
}

async fn start(upstream: &str, data: &Path) -> (String, FrontEnd) {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port();
    let child = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/open-webui"))
        .args(["serve", upstream, &port.to_string()])
        .arg(data)
        // It offers three dozen tools of its own to every model, which alone are larger than this window.
        .env("DEFAULT_MODEL_METADATA", r#"{"capabilities":{"builtin_tools":false}}"#)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("Open WebUI starts");
    let (front_end, url) = (FrontEnd(child), format!("http://127.0.0.1:{port}"));
    let up = async {
        let mut tick = tokio::time::interval(Duration::from_millis(200));
        while !reqwest::get(format!("{url}/health")).await.is_ok_and(|answer| answer.status() == 200) {
            tick.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(180), up).await.expect("Open WebUI answers");
    (url, front_end)
}

/// The chat itself, typed into the page. Every wait of the driver has an end, so it ends as well.
async fn chat(url: String, model: String) -> Output {
    let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/live/clients/open-webui/chat.py");
    let pictures = std::env::var_os("LOADLINE_SCREENSHOTS").map_or_else(|| cache().join("screenshots"), Into::into);
    let chat = move || {
        let mut command = Command::new(cache().join("open-webui/bin/python"));
        command.arg(driver).args([url, model, TURNS.to_string(), WORDS.to_string()]).arg(pictures).output()
    };
    tokio::task::spawn_blocking(chat).await.expect("it runs").expect("the driver starts")
}

/// The chat is one conversation, whole; titles, tags and follow-up questions are others.
async fn is_one_conversation(stage: &Stage) {
    stage.settled().await;
    let reader = stage.gateway.store.reader().expect("readable");
    let mut conversations: HashMap<_, Vec<_>> = HashMap::new();
    for (id, turn) in (1..).map_while(|number| reader.turn(number).expect("readable")) {
        conversations.entry(id).or_default().push(turn);
    }
    let turns = conversations.values().max_by_key(|turns| turns.len()).expect("there are some");
    let actions: Vec<&str> = turns.iter().map(|turn| turn.action.as_deref().unwrap_or_default()).collect();
    tell(&format!("live: Open WebUI: {} conversations, the chat: {actions:?}", conversations.len()));
    assert_eq!(turns.len(), TURNS, "{actions:?}");
    assert!(turns.iter().all(|turn| turn.status == "complete" && turn.sent_tokens <= turn.limit_tokens), "{turns:?}");
    assert!(actions.contains(&"compression") || actions.contains(&"rollover"), "{actions:?}");
    let metrics = &stage.gateway.metrics;
    assert_eq!(metrics.exact_mismatches() + metrics.overflows.get() + metrics.cut_by_upstream.get(), 0);
}
