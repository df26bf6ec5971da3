//! `loadline bench relay`: hyper, a pool, and nothing else.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use clap::Args;
use http::header::HOST;
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

use crate::commands::{Outcome, stop_signal};

/// Pass requests on, unread: the floor under every proxy that is built on hyper.
///
/// It looks at nothing, stores nothing, and has no timeouts; it is here to be compared with.
///
///   loadline bench relay --listen 127.0.0.1:9001 --upstream http://127.0.0.1:11434
///   loadline bench load --against relay=http://127.0.0.1:9001 --upstream http://127.0.0.1:11434 --model M
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Relay {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Where requests go
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:11434")]
    upstream: Uri,
}

type Pool = Client<HttpConnector, Incoming>;

impl Relay {
    pub(super) async fn run(self) -> Result<Outcome> {
        let authority = self.upstream.authority().filter(|_| self.upstream.scheme() == Some(&Scheme::HTTP)).cloned();
        let authority = authority.context("--upstream looks like http://127.0.0.1:11434")?;
        let listener = TcpListener::bind(self.listen).await;
        let listener = listener.with_context(|| format!("cannot listen on {}", self.listen))?;
        say!("listening on http://{}", listener.local_addr()?);
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let pool: Pool = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(256).build(connector);
        tokio::select! {
            () = accept(listener, pool, authority) => {}
            () = stop_signal() => {}
        }
        Ok(Outcome::Fine)
    }
}

async fn accept(listener: TcpListener, pool: Pool, upstream: Authority) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::task::yield_now().await;
            continue;
        };
        let _best_effort = stream.set_nodelay(true);
        let (pool, upstream) = (pool.clone(), upstream.clone());
        let service = service_fn(move |request| pass(pool.clone(), upstream.clone(), request));
        // A connection that breaks is its client's business.
        tokio::spawn(async move { http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok() });
    }
}

async fn pass(
    pool: Pool,
    upstream: Authority,
    mut request: Request<Incoming>,
) -> Result<Response<Incoming>, hyper_util::client::legacy::Error> {
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    (parts.scheme, parts.authority) = (Some(Scheme::HTTP), Some(upstream));
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    request.headers_mut().remove(HOST);
    pool.request(request).await
}
