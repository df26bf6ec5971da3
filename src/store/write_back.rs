//! The thread that moves committed pages from the write-ahead log into the database, beside the one that writes.
//!
//! It syncs twice and may take long on a slow disk; whoever waits for a commit must not wait for that too. SQLite
//! lets it go on beside a writer. What it cannot do is begin the log anew while somebody writes: that takes a moment
//! in which everything is written back, and is the writer's own to find.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::thread::{self, JoinHandle};

use rusqlite::Connection;

use super::StoreError;
use super::error::is_failed_sync;
use super::health::Health;

#[derive(Debug)]
pub(super) struct WriteBack {
    asked: Option<SyncSender<()>>,
    busy: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl WriteBack {
    pub(super) fn start(connection: Connection, path: &Path, health: Arc<Health>) -> Result<Self, StoreError> {
        let (asked, asks) = mpsc::sync_channel::<()>(1);
        let busy = Arc::new(AtomicBool::new(false));
        let (mark, name): (_, PathBuf) = (Arc::clone(&busy), path.to_owned());
        let work = move || {
            while asks.recv().is_ok() {
                if health.is_trusted() {
                    write_back(&connection, &name, &health);
                }
                mark.store(false, Ordering::Release);
            }
        };
        let thread = thread::Builder::new().name("store-log".to_owned()).spawn(work);
        let thread = thread.map_err(|error| StoreError::file(path, error))?;
        Ok(Self { asked: Some(asked), busy, thread: Some(thread) })
    }

    /// Has it done some time soon, unless it is being done.
    pub(super) fn ask(&self) {
        if !self.busy.swap(true, Ordering::AcqRel)
            && let Some(asked) = &self.asked
        {
            let _it_is_asked_already = asked.try_send(());
        }
    }
}

impl Drop for WriteBack {
    /// Waits for what it is doing.
    fn drop(&mut self) {
        self.asked = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn write_back(connection: &Connection, path: &Path, health: &Health) {
    let done = connection
        .prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")
        .and_then(|mut statement| statement.query_row([], |_| Ok(())));
    if let Err(error) = done {
        if is_failed_sync(&error) {
            health.distrust();
        }
        // A full disk leaves the log long, and it is tried again.
        let error = StoreError::database(path, error);
        tracing::warn!(%error, "the write-ahead log could not be written back");
    }
}
