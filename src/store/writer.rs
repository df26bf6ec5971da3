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
use super::batch::apply_all;
use super::change::Change;
use super::error::{Failure, is_failed_sync};
use super::health::Health;
use super::held::{Begun, Held};
use super::sql::Sql;
use super::write_back::WriteBack;
use super::{delete, index, open};
use crate::context::identity::ConversationId;

/// Changes that may wait; a commit takes all of them.
pub(super) const MAX_WAITING: usize = 4096;

/// Pages in the write-ahead log that are worth writing back, 4 KiB each. A page that was written often meanwhile is
/// written back once.
const LOG_PAGES: i64 = 4000;

/// Pages in it from which on it is worth beginning anew.
const LONGEST_LOG: i64 = 4 * LOG_PAGES;

/// Commits between two looks at how long the log is, unless one was large.
const LOOK_AFTER_COMMITS: u32 = 16;
const LOOK_AFTER_BYTES: usize = 1 << 20;

/// With this many turns under way a commit waits a moment for others to end.
const MANY_UNDER_WAY: usize = 8;
const WAIT_FOR_OTHERS: Duration = Duration::from_micros(500);

/// After this long without a change there is time for chores.
const IDLE: Duration = Duration::from_millis(100);

/// Commits after which chores wait no longer.
const MOST_COMMITS_BEHIND: u32 = 128;

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
    last_commit: Option<Instant>,
    /// Since the length of the log was last looked at.
    unlooked: (u32, usize),
}

impl Chores {
    fn none(&self) -> bool {
        !self.index && !self.truncate && self.leftovers.is_empty()
    }
}

/// A change that waits, and whom to tell.
pub(super) struct Job {
    pub(super) change: Box<Change>,
    pub(super) then: Option<Then>,
    pub(super) done: oneshot::Sender<Result<(), StoreError>>,
}

/// What is done on the writer's thread once it is known what became of a change, before anybody is told.
pub(super) type Then = Box<dyn FnOnce(&Result<(), StoreError>) + Send>;

impl std::fmt::Debug for Job {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Job").field("change", &self.change).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) path: PathBuf,
    pub(super) queue: Receiver<Job>,
    pub(super) begun: Arc<Begun>,
    pub(super) health: Arc<Health>,
    /// Writes the log back while others wait for commits.
    pub(super) aside: Option<WriteBack>,
}

impl Writer {
    /// Writes until nobody can submit any more, then empties the write-ahead log.
    pub(super) fn run(mut self) {
        // A process that was killed may have left what it was deleting, or taking in, and what it deleted in the log.
        // Whatever is nobody's now is not an import under way: nobody could submit one yet.
        let leftovers = delete::hidden(Sql::Sqlite(&self.connection)).unwrap_or_default();
        let mut chores = Chores { index: true, truncate: true, leftovers, ..Chores::default() };
        self.truncate(&mut chores);
        let mut held = Held::default();
        loop {
            let chores_at = (!chores.none()).then_some(if chores.behind { Duration::ZERO } else { IDLE });
            // Beginnings come without a word, so somebody has to look.
            let look_at = self.begun.look_after(&held, Instant::now());
            let next = match chores_at.into_iter().chain(look_at).min() {
                None => self.queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(timeout) => self.queue.recv_timeout(timeout),
            };
            match next {
                Ok(first) => self.take(Some(first), &mut held, &mut chores),
                Err(RecvTimeoutError::Timeout) if look_at.is_some_and(|look| chores_at.is_none_or(|at| look <= at)) => {
                    self.take(None, &mut held, &mut chores);
                    if !chores.none() && chores.last_commit.is_none_or(|last| last.elapsed() >= IDLE) {
                        self.do_chores(&mut chores);
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.do_chores(&mut chores),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // Whatever still waits for its end is written without it.
        let last = held.ready(self.begun.take(), Instant::now());
        self.commit(last.into_iter().chain(held.all()).collect(), None);
        self.finish_index();
        // What it is doing ends first.
        self.aside = None;
        // Best effort: a log that stays is read at the next start. It may be now that a sync fails.
        if self.health.is_trusted() {
            let _ = self.write_back("PRAGMA wal_checkpoint(TRUNCATE)");
        }
        let _ = open::write_back_at_close(&self.connection, self.health.is_trusted());
    }

    /// Commits a change with everything that waits behind it.
    fn take(&mut self, first: Option<Job>, held: &mut Held, chores: &mut Chores) {
        #[cfg(test)]
        self.health.before_commit(&self.connection);
        if held.len() >= MANY_UNDER_WAY {
            // Others will end in a moment: one commit for all of them costs everybody less than one for each.
            std::thread::sleep(WAIT_FOR_OTHERS);
        }
        let mut batch: Vec<Job> = first.into_iter().collect();
        batch.extend(self.queue.try_iter().take(MAX_WAITING - 1));
        // Taken after the ends, so that none of them is without its beginning; they go first all the same.
        let begun = self.begun.take();
        let mut batch = held.ready(begun.into_iter().chain(batch).collect(), Instant::now());
        let words = batch.extract_if(.., |job| matches!(*job.change, Change::Wake)).count();
        (0..words).for_each(|_| self.health.taken(0));
        if batch.is_empty() {
            return;
        }
        let bytes: usize = batch.iter().map(|job| job.change.bytes()).sum();
        let deletes = batch.iter().any(|job| matches!(*job.change, Change::DeleteSlice(_)));
        chores.truncate |= deletes;
        // Many may search at once; the index is brought up to date once for all of them.
        let mut searches = batch.extract_if(.., |job| matches!(*job.change, Change::Index)).collect::<Vec<_>>();
        batch.extend(searches.pop());
        (chores.index, chores.behind) = (true, false);
        (chores.commits, chores.last_commit) = (chores.commits + 1, Some(Instant::now()));
        self.commit(batch, deletes.then_some(&mut *chores));
        for search in searches {
            self.health.taken(search.change.bytes());
            let _ = search.done.send(Ok(()));
        }
        chores.unlooked = (chores.unlooked.0 + 1, chores.unlooked.1.saturating_add(bytes));
        if chores.unlooked.0 >= LOOK_AFTER_COMMITS || chores.unlooked.1 >= LOOK_AFTER_BYTES {
            chores.unlooked = (0, 0);
            self.write_back_if_long();
        }
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
            delete::delete_slice(Sql::Sqlite(&transaction), hidden)?;
            Ok(transaction.commit()?)
        };
        match remove() {
            Ok(()) => chores.truncate = true,
            Err(Failure::Rejected(_)) => drop(chores.leftovers.pop()),
            Err(failure) => {
                let error = self.failed_with(failure);
                tracing::error!(%error, conversation = hidden, "what a crash left of a conversation could not be removed");
                chores.leftovers.pop();
            }
        }
    }

    /// Whether there may be more.
    fn index_slice(&mut self) -> bool {
        let mut indexed = || {
            let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let more = index::add_slice(Sql::Sqlite(&transaction))?;
            transaction.commit()?;
            Ok(more)
        };
        let outcome: Result<bool, Failure> = indexed();
        outcome.unwrap_or_else(|failure| {
            let error = self.failed_with(failure);
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
        if batch.is_empty() {
            return;
        }
        let started = Instant::now();
        let (changes, waiting): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|job| (job.change, (job.then, job.done))).unzip();
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
        for ((then, done), outcome) in waiting.into_iter().zip(outcomes) {
            if let Some(then) = then {
                then(&outcome);
            }
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

    fn failed_with(&self, failure: Failure) -> StoreError {
        match failure {
            Failure::Sqlite(error) => self.failed(error),
            other => other.at(&self.path),
        }
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
        let Ok((log, written)) = self.write_back("PRAGMA wal_checkpoint(NOOP)") else { return };
        let left = log - written;
        // The log begins anew when nothing of it is left to write back, which under load only happens here. If the
        // other does not keep up, everybody has to wait.
        let nearly_done = log > LONGEST_LOG && left < LOG_PAGES;
        if nearly_done || log > LONGEST_LOG * 2 {
            // A full disk leaves the log long, and the next commit tries again.
            let _ = self.write_back("PRAGMA wal_checkpoint(PASSIVE)");
        } else if left > LOG_PAGES
            && let Some(aside) = &self.aside
        {
            aside.ask();
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
