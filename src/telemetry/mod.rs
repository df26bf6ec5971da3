//! What an operator may see: logs, and numbers of what was done.
//!
//! Logs never hold what was said nor any token. Field names are the same everywhere: `model`, `action`,
//! `basis`, `prompt_tokens`, `limit_tokens`, `window_tokens`, `predicted`, `reported`, `status`.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;
use crate::context::{Action, Basis, Tokens};

/// Starts logging to standard error. A second call does nothing.
pub fn start_logging(format: LogFormat, filter: &str) -> Result<(), String> {
    let filter = EnvFilter::try_new(filter).map_err(|error| format!("log.filter: {error}"))?;
    let colours = std::io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr);
    let _already_started = match format {
        LogFormat::Human => builder.compact().try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    Ok(())
}

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn increment(&self) {
        self.add(1);
    }

    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What was done since the start.
#[derive(Debug, Default)]
pub struct Counters {
    /// By action: none, checkpoint, compression, rollover, refused.
    actions: [Counter; 5],
    pub complete: Counter,
    pub incomplete: Counter,
    /// Times the upstream said that a prompt did not fit after all.
    pub overflows: Counter,
    /// Prompts that the upstream has cut: in observe mode, or because its window was not what it seemed.
    pub cut_by_upstream: Counter,
    /// Frames of answers that could not be read.
    pub unreadable: Counter,
    /// Predicted counts that were compared with a reported one, and those that differed though exact.
    pub compared: Counter,
    pub exact_mismatches: Counter,
}

impl Counters {
    pub fn turns(&self, action: Action, complete: bool) {
        self.actions[action as usize].increment();
        if complete { self.complete.increment() } else { self.incomplete.increment() }
    }

    pub fn of_action(&self, action: Action) -> u64 {
        self.actions[action as usize].get()
    }

    pub fn count_compared(&self, basis: Basis, predicted: Tokens, reported: Tokens) {
        self.compared.increment();
        if basis == Basis::Exact && predicted != reported {
            self.exact_mismatches.increment();
        }
    }
}
