//! Calls those who want to know what happens: each event, to each address in `webhooks.urls`, signed.
//!
//! Events are on disk before anybody hears of them, and so is how far each receiver has come. One task for each
//! address reads on from there, so that none of them waits for another and nothing waits for them: every event
//! arrives in order and at least once, or is given up after `webhooks.max_attempts` calls. A receiver drops what
//! it gets twice by its `webhook-id`. Of several Loadlines on one store, one calls. A receiver is told what was done and
//! how much, never what was said.

mod backoff;
mod call;
mod sign;

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus::{IntCounter, IntCounterVec};
use tokio::sync::Semaphore;
use tokio::time::Instant;

pub use backoff::Backoff;
pub use sign::{Key, NotBase64, Secret};

use crate::config::{Receiver, Webhooks};
use crate::events::is_of;
use crate::proxy::Gateway;
use crate::store::{Change, EventRow, Lease, Reads, StoreError};
use call::{Calls, Message, Outcome};

/// Events read at once.
const BATCH: u32 = 100;

/// While many events are delivered, how often it is stored how far that has come. A crash repeats no more than this.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// Nobody relies on being woken.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Longer files hold no secret.
const MAX_SECRET_BYTES: u64 = 4 << 10;

/// How the calls have gone since the start, over all receivers.
#[derive(Debug)]
pub struct Deliveries {
    pub delivered: IntCounter,
    /// Calls that were made again.
    pub retried: IntCounter,
    /// Events that were given up.
    pub dropped: IntCounter,
    /// Of each receiver: events that are not yet dealt with, those that nobody asked for included.
    lags: Vec<AtomicU64>,
}

impl Deliveries {
    /// Counts where the metrics do.
    pub fn new(counters: &IntCounterVec, receivers: usize) -> Self {
        let outcome = |name: &str| counters.with_label_values(&[name]);
        Self {
            delivered: outcome("delivered"),
            retried: outcome("retried"),
            dropped: outcome("dropped"),
            lags: (0..receivers).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// How far the slowest receiver is behind, in events.
    pub fn lag(&self) -> u64 {
        self.lags.iter().map(|lag| lag.load(Ordering::Relaxed)).max().unwrap_or(0)
    }
}

/// Why nobody can be called.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("webhooks.secret_file: {0}")]
    SecretFile(io::Error),
    #[error("webhooks.secret_file: {0}")]
    NotBase64(#[from] NotBase64),
    #[error("webhooks.urls: https cannot be spoken here: {0}")]
    Tls(io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Begins to call whoever is in the configuration, until the gateway stops. An address that was never called
/// before hears of what happens after this returns.
pub async fn start(gateway: &Arc<Gateway>, backoff: Backoff) -> Result<(), StartError> {
    let config = &gateway.config.webhooks;
    if config.receivers.is_empty() {
        return Ok(());
    }
    let key = key(config)?;
    if key.is_none() {
        tracing::warn!("webhooks.secret is empty: calls are not signed, so receivers cannot tell who makes them");
    }
    let https = config.receivers.iter().any(Receiver::is_https);
    let calls = Calls::new(https, key, config.timeout).map_err(StartError::Tls)?;
    let reading = Arc::new(Semaphore::new(1));
    for (number, receiver) in config.receivers.iter().enumerate() {
        let done = known_or_now(gateway, receiver.cursor()).await?;
        tracing::info!(%receiver, after_event = done, "a receiver is called when something happens");
        let follower = Follower {
            gateway: Arc::clone(gateway),
            number,
            receiver: receiver.clone(),
            calls: calls.clone(),
            backoff,
            reading: Arc::clone(&reading),
            done,
            saved: done,
            saved_at: Instant::now(),
            newest: done,
            lease: None,
        };
        tokio::spawn(follower.run());
    }
    Ok(())
}

/// What calls are signed with, read from where it is.
pub fn key(config: &Webhooks) -> Result<Option<Key>, StartError> {
    Ok(match &config.secret_file {
        Some(path) => Key::of(&secret_in(path).map_err(StartError::SecretFile)?)?,
        None => Key::of(&config.secret)?,
    })
}

fn secret_in(path: &Path) -> io::Result<Secret> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_SECRET_BYTES).read_to_string(&mut text)?;
    match text.trim() {
        "" => Err(io::Error::other("the file is empty")),
        text => Ok(Secret::new(text)),
    }
}

/// How far a receiver has come. One that is new begins with what happens from now on, also after a crash.
async fn known_or_now(gateway: &Gateway, name: String) -> Result<i64, StoreError> {
    let (known, newest) = {
        let reader = gateway.store.reader()?;
        (reader.cursor(&name)?, reader.last_event_id()?)
    };
    if let Some(known) = known {
        return Ok(known);
    }
    gateway.store.submit(Change::Cursor { name, value: newest }).await?;
    Ok(newest)
}

/// Tells one receiver of one event after the other.
struct Follower {
    gateway: Arc<Gateway>,
    /// Which of the receivers.
    number: usize,
    receiver: Receiver,
    calls: Calls,
    backoff: Backoff,
    /// All followers together use one reader of the store's, so that requests have the others.
    reading: Arc<Semaphore>,
    /// Everything up to this event is dealt with.
    done: i64,
    /// The same, as far as it is on disk, and since when.
    saved: i64,
    saved_at: Instant,
    newest: i64,
    /// What only one process has at a time.
    lease: Option<Lease>,
}

/// What became of an event.
enum Fate {
    DealtWith,
    /// The receiver wants no more calls.
    Gone,
    /// Another process may be calling by now.
    SomebodyElses,
}

impl Follower {
    async fn run(mut self) {
        let stopping = self.gateway.stopping.clone();
        stopping.run_until_cancelled(self.follow()).await;
        if self.saved < self.done {
            // The store writes what it was given before it closes.
            drop(self.gateway.store.submit(self.cursor()));
        }
    }

    async fn follow(&mut self) {
        let mut changes = self.gateway.events.changes();
        loop {
            changes.mark_unchanged();
            if !self.is_ours().await {
                self.tell_lag(0);
                let _woken_or_not = tokio::time::timeout(LOOK_EVERY, changes.changed()).await;
                continue;
            }
            let read = self.read().await;
            if read.as_ref().is_some_and(Vec::is_empty) {
                self.tell_lag(0);
            }
            let rows = read.unwrap_or_default();
            if rows.is_empty() {
                let _woken_or_not = tokio::time::timeout(LOOK_EVERY, changes.changed()).await;
                continue;
            }
            let mut called = false;
            for row in rows {
                if self.lease.as_ref().is_none_or(Lease::is_lost) {
                    // Somebody else may be at it by now.
                    break;
                }
                let kinds = &self.gateway.config.webhooks.kinds;
                if kinds.is_empty() || kinds.iter().any(|kind| is_of(&row.kind, kind)) {
                    called = true;
                    match self.deliver(&row).await {
                        Fate::DealtWith => {}
                        Fate::SomebodyElses => break,
                        Fate::Gone => {
                            self.gateway.webhooks.dropped.inc();
                            return;
                        }
                    }
                }
                self.done = row.id;
                self.tell_lag(self.newest.saturating_sub(self.done).unsigned_abs());
                if called && self.saved_at.elapsed() >= SAVE_EVERY {
                    self.save().await;
                }
            }
            // What was only passed over may be passed over again.
            if called || self.done - self.saved >= i64::from(BATCH) {
                self.save().await;
            }
        }
    }

    /// Whether this process is the one of several that calls this receiver. Who takes over goes on where the other was.
    async fn is_ours(&mut self) -> bool {
        if self.lease.as_ref().is_some_and(|lease| !lease.is_lost()) {
            return true;
        }
        self.lease = None;
        let name = self.receiver.cursor();
        self.lease = Lease::take(&self.gateway.store, format!("webhook {name}")).await.ok().flatten();
        if self.lease.is_none() {
            return false;
        }
        let Some(known) = self.ask(move |reader| reader.cursor(&name)).await else {
            // Without it nobody knows where to go on.
            self.lease = None;
            return false;
        };
        self.done = self.done.max(known.unwrap_or(0));
        true
    }

    /// The next events. None when the store cannot be read: there will be another try.
    async fn read(&mut self) -> Option<Vec<EventRow>> {
        let done = self.done;
        let (rows, newest) = self.ask(move |reader| Ok((reader.events(done, BATCH)?, reader.last_event_id()?))).await?;
        self.newest = newest;
        Some(rows)
    }

    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Reads) -> Result<T, StoreError> + Send + 'static,
    ) -> Option<T> {
        let _ours = self.reading.acquire().await.ok()?;
        let gateway = Arc::clone(&self.gateway);
        let answer = move || gateway.store.reader().and_then(|reader| question(&reader));
        let answer = tokio::task::spawn_blocking(answer).await.ok()?;
        answer.inspect_err(|error| tracing::debug!(%error, "events could not be read")).ok()
    }

    /// Calls until it was heard, or often enough.
    async fn deliver(&mut self, row: &EventRow) -> Fate {
        let message = Message::of(row);
        let most = self.gateway.config.webhooks.max_attempts;
        for attempt in 1.. {
            let (why, asked) = match self.calls.make(&self.receiver.uri, &message).await {
                Outcome::Delivered => {
                    self.gateway.webhooks.delivered.inc();
                    return Fate::DealtWith;
                }
                Outcome::Gone => {
                    tracing::warn!(receiver = %self.receiver, "it answered 410: it is not called again until the next start");
                    return Fate::Gone;
                }
                Outcome::Failed { why, asked } => (why, asked),
            };
            let receiver = &self.receiver;
            if attempt >= most {
                tracing::warn!(%receiver, event = row.id, attempts = attempt, %why, "an event was given up");
                break;
            }
            if attempt == 1 {
                tracing::info!(%receiver, event = row.id, %why, "a receiver could not be told; it is called again");
            }
            let random = getrandom::u64().unwrap_or(u64::MAX / 2);
            tokio::time::sleep(self.backoff.pause(attempt, random, asked)).await;
            self.look_how_far().await;
            if self.lease.as_ref().is_none_or(Lease::is_lost) {
                return Fate::SomebodyElses;
            }
            self.gateway.webhooks.retried.inc();
        }
        self.gateway.webhooks.dropped.inc();
        Fate::DealtWith
    }

    /// While one event is hard to deliver others happen.
    async fn look_how_far(&mut self) {
        self.newest = self.ask(|reader| reader.last_event_id()).await.unwrap_or(self.newest);
        self.tell_lag(self.newest.saturating_sub(self.done).unsigned_abs());
    }

    fn tell_lag(&self, lag: u64) {
        if let Some(told) = self.gateway.webhooks.lags.get(self.number) {
            told.store(lag, Ordering::Relaxed);
        }
    }

    fn cursor(&self) -> Change {
        Change::Cursor { name: self.receiver.cursor(), value: self.done }
    }

    async fn save(&mut self) {
        self.saved_at = Instant::now();
        match self.gateway.store.submit(self.cursor()).await {
            Ok(()) => self.saved = self.done,
            Err(error) => tracing::warn!(%error, "how far a receiver has come could not be stored"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_in_a_file_is_its_text_without_the_line_end() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("secret");
        std::fs::write(&path, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").expect("file");
        assert_eq!(secret_in(&path).expect("a secret"), Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"));
        std::fs::write(&path, "\n").expect("file");
        assert!(secret_in(&path).is_err(), "whoever names a file wants calls to be signed");
        assert!(secret_in(&dir.path().join("nothing")).is_err());
    }
}
