//! One way to the model: where it is, who talks through it, and what was measured of it.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::uri::Authority;
use http::{Method, Request, Uri, header};
use http_body_util::Full;

use super::client::{Client, Failure};
use super::figures::Figures;
use super::process::{Pid, listening_on};
use super::script::{Script, Shape, Stage};

/// A URL that nothing can be asked at.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    #[error("`{0}` is not a URL; one looks like http://127.0.0.1:11434")]
    NotAUrl(String),
    #[error("`{0}`: only http:// can be measured")]
    NotHttp(String),
    #[error("`{0}` has no address: {1}")]
    Unknown(String, std::io::Error),
}

/// Where a path begins.
#[derive(Debug)]
pub struct Target {
    pub url: String,
    pub addresses: Vec<SocketAddr>,
    authority: Authority,
    /// What stands before every route, without a slash at the end.
    prefix: String,
}

impl Target {
    /// Finds the address once: asking for it again would be measured.
    pub async fn find(url: &str) -> Result<Self, TargetError> {
        let not_a_url = || TargetError::NotAUrl(url.to_owned());
        let with_scheme = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let uri: Uri = with_scheme.parse().map_err(|_| not_a_url())?;
        if uri.scheme_str() != Some("http") {
            return Err(TargetError::NotHttp(url.to_owned()));
        }
        let authority = uri.authority().filter(|authority| !authority.host().is_empty()).ok_or_else(not_a_url)?;
        let host = authority.host().trim_matches(['[', ']']);
        let found = tokio::net::lookup_host((host, authority.port_u16().unwrap_or(80))).await;
        let addresses = found.map_err(|error| TargetError::Unknown(url.to_owned(), error))?.collect();
        let prefix = uri.path().trim_end_matches('/').to_owned();
        Ok(Self { url: format!("http://{authority}{prefix}"), addresses, authority: authority.clone(), prefix })
    }

    /// `host:port`, as a path is called that has no other name.
    pub fn host(&self) -> &str {
        self.authority.as_str()
    }

    pub fn request(&self, method: Method, path: &str, body: Bytes) -> Result<Request<Full<Bytes>>, Failure> {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.prefix))
            .header(header::HOST, self.authority.as_str())
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body));
        request.map_err(|error| Failure { kind: "request".to_owned(), said: error.to_string() })
    }
}

/// One path of a run.
#[derive(Debug)]
pub struct Path {
    pub name: String,
    pub target: Arc<Target>,
    /// The processes that answer there, as far as they can be seen.
    pub processes: Vec<Pid>,
    pub clients: Vec<Client>,
    pub figures: Figures,
    /// Its place among the paths, which its conversations name.
    number: usize,
}

impl Path {
    /// `known` is the process, where it is our own child; else it is looked for.
    pub fn new(name: &str, number: usize, target: Target, known: Option<Pid>, figures: Figures) -> Self {
        let processes = known.map_or_else(|| listening_on(&target.addresses), |pid| vec![pid]);
        Self { name: name.to_owned(), target: Arc::new(target), processes, clients: Vec::new(), figures, number }
    }

    /// Gives each client its script for a stage. Those who are connected already stay so.
    pub fn prepare(&mut self, shape: &Arc<Shape>, stage: Stage, clients: usize) {
        let script = |client| Script::new(Arc::clone(shape), stage, self.number, client);
        for (client, known) in self.clients.iter_mut().enumerate() {
            known.follow(script(client));
        }
        for client in self.clients.len()..clients {
            self.clients.push(Client::new(Arc::clone(&self.target), script(client)));
        }
    }
}
