//! What must outlive the process: every message, what was made to leave instead of it, and the secret
//! that identity is made with.
//!
//! One SQLite file in a directory that only its owner can read, written by one thread (see `writer`)
//! and read by many connections. Nothing here makes ids or reads the clock, and nothing that was stored
//! is ever overwritten by something shorter. A file that cannot be trusted is refused, not repaired.

mod ack;
mod append;
mod apply;
mod batch;
mod change;
mod delete;
mod disk;
mod error;
mod health;
mod held;
mod import;
mod index;
mod open;
mod read;
mod secret;
#[cfg(test)]
mod tests;
mod tokens;
mod write_back;
mod writer;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::thread::{self, JoinHandle};

use tokio::sync::oneshot;

pub use ack::Ack;
pub use change::{
    BeginTurn, Change, Compaction, FinishTurn, NewCheckpoint, NewEvent, NewMessage, NewSnapshot, TurnStatus,
};
pub use disk::{Disk, disk};
pub use error::{Rejection, StoreError};
pub use health::{Committed, Stats};
pub use import::{Import, ImportedLine, ImportedMessage, ImportedSlice};
pub use open::Checked;
pub use read::{
    CheckpointRow, ConversationRow, Counts, EventRow, Found, Hit, ImportedLineRow, MessageRow, ReadOnly, Reader, Reads,
    ReceiptRow, RecentLimit, SnapshotRow, TokenRow, TurnRow, open_read_only,
};
pub use tokens::NewToken;

use crate::context::identity::ConversationId;
use health::Health;
use held::Begun;
use read::Pool;
use write_back::WriteBack;
use writer::{Job, MAX_WAITING, Then, Writer};

/// Bytes that may wait to be stored, whatever their number.
const MAX_WAITING_BYTES: usize = 256 << 20;

/// What a commit waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// The disk: what was acknowledged survives a loss of power.
    #[default]
    Full,
    /// The operating system: it survives a crash of this process, and a loss of power may take the
    /// last moments.
    Normal,
}

/// Where the process that has the directory can be reached.
pub fn serving_at(dir: &Path) -> Option<String> {
    open::announced(dir)
}

/// Makes one change beside a serving process. Only for what no process remembers: tokens, and the search index.
pub fn change_beside(dir: &Path, change: &Change) -> Result<(), StoreError> {
    let path = open::database_path(dir);
    let mut connection = open::beside(dir)?;
    let mut write = || {
        let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        apply::apply(&transaction, change)?;
        transaction.commit().map_err(error::Failure::from)
    };
    write().map_err(|failure| failure.at(&path))
}

/// The data directory of a serving process. No other can open it meanwhile.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    next_conversation: AtomicI64,
    health: Arc<Health>,
    readers: Pool,
    queue: Option<SyncSender<Job>>,
    begun: Arc<Begun>,
    thread: Option<JoinHandle<()>>,
    /// Let go of last, when the thread has ended.
    lock: File,
}

impl Store {
    /// Opens the directory, making it if it is not there. Turns that a crash left behind have failed.
    pub fn open(dir: &Path, durability: Durability) -> Result<Self, StoreError> {
        open::make_dir(dir)?;
        let lock = open::lock(dir)?;
        let connection = open::writer(dir, durability)?;
        let path = open::database_path(dir);
        let readers = Pool::new(dir);
        let newest = readers.get()?.newest_conversation()?;
        let health = Arc::new(Health::default());
        let (queue, jobs) = mpsc::sync_channel(MAX_WAITING);
        let begun = Arc::new(Begun::default());
        let (watched, waiting) = (Arc::clone(&health), Arc::clone(&begun));
        let aside = Some(WriteBack::start(open::beside(dir)?, &path, Arc::clone(&health))?);
        let writer = Writer { connection, path: path.clone(), queue: jobs, begun: waiting, health: watched, aside };
        let thread = thread::Builder::new().name("store".to_owned()).spawn(move || writer.run());
        Ok(Self {
            dir: dir.to_owned(),
            next_conversation: AtomicI64::new(newest + 1),
            health,
            readers,
            queue: Some(queue),
            begun,
            thread: Some(thread.map_err(|error| StoreError::file(&path, error))?),
            lock,
        })
    }

    /// The secret of this installation, made on first use.
    pub fn secret(&self) -> Result<[u8; 32], StoreError> {
        secret::read_or_make(&self.dir)
    }

    /// Says where the process that has the directory can be reached, for commands that want to change things.
    pub fn announce(&self, address: &str) -> Result<(), StoreError> {
        open::announce(&self.dir, &self.lock, address)
    }

    /// A number that no stored conversation has.
    pub fn next_conversation(&self) -> ConversationId {
        self.next_conversation.fetch_add(1, Ordering::Relaxed)
    }

    /// Hands a change to the writer, at once; changes are made in the order they are submitted in. If
    /// too much waits already it is refused.
    pub fn submit(&self, change: Change) -> Ack {
        self.hand_over(change, None)
    }

    /// The same, with something to be done on the writer's thread once it is known what became of it, before anybody
    /// is told. If it is refused here, that is done here. It must not hold the store: the writer cannot wait for itself.
    pub fn submit_then(&self, change: Change, then: impl FnOnce(&Result<(), StoreError>) + Send + 'static) -> Ack {
        self.hand_over(change, Some(Box::new(then)))
    }

    fn hand_over(&self, change: Change, then: Option<Then>) -> Ack {
        let refuse = |then: Option<Then>, error: StoreError| {
            if let Some(then) = then {
                then(&Err(error.clone()));
            }
            Ack::refused(error)
        };
        if !self.health.is_trusted() {
            return refuse(then, self.health.untrusted(&open::database_path(&self.dir)));
        }
        let Some(queue) = &self.queue else { return refuse(then, StoreError::Stopped) };
        let bytes = change.bytes();
        if !self.health.admit(bytes, MAX_WAITING_BYTES) {
            return refuse(then, StoreError::QueueFull);
        }
        let (done, ack) = oneshot::channel();
        let mut job = Job { change: Box::new(change), then, done };
        if held::may_wait(&job.change) {
            // Nobody would ever look.
            if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
                self.health.taken(bytes);
                return refuse(job.then, StoreError::Stopped);
            }
            if !self.begun.add(job) {
                return Ack::waiting(ack);
            }
            // Nothing to store: only a word that there is something.
            let (done, _nobody) = oneshot::channel();
            job = Job { change: Box::new(Change::Wake), then: None, done };
            self.health.admit(0, usize::MAX);
            if let Err(error) = queue.try_send(job) {
                // Then it is awake, or gone.
                self.health.taken(0);
                drop(error);
            }
            return Ack::waiting(ack);
        }
        let (refused, job) = match queue.try_send(job) {
            Ok(()) => return Ack::waiting(ack),
            Err(TrySendError::Full(job)) => (StoreError::QueueFull, job),
            Err(TrySendError::Disconnected(job)) => (StoreError::Stopped, job),
        };
        self.health.taken(bytes);
        refuse(job.then, refused)
    }

    /// Whether the last commit went well and the writer is there.
    pub fn healthy(&self) -> bool {
        self.health.is_well() && self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// A connection to read with, given back when it is dropped.
    pub fn reader(&self) -> Result<Reader<'_>, StoreError> {
        self.readers.get()
    }

    /// The same without waiting, if there is one that nobody uses: for short looks.
    pub fn reader_at_hand(&self) -> Option<Reader<'_>> {
        self.readers.at_hand()
    }

    /// Has each commit told to somebody, on the writer's thread. The first who asks is told.
    pub fn watch_commits(&self, watcher: impl Fn(Committed) + Send + Sync + 'static) {
        self.health.watch(Box::new(watcher));
    }

    /// How much room there is.
    pub fn disk(&self) -> std::io::Result<Disk> {
        disk(&self.dir)
    }

    pub fn stats(&self) -> Stats {
        self.health.stats()
    }
}

impl Drop for Store {
    /// Waits until everything that was submitted is on disk.
    fn drop(&mut self) {
        // The writer must be the last to close, because only it can empty the write-ahead log.
        self.readers.close();
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
