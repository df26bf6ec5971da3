//! Connections to one upstream, each driven by whoever uses it.
//!
//! hyper leaves a connection to be polled by somebody. The usual way is a task of its own, which then hands every
//! piece of an answer to the task that wants it: two tasks that wake each other for each piece, mostly on different
//! threads. Here the task that waits for an answer, and then for its pieces, polls the connection itself. Pieces that
//! were read together are there together, and nobody is woken for what happens within one look.
//!
//! A connection that is not in use lies in the pool and is looked at before it is used again. One whose answer was
//! not read to its end is closed with it, never pooled.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http::{Request, Response, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::client::{BoxError, RequestBody, deepest};

/// Connections that may lie unused, and for how long.
const MAX_IDLE: usize = 256;
const IDLE_FOR: Duration = Duration::from_secs(30);

/// Rounds that a connection may go on by itself before others have a turn.
const MOST_ROUNDS: u32 = 64;

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// There was no connection to be had, and why.
    Unreachable(String),
    /// It was closed before the answer began.
    Closed,
}

/// The connections to one address.
#[derive(Debug)]
pub(super) struct Pool {
    host: String,
    port: u16,
    connect_timeout: Duration,
    idle: Mutex<Vec<(Instant, Wire)>>,
}

impl Pool {
    pub(super) fn new(host: &str, port: u16, connect_timeout: Duration) -> Self {
        let host = host.trim_matches(['[', ']']).to_owned();
        Self { host, port, connect_timeout, idle: Mutex::default() }
    }

    /// Sends a request and waits for the head of its answer. It is sent again only if nothing of it was written, on
    /// a connection that had been closed while it lay unused.
    pub(super) async fn send(
        self: &Arc<Self>,
        mut request: Request<RequestBody>,
    ) -> Result<Response<UpstreamBody>, NoAnswer> {
        loop {
            let (mut wire, used_before) = match self.take() {
                Some(wire) => (wire, true),
                None => (self.connect().await?, false),
            };
            match wire.exchange(request).await {
                Ok(response) => {
                    let (mut head, incoming) = response.into_parts();
                    // What this hop speaks is nobody else's business.
                    head.version = Version::HTTP_11;
                    let mut body = UpstreamBody { incoming, wire: Some(wire), pool: Arc::clone(self) };
                    if body.is_end_stream() {
                        // Nobody will ask for it.
                        body.over();
                    }
                    return Ok(Response::from_parts(head, body));
                }
                Err(Some(unsent)) if used_before => request = *unsent,
                Err(_) => return Err(NoAnswer::Closed),
            }
        }
    }

    async fn connect(&self) -> Result<Wire, NoAnswer> {
        let connecting = TcpStream::connect((self.host.as_str(), self.port));
        let connected = tokio::time::timeout(self.connect_timeout, connecting).await;
        let slow = |_| NoAnswer::Unreachable(format!("no connection within {:?}", self.connect_timeout));
        let stream = connected.map_err(slow)?.map_err(|error| NoAnswer::Unreachable(error.to_string()))?;
        // A request is one write, and must not wait for more to come.
        let _best_effort = stream.set_nodelay(true);
        let shaken = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(|error| NoAnswer::Unreachable(deepest(&error)))?;
        Ok(Wire { sender, connection: Some(Box::pin(connection)), nudge: Arc::default() })
    }

    /// A connection that lay unused and is still good, the one used last first.
    fn take(&self) -> Option<Wire> {
        loop {
            let (since, mut wire) = self.idle().pop()?;
            if since.elapsed() < IDLE_FOR && wire.is_ready() {
                return Some(wire);
            }
        }
    }

    fn give_back(&self, wire: Wire) {
        let mut idle = self.idle();
        // The oldest come first; those that are too old are closed when the lock is let go of.
        let old = idle.iter().take_while(|(since, _)| since.elapsed() >= IDLE_FOR).count();
        let dropped: Vec<_> = idle.drain(..old).collect();
        if idle.len() < MAX_IDLE {
            idle.push((Instant::now(), wire));
        }
        drop(idle);
        drop(dropped);
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<(Instant, Wire)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Connection = http1::Connection<TokioIo<TcpStream>, RequestBody>;

/// One connection, and what it takes to drive it.
struct Wire {
    sender: SendRequest<RequestBody>,
    /// Gone when it has ended.
    connection: Option<Pin<Box<Connection>>>,
    nudge: Arc<Nudge>,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Wire")
    }
}

impl Wire {
    /// One exchange up to the head of the answer. The request comes back if nothing of it was written.
    async fn exchange(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, Option<Box<Request<RequestBody>>>> {
        let mut answer = pin!(self.sender.try_send_request(request));
        let (connection, nudge) = (&mut self.connection, &self.nudge);
        poll_fn(|context| {
            drive(connection, nudge, context, |inner| match answer.as_mut().poll(inner) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Ok(response)) => Poll::Ready(Ok(response)),
                Poll::Ready(Err(mut error)) => Poll::Ready(Err(error.take_message().map(Box::new))),
            })
            .map(|answered| answered.unwrap_or(Err(None)))
        })
        .await
    }

    /// Whether it can take a request: looks whether it was closed meanwhile.
    fn is_ready(&mut self) -> bool {
        let mut nobody = Context::from_waker(Waker::noop());
        !is_over(&mut self.connection, &mut nobody) && self.sender.is_ready()
    }
}

/// Lets a connection and what depends on it work until neither can go on. `None` if the connection has ended and
/// what depends on it still waits: it would wait for ever.
fn drive<T>(
    connection: &mut Option<Pin<Box<Connection>>>,
    nudge: &Arc<Nudge>,
    context: &mut Context<'_>,
    mut dependent: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Poll<Option<T>> {
    nudge.task.register(context.waker());
    let waker = Waker::from(Arc::clone(nudge));
    let mut inner = Context::from_waker(&waker);
    for _ in 0..MOST_ROUNDS {
        nudge.busy();
        let ended = is_over(connection, &mut inner);
        let polled = dependent(&mut inner);
        let again = nudge.rest();
        match polled {
            Poll::Ready(done) => return Poll::Ready(Some(done)),
            Poll::Pending if ended => return Poll::Ready(None),
            Poll::Pending if again => {}
            Poll::Pending => return Poll::Pending,
        }
    }
    // Others want a turn as well.
    context.waker().wake_by_ref();
    Poll::Pending
}

/// Lets a connection work. Whether it has ended; then it is let go of.
fn is_over(connection: &mut Option<Pin<Box<Connection>>>, context: &mut Context<'_>) -> bool {
    let Some(working) = connection else { return true };
    let ended = working.as_mut().poll(context).is_ready();
    if ended {
        *connection = None;
    }
    ended
}

/// Wakes the task that drives a connection, unless that is at it just now: then it goes round once more.
#[derive(Debug, Default)]
struct Nudge {
    task: AtomicWaker,
    state: AtomicU8,
}

const RESTING: u8 = 0;
const BUSY: u8 = 1;
const BUSY_AND_NUDGED: u8 = 2;

impl Nudge {
    fn busy(&self) {
        self.state.store(BUSY, Ordering::SeqCst);
    }

    /// Whether somebody called meanwhile.
    fn rest(&self) -> bool {
        self.state.swap(RESTING, Ordering::SeqCst) == BUSY_AND_NUDGED
    }
}

impl Wake for Nudge {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let noted = self.state.compare_exchange(BUSY, BUSY_AND_NUDGED, Ordering::SeqCst, Ordering::SeqCst);
        if noted == Err(RESTING) {
            self.task.wake();
        }
    }
}

/// The body of an answer, with the connection that it comes from. Read to its end, the connection is pooled again;
/// dropped before, it is closed.
#[derive(Debug)]
pub struct UpstreamBody {
    incoming: Incoming,
    wire: Option<Wire>,
    pool: Arc<Pool>,
}

impl UpstreamBody {
    fn over(&mut self) {
        if let Some(mut wire) = self.wire.take()
            && wire.is_ready()
        {
            self.pool.give_back(wire);
        }
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let incoming = &mut this.incoming;
        let polled = match &mut this.wire {
            Some(Wire { connection, nudge, .. }) => {
                drive(connection, nudge, context, |inner| Pin::new(&mut *incoming).poll_frame(inner))
                    .map(Option::flatten)
            }
            // It was read to its end.
            None => Poll::Ready(None),
        };
        match polled {
            Poll::Pending => return Poll::Pending,
            // Only a whole answer leaves a connection that can be used again.
            Poll::Ready(Some(Err(_))) => this.wire = None,
            Poll::Ready(_) if this.incoming.is_end_stream() => this.over(),
            Poll::Ready(None) => this.over(),
            Poll::Ready(Some(Ok(_))) => {}
        }
        polled.map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener as StdListener, TcpStream as StdStream};

    use http_body_util::BodyExt;

    use super::super::client::full;
    use super::*;

    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";

    fn listening() -> (StdListener, Arc<Pool>) {
        let listener = StdListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        (listener, Arc::new(Pool::new("127.0.0.1", port, Duration::from_secs(5))))
    }

    fn question() -> Request<RequestBody> {
        Request::builder().method("POST").uri("/").header("host", "there").body(full("a question")).expect("a request")
    }

    /// Reads one request: its head, and ten bytes.
    fn read_question(stream: &mut StdStream) {
        let (mut read, mut bytes) = (Vec::new(), [0; 1024]);
        while !read.ends_with(b"a question") {
            let count = stream.read(&mut bytes).expect("readable");
            assert!(count > 0, "closed after {:?}", String::from_utf8_lossy(&read));
            read.extend_from_slice(&bytes[..count]);
        }
    }

    async fn text(response: Response<UpstreamBody>) -> Bytes {
        response.into_body().collect().await.expect("a whole body").to_bytes()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_connection_is_used_again_and_one_that_was_closed_meanwhile_is_not() {
        let (listener, pool) = listening();
        let server = tokio::task::spawn_blocking(move || {
            let (mut first, _) = listener.accept().expect("a connection");
            for _ in 0..2 {
                read_question(&mut first);
                first.write_all(ANSWER).expect("written");
            }
            drop(first);
            let (mut second, _) = listener.accept().expect("another connection");
            read_question(&mut second);
            second.write_all(ANSWER).expect("written");
        });
        for _ in 0..2 {
            assert_eq!(text(pool.send(question()).await.expect("an answer")).await, "hello");
        }
        // It lies in the pool, and its end is seen before it is used.
        let seen = async {
            loop {
                let ready = pool.idle().last_mut().is_some_and(|(_, wire)| wire.is_ready());
                if !ready {
                    break;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), seen).await.expect("its end is seen");
        assert_eq!(text(pool.send(question()).await.expect("an answer")).await, "hello");
        server.await.expect("the server is content");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_request_that_was_written_is_not_sent_again() {
        let (listener, pool) = listening();
        let server = tokio::task::spawn_blocking(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            read_question(&mut stream);
            stream.write_all(ANSWER).expect("written");
            read_question(&mut stream);
            drop(stream);
            listener.set_nonblocking(true).expect("set");
            listener
        });
        assert_eq!(text(pool.send(question()).await.expect("an answer")).await, "hello");
        assert!(matches!(pool.send(question()).await, Err(NoAnswer::Closed)));
        let listener = server.await.expect("the server is content");
        assert!(listener.accept().is_err(), "nobody came again");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn dropping_an_answer_closes_its_connection() {
        let (listener, pool) = listening();
        let server = tokio::task::spawn_blocking(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            read_question(&mut stream);
            stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n").expect("written");
            // Ready when the other side is gone.
            stream.read(&mut [0; 16]).map_or(0, |count| count)
        });
        let mut body = pool.send(question()).await.expect("an answer").into_body();
        let first = body.frame().await.expect("a frame").expect("good").into_data().expect("data");
        assert_eq!(first, "hello");
        drop(body);
        assert_eq!(server.await.expect("the server is content"), 0);
        assert!(pool.idle().is_empty(), "never pooled");
    }

    #[tokio::test]
    async fn pieces_that_were_read_together_are_there_without_anybody_being_woken() {
        let (listener, pool) = listening();
        let server = tokio::task::spawn_blocking(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            read_question(&mut stream);
            let mut all = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
            (0..50).for_each(|_| all.extend_from_slice(b"5\r\nhello\r\n"));
            all.extend_from_slice(b"0\r\n\r\n");
            stream.write_all(&all).expect("written");
            stream
        });
        let mut body = pool.send(question()).await.expect("an answer").into_body();
        let _stream = server.await.expect("the server is content");
        let first = body.frame().await.expect("a frame").expect("good").into_data().expect("data");
        let (mut pieces, mut bytes) = (1, first.len());
        let mut nobody = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(frame)) = Pin::new(&mut body).poll_frame(&mut nobody) {
            pieces += 1;
            bytes += frame.expect("good").into_data().expect("data").len();
        }
        assert_eq!((pieces, bytes), (50, 250));
        assert_eq!(pool.idle().len(), 1, "read to its end, so it can be used again");
    }

    #[tokio::test]
    async fn whoever_does_not_listen_is_unreachable() {
        let (listener, pool) = listening();
        drop(listener);
        assert!(
            matches!(pool.send(question()).await, Err(NoAnswer::Unreachable(reason)) if reason.contains("refused"))
        );
    }
}
