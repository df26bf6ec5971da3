//! What the simulator has seen and done: the log of requests, the counters, and who went away early.
//!
//! Tests read it afterwards, so it is exact; it is bounded, because benchmarks run for long. It keeps
//! bodies, which no other log of ours may do: this one never leaves the process.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, Method};

/// How many requests are remembered.
const SEEN_LIMIT: usize = 10_000;
/// How many bytes of bodies are remembered: ten thousand long conversations would fill the memory.
const SEEN_BYTES_LIMIT: usize = 256 << 20;

/// One request as it came.
#[derive(Debug, Clone)]
pub struct Seen {
    pub method: Method,
    /// Path and query as the client wrote them.
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// The counters at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Requests on any route.
    pub requests: u64,
    /// Tokens of all prompts after truncation.
    pub prompt_tokens_total: u64,
    /// Of those, the tokens that the prefix cache did not have.
    pub prefill_tokens_evaluated: u64,
    /// Times a loaded model was loaded again for another window.
    pub reloads: u64,
    /// Prompts that lost messages or were cut.
    pub truncations: u64,
    /// Answers whose client went away before their end.
    pub cancelled: u64,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    seen: Mutex<SeenLog>,
    pub(super) requests: AtomicU64,
    pub(super) prompt_tokens: AtomicU64,
    pub(super) evaluated_tokens: AtomicU64,
    pub(super) reloads: AtomicU64,
    pub(super) truncations: AtomicU64,
    cancelled: AtomicU64,
}

#[derive(Debug, Default)]
struct SeenLog {
    requests: VecDeque<Seen>,
    body_bytes: usize,
}

impl Ledger {
    pub(super) fn record(&self, seen: Seen) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let mut log = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        log.body_bytes += seen.body.len();
        log.requests.push_back(seen);
        while log.requests.len() > SEEN_LIMIT || log.body_bytes > SEEN_BYTES_LIMIT {
            let Some(oldest) = log.requests.pop_front() else { break };
            log.body_bytes -= oldest.body.len();
        }
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).requests.iter().cloned().collect()
    }

    pub(super) fn stats(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            requests: read(&self.requests),
            prompt_tokens_total: read(&self.prompt_tokens),
            prefill_tokens_evaluated: read(&self.evaluated_tokens),
            reloads: read(&self.reloads),
            truncations: read(&self.truncations),
            cancelled: read(&self.cancelled),
        }
    }

    /// Watches one answer: dropped before [`Watch::finish`], it counts as cancelled.
    pub(super) fn watch(self: &Arc<Self>) -> Watch {
        Watch { ledger: Arc::clone(self), finished: false }
    }
}

#[derive(Debug)]
pub(super) struct Watch {
    ledger: Arc<Ledger>,
    finished: bool,
}

impl Watch {
    pub(super) fn finish(&mut self) {
        self.finished = true;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.finished {
            self.ledger.cancelled.fetch_add(1, Ordering::Relaxed);
        }
    }
}
