//! What is known of the writer without asking it: how much waits, and whether the disk can be trusted.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::StoreError;

/// Numbers about the writer, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// Changes that wait now.
    pub waiting: usize,
    pub waiting_bytes: usize,
    pub commits: u64,
    /// Changes in those commits.
    pub changes: u64,
    pub failed_commits: u64,
    /// What the last commit took, its sync included.
    pub last_commit_us: u64,
}

/// What became of one commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    pub changes: usize,
    pub took: Duration,
    pub well: bool,
}

/// Who is told of each commit.
#[derive(Default)]
struct Watcher(OnceLock<Box<dyn Fn(Committed) + Send + Sync>>);

impl std::fmt::Debug for Watcher {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(if self.0.get().is_some() { "Watcher(somebody)" } else { "Watcher(nobody)" })
    }
}

#[derive(Debug, Default)]
pub(super) struct Health {
    waiting: AtomicUsize,
    waiting_bytes: AtomicUsize,
    commits: AtomicU64,
    changes: AtomicU64,
    failed_commits: AtomicU64,
    last_commit_us: AtomicU64,
    failing: AtomicBool,
    untrusted: AtomicBool,
    watcher: Watcher,
    #[cfg(test)]
    pub(super) hook: super::tests::Hook,
}

impl Health {
    /// Whether the last commit went well.
    pub(super) fn is_well(&self) -> bool {
        !self.failing.load(Ordering::Relaxed) && self.is_trusted()
    }

    /// Whether no sync has failed.
    pub(super) fn is_trusted(&self) -> bool {
        !self.untrusted.load(Ordering::Relaxed)
    }

    /// There is no way back.
    pub(super) fn distrust(&self) {
        self.untrusted.store(true, Ordering::Relaxed);
    }

    pub(super) fn untrusted(&self, path: &Path) -> StoreError {
        StoreError::Untrusted { path: path.to_owned() }
    }

    /// Counts a change in, unless that would be more bytes than may wait. One that is too large by
    /// itself may wait alone.
    pub(super) fn admit(&self, bytes: usize, max_bytes: usize) -> bool {
        let before = self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before > 0 && before + bytes > max_bytes {
            self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Counts one out that never came to a commit.
    pub(super) fn taken(&self, bytes: usize) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(super) fn watch(&self, watcher: Box<dyn Fn(Committed) + Send + Sync>) {
        let _another_was_first = self.watcher.0.set(watcher);
    }

    /// Counts a batch out.
    pub(super) fn committed(&self, changes: usize, bytes: usize, took: Duration, well: bool) {
        self.waiting.fetch_sub(changes, Ordering::Relaxed);
        self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.failing.store(!well, Ordering::Relaxed);
        if let Some(watcher) = self.watcher.0.get() {
            watcher(Committed { changes, took, well });
        }
        if well {
            self.commits.fetch_add(1, Ordering::Relaxed);
            self.changes.fetch_add(changes as u64, Ordering::Relaxed);
            self.last_commit_us.store(took.as_micros() as u64, Ordering::Relaxed);
        } else {
            self.failed_commits.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[cfg(test)]
    pub(super) fn before_commit(&self, connection: &rusqlite::Connection) {
        self.hook.run(connection);
    }

    pub(super) fn stats(&self) -> Stats {
        Stats {
            waiting: self.waiting.load(Ordering::Relaxed),
            waiting_bytes: self.waiting_bytes.load(Ordering::Relaxed),
            commits: self.commits.load(Ordering::Relaxed),
            changes: self.changes.load(Ordering::Relaxed),
            failed_commits: self.failed_commits.load(Ordering::Relaxed),
            last_commit_us: self.last_commit_us.load(Ordering::Relaxed),
        }
    }
}
