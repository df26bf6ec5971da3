//! An answer on its way to the client, read along as it passes.
//!
//! Bytes leave as they come; pieces that are there at the same time leave together, because each costs its client a
//! look and us a call of the system. Beside that, frames are cut and read, so that the reported
//! count can be compared and the answer stored. The frame that says "done" waits until the whole turn is
//! on disk, and only it does: whoever has seen the end of an answer can rely on its being kept.
//!
//! A stream that dies, or ends without its terminal frame, gets an error frame of ours at its end: to
//! Ollama's own clients a clean end looks like success. A client that goes away drops the body, and with
//! it the upstream's connection.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep};

use crate::dialect::{Answer, Dialect};
use crate::framing::{Frames, Framing};
use crate::ollama::client::{BoxError, UpstreamBody};

/// Pieces that are there at the same time leave together up to this many bytes.
const TOGETHER_BYTES: usize = 16 << 10;

/// And this many pieces.
const TOGETHER_PIECES: usize = 256;

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Complete,
    /// The upstream broke off, reported an error, or stopped without its terminal frame.
    Incomplete,
    /// The client went away.
    Cancelled,
}

impl Ending {
    pub fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Incomplete => "incomplete",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Why an answer without frames has no end.
#[derive(Debug, thiserror::Error)]
pub enum Unfinished {
    #[error("{0}")]
    NotKept(String),
    #[error("{0}")]
    Upstream(&'static str),
}

/// Ready when the turn is on disk, or with the reason why it is not.
pub type Commit = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

type Finish = Box<dyn FnOnce(Answer, Ending) -> Commit + Send>;

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
    pub fn new(
        dialect: Dialect,
        framing: Framing,
        finish: impl FnOnce(Answer, Ending) -> Commit + Send + 'static,
    ) -> Self {
        Self(Some(Watching {
            dialect,
            framing,
            frames: Frames::new(framing),
            answer: Answer::default(),
            finish: Some(Box::new(finish)),
        }))
    }

    /// Reads the next bytes. If the terminal frame is complete with them: where it begins, and the commit
    /// that it has to wait for.
    fn read(&mut self, bytes: &[u8]) -> Option<(usize, Commit)> {
        let Watching { dialect, framing, frames, answer, finish } = self.0.as_mut()?;
        let mut terminal = None;
        frames.push(bytes, |frame, at| {
            let before = answer.done;
            answer.read(*dialect, frame);
            if answer.done && !before {
                terminal = Some(at);
            }
        });
        let at = terminal.filter(|_| *framing != Framing::Whole && !answer.failed)?;
        let finish = finish.take()?;
        Some((at, finish(std::mem::take(answer), Ending::Complete)))
    }

    /// Whether the answer is one JSON text that somebody reads.
    fn is_whole(&self) -> bool {
        self.0.as_ref().is_some_and(|watching| watching.framing == Framing::Whole)
    }

    /// Whether the answer can only end as the upstream ends it: nobody reads along, or it is one text.
    fn expects_no_last_frame(&self) -> bool {
        self.0.as_ref().is_none_or(|watching| watching.framing == Framing::Whole)
    }

    /// The stream is over: what the end has to wait for, and a last frame if the client has to be told.
    fn end(&mut self, broken: Option<&str>) -> (Option<Commit>, Option<Bytes>) {
        let Some(Watching { dialect, framing, frames, answer, finish }) = self.0.as_mut() else { return (None, None) };
        let Some(finish) = finish.take() else { return (None, None) };
        frames.finish(|frame| answer.read(*dialect, frame));
        // A body that is one JSON text has no terminal frame: being whole is being done.
        // What comes after the terminal frame no longer matters.
        let whole = *framing == Framing::Whole && broken.is_none() && !frames.gave_up() && answer.unreadable == 0;
        let done = answer.done || whole;
        let complete = done && !answer.failed;
        // A stream that could not be followed may have had its end.
        let told = complete || answer.failed || (frames.gave_up() && broken.is_none());
        let reason = broken.unwrap_or("the upstream ended its answer before it was finished");
        let commit = finish(std::mem::take(answer), if complete { Ending::Complete } else { Ending::Incomplete });
        (Some(commit), (!told && *framing != Framing::Whole).then(|| self.error_frame(reason)).flatten())
    }

    fn error_frame(&self, reason: &str) -> Option<Bytes> {
        let watching = self.0.as_ref().filter(|watching| watching.framing != Framing::Whole)?;
        // Half a frame that has left is ended first, or ours would be read as a part of it.
        let ends_half = if !watching.frames.is_within() {
            ""
        } else if watching.framing == Framing::Sse {
            "\n\n"
        } else {
            "\n"
        };
        Some(Bytes::from([ends_half, &watching.dialect.errors().frame(watching.framing, reason)].concat()))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Some(Watching { answer, finish, .. }) = &mut self.0
            && let Some(finish) = finish.take()
        {
            // The client is gone: nobody waits for this commit.
            drop(finish(std::mem::take(answer), Ending::Cancelled));
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
    pub struct Observed {
        #[pin]
        body: UpstreamBody,
        #[pin]
        silence: Sleep,
        // When something was last heard. The timer is only set again when it rings.
        heard: Instant,
        idle_timeout: Duration,
        watcher: Watcher,
        // What has come and not left yet, because more may be there already.
        gathered: Vec<Bytes>,
        gathered_bytes: usize,
        // Whether the upstream was looked at once more since.
        looked: bool,
        // The end of the answer, until the turn is on disk.
        held: Bytes,
        commit: Option<Commit>,
        // The upstream has nothing more to say.
        ended: bool,
        over: bool,
        // Said when everything that came before it has left.
        failure: Option<BoxError>,
    }
}

impl std::fmt::Debug for Observed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Observed").field("watcher", &self.watcher).field("over", &self.over).finish()
    }
}

impl Observed {
    pub fn new(body: UpstreamBody, idle_timeout: Duration, watcher: Watcher) -> Self {
        let (silence, heard) = (tokio::time::sleep(idle_timeout), Instant::now());
        Self {
            body,
            silence,
            heard,
            idle_timeout,
            watcher,
            gathered: Vec::new(),
            gathered_bytes: 0,
            looked: false,
            held: Bytes::new(),
            commit: None,
            ended: false,
            over: false,
            failure: None,
        }
    }
}

/// Pieces as one; a single one as it is.
fn together(pieces: &mut Vec<Bytes>) -> Bytes {
    if pieces.len() == 1 {
        return pieces.pop().unwrap_or_default();
    }
    let mut all = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
    pieces.drain(..).for_each(|piece| all.extend_from_slice(&piece));
    all.freeze()
}

impl Body for Observed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut this = self.project();
        loop {
            if let Some(commit) = this.commit {
                let committed = ready!(commit.as_mut().poll(context));
                *this.commit = None;
                if let Err(reason) = committed {
                    // Nobody may believe that this was kept.
                    *this.over = true;
                    let frame = this.watcher.error_frame(&reason);
                    let failed = || Err(Unfinished::NotKept(reason).into());
                    return Poll::Ready(Some(frame.map_or_else(failed, |frame| Ok(Frame::data(frame)))));
                }
                *this.over = *this.ended;
                if !this.held.is_empty() {
                    return Poll::Ready(Some(Ok(Frame::data(std::mem::take(this.held)))));
                }
            }
            if *this.over {
                return Poll::Ready(this.failure.take().map(Err));
            }
            let broken = match this.body.as_mut().poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => {
                    (*this.heard, *this.looked) = (Instant::now(), false);
                    let Ok(bytes) = frame.into_data() else { continue };
                    let terminal = this.watcher.read(&bytes);
                    if this.watcher.is_whole() {
                        // The last piece waits; which one that is shows when there is no further one.
                        let earlier = std::mem::replace(this.held, bytes);
                        // A body of known length is not polled again once that length is reached.
                        if this.body.is_end_stream() {
                            *this.ended = true;
                            *this.commit = this.watcher.end(None).0;
                        }
                        if earlier.is_empty() {
                            continue;
                        }
                        return Poll::Ready(Some(Ok(Frame::data(earlier))));
                    }
                    let goes_on = terminal.is_none();
                    if let Some((at, commit)) = terminal {
                        *this.commit = Some(commit);
                        *this.held = bytes.slice(at..);
                        *this.gathered_bytes += at;
                        this.gathered.push(bytes.slice(..at));
                    } else {
                        *this.over = this.body.is_end_stream() && this.watcher.expects_no_last_frame();
                        *this.gathered_bytes += bytes.len();
                        this.gathered.push(bytes);
                    }
                    let enough = *this.gathered_bytes >= TOGETHER_BYTES || this.gathered.len() >= TOGETHER_PIECES;
                    if *this.gathered_bytes == 0 || (goes_on && !*this.over && !enough) {
                        continue;
                    }
                    *this.gathered_bytes = 0;
                    return Poll::Ready(Some(Ok(Frame::data(together(this.gathered)))));
                }
                Poll::Pending if *this.gathered_bytes > 0 => {
                    if *this.looked {
                        *this.gathered_bytes = 0;
                        return Poll::Ready(Some(Ok(Frame::data(together(this.gathered)))));
                    }
                    // One more look, when others have had their turn, and then it leaves.
                    *this.looked = true;
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Ready(None) => None,
                Poll::Ready(Some(Err(_))) => Some("the upstream's answer broke off"),
                Poll::Pending => {
                    ready!(this.silence.as_mut().poll(context));
                    let deadline = *this.heard + *this.idle_timeout;
                    if deadline > Instant::now() {
                        this.silence.as_mut().reset(deadline);
                        continue;
                    }
                    Some("the upstream has been silent for too long (upstream.idle_timeout_s)")
                }
            };
            let (commit, last) = this.watcher.end(broken);
            if this.watcher.is_whole() && broken.is_none() {
                (*this.ended, *this.commit) = (true, commit);
                *this.over = this.commit.is_none();
                continue;
            }
            *this.over = true;
            if last.is_none() {
                *this.failure = broken.map(|reason| Unfinished::Upstream(reason).into());
            }
            *this.gathered_bytes += last.as_ref().map_or(0, Bytes::len);
            this.gathered.extend(last);
            if std::mem::take(this.gathered_bytes) > 0 {
                return Poll::Ready(Some(Ok(Frame::data(together(this.gathered)))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        // Only once the end was seen and acted on.
        self.over && self.commit.is_none() && self.failure.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        // What is held back is still to come.
        if self.watcher.expects_no_last_frame() && self.held.is_empty() && self.gathered_bytes == 0 {
            self.body.size_hint()
        } else {
            SizeHint::default()
        }
    }
}
