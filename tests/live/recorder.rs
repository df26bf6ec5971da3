//! A hop between Loadline and Ollama that changes nothing and keeps what goes by.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use tokio::sync::Semaphore;

use crate::stage::is_loadlines_own;

/// What went by.
struct Forwarded {
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

#[derive(Clone)]
pub struct Recorder {
    addr: SocketAddr,
    /// In the order in which it came.
    seen: Arc<Mutex<Vec<Forwarded>>>,
}

#[derive(Clone)]
struct Hop {
    to: Arc<str>,
    client: reqwest::Client,
    seen: Arc<Mutex<Vec<Forwarded>>>,
    /// How many more pieces of streams may pass, where that is bounded.
    allowed: Option<Arc<Semaphore>>,
}

impl Recorder {
    /// As long as the runtime that it was started on.
    pub async fn before(upstream: &str) -> Self {
        Self::start(upstream, None).await
    }

    /// One that lets a piece of a stream pass for each permit.
    pub async fn in_step(upstream: &str, allowed: Arc<Semaphore>) -> Self {
        Self::start(upstream, Some(allowed)).await
    }

    async fn start(upstream: &str, allowed: Option<Arc<Semaphore>>) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let addr = listener.local_addr().expect("an address");
        let seen = Arc::default();
        let hop = Hop { to: upstream.into(), client: reqwest::Client::new(), seen: Arc::clone(&seen), allowed };
        let routes = Router::new().fallback(pass_on).with_state(hop);
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Self { addr, seen }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The bodies that arrived at a path and were answered by the model for a user: renderings are not, nor is
    /// what Loadline asks a model for its notes.
    pub fn forwarded(&self, path: &str) -> Vec<serde_json::Value> {
        let seen = self.seen.lock().expect("nobody has panicked");
        let at_path = seen.iter().filter(|forwarded| forwarded.path == path && forwarded.is_a_users());
        at_path.map(|forwarded| serde_json::from_slice(&forwarded.body).expect("JSON")).collect()
    }

    /// The head and the body of the last of them.
    pub fn latest(&self, path: &str) -> Option<(HeaderMap, String)> {
        let seen = self.seen.lock().expect("nobody has panicked");
        let latest = seen.iter().rfind(|forwarded| forwarded.path == path && forwarded.is_a_users())?;
        Some((latest.headers.clone(), String::from_utf8(latest.body.to_vec()).expect("text")))
    }
}

impl Forwarded {
    fn is_a_users(&self) -> bool {
        !is_loadlines_own(&String::from_utf8_lossy(&self.body))
    }
}

async fn pass_on(State(hop): State<Hop>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 64 << 20).await.expect("a whole body");
    let forwarded = Forwarded { path: head.uri.path().to_owned(), headers: head.headers.clone(), body: body.clone() };
    hop.seen.lock().expect("nobody has panicked").push(forwarded);
    let url = format!("{}{}", hop.to, head.uri);
    let sent = hop.client.request(head.method, url).headers(head.headers).body(body).send().await;
    let answer = sent.expect("the upstream answers");
    let mut response = Response::builder().status(answer.status());
    response.headers_mut().expect("a head").extend(answer.headers().clone());
    let kind = answer.headers().get(CONTENT_TYPE).map_or("", |kind| kind.to_str().unwrap_or_default()).to_owned();
    let streamed = ["application/x-ndjson", "text/event-stream"].iter().any(|stream| kind.starts_with(stream));
    let allowed = hop.allowed.filter(|_| streamed);
    let pieces = futures_util::stream::try_unfold((answer, allowed), async |(mut answer, allowed)| {
        if let Some(allowed) = &allowed {
            allowed.acquire().await.expect("it is open").forget();
        }
        Ok::<_, reqwest::Error>(answer.chunk().await?.map(|piece| (piece, (answer, allowed))))
    });
    response.body(Body::from_stream(pieces)).expect("a response")
}
