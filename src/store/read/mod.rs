//! Reading: connections that cannot write, and what can be asked of them.
//!
//! A query blocks its caller for as long as the disk takes, and sees what was committed when it began.
//! There are only so many connections; whoever waits too long for one is told so.

mod examine;
mod history;
mod records;
mod rows;
mod search;
mod tokens;

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::Connection;

use super::{StoreError, open};
pub use examine::RecentLimit;
pub(super) use rows::StoredLink;
pub use rows::{
    CheckpointRow, ConversationRow, Counts, EventRow, Found, ImportedLineRow, MessageRow, ReceiptRow, SnapshotRow,
    TurnRow,
};
pub use search::Hit;
pub use tokens::TokenRow;

/// More would only wait for the same disk.
const MAX_READERS: usize = 8;

const MAX_WAIT: Duration = Duration::from_secs(5);

/// A connection that cannot write. Its methods are the store's questions.
#[derive(Debug)]
pub struct Reads {
    /// A connection serves one thread at a time; with the lock, several may hold it.
    connection: Mutex<Connection>,
    path: PathBuf,
}

impl Reads {
    fn open(dir: &Path) -> Result<Self, StoreError> {
        Ok(Self { connection: Mutex::new(open::reader(dir)?), path: open::database_path(dir) })
    }

    /// Runs a query, and names the file if it fails.
    fn ask<T>(&self, query: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        query(&locked(&self.connection)).map_err(|error| StoreError::database(&self.path, error))
    }
}

/// The store for a command that only looks, beside a serving process or without one.
#[derive(Debug)]
pub struct ReadOnly(Reads);

/// Opens the database of a directory without locking, making or changing it.
pub fn open_read_only(dir: &Path) -> Result<ReadOnly, StoreError> {
    Reads::open(dir).map(ReadOnly)
}

impl Deref for ReadOnly {
    type Target = Reads;

    fn deref(&self) -> &Reads {
        &self.0
    }
}

/// A borrowed connection.
#[derive(Debug)]
pub struct Reader<'a> {
    reads: Arc<Reads>,
    pool: &'a Pool,
}

impl Deref for Reader<'_> {
    type Target = Reads;

    fn deref(&self) -> &Reads {
        &self.reads
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        let mut state = locked(&self.pool.state);
        state.idle.push(Arc::clone(&self.reads));
        state.in_use -= 1;
        drop(state);
        self.pool.returned.notify_one();
    }
}

/// The connections of a serving process.
#[derive(Debug)]
pub(super) struct Pool {
    dir: PathBuf,
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Arc<Reads>>,
    in_use: usize,
}

impl Pool {
    pub(super) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), state: Mutex::default(), returned: Condvar::new() }
    }

    pub(super) fn get(&self) -> Result<Reader<'_>, StoreError> {
        let full = |state: &mut State| state.in_use >= MAX_READERS;
        let waited = self.returned.wait_timeout_while(locked(&self.state), MAX_WAIT, full);
        let (mut state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() {
            return Err(StoreError::NoReader);
        }
        let idle = state.idle.pop();
        state.in_use += 1;
        drop(state);
        let opened = idle.map_or_else(|| Reads::open(&self.dir).map(Arc::new), Ok);
        match opened {
            Ok(reads) => Ok(Reader { reads, pool: self }),
            Err(error) => {
                locked(&self.state).in_use -= 1;
                self.returned.notify_one();
                Err(error)
            }
        }
    }

    /// One that nobody uses just now, if there is one.
    pub(super) fn at_hand(&self) -> Option<Reader<'_>> {
        let mut state = locked(&self.state);
        let reads = state.idle.pop()?;
        state.in_use += 1;
        Some(Reader { reads, pool: self })
    }

    /// Closes the connections that nobody uses.
    pub(super) fn close(&self) {
        locked(&self.state).idle.clear();
    }
}

/// A panic elsewhere leaves nothing half done behind these locks.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
