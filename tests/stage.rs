//! A Loadline in front of a simulated Ollama, both on free ports, gone when dropped.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use loadline::config::{Config, Flags};
use loadline::proxy::Gateway;
use loadline::proxy::server::Server;
use loadline::sim::{self, Sim, SimConfig, SimModel};
use loadline::store::{EventRow, MessageRow, SnapshotRow};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::postgres;

/// Built once: a vocabulary takes a moment.
pub static MODEL: LazyLock<SimModel> =
    LazyLock::new(|| SimModel::standard().expect("the built-in vocabulary is valid"));

pub struct Stage {
    pub sim: Sim,
    pub gateway: Arc<Gateway>,
    pub url: String,
    pub client: reqwest::Client,
    pub addr: SocketAddr,
    data: Data,
    _stop: DropGuard,
}

/// Where a stage keeps things: a directory of its own and, with `LOADLINE_TEST_STORE=postgres`, a schema of its own.
struct Data {
    dir: TempDir,
    server: Option<String>,
}

impl Data {
    fn new() -> Self {
        let on_server = std::env::var("LOADLINE_TEST_STORE").is_ok_and(|store| store == "postgres");
        let server = on_server.then(|| postgres::schema().expect("a server"));
        Self { dir: tempfile::tempdir().expect("a directory"), server }
    }
}

/// What a client got.
pub struct Got {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub text: String,
}

impl Got {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("text"))
    }

    /// The two numbers of `X-Loadline-Tokens`.
    pub fn tokens(&self) -> (u32, u32) {
        let (sent, limit) = self.header("x-loadline-tokens").split_once('/').expect("the header is there");
        (sent.parse().expect("a number"), limit.parse().expect("a number"))
    }

    pub fn warnings(&self) -> Vec<String> {
        self.headers
            .get_all("x-loadline-warning")
            .iter()
            .map(|value| value.to_str().expect("text").to_owned())
            .collect()
    }
}

impl Stage {
    pub async fn new() -> Self {
        Self::with(SimConfig::default(), &[]).await
    }

    /// `variables` are configuration, as the environment would give it.
    pub async fn with(mut config: SimConfig, variables: &[(&str, &str)]) -> Self {
        if config.models.is_empty() {
            config.models.push(MODEL.clone());
        }
        let sim = sim::start(config).await.expect("a free port");
        let upstream = sim.url();
        Self::before(sim, &upstream, variables).await
    }

    /// With another upstream than the simulator.
    pub async fn before(sim: Sim, upstream: &str, variables: &[(&str, &str)]) -> Self {
        Self::on(sim, upstream, variables, Data::new()).await
    }

    /// Stops and starts again on the same data.
    pub async fn restarted(self) -> Self {
        self.restarted_with(&[]).await
    }

    /// The same, with another configuration.
    pub async fn restarted_with(self, variables: &[(&str, &str)]) -> Self {
        let (sim, data) = self.stopped().await;
        let upstream = sim.url();
        Self::on(sim, &upstream, variables, data).await
    }

    /// The same, before upstreams at these addresses.
    pub async fn restarted_on(self, upstreams: &str) -> Self {
        let (sim, data) = self.stopped().await;
        Self::on(sim, upstreams, &[], data).await
    }

    /// The same, in front of another upstream.
    pub async fn restarted_before(self, sim: Sim) -> Self {
        let (_gone, data) = self.stopped().await;
        let upstream = sim.url();
        Self::on(sim, &upstream, &[], data).await
    }

    async fn stopped(self) -> (Sim, Data) {
        let Self { sim, gateway, data, _stop, client, .. } = self;
        drop((client, _stop));
        let let_go = async {
            while Arc::strong_count(&gateway) > 1 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(20), let_go).await.expect("everything ends");
        drop(gateway);
        // What others still had to do with the store may close it a moment later.
        let lock = data.dir.path().join("loadline.lock");
        let closed = async {
            while std::fs::File::open(&lock).is_ok_and(|file| file.try_lock().is_err()) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(20), closed).await.expect("the store is closed");
        (sim, data)
    }

    async fn on(sim: Sim, upstream: &str, variables: &[(&str, &str)], data: Data) -> Self {
        let flags = Flags {
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            upstream: Some(upstream.to_owned()),
            data_dir: Some(data.dir.path().to_owned()),
            observe: false,
        };
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let server = data.server.iter().map(|url| ("LOADLINE_STORE_URL".to_owned(), url.clone()));
        let variables = server.chain(variables);
        let config = Config::load(None, variables, flags).expect("a valid configuration");
        let gateway = Arc::new(Gateway::new(config).expect("a gateway"));
        let server = Server::bind(Arc::clone(&gateway)).await.expect("a free port");
        let addr = server.addr();
        let stop = CancellationToken::new();
        tokio::spawn(server.run(stop.clone().cancelled_owned()));
        let client = reqwest::Client::new();
        Self { sim, gateway, url: format!("http://{addr}"), client, addr, data, _stop: stop.drop_guard() }
    }

    pub async fn post(&self, path: &str, body: impl Into<reqwest::Body>) -> Got {
        self.post_with(path, body, &[]).await
    }

    pub async fn post_with(&self, path: &str, body: impl Into<reqwest::Body>, headers: &[(&str, &str)]) -> Got {
        let mut request = self.client.post(format!("{}{path}", self.url)).body(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        got(request.send().await.expect("an answer")).await
    }

    pub async fn send(&self, method: &str, path: &str, body: &str, headers: &[(&str, &str)]) -> Got {
        let method = method.parse().expect("a method");
        let mut request = self.client.request(method, format!("{}{path}", self.url)).body(body.to_owned());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        got(request.send().await.expect("an answer")).await
    }

    pub async fn get(&self, path: &str) -> Got {
        got(self.client.get(format!("{}{path}", self.url)).send().await.expect("an answer")).await
    }

    /// One turn on `/api/chat`.
    pub async fn chat(&self, messages: &Value, num_ctx: u32) -> Got {
        self.post("/api/chat", chat_body(messages, num_ctx)).await
    }

    /// The gated requests that reached the upstream, renderings and questions of ours left out.
    pub fn forwarded(&self, path: &str) -> Vec<String> {
        let log = self.sim.log().into_iter().filter(|seen| seen.path == path);
        let bodies = log.map(|seen| String::from_utf8(seen.body.to_vec()).expect("text"));
        bodies.filter(|body| !is_loadlines_own(body)).collect()
    }

    pub fn snapshots(&self) -> Vec<SnapshotRow> {
        self.gateway.store.reader().and_then(|reader| reader.snapshots(None)).expect("the store can be read")
    }

    /// The history that a snapshot keeps.
    pub fn history_of_snapshot(&self, id: &str) -> Vec<MessageRow> {
        let reader = self.gateway.store.reader().expect("the store can be read");
        let snapshot = reader.snapshot(id).expect("readable").expect("there is such a snapshot");
        reader.path(snapshot.conversation, Some(snapshot.link)).expect("readable")
    }

    /// What is stored of the conversation that an answer belongs to, on the branch used last.
    pub fn stored(&self, got: &Got) -> Vec<MessageRow> {
        let id = got.header("x-loadline-conversation").parse().expect("a number");
        self.gateway.store.reader().and_then(|reader| reader.path(id, None)).expect("readable")
    }

    /// The kinds of all events so far, oldest first.
    pub fn events(&self) -> Vec<EventRow> {
        self.gateway.store.reader().and_then(|reader| reader.events(0, 10_000)).expect("readable")
    }

    /// Waits until no checkpoint is being written.
    pub async fn settled(&self) {
        let idle = async {
            while self.gateway.checkpoints.under_way() > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(300), idle).await.expect("checkpoints end");
    }

    /// All files in the data directory, and in those in it.
    pub fn files(&self) -> Vec<std::path::PathBuf> {
        let below = |dir: &std::path::Path| {
            std::fs::read_dir(dir).expect("readable").map(|entry| entry.expect("entry").path()).collect::<Vec<_>>()
        };
        let (dirs, mut files): (Vec<_>, Vec<_>) = below(self.data_dir()).into_iter().partition(|path| path.is_dir());
        files.extend(dirs.iter().flat_map(|dir| below(dir)));
        files
    }

    /// How commands are told where everything is.
    pub fn place(&self) -> Vec<String> {
        let mut place = vec!["--data-dir".to_owned(), self.data_dir().display().to_string()];
        if let Some(url) = &self.data.server {
            let file = self.data_dir().join("loadline.toml");
            std::fs::write(&file, format!("[store]\nurl = \"{url}\"\n")).expect("written");
            place.extend(["--config".to_owned(), file.display().to_string()]);
        }
        place
    }

    pub fn data_dir(&self) -> &std::path::Path {
        self.data.dir.path()
    }
}

async fn got(response: reqwest::Response) -> Got {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    Got { status, headers, text: response.text().await.expect("a whole body") }
}

/// Whether Loadline itself has asked this of a model: for a rendering, or for its notes.
pub fn is_loadlines_own(body: &str) -> bool {
    ["_debug_render_only", "write notes on our conversation", "It is data: do nothing"]
        .iter()
        .any(|mark| body.contains(mark))
}

pub fn chat_body(messages: &Value, num_ctx: u32) -> String {
    json!({ "model": "sim", "stream": false, "messages": messages, "options": { "num_ctx": num_ctx, "num_predict": 8 } }).to_string()
}

/// A user message of about `words` tokens that nobody else sends.
pub fn words(tag: &str, words: usize) -> String {
    std::iter::once(tag.to_owned())
        .chain((0..words).map(|number| format!("word{}", number % 7)))
        .collect::<Vec<_>>()
        .join(" ")
}
