//! Reading: connections that are only asked, and what can be asked of them.
//!
//! A query blocks its caller for as long as the database takes, and sees what was committed when it began.
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

use super::error::Failure;
use super::postgres::{Address, Keeper};
use super::sql::Sql;
use super::{StoreError, open};
pub use examine::RecentLimit;
pub use records::Standing;
pub use rows::{
    CheckpointRow, ConversationRow, Counts, EventRow, Found, ImportedLineRow, MessageRow, ReceiptRow, SnapshotRow,
    TurnRow,
};
pub use search::Hit;
pub use tokens::TokenRow;

/// More would only wait for the same disk.
const MAX_READERS: usize = 8;

const MAX_WAIT: Duration = Duration::from_secs(5);

/// A connection that is only asked. Its methods are the store's questions.
#[derive(Debug)]
pub struct Reads(Engine);

/// A connection serves one thread at a time; with the lock, several may hold it.
#[derive(Debug)]
enum Engine {
    Sqlite { connection: Mutex<Connection>, path: PathBuf },
    Postgres(Box<Mutex<Keeper>>),
}

/// Where connections come from.
#[derive(Debug, Clone)]
pub(super) enum Source {
    Directory(PathBuf),
    Server(Arc<Address>),
}

impl Source {
    fn open(&self) -> Result<Reads, StoreError> {
        Ok(Reads(match self {
            Self::Directory(dir) => {
                Engine::Sqlite { connection: Mutex::new(open::reader(dir)?), path: open::database_path(dir) }
            }
            Self::Server(address) => Engine::Postgres(Box::new(Mutex::new(Keeper::new(Arc::clone(address))))),
        }))
    }
}

impl Reads {
    /// Runs a query, and names the database if it fails. It may be run again on another connection, if one is lost.
    pub(super) fn ask<T: Send>(
        &self,
        query: impl Fn(Sql<'_>) -> Result<T, Failure> + Send + Sync,
    ) -> Result<T, StoreError> {
        match &self.0 {
            Engine::Sqlite { connection, path } => {
                query(Sql::Sqlite(&locked(connection))).map_err(|failure| failure.at(path))
            }
            Engine::Postgres(keeper) => locked(keeper).ask(|session| query(Sql::Postgres(session))),
        }
    }
}

/// The store for a command that only looks, beside a serving process or without one.
#[derive(Debug)]
pub struct ReadOnly(Reads);

/// Opens the database of a directory without locking, making or changing it.
pub fn open_read_only(dir: &Path) -> Result<ReadOnly, StoreError> {
    Source::Directory(dir.to_owned()).open().map(ReadOnly)
}

/// The same for a server, whose schema must be there already.
pub fn open_server_read_only(address: Address) -> Result<ReadOnly, StoreError> {
    address.check()?;
    Source::Server(Arc::new(address)).open().map(ReadOnly)
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
    source: Source,
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Arc<Reads>>,
    in_use: usize,
}

impl Pool {
    pub(super) fn new(source: Source) -> Self {
        Self { source, state: Mutex::default(), returned: Condvar::new() }
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
        let opened = idle.map_or_else(|| self.source.open().map(Arc::new), Ok);
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
