//! Reaching the upstream: one pool of HTTP/1 connections for everything.
//!
//! The address comes from configuration and from nowhere else. Redirects are not followed. A request
//! that was written is never sent twice; dropping a response closes its connection.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited};

pub use super::connection::UpstreamBody;
use super::connection::{NoAnswer, Pool};

/// Whatever a body may fail with.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request on its way upstream.
pub type RequestBody = UnsyncBoxBody<Bytes, BoxError>;

/// `/api/show` with the lists of a large vocabulary is about 20 MB.
const MAX_CONTROL_BYTES: usize = 256 << 20;

/// Why the upstream gave no answer. All of these are the upstream's or the network's fault.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    #[error("upstream {0} cannot be reached: is Ollama running there? ({1})")]
    Unreachable(String, String),
    #[error("upstream {0} closed the connection before it answered")]
    Closed(String),
    #[error("upstream {upstream} sent no answer within {seconds} s (upstream.first_byte_timeout_s)")]
    Timeout { upstream: String, seconds: u64 },
    #[error("the answer of upstream {0} could not be read: {1}")]
    Unreadable(String, String),
}

/// A URL that cannot be an upstream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("`{0}` is not a URL; an upstream looks like http://127.0.0.1:11434")]
    NotAUrl(String),
    #[error("`{0}`: only http:// upstreams are supported")]
    NotHttp(String),
    #[error("the URL contains a user name or password; Ollama takes none, and it would end up in logs")]
    HasPassword,
}

/// A connection pool to one Ollama.
#[derive(Debug, Clone)]
pub struct Upstream {
    pool: Arc<Pool>,
    authority: Authority,
    /// The same as a header: Ollama refuses other hosts.
    host: HeaderValue,
    prefix: String,
    first_byte_timeout: Duration,
}

impl Upstream {
    pub fn new(url: &str, connect_timeout: Duration, first_byte_timeout: Duration) -> Result<Self, AddressError> {
        // `127.0.0.1:11434`, as OLLAMA_HOST has it, is good enough.
        let with_scheme = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let uri: Uri = with_scheme.parse().map_err(|_| AddressError::NotAUrl(url.to_owned()))?;
        let parts = uri.into_parts();
        let authority = parts.authority.filter(|authority| !authority.host().is_empty());
        let authority = authority.ok_or_else(|| AddressError::NotAUrl(url.to_owned()))?;
        if authority.as_str().contains('@') {
            return Err(AddressError::HasPassword);
        }
        if parts.scheme.as_ref().is_some_and(|scheme| *scheme != Scheme::HTTP) {
            return Err(AddressError::NotHttp(url.to_owned()));
        }
        let prefix = parts.path_and_query.map_or_else(String::new, |path| path.path().trim_end_matches('/').to_owned());
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| AddressError::NotAUrl(url.to_owned()))?;
        let pool = Pool::new(authority.host(), authority.port_u16().unwrap_or(80), connect_timeout);
        Ok(Self { pool: Arc::new(pool), authority, host, prefix, first_byte_timeout })
    }

    /// Whether this is the given address, as far as the URL itself tells.
    pub fn is_at(&self, addr: std::net::SocketAddr) -> bool {
        let port = self.authority.port_u16().unwrap_or(80);
        let host = self.authority.host().trim_matches(['[', ']']);
        let same_host = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip == addr.ip());
        port == addr.port() && same_host
    }

    /// `http://host:port`, for people.
    pub fn name(&self) -> String {
        format!("http://{}{}", self.authority, self.prefix)
    }

    /// Sends a request and waits for the head of its answer.
    ///
    /// The path must be clean already; `Host` is the upstream's own, because Ollama refuses others.
    pub async fn send(&self, mut request: Request<RequestBody>) -> Result<Response<UpstreamBody>, UpstreamError> {
        let path = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
        let uri = Uri::try_from(format!("{}{path}", self.prefix));
        *request.uri_mut() = uri.map_err(|error| UpstreamError::Unreachable(self.name(), error.to_string()))?;
        request.headers_mut().insert(header::HOST, self.host.clone());
        match tokio::time::timeout(self.first_byte_timeout, self.pool.send(request)).await {
            Ok(Ok(response)) if response.status() == StatusCode::SWITCHING_PROTOCOLS => Err(UpstreamError::Unreadable(
                self.name(),
                "it wants to switch protocols, which nobody asked for".into(),
            )),
            Ok(Ok(response)) => Ok(response),
            Ok(Err(NoAnswer::Unreachable(reason))) => Err(UpstreamError::Unreachable(self.name(), reason)),
            Ok(Err(NoAnswer::Closed)) => Err(UpstreamError::Closed(self.name())),
            Err(_) => Err(UpstreamError::Timeout { upstream: self.name(), seconds: self.first_byte_timeout.as_secs() }),
        }
    }

    /// One JSON call of our own: status and whole body.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<(http::StatusCode, Bytes), UpstreamError> {
        let unreadable = |error: BoxError| UpstreamError::Unreadable(self.name(), error.to_string());
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(full(body.unwrap_or_default()))
            .map_err(|error| unreadable(error.into()))?;
        self.answer(request, MAX_CONTROL_BYTES).await
    }

    /// The same for a question whose answer is short.
    pub async fn ask(&self, path: &str, max_bytes: usize) -> Result<(http::StatusCode, Bytes), UpstreamError> {
        let mut request = Request::new(full(Bytes::new()));
        if let Ok(uri) = path.parse() {
            *request.uri_mut() = uri;
        }
        self.answer(request, max_bytes).await
    }

    async fn answer(
        &self,
        request: Request<RequestBody>,
        max_bytes: usize,
    ) -> Result<(http::StatusCode, Bytes), UpstreamError> {
        let unreadable = |error: BoxError| UpstreamError::Unreadable(self.name(), error.to_string());
        let response = self.send(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), max_bytes).collect();
        let timed_out =
            |_| UpstreamError::Timeout { upstream: self.name(), seconds: self.first_byte_timeout.as_secs() };
        let body = tokio::time::timeout(self.first_byte_timeout, body).await.map_err(timed_out)?.map_err(unreadable)?;
        Ok((status, body.to_bytes()))
    }
}

/// A body that is there already.
pub fn full(body: impl Into<Bytes>) -> RequestBody {
    Full::new(body.into()).map_err(|never| match never {}).boxed_unsync()
}

/// The innermost reason: "connection refused" says more than "client error".
pub fn deepest(error: &dyn std::error::Error) -> String {
    let mut current = error;
    while let Some(source) = current.source() {
        current = source;
    }
    current.to_string()
}
