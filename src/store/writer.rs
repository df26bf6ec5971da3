//! The one thread that writes.
//!
//! It takes everything that waits and commits it together, because a sync costs the same for one change
//! as for a hundred. A change that does not fit fails alone; when the medium fails, all of them do, and
//! nothing of them is stored. Nobody is told that a change is stored before it is on disk. After a
//! failed sync it refuses everything: only a restart reads what the disk really holds.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::oneshot;

use super::StoreError;
use super::apply::apply;
use super::change::Change;
use super::error::{Failure, is_failed_sync, is_of_the_medium};
use super::health::Health;
use super::open;

/// Changes that may wait; a commit takes all of them.
pub(super) const MAX_WAITING: usize = 4096;

/// Pages in the write-ahead log that are worth writing back, 4 KiB each. SQLite's own default.
const LOG_PAGES: i64 = 1000;

/// A change that waits, and whom to tell.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) change: Box<Change>,
    pub(super) done: oneshot::Sender<Result<(), StoreError>>,
}

#[derive(Debug)]
pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) path: PathBuf,
    pub(super) queue: Receiver<Job>,
    pub(super) health: Arc<Health>,
}

impl Writer {
    /// Writes until nobody can submit any more, then empties the write-ahead log.
    pub(super) fn run(mut self) {
        while let Ok(first) = self.queue.recv() {
            #[cfg(test)]
            self.health.before_commit(&self.connection);
            let mut batch = vec![first];
            batch.extend(self.queue.try_iter().take(MAX_WAITING - 1));
            let deleted = batch.iter().any(|job| matches!(*job.change, Change::Delete(_)));
            self.commit(batch);
            if deleted && self.health.is_trusted() {
                // The log still has what was deleted. Best effort: a reader may hold it for a moment, and
                // it goes with the next commits.
                let _ = self.write_back("PRAGMA wal_checkpoint(TRUNCATE)");
            }
            self.write_back_if_long();
        }
        // Best effort: a log that stays is read at the next start. It may be now that a sync fails.
        if self.health.is_trusted() {
            let _ = self.write_back("PRAGMA wal_checkpoint(TRUNCATE)");
        }
        let _ = open::write_back_at_close(&self.connection, self.health.is_trusted());
    }

    /// Commits a batch and tells everyone.
    fn commit(&mut self, batch: Vec<Job>) {
        let started = Instant::now();
        let (changes, waiting): (Vec<_>, Vec<_>) = batch.into_iter().map(|job| (job.change, job.done)).unzip();
        let bytes = changes.iter().map(|change| change.bytes()).sum();
        let outcome = match self.health.is_trusted() {
            true => self.transact(&changes),
            false => Err(self.health.untrusted(&self.path)),
        };
        self.health.committed(changes.len(), bytes, started.elapsed(), outcome.is_ok());
        let outcomes = outcome.unwrap_or_else(|error| vec![Err(error); changes.len()]);
        for (done, outcome) in waiting.into_iter().zip(outcomes) {
            // Whoever asked may have gone.
            let _ = done.send(outcome);
        }
    }

    /// What became of each change; an error if nothing was stored.
    fn transact(&mut self, changes: &[Box<Change>]) -> Result<Vec<Result<(), StoreError>>, StoreError> {
        let outcomes = apply_all(&mut self.connection, changes);
        outcomes
            .map(|outcomes| outcomes.into_iter().map(|one| one.map_err(|failure| failure.at(&self.path))).collect())
            .map_err(|error| self.failed(error))
    }

    fn failed(&self, error: rusqlite::Error) -> StoreError {
        if is_failed_sync(&error) {
            self.health.distrust();
            return self.health.untrusted(&self.path);
        }
        StoreError::database(&self.path, error)
    }

    /// Moves committed pages into the database when the log is long. Nobody waits for it.
    fn write_back_if_long(&mut self) {
        if !self.health.is_trusted() {
            return;
        }
        let pages = self.write_back("PRAGMA wal_checkpoint(NOOP)");
        if pages.is_ok_and(|(log, written)| log - written > LOG_PAGES) {
            // A full disk leaves the log long, and the next commit tries again.
            let _ = self.write_back("PRAGMA wal_checkpoint(PASSIVE)");
        }
    }

    /// The pages in the log, and those of them that are in the database too.
    fn write_back(&mut self, checkpoint: &str) -> Result<(i64, i64), StoreError> {
        let pages = self
            .connection
            .prepare_cached(checkpoint)
            .and_then(|mut statement| statement.query_row([], |row| Ok((row.get(1)?, row.get(2)?))));
        pages.map_err(|error| self.failed(error))
    }
}

/// One transaction with a savepoint for each change. An error rolls all of it back.
fn apply_all(connection: &mut Connection, changes: &[Box<Change>]) -> rusqlite::Result<Vec<Result<(), Failure>>> {
    let mut transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut outcomes = Vec::with_capacity(changes.len());
    for change in changes {
        let savepoint = transaction.savepoint()?;
        let outcome = apply(&savepoint, change);
        match outcome {
            Ok(()) => savepoint.commit()?,
            Err(Failure::Sqlite(error)) if is_of_the_medium(&error) => return Err(error),
            // Its default is to roll back.
            Err(_) => savepoint.finish()?,
        }
        outcomes.push(outcome);
    }
    transaction.commit()?;
    Ok(outcomes)
}
