//! Accepting connections, and ending them in good order.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};

use super::Gateway;

/// A request's head may have this many bytes and headers; more is answered 431.
const MAX_HEAD_BYTES: usize = 64 << 10;
const MAX_HEADERS: usize = 128;

/// How long to wait when the system has no more file descriptors to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A listening socket, ready to serve.
#[derive(Debug)]
pub struct Server {
    gateway: Arc<Gateway>,
    listener: TcpListener,
    addr: SocketAddr,
}

impl Server {
    pub async fn bind(gateway: Arc<Gateway>) -> io::Result<Self> {
        let listener = TcpListener::bind(gateway.config.listen).await?;
        let addr = listener.local_addr()?;
        Ok(Self { gateway, listener, addr })
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Serves until `stop` is ready, then lets answers under way finish within the grace time.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let graceful = GracefulShutdown::new();
        let mut stop = std::pin::pin!(stop);
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => serve(Arc::clone(&self.gateway), stream, &graceful),
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                () = &mut stop => break,
            }
        }
        drop(self.listener);
        self.gateway.stopping.cancel();
        let grace = self.gateway.config.shutdown_grace;
        if tokio::time::timeout(grace, graceful.shutdown()).await.is_err() {
            tracing::warn!(grace_s = grace.as_secs(), "answers were still under way when the grace time ended");
        }
    }
}

fn serve(gateway: Arc<Gateway>, stream: TcpStream, graceful: &GracefulShutdown) {
    // Small chunks must not wait for larger ones.
    let _best_effort = stream.set_nodelay(true);
    let header_timeout = gateway.config.header_timeout;
    let service = service_fn(move |request| {
        let gateway = Arc::clone(&gateway);
        // Boxed, because the connection keeps room for it as long as the answer lasts, which may be long.
        Box::pin(async move { Ok::<_, Infallible>(gateway.handle(request).await) })
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    let connection = graceful.watch(connection);
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection ended badly");
        }
    });
}
