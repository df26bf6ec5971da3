//! The listening side: connections, bodies, and the log of what came in.
//!
//! It speaks to hyper directly, because a scripted fault must be able to close a connection without an
//! answer, and a router would turn that into a status.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::dialect::Route;
use super::ledger::Seen;
use super::respond::{Torn, as_go_sends, with_status};
use super::routes;
use super::runner::World;

/// Ollama takes bodies of any size; this is far beyond any window we simulate.
const BODY_LIMIT_BYTES: usize = 256 << 20;

/// Accepts connections until it is told to stop, then waits for all of them to be gone.
pub(super) async fn accept(listener: TcpListener, world: Arc<World>, stop: CancellationToken) {
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                connections.spawn(serve(stream, Arc::clone(&world), stop.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "the simulator could not accept a connection");
                tokio::task::yield_now().await;
            }
        }
    }
    connections.close();
    connections.wait().await;
}

async fn serve(stream: TcpStream, world: Arc<World>, stop: CancellationToken) {
    // Chunks are small and each is news; waiting to fill a packet would distort every latency.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "no nodelay");
    }
    let service = service_fn(move |request| handle(Arc::clone(&world), request));
    let connection = http1::Builder::new().header_read_timeout(None).serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        () = stop.cancelled() => {}
        ended = connection => {
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection to the simulator ended early");
            }
        }
    }
}

async fn handle(world: Arc<World>, request: Request<Incoming>) -> Result<Response<Body>, Torn> {
    let (head, incoming) = request.into_parts();
    let Ok(collected) = Limited::new(incoming, BODY_LIMIT_BYTES).collect().await else {
        return Ok(with_status(StatusCode::BAD_REQUEST, "text/plain", "the body did not arrive".into()));
    };
    let body: Bytes = collected.to_bytes();
    let path = head.uri.path_and_query().map_or_else(|| "/".to_owned(), |path| path.as_str().to_owned());
    if world.config.instant
        && let Some(answer) = Route::of_path(&path).and_then(|route| world.ready.answer(&world, route, &body))
    {
        return Ok(as_go_sends(answer));
    }
    let seen = Seen { method: head.method.clone(), path, headers: head.headers, body: body.clone() };
    world.ledger.record(seen);
    routes::dispatch(&world, &head.method, head.uri.path(), &body).await.map(as_go_sends)
}
