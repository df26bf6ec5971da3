//! One client: one connection that stays open, one question at a time, and when each byte of the answer came.
//!
//! Nothing is read or written that has to be while the clock runs: bodies are made before, and what arrived is only
//! put aside with its time. No pool either, so that the harness costs little beside what it measures.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::path::Target;
use super::script::{Script, Turn};
use super::slice::{Gathered, Sample};
use crate::dialect::{Answer, Dialect};
use crate::framing::{Frames, Framing};
use crate::ollama::client::deepest;

/// Nobody waits longer than this for an answer, and no histogram has room for more.
pub const LONGEST: Duration = Duration::from_secs(600);

const CONNECT: Duration = Duration::from_secs(10);

/// No answer of a chat is this long; something else is at the other end.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// What is kept of a refusal, to be shown.
const MAX_SAID_CHARS: usize = 300;

/// Why a request is not counted among the answered ones.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {said}")]
pub struct Failure {
    /// One of few, to be counted: `connection`, `status 503`, `incomplete`, `error frame`, `timeout`.
    pub kind: String,
    pub said: String,
}

impl Failure {
    fn new(kind: &str, said: impl ToString) -> Self {
        Self { kind: kind.to_owned(), said: said.to_string().chars().take(MAX_SAID_CHARS).collect() }
    }
}

/// Somebody who chats on one path.
#[derive(Debug)]
pub struct Client {
    target: Arc<Target>,
    script: Script,
    connection: Option<Connection>,
}

impl Client {
    pub fn new(target: Arc<Target>, script: Script) -> Self {
        Self { target, script, connection: None }
    }

    /// The connection stays, what is said on it is another matter from now on.
    pub fn follow(&mut self, script: Script) {
        self.script = script;
    }

    /// Has one turn, and tells how it went. Returns whether it went well.
    pub async fn take_turn(&mut self, gathered: &mut Gathered) -> bool {
        let turn = self.script.next_turn();
        match self.ask(&turn).await {
            Ok(heard) => {
                let answer_bytes = heard.pieces.iter().map(|(_, piece)| piece.len()).sum();
                gathered.samples.push(Sample {
                    turn: turn.number,
                    request_bytes: turn.body.len(),
                    answer_bytes,
                    streamed: turn.stream,
                    first_byte: heard.pieces.first().map_or(heard.total, |(at, _)| *at),
                    total: heard.total,
                });
                if turn.stream {
                    gathered.gaps.extend(heard.pieces.windows(2).map(|pair| pair[1].0 - pair[0].0));
                }
                self.script.answered(heard.text);
                true
            }
            Err(failure) => {
                self.script.failed();
                self.connection = None;
                gathered.failed(failure);
                false
            }
        }
    }

    async fn ask(&mut self, turn: &Turn) -> Result<Heard, Failure> {
        let request = self.target.request(Method::POST, turn.dialect.path(), turn.body.clone())?;
        let asked = async {
            let mut connection = match self.connection.take() {
                Some(open) if !open.sender.is_closed() => open,
                _ => Connection::open(&self.target).await?,
            };
            let (status, heard) = connection.exchange(request).await?;
            if !status.is_success() {
                return Err(Failure::new(&format!("status {}", status.as_u16()), heard.as_text()));
            }
            self.connection = Some(connection);
            heard.read(turn)
        };
        match tokio::time::timeout(LONGEST, asked).await {
            Ok(heard) => heard,
            Err(_) => Err(Failure::new("timeout", format!("no whole answer within {} s", LONGEST.as_secs()))),
        }
    }
}

/// Asks for something small, on a connection of its own.
pub async fn get(target: &Target, path: &str) -> Result<String, Failure> {
    let request = target.request(Method::GET, path, Bytes::new())?;
    let (status, heard) = Connection::open(target).await?.exchange(request).await?;
    let text = heard.as_text();
    if status.is_success() { Ok(text) } else { Err(Failure::new(&format!("status {}", status.as_u16()), text)) }
}

#[derive(Debug)]
struct Connection {
    sender: SendRequest<Full<Bytes>>,
}

impl Connection {
    async fn open(target: &Target) -> Result<Self, Failure> {
        let broken = |error: &dyn std::error::Error| Failure::new("connection", error);
        let connecting = tokio::time::timeout(CONNECT, TcpStream::connect(&target.addresses[..]));
        let stream = connecting.await.map_err(|error| broken(&error))?.map_err(|error| broken(&error))?;
        // A request is one write; waiting to fill a packet would be measured as somebody else's.
        stream.set_nodelay(true).map_err(|error| broken(&error))?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| broken(&error))?;
        // It ends when its sender is dropped; why it ended earlier is told to whoever is asking.
        tokio::spawn(connection);
        Ok(Self { sender })
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<(http::StatusCode, Heard), Failure> {
        self.sender.ready().await.map_err(|error| Failure::new("connection", deepest(&error)))?;
        let begun = Instant::now();
        let response = self.sender.send_request(request).await;
        let response = response.map_err(|error| Failure::new("connection", deepest(&error)))?;
        let status = response.status();
        let mut body = response.into_body();
        let (mut pieces, mut bytes) = (Vec::new(), 0);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Failure::new("incomplete", deepest(&error)))?;
            let Ok(piece) = frame.into_data() else { continue };
            bytes += piece.len();
            if bytes > MAX_ANSWER_BYTES {
                return Err(Failure::new("incomplete", "the answer has no end"));
            }
            if !piece.is_empty() {
                pieces.push((begun.elapsed(), piece));
            }
        }
        Ok((status, Heard { pieces, total: begun.elapsed(), text: String::new() }))
    }
}

/// What came back, piece by piece, each with the time since the question.
#[derive(Debug)]
struct Heard {
    pieces: Vec<(Duration, Bytes)>,
    total: Duration,
    /// What was said, once it is read.
    text: String,
}

impl Heard {
    /// Understands the answer: its words, and whether it is whole.
    fn read(mut self, turn: &Turn) -> Result<Self, Failure> {
        let framing = match (turn.stream, turn.dialect) {
            (false, _) => Framing::Whole,
            (true, Dialect::Chat) => Framing::Ndjson,
            (true, _) => Framing::Sse,
        };
        let (mut frames, mut answer) = (Frames::new(framing), Answer::default());
        for (_, piece) in &self.pieces {
            frames.push(piece, |frame, _| answer.read(turn.dialect, frame));
        }
        frames.finish(|frame| answer.read(turn.dialect, frame));
        if answer.failed {
            return Err(Failure::new("error frame", self.as_text()));
        }
        // OpenAI's answer in one piece has no mark of its end; that it could be read is one.
        let whole = answer.done || (framing == Framing::Whole && turn.dialect == Dialect::OpenAiChat);
        if !whole || answer.unreadable > 0 || self.pieces.is_empty() {
            return Err(Failure::new("incomplete", format!("the answer ended with: {}", self.ending())));
        }
        self.text = answer.text;
        Ok(self)
    }

    fn as_text(&self) -> String {
        let bytes: Vec<u8> = self.pieces.iter().flat_map(|(_, piece)| piece.iter().copied()).collect();
        String::from_utf8_lossy(&bytes).trim().to_owned()
    }

    fn ending(&self) -> String {
        let text = self.as_text();
        text[text.floor_char_boundary(text.len().saturating_sub(MAX_SAID_CHARS / 2))..].to_owned()
    }
}

#[cfg(test)]
mod tests;
