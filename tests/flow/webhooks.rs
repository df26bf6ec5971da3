//! Those who want to know are called: signed, in order, again when it failed, and without anybody waiting for them.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use http::{HeaderMap, StatusCode, Uri};
use loadline::sim::{self, SimConfig};
use loadline::webhooks::{self, Backoff, Key, Secret};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use super::ladder::filled_to;
use crate::cli::{Running, loadline};
use crate::stage::{MODEL, Stage, chat_body, words};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// No test waits for a real pause.
const QUICK: Backoff = Backoff { shortest: Duration::from_millis(1), longest: Duration::from_millis(4) };

/// One call, as it arrived.
struct Call {
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Call {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("text"))
    }

    fn id(&self) -> &str {
        self.header("webhook-id")
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("json")
    }

    fn is_signed(&self) -> bool {
        let key = Key::of(&Secret::new(SECRET)).expect("a key").expect("a key");
        let timestamp = self.header("webhook-timestamp").parse().expect("seconds");
        self.header("webhook-signature") == key.sign(self.id(), timestamp, &self.body)
    }
}

/// How the receiver answers the next call.
enum Answer {
    Status(u16),
    /// Not at all.
    Never,
    /// With a body that has no end.
    Endless,
}

/// Somebody who wants to know. Without another word it answers 204.
struct Receiver {
    url: String,
    calls: mpsc::UnboundedReceiver<Call>,
    answers: Arc<Mutex<VecDeque<Answer>>>,
}

type Shared = (mpsc::UnboundedSender<Call>, Arc<Mutex<VecDeque<Answer>>>);

impl Receiver {
    async fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}/hook?key=hidden", listener.local_addr().expect("an address"));
        let (sender, calls) = mpsc::unbounded_channel();
        let answers = Arc::new(Mutex::new(answers.into_iter().collect()));
        let app = Router::new().fallback(called).with_state((sender, Arc::clone(&answers)));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, calls, answers }
    }

    async fn call(&mut self) -> Call {
        let call = tokio::time::timeout(Duration::from_secs(60), self.calls.recv()).await;
        call.expect("a call in time").expect("the receiver is there")
    }

    /// The ids of the next calls.
    async fn ids(&mut self, count: usize) -> Vec<String> {
        let mut ids = Vec::new();
        for _ in 0..count {
            ids.push(self.call().await.id().to_owned());
        }
        ids
    }
}

async fn called(State((calls, answers)): State<Shared>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let answer = answers.lock().expect("answers").pop_front().unwrap_or(Answer::Status(204));
    let path = uri.path_and_query().expect("a path").to_string();
    calls.send(Call { path, headers, body }).expect("the test listens");
    match answer {
        Answer::Never => std::future::pending().await,
        Answer::Endless => {
            let more = stream::repeat_with(|| Ok::<_, Infallible>(Bytes::from_static(&[b'x'; 1024])));
            Body::from_stream(more).into_response()
        }
        Answer::Status(status) => {
            let status = StatusCode::from_u16(status).expect("a status");
            (status, [("location", "/elsewhere"), ("retry-after", "0")]).into_response()
        }
    }
}

/// Configuration that has these addresses called.
fn variables<'a>(urls: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let own = [("LOADLINE_WEBHOOKS_URLS", urls), ("LOADLINE_WEBHOOKS_SECRET", SECRET)];
    own.into_iter().chain(more.iter().copied()).collect()
}

async fn stage(receivers: &[&Receiver], more: &[(&str, &str)]) -> Stage {
    let urls = json!(receivers.iter().map(|receiver| &receiver.url).collect::<Vec<_>>()).to_string();
    let stage = Stage::with(SimConfig::default(), &variables(&urls, more)).await;
    webhooks::start(&stage.gateway, QUICK).await.expect("it starts");
    stage
}

async fn restarted(stage: Stage, receivers: &[&Receiver]) -> Stage {
    let urls = json!(receivers.iter().map(|receiver| &receiver.url).collect::<Vec<_>>()).to_string();
    let stage = stage.restarted_with(&variables(&urls, &[])).await;
    webhooks::start(&stage.gateway, QUICK).await.expect("it starts");
    stage
}

/// A turn that is rolled over, and with it two events: the rollover and its warning.
async fn roll_over(stage: &Stage) -> String {
    let messages = filled_to(stage, 120.0, 2048).await;
    let got = stage.chat(&messages, 2048).await;
    assert_eq!((got.status, got.header("x-loadline-action")), (200, "rollover"), "{}", got.text);
    got.header("x-loadline-snapshot").to_owned()
}

fn numbered(numbers: impl IntoIterator<Item = usize>) -> Vec<String> {
    numbers.into_iter().map(|number| format!("evt_{number}")).collect()
}

#[tokio::test]
async fn a_rollover_is_delivered_signed_and_says_nothing_of_what_was_said() {
    let mut receiver = Receiver::new([]).await;
    let stage = stage(&[&receiver], &[]).await;
    let snapshot = roll_over(&stage).await;
    let call = receiver.call().await;
    assert!(call.is_signed());
    assert_eq!(call.header("content-type"), "application/json");
    assert_eq!((call.id(), call.path.as_str()), ("evt_1", "/hook?key=hidden"));
    let (body, event) = (call.json(), &stage.events()[0]);
    assert_eq!((&body["type"], &body["data"]["snapshot"]), (&json!("rollover"), &json!(snapshot)));
    assert_eq!(body["timestamp"], body["data"]["at"]);
    assert_eq!((&body["data"]["id"], &body["data"]["user"]), (&json!(1), &json!("local")));
    assert_eq!(body["data"]["conversation"], json!(event.conversation));
    let warning = receiver.call().await;
    assert!(warning.is_signed() && warning.json()["type"] == "warning");
    assert!(stage.gateway.webhooks.delivered.get() >= 1);
    for call in [call, warning] {
        assert!(!String::from_utf8_lossy(&call.body).contains("word1"), "an event says nothing of what was said");
    }
}

#[tokio::test]
async fn a_receiver_that_failed_gets_the_same_again_before_anything_later() {
    let mut receiver = Receiver::new([Answer::Status(302), Answer::Status(503)]).await;
    let stage = stage(&[&receiver], &[]).await;
    roll_over(&stage).await;
    let calls = [receiver.call().await, receiver.call().await, receiver.call().await, receiver.call().await];
    assert_eq!(calls.each_ref().map(|call| call.id()), ["evt_1", "evt_1", "evt_1", "evt_2"]);
    assert!(calls[..3].iter().all(|call| call.body == calls[0].body && call.is_signed()));
    assert!(calls.iter().all(|call| call.path.starts_with("/hook")), "a redirect is not followed");
    assert_eq!(stage.gateway.webhooks.retried.get(), 2);
    assert_eq!(stage.gateway.webhooks.dropped.get(), 0);
}

#[tokio::test]
async fn an_answer_without_an_end_is_not_read_to_it() {
    let mut receiver = Receiver::new([Answer::Endless]).await;
    // As long as a call may take: longer than the test waits for the next.
    let stage = stage(&[&receiver], &[("LOADLINE_WEBHOOKS_TIMEOUT_S", "300")]).await;
    roll_over(&stage).await;
    assert_eq!(receiver.ids(2).await, numbered([1, 2]));
    assert_eq!(stage.gateway.webhooks.retried.get(), 0);
}

#[tokio::test]
async fn an_event_that_fails_too_often_is_given_up_and_the_next_one_arrives() {
    let mut receiver = Receiver::new([500, 404, 500].map(Answer::Status)).await;
    let stage = stage(&[&receiver], &[("LOADLINE_WEBHOOKS_MAX_ATTEMPTS", "3")]).await;
    roll_over(&stage).await;
    assert_eq!(receiver.ids(4).await, ["evt_1", "evt_1", "evt_1", "evt_2"]);
    assert_eq!(stage.gateway.webhooks.dropped.get(), 1);
    assert_eq!(stage.gateway.webhooks.retried.get(), 2);
}

#[tokio::test]
async fn a_receiver_that_is_gone_is_not_called_until_the_next_start() {
    let mut gone = Receiver::new([Answer::Status(410)]).await;
    let mut other = Receiver::new([]).await;
    let stage = stage(&[&gone, &other], &[]).await;
    roll_over(&stage).await;
    roll_over(&stage).await;
    let count = stage.events().len();
    assert_eq!(other.ids(count).await, numbered(1..=count));
    let stage = restarted(stage, &[&gone, &other]).await;
    // It stopped at the first, so that one comes again, and then the others.
    assert_eq!(gone.ids(count + 1).await, numbered([1].into_iter().chain(1..=count)));
    drop(stage);
}

#[tokio::test]
async fn a_restart_loses_nothing_and_repeats_only_what_was_not_answered() {
    let mut receiver = Receiver::new([Answer::Status(200), Answer::Never]).await;
    let stage = stage(&[&receiver], &[]).await;
    roll_over(&stage).await;
    assert_eq!(receiver.ids(2).await, numbered([1, 2]));
    // While the second call has no answer, more happens, and then the server stops.
    roll_over(&stage).await;
    let before = stage.events().len();
    let stage = restarted(stage, &[&receiver]).await;
    assert_eq!(receiver.ids(before - 1).await, numbered(2..=before));
    roll_over(&stage).await;
    let after = stage.events().len();
    assert_eq!(receiver.ids(after - before).await, numbered(before + 1..=after));
}

#[tokio::test]
async fn a_new_address_hears_of_what_happens_from_then_on() {
    let stage = Stage::new().await;
    roll_over(&stage).await;
    let before = stage.events().len();
    let mut receiver = Receiver::new([]).await;
    let stage = restarted(stage, &[&receiver]).await;
    roll_over(&stage).await;
    assert_eq!(receiver.ids(1).await, numbered([before + 1]));
}

#[tokio::test]
async fn only_the_kinds_that_were_asked_for_are_sent() {
    let mut receiver = Receiver::new([]).await;
    let stage = stage(&[&receiver], &[("LOADLINE_WEBHOOKS_KINDS", r#"["rollover"]"#)]).await;
    roll_over(&stage).await;
    roll_over(&stage).await;
    let rollovers: Vec<_> = stage.events().into_iter().filter(|event| event.kind == "rollover").collect();
    assert!(rollovers.len() == 2 && stage.events().len() > 2, "there are others, too");
    let expected = numbered(rollovers.iter().map(|event| event.id as usize));
    assert_eq!(receiver.ids(2).await, expected);
}

#[tokio::test]
async fn a_dead_receiver_holds_up_neither_the_gate_nor_the_others() {
    let mut silent = Receiver::new([Answer::Never]).await;
    let mut well = Receiver::new([]).await;
    let nobody = {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        format!("http://{}/", listener.local_addr().expect("an address"))
    };
    let urls = json!([silent.url, nobody, well.url]).to_string();
    let stage = Stage::with(SimConfig::default(), &variables(&urls, &[])).await;
    // So that who cannot be reached is called again and again while the test goes on.
    webhooks::start(&stage.gateway, QUICK).await.expect("it starts");
    roll_over(&stage).await;
    assert_eq!(silent.ids(1).await, ["evt_1"]);
    roll_over(&stage).await;
    let count = stage.events().len();
    assert_eq!(well.ids(count).await, numbered(1..=count));
    assert!(silent.calls.is_empty(), "the first call is still without an answer");
    assert!(stage.gateway.webhooks.lag() > 0, "somebody is behind");
    assert!(silent.answers.lock().expect("answers").is_empty());
}

/// A server that speaks TLS with a certificate of its own; what comes of each connection is told.
async fn tls_receiver() -> (String, rcgen::Certificate, mpsc::UnboundedReceiver<Result<String, String>>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("a server");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("https://localhost:{}/hook", listener.local_addr().expect("an address").port());
    let (told, connections) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let outcome = match acceptor.accept(stream).await {
                Err(error) => Err(error.to_string()),
                Ok(mut stream) => {
                    let mut head = vec![0; 4096];
                    let read = stream.read(&mut head).await.expect("a request");
                    stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await.expect("sent");
                    stream.shutdown().await.expect("closed");
                    Ok(String::from_utf8_lossy(&head[..read]).into_owned())
                }
            };
            if told.send(outcome).is_err() {
                break;
            }
        }
    });
    (url, made.cert, connections)
}

/// As a process, because which certificates are trusted is the environment's to say.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn https_is_spoken_with_whom_the_system_trusts_and_with_nobody_else() {
    let (trusted, certificate, mut calls) = tls_receiver().await;
    let (stranger, _, mut attempts) = tls_receiver().await;
    let data = tempfile::tempdir().expect("a directory");
    let roots = data.path().join("roots.pem");
    std::fs::write(&roots, certificate.pem()).expect("written");
    let sim = sim::start(SimConfig { models: vec![MODEL.clone()], ..SimConfig::default() }).await.expect("a free port");
    let mut command = loadline();
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--upstream", &sim.url(), "--data-dir"])
        .arg(data.path().join("data"))
        .env("SSL_CERT_FILE", &roots)
        .env_remove("SSL_CERT_DIR")
        .env("LOADLINE_WEBHOOKS_URLS", json!([trusted, stranger]).to_string())
        .env("LOADLINE_WEBHOOKS_SECRET", SECRET);
    let serving = tokio::task::spawn_blocking(move || Running::of(command)).await.expect("it starts");
    let turns: Vec<_> = (0..60)
        .map(|number| {
            let role = if number % 2 == 0 { "user" } else { "assistant" };
            json!({ "role": role, "content": words(&format!("m{number}"), 40) })
        })
        .chain([json!({ "role": "user", "content": "and now?" })])
        .collect();
    let client = reqwest::Client::new();
    let body = chat_body(&json!(turns), 2048);
    let got = client.post(format!("{}/api/chat", serving.1)).body(body).send().await.expect("an answer");
    assert_eq!(got.headers()["x-loadline-action"], "rollover");
    let soon = |what| tokio::time::timeout(Duration::from_secs(60), what);
    let call = soon(calls.recv()).await.expect("in time").expect("there").expect("a handshake");
    assert!(call.starts_with("POST /hook HTTP/1.1\r\n") && call.contains("webhook-signature: v1,"), "{call}");
    let attempt = soon(attempts.recv()).await.expect("in time").expect("there");
    assert!(attempt.is_err(), "a stranger was trusted: {attempt:?}");
}
