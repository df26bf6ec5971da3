//! A real Ollama: the one that `OLLAMA_HOST` names, or one of our own, started once for all live tests and
//! ended with them. Models are made over its API, so that a server is all that is needed.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use loadline::tokenize::Vocabulary;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::gguf;

/// The version that `scripts/real-ollama` builds, and that the simulator is held against.
pub const BUILT: &str = "0.17.4";

/// Two tests run at a time, and llama.cpp's threads wait for each other in busy loops: with one thread each, both are
/// many times faster than with two.
const ONE_THREAD: u32 = 1;

pub struct Ollama {
    pub url: String,
    pub version: String,
    /// Ends the server when this process ends: the shell waits on its standard input.
    _keeper: Option<Child>,
    creating: tokio::sync::Mutex<()>,
}

static SHARED: OnceLock<Result<Ollama, String>> = OnceLock::new();

/// The server, or `None` after saying what is skipped and why.
pub fn ollama(test: &str) -> Option<&'static Ollama> {
    let shared = SHARED.get_or_init(|| waiting_for(Ollama::start())).as_ref();
    match shared {
        Ok(ollama) => Some(ollama),
        Err(reason) if required("ollama") => panic!("LOADLINE_REQUIRE names ollama, but {reason}"),
        Err(reason) => {
            tell(&format!("skipped {test}: {reason} (scripts/real-ollama prepares one)"));
            None
        }
    }
}

/// Whether `LOADLINE_REQUIRE` makes it a failure that this is not there.
pub fn required(what: &str) -> bool {
    std::env::var("LOADLINE_REQUIRE").is_ok_and(|names| names.split(',').any(|name| name.trim() == what))
}

/// Says something although the test passes: the test harness keeps back only what `eprintln!` writes.
pub fn tell(line: &str) {
    let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("{line}\n").as_bytes());
}

pub fn cache() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache/loadline");
    std::env::var_os("LOADLINE_CACHE").map_or_else(home, PathBuf::from)
}

/// SmolLM2, where the script has put it.
pub fn smollm_file() -> PathBuf {
    cache().join("models/SmolLM2-135M-Instruct.Q4_1.gguf")
}

/// `OLLAMA_HOST` as Ollama's own client reads it: the port may be left out, and every address is this machine.
fn address(written: &str) -> String {
    if written.contains("://") {
        return written.trim_end_matches('/').to_owned();
    }
    let (host, port) = written.rsplit_once(':').unwrap_or((written, "11434"));
    let host = if host.is_empty() || host == "0.0.0.0" { "127.0.0.1" } else { host };
    format!("http://{host}:{port}")
}

/// Waits for something on a thread that may do so: live tests have more than one.
fn waiting_for<T>(work: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(work))
}

impl Ollama {
    async fn start() -> Result<Self, String> {
        if !smollm_file().is_file() {
            return Err("SmolLM2 is not in the cache".to_owned());
        }
        match std::env::var("OLLAMA_HOST") {
            Ok(host) if !host.trim().is_empty() => {
                let url = address(host.trim());
                let ours = reqwest::get(format!("{url}/loadline/health")).await.is_ok_and(|got| got.status() == 200);
                if ours {
                    return Err(format!("OLLAMA_HOST leads to {url}, which is a Loadline and no Ollama"));
                }
                Self::at(url, None, Duration::from_secs(5)).await
            }
            _ => Self::own().await,
        }
    }

    async fn own() -> Result<Self, String> {
        let binary = cache().join("bin/ollama");
        if !binary.is_file() {
            return Err("there is no Ollama of the tests' own, and OLLAMA_HOST names none".to_owned());
        }
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .map_err(|error| error.to_string())?
            .port();
        let host = format!("127.0.0.1:{port}");
        let keeper = Command::new("sh")
            .args(["-c", "\"$0\" serve >/dev/null 2>&1 & server=$!; cat >/dev/null; kill $server; wait $server"])
            .arg(&binary)
            .env("OLLAMA_HOST", &host)
            .env("OLLAMA_MODELS", cache().join("live-models/store"))
            .env("OLLAMA_MAX_LOADED_MODELS", "6")
            .env("OLLAMA_NUM_PARALLEL", "1")
            .env("OLLAMA_KEEP_ALIVE", "60s")
            .stdin(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        Self::at(format!("http://{host}"), Some(keeper), Duration::from_secs(60)).await
    }

    /// The server at this address, once it answers.
    async fn at(url: String, keeper: Option<Child>, patience: Duration) -> Result<Self, String> {
        let (client, deadline) = (reqwest::Client::new(), Instant::now() + patience);
        let version = loop {
            if let Ok(answer) = client.get(format!("{url}/api/version")).send().await {
                let text = answer.text().await.map_err(|error| error.to_string())?;
                let told: Value = serde_json::from_str(&text).map_err(|error| format!("{url}: {error}"))?;
                break told["version"].as_str().unwrap_or_default().to_owned();
            }
            if Instant::now() > deadline {
                return Err(format!("nobody answers at {url}"));
            }
            tokio::task::yield_now().await;
        };
        Ok(Self { url, version, _keeper: keeper, creating: tokio::sync::Mutex::new(()) })
    }

    /// Whether this is the version that was built for the tests. Another one is told by name.
    pub fn is_the_built_one(&self, test: &str) -> bool {
        // A server that `go install` has built calls itself 0.0.0.
        let same = [BUILT, "0.0.0"].contains(&self.version.as_str());
        if !same {
            tell(&format!("skipped {test}: it is about Ollama {BUILT}, and this one is {}", self.version));
        }
        same
    }

    /// A tiny model with this vocabulary and template, made if it is not there yet. `more` is what else
    /// `/api/create` is told: `parameters`, `system`, `messages`.
    pub fn tiny(&self, name: &str, vocabulary: &Vocabulary, template: &str, more: &Value) -> String {
        self.made_of(name, &gguf::tiny_model(vocabulary, 131_072), template, more)
    }

    /// A model of this file, under a name that changes with what it is made of.
    pub fn made_of(&self, name: &str, file: &[u8], template: &str, more: &Value) -> String {
        let version = Sha256::new()
            .chain_update(digest(file))
            .chain_update(template)
            .chain_update(more.to_string())
            .chain_update([ONE_THREAD as u8]);
        let name = format!("ll-{name}-{}", hex(&version.finalize()[..8]));
        let mut request = json!({ "template": template });
        request.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        request["parameters"]["num_thread"] = json!(ONE_THREAD);
        waiting_for(self.create(&name, file, request));
        name
    }

    /// The real model of the script.
    pub fn smollm2(&self) -> &'static str {
        const NAME: &str = "ll-smollm2-one-thread";
        let file = std::fs::read(smollm_file()).expect("the model is in the cache");
        waiting_for(self.create(NAME, &file, json!({ "parameters": { "num_thread": ONE_THREAD } })));
        NAME
    }

    /// The same model under another name.
    pub fn copy(&self, from: &str, to: &str) {
        let (status, text) =
            waiting_for(self.post("/api/copy", json!({ "source": from, "destination": to }).to_string()));
        assert_eq!(status, 200, "{text}");
    }

    async fn create(&self, name: &str, file: &[u8], mut request: Value) {
        let _one_at_a_time = self.creating.lock().await;
        if self.post("/api/show", json!({ "model": name }).to_string()).await.0 == 200 {
            return;
        }
        let digest = digest(file);
        let (status, text) = self.post(&format!("/api/blobs/{digest}"), file.to_vec()).await;
        assert!(status < 300, "{status}: {text}");
        let fields = request.as_object_mut().expect("an object");
        fields.extend([
            ("model".to_owned(), json!(name)),
            ("files".to_owned(), json!({ "model.gguf": digest })),
            ("stream".to_owned(), json!(false)),
        ]);
        let (status, text) = self.post("/api/create", request.to_string()).await;
        assert_eq!(status, 200, "{name}: {text}");
    }

    async fn post(&self, path: &str, body: impl Into<reqwest::Body>) -> (u16, String) {
        let url = format!("{}{path}", self.url);
        let answer = reqwest::Client::new().post(url).body(body).send().await.expect("Ollama answers");
        (answer.status().as_u16(), answer.text().await.expect("a body"))
    }
}

/// The name that a file has among Ollama's blobs.
pub fn digest(file: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(file)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
