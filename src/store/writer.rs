//! The one thread that writes.
//!
//! It takes everything that waits and commits it together, because a sync costs the same for one change
//! as for a hundred. A change that does not fit fails alone; when the medium fails, all of them do, and
//! nothing of them is stored. Nobody is told that a change is stored before it is on disk. After a
//! failed sync it refuses everything: only a restart reads what the disk really holds.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::oneshot;

use super::StoreError;
use super::apply::apply;
use super::change::Change;
use super::error::{Failure, is_failed_sync, is_of_the_medium};
use super::health::Health;
use super::{delete, index, open};
use crate::context::identity::ConversationId;

/// Changes that may wait; a commit takes all of them.
pub(super) const MAX_WAITING: usize = 4096;

/// Pages in the write-ahead log that are worth writing back, 4 KiB each. SQLite's own default.
const LOG_PAGES: i64 = 1000;

/// After this long without a change there is time for chores.
const IDLE: Duration = Duration::from_millis(100);

/// Commits after which chores wait no longer.
const MOST_COMMITS_BEHIND: u32 = 256;

/// What indexing may take when the process ends.
const LAST_INDEXING: Duration = Duration::from_secs(2);

/// What is left to do when there is nothing else.
#[derive(Debug, Default)]
struct Chores {
    index: bool,
    /// There was more than one slice of it: it goes on at once, unless somebody comes.
    behind: bool,
    /// Conversations that a crash has left half imported or half deleted.
    leftovers: Vec<ConversationId>,
    truncate: bool,
    /// Since they were last done.
    commits: u32,
}

impl Chores {
    fn none(&self) -> bool {
        !self.index && !self.truncate && self.leftovers.is_empty()
    }
}

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
        // A process that was killed may have left what it was deleting, or taking in, and what it deleted in the log.
        // Whatever is nobody's now is not an import under way: nobody could submit one yet.
        let leftovers = delete::hidden(&self.connection).unwrap_or_default();
        let mut chores = Chores { index: true, truncate: true, leftovers, ..Chores::default() };
        self.truncate(&mut chores);
        loop {
            let next = if chores.none() {
                self.queue.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                self.queue.recv_timeout(if chores.behind { Duration::ZERO } else { IDLE })
            };
            match next {
                Ok(first) => self.take(first, &mut chores),
                Err(RecvTimeoutError::Timeout) => self.do_chores(&mut chores),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.finish_index();
        // Best effort: a log that stays is read at the next start. It may be now that a sync fails.
        if self.health.is_trusted() {
            let _ = self.write_back("PRAGMA wal_checkpoint(TRUNCATE)");
        }
        let _ = open::write_back_at_close(&self.connection, self.health.is_trusted());
    }

    /// Commits a change with everything that waits behind it.
    fn take(&mut self, first: Job, chores: &mut Chores) {
        #[cfg(test)]
        self.health.before_commit(&self.connection);
        let mut batch = vec![first];
        batch.extend(self.queue.try_iter().take(MAX_WAITING - 1));
        let deletes = batch.iter().any(|job| matches!(*job.change, Change::DeleteSlice(_)));
        chores.truncate |= deletes;
        // Many may search at once; the index is brought up to date once for all of them.
        let mut searches = batch.extract_if(.., |job| matches!(*job.change, Change::Index)).collect::<Vec<_>>();
        batch.extend(searches.pop());
        (chores.index, chores.behind) = (true, false);
        chores.commits += 1;
        self.commit(batch, deletes.then_some(&mut *chores));
        for search in searches {
            self.health.taken(search.change.bytes());
            let _ = search.done.send(Ok(()));
        }
        self.write_back_if_long();
        if chores.commits > MOST_COMMITS_BEHIND {
            self.do_chores(chores);
        }
    }

    /// What is done when nobody waits, or cannot be put off longer.
    fn do_chores(&mut self, chores: &mut Chores) {
        chores.commits = 0;
        if !self.health.is_trusted() {
            *chores = Chores::default();
            return;
        }
        if chores.truncate {
            self.truncate(chores);
        }
        self.remove_leftover(chores);
        if chores.index {
            chores.index = self.index_slice();
        }
        chores.behind = chores.index || !chores.leftovers.is_empty();
    }

    /// Empties the log of what was deleted. Whoever reads just now keeps it a moment longer; nobody waits for them.
    fn truncate(&mut self, chores: &mut Chores) {
        if !self.health.is_trusted() {
            return;
        }
        let _ = self.connection.busy_timeout(Duration::ZERO);
        chores.truncate = !self.write_back_whole("PRAGMA wal_checkpoint(TRUNCATE)");
        let _ = self.connection.busy_timeout(open::BUSY_TIMEOUT);
    }

    /// Deletes a slice of what a crash has left.
    fn remove_leftover(&mut self, chores: &mut Chores) {
        let Some(hidden) = chores.leftovers.last().copied() else { return };
        let mut remove = || -> Result<(), Failure> {
            let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            delete::delete_slice(&transaction, hidden)?;
            Ok(transaction.commit()?)
        };
        match remove() {
            Ok(()) => chores.truncate = true,
            Err(Failure::Rejected(_)) => drop(chores.leftovers.pop()),
            Err(Failure::Sqlite(error)) => {
                let error = self.failed(error);
                tracing::error!(%error, conversation = hidden, "what a crash left of a conversation could not be removed");
                chores.leftovers.pop();
            }
        }
    }

    /// Whether there may be more.
    fn index_slice(&mut self) -> bool {
        let mut indexed = || {
            let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let more = index::add_slice(&transaction)?;
            transaction.commit()?;
            Ok(more)
        };
        let outcome: rusqlite::Result<bool> = indexed();
        outcome.unwrap_or_else(|error| {
            let error = self.failed(error);
            tracing::warn!(%error, "the search index could not be brought up to date");
            false
        })
    }

    /// At the end, so that nothing has to be caught up on by those who only look. Within reason.
    fn finish_index(&mut self) {
        let started = Instant::now();
        while self.health.is_trusted() && started.elapsed() < LAST_INDEXING && self.index_slice() {}
    }

    /// Commits a batch and tells everyone.
    fn commit(&mut self, batch: Vec<Job>, deleting: Option<&mut Chores>) {
        let started = Instant::now();
        let (changes, waiting): (Vec<_>, Vec<_>) = batch.into_iter().map(|job| (job.change, job.done)).unzip();
        let bytes = changes.iter().map(|change| change.bytes()).sum();
        let outcome = match self.health.is_trusted() {
            true => self.transact(&changes),
            false => Err(self.health.untrusted(&self.path)),
        };
        self.health.committed(changes.len(), bytes, started.elapsed(), outcome.is_ok());
        if let Some(chores) = deleting {
            // Whoever deletes is told when it is gone from the log, too, if nobody is reading just now.
            self.truncate(chores);
        }
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

    /// Whether nobody was in the way.
    fn write_back_whole(&mut self, checkpoint: &str) -> bool {
        let blocked = self
            .connection
            .prepare_cached(checkpoint)
            .and_then(|mut statement| statement.query_row([], |row| row.get::<_, i64>(0)));
        match blocked {
            Ok(blocked) => blocked == 0,
            Err(error) => {
                let _ = self.failed(error);
                false
            }
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
