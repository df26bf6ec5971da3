//! Whether the upstream is there, asked at most every few seconds however many want to know.

use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::client::Upstream;

/// An answer is believed this long.
const FRESH_FOR: Duration = Duration::from_secs(2);

/// Whoever wants to know must not wait for an upstream that does not answer.
const WITHIN: Duration = Duration::from_millis(1500);

/// A version is short.
const MAX_BYTES: usize = 64 << 10;

/// What was last seen.
#[derive(Debug, Default)]
pub struct Probe(Mutex<Option<(Instant, Seen)>>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// What it says its version is; none: it is not there.
    pub version: Option<String>,
    /// Why it is not.
    pub error: Option<String>,
}

impl Seen {
    pub fn is_up(&self) -> bool {
        self.error.is_none()
    }
}

impl Probe {
    pub async fn seen(&self, upstream: &Upstream) -> Seen {
        let mut last = self.0.lock().await;
        if let Some((_, seen)) = last.as_ref().filter(|(at, _)| at.elapsed() < FRESH_FOR) {
            return seen.clone();
        }
        let seen = look(upstream).await;
        *last = Some((Instant::now(), seen.clone()));
        seen
    }
}

async fn look(upstream: &Upstream) -> Seen {
    let down = |error: String| Seen { version: None, error: Some(error) };
    match tokio::time::timeout(WITHIN, upstream.ask("/api/version", MAX_BYTES)).await {
        Err(_) => down(format!("no answer within {} ms", WITHIN.as_millis())),
        Ok(Err(error)) => down(error.to_string()),
        Ok(Ok((status, _))) if !status.is_success() => down(format!("it answers with {status}")),
        Ok(Ok((_, body))) => {
            let told: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
            // A name that somebody else gave: as long as a version is, and no longer.
            let version = told["version"].as_str().map(|version| version.chars().take(40).collect());
            Seen { version, error: None }
        }
    }
}
