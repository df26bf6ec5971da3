//! An answer on its way to the client, read along as it passes.
//!
//! Bytes leave in the pieces they came in. Beside that, frames are cut and read, so that the reported
//! count can be compared and the answer remembered. A stream that dies, or ends without its terminal
//! frame, gets an error frame of ours at its end: to Ollama's own clients a clean end looks like
//! success. A client that goes away drops the body, and with it the upstream's connection.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep};

use crate::dialect::{Answer, Dialect};
use crate::framing::{Frames, Framing};
use crate::ollama::client::BoxError;

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Complete,
    /// The upstream broke off, reported an error, or stopped without its terminal frame.
    Incomplete,
    /// The client went away.
    Cancelled,
}

type Finish = Box<dyn FnOnce(Answer, Ending) + Send>;

/// Who reads along.
pub struct Watcher(Option<Watching>);

struct Watching {
    dialect: Dialect,
    framing: Framing,
    frames: Frames,
    answer: Answer,
    finish: Option<Finish>,
}

impl Watcher {
    /// Nobody reads along: the bytes just pass.
    pub fn nobody() -> Self {
        Self(None)
    }

    /// Reads the frames of an answer, and calls `finish` exactly once when it is over.
    pub fn new(dialect: Dialect, framing: Framing, finish: impl FnOnce(Answer, Ending) + Send + 'static) -> Self {
        Self(Some(Watching {
            dialect,
            framing,
            frames: Frames::new(framing),
            answer: Answer::default(),
            finish: Some(Box::new(finish)),
        }))
    }

    fn read(&mut self, bytes: &[u8]) {
        if let Some(Watching { dialect, frames, answer, .. }) = &mut self.0 {
            frames.push(bytes, |frame| answer.read(*dialect, frame));
        }
    }

    /// Whether the answer can only end as the upstream ends it: nobody reads along, or it is one text.
    fn expects_no_last_frame(&self) -> bool {
        self.0.as_ref().is_none_or(|watching| watching.framing == Framing::Whole)
    }

    /// The stream is over. Returns a last frame for the client, if it has to be told.
    fn end(&mut self, broken: Option<&str>) -> Option<Bytes> {
        let Watching { dialect, framing, frames, answer, finish } = self.0.as_mut()?;
        frames.finish(|frame| answer.read(*dialect, frame));
        // A body that is one JSON text has no terminal frame: being whole is being done.
        // What comes after the terminal frame no longer matters.
        let done = answer.done || (*framing == Framing::Whole && broken.is_none());
        let complete = done && !answer.failed;
        // A stream that could not be followed may have had its end.
        let told = complete || answer.failed || (frames.gave_up() && broken.is_none());
        let reason = broken.unwrap_or("the upstream ended its answer before it was finished");
        if let Some(finish) = finish.take() {
            finish(std::mem::take(answer), if complete { Ending::Complete } else { Ending::Incomplete });
        }
        (!told && *framing != Framing::Whole).then(|| Bytes::from(dialect.errors().frame(*framing, reason)))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Some(Watching { answer, finish, .. }) = &mut self.0
            && let Some(finish) = finish.take()
        {
            // A client may close as soon as it has the terminal frame.
            let complete = answer.done && !answer.failed;
            finish(std::mem::take(answer), if complete { Ending::Complete } else { Ending::Cancelled });
        }
    }
}

impl std::fmt::Debug for Watcher {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(if self.0.is_some() { "Watcher(somebody)" } else { "Watcher(nobody)" })
    }
}

pin_project! {
    /// The upstream's body, with somebody reading along and a bound on silence.
    #[derive(Debug)]
    pub struct Observed {
        #[pin]
        body: Incoming,
        #[pin]
        silence: Sleep,
        idle_timeout: Duration,
        watcher: Watcher,
        over: bool,
    }
}

impl Observed {
    pub fn new(body: Incoming, idle_timeout: Duration, watcher: Watcher) -> Self {
        Self { body, silence: tokio::time::sleep(idle_timeout), idle_timeout, watcher, over: false }
    }
}

impl Body for Observed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut this = self.project();
        if *this.over {
            return Poll::Ready(None);
        }
        let polled = this.body.as_mut().poll_frame(context);
        let broken = match polled {
            Poll::Ready(Some(Ok(frame))) => {
                let deadline = Instant::now() + *this.idle_timeout;
                this.silence.as_mut().reset(deadline);
                if let Some(bytes) = frame.data_ref() {
                    this.watcher.read(bytes);
                }
                // A body of known length is not polled again once that length is reached.
                if this.body.is_end_stream() && this.watcher.expects_no_last_frame() {
                    *this.over = true;
                    this.watcher.end(None);
                }
                return Poll::Ready(Some(Ok(frame)));
            }
            Poll::Ready(None) => None,
            Poll::Ready(Some(Err(_))) => Some("the upstream's answer broke off"),
            Poll::Pending => {
                ready!(this.silence.poll(context));
                Some("the upstream has been silent for too long (upstream.idle_timeout_s)")
            }
        };
        *this.over = true;
        Poll::Ready(match (this.watcher.end(broken), broken) {
            (Some(last), _) => Some(Ok(Frame::data(last))),
            (None, Some(reason)) => Some(Err(reason.into())),
            (None, None) => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        // Only once the end was seen and acted on.
        self.over
    }

    fn size_hint(&self) -> SizeHint {
        if self.watcher.expects_no_last_frame() { self.body.size_hint() } else { SizeHint::default() }
    }
}
