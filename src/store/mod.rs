//! What must outlive the process: every message, what was made to leave instead of it, and the secret
//! that identity is made with.
//!
//! One SQLite file in a directory that only its owner can read, written by one thread (see `writer`)
//! and read by many connections; or a PostgreSQL server that several processes share (see `postgres`). What is
//! written and read is the same (`apply`, `read`), in statements that both understand (`sql`). Nothing here makes ids or reads the clock, and nothing that was stored
//! is ever overwritten by something shorter. A file that cannot be trusted is refused, not repaired.

mod ack;
mod append;
mod apply;
mod batch;
mod change;
mod copy;
mod delete;
mod disk;
mod error;
mod health;
mod held;
mod home;
mod import;
mod index;
mod lease;
mod open;
mod postgres;
mod read;
mod secret;
mod sql;
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
use std::time::Duration;

use tokio::sync::oneshot;

pub use ack::Ack;
pub use change::{
    BeginTurn, Change, Compaction, FinishTurn, NewCheckpoint, NewEvent, NewMessage, NewSnapshot, TurnStatus,
};
pub use copy::{Copied, CopyError, Progress, copy, home as copy_home};
pub use disk::{Disk, disk};
pub use error::{Rejection, StoreError};
pub use health::{Committed, Stats};
pub use home::Home;
pub use import::{Import, ImportedLine, ImportedMessage, ImportedSlice};
pub use lease::Lease;
pub use open::Checked;
pub use postgres::{Address, AddressError, Signal, checkpoint_lease};
pub use read::{
    CheckpointRow, ConversationRow, Counts, EventRow, Found, Hit, ImportedLineRow, MessageRow, ReadOnly, Reader, Reads,
    ReceiptRow, RecentLimit, SnapshotRow, Standing, TokenRow, TurnRow, open_read_only, open_server_read_only,
};
pub use tokens::NewToken;

use crate::context::identity::ConversationId;
use health::Health;
use held::Begun;
use postgres::Replica;
use read::{Pool, Source};
use write_back::WriteBack;
use writer::{Job, MAX_WAITING, Then, Writer};

/// Bytes that may wait to be stored, whatever their number.
const MAX_WAITING_BYTES: usize = 256 << 20;

/// Connections that write to a server. Each takes a conversation's changes there and back in turn, so that more of them
/// help where the way is long; the server commits what they bring together.
const LANES: usize = 4;

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
        apply::apply(sql::Sql::Sqlite(&transaction), change)?;
        transaction.commit().map_err(error::Failure::from)
    };
    write().map_err(|failure| failure.at(&path))
}

/// The store of a serving process: a data directory that no other can open meanwhile, and what is in it or on a server.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    engine: Engine,
    health: Arc<Health>,
    readers: Pool,
    /// Those who write: one for a file, a few for a server.
    lanes: Vec<Lane>,
    /// Let go of last, when the threads have ended. Commands beside a server have none.
    lock: Option<File>,
}

#[derive(Debug)]
enum Engine {
    Sqlite { next_conversation: AtomicI64 },
    Postgres(Arc<Replica>),
}

/// Somebody who writes, and what waits for that.
#[derive(Debug)]
struct Lane {
    queue: Option<SyncSender<Job>>,
    begun: Arc<Begun>,
    thread: Option<JoinHandle<()>>,
}

impl Lane {
    fn is_gone(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Store {
    /// Opens the directory, making it if it is not there. Turns that a crash left behind have failed.
    pub fn open(dir: &Path, durability: Durability) -> Result<Self, StoreError> {
        open::make_dir(dir)?;
        let lock = open::lock(dir)?;
        let connection = open::writer(dir, durability)?;
        let path = open::database_path(dir);
        let readers = Pool::new(Source::Directory(dir.to_owned()));
        let newest = readers.get()?.newest_conversation()?;
        let health = Arc::new(Health::default());
        let (queue, jobs) = mpsc::sync_channel(MAX_WAITING);
        let begun = Arc::new(Begun::default());
        let (watched, waiting) = (Arc::clone(&health), Arc::clone(&begun));
        let aside = Some(WriteBack::start(open::beside(dir)?, &path, Arc::clone(&health))?);
        let writer = Writer { connection, path: path.clone(), queue: jobs, begun: waiting, health: watched, aside };
        let thread = thread::Builder::new().name("store".to_owned()).spawn(move || writer.run());
        let thread = Some(thread.map_err(|error| StoreError::file(&path, error))?);
        Ok(Self {
            dir: dir.to_owned(),
            engine: Engine::Sqlite { next_conversation: AtomicI64::new(newest + 1) },
            health,
            readers,
            lanes: vec![Lane { queue: Some(queue), begun, thread }],
            lock: Some(lock),
        })
    }

    /// Joins the Loadlines that share a server. The directory is for what is this process's own.
    pub fn connect(dir: &Path, address: Address) -> Result<Self, StoreError> {
        open::make_dir(dir)?;
        let lock = open::lock(dir)?;
        let mut store = Self::connect_beside(dir, address)?;
        store.lock = Some(lock);
        Ok(store)
    }

    /// The same for a command, which may run beside a serving process that has the directory.
    pub fn connect_beside(dir: &Path, address: Address) -> Result<Self, StoreError> {
        let source = Source::Server(Arc::new(address.clone()));
        let replica = Replica::join(address)?;
        let health = Arc::new(Health::default());
        let mut lanes = Vec::with_capacity(LANES);
        for lane in 0..LANES {
            let (queue, jobs) = mpsc::sync_channel(MAX_WAITING);
            let begun = Arc::new(Begun::default());
            let writer = postgres::Writer {
                replica: Arc::clone(&replica),
                lane,
                queue: jobs,
                begun: Arc::clone(&begun),
                health: Arc::clone(&health),
            };
            let thread = thread::Builder::new().name(format!("store-{lane}")).spawn(move || writer.run());
            let thread = Some(thread.map_err(|error| StoreError::file(dir, error))?);
            lanes.push(Lane { queue: Some(queue), begun, thread });
        }
        Ok(Self {
            dir: dir.to_owned(),
            engine: Engine::Postgres(replica),
            health,
            readers: Pool::new(source),
            lanes,
            lock: None,
        })
    }

    /// The secret of this installation, made on first use.
    pub fn secret(&self) -> Result<[u8; 32], StoreError> {
        match &self.engine {
            Engine::Sqlite { .. } => secret::read_or_make(&self.dir),
            Engine::Postgres(replica) => replica.secret(),
        }
    }

    /// Says where the process that has the directory can be reached, for commands that want to change things.
    pub fn announce(&self, address: &str) -> Result<(), StoreError> {
        self.lock.as_ref().map_or(Ok(()), |lock| open::announce(&self.dir, lock, address))
    }

    /// A number that no stored conversation has.
    pub fn next_conversation(&self) -> Result<ConversationId, StoreError> {
        match &self.engine {
            Engine::Sqlite { next_conversation } => Ok(next_conversation.fetch_add(1, Ordering::Relaxed)),
            Engine::Postgres(replica) => replica.next_conversation(),
        }
    }

    /// Whether others may change what is stored.
    pub fn is_shared(&self) -> bool {
        matches!(self.engine, Engine::Postgres(_))
    }

    /// How a conversation stands where others may have changed it, and whether that is as this process knows it; none
    /// if it is not there. If nobody else can change it, nothing is asked, and nothing said.
    pub fn standing(&self, conversation: ConversationId) -> Result<Option<(Standing, bool)>, StoreError> {
        match &self.engine {
            Engine::Sqlite { .. } => Ok(None),
            Engine::Postgres(replica) => replica.standing(conversation),
        }
    }

    /// What was remembered of a conversation is forgotten, and what is read now is at least of this version.
    pub fn note_version(&self, conversation: ConversationId, version: i64) {
        if let Engine::Postgres(replica) = &self.engine {
            replica.note_version(conversation, version);
        }
    }

    /// Whether a server that everything is kept on was there when it was last needed.
    pub fn is_reached(&self) -> bool {
        match &self.engine {
            Engine::Sqlite { .. } => true,
            Engine::Postgres(replica) => replica.is_reached(),
        }
    }

    /// Takes what only one may have at a time, or keeps it for longer. Whether it was to be had.
    pub fn lease(&self, name: &str, holder: &str, time: Duration) -> Result<bool, StoreError> {
        match &self.engine {
            Engine::Sqlite { .. } => Ok(true),
            Engine::Postgres(replica) => replica.lease(name, holder, time),
        }
    }

    /// Gives it back.
    pub fn release(&self, name: &str, holder: &str) -> Result<(), StoreError> {
        match &self.engine {
            Engine::Sqlite { .. } => Ok(()),
            Engine::Postgres(replica) => replica.release(name, holder),
        }
    }

    /// Has what others do told to somebody. The first who asks is told.
    pub fn watch_others(&self, watcher: impl Fn(Signal) + Send + Sync + 'static) {
        if let Engine::Postgres(replica) = &self.engine {
            replica.watch(Box::new(watcher));
        }
    }

    /// Hands a change to the writer, at once; those of one conversation are made in the order they are submitted in. If
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
        let lane = &self.lanes[lane_of(&change, self.lanes.len())];
        let Some(queue) = &lane.queue else { return refuse(then, StoreError::Stopped) };
        let bytes = change.bytes();
        if !self.health.admit(bytes, MAX_WAITING_BYTES) {
            return refuse(then, StoreError::QueueFull);
        }
        let (done, ack) = oneshot::channel();
        let mut job = Job { change: Box::new(change), then, done };
        if held::may_wait(&job.change) {
            // Nobody would ever look.
            if lane.is_gone() {
                self.health.taken(bytes);
                return refuse(job.then, StoreError::Stopped);
            }
            if !lane.begun.add(job) {
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
        self.health.is_well() && !self.lanes.iter().any(Lane::is_gone)
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
        let mut room = disk(&self.dir)?;
        if let Engine::Postgres(replica) = &self.engine {
            room.database_bytes = replica.size().unwrap_or(0);
        }
        Ok(room)
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
        self.lanes.iter_mut().for_each(|lane| lane.queue = None);
        for thread in self.lanes.iter_mut().filter_map(|lane| lane.thread.take()) {
            let _ = thread.join();
        }
        if let Engine::Postgres(replica) = &self.engine {
            replica.leave();
        }
    }
}

/// Who writes a change: all that concerns one conversation is written in its order, by the same.
fn lane_of(change: &Change, lanes: usize) -> usize {
    let conversation = match change {
        Change::Begin(begin) => begin.conversation,
        Change::Finish(finish) => finish.conversation,
        Change::Compaction(compaction) => compaction.conversation,
        Change::Event(event) => event.conversation.unwrap_or(0),
        Change::ImportSlice(slice) => slice.conversation,
        Change::ImportBegin(import) => import.conversation,
        Change::Hide(conversation) | Change::DeleteSlice(conversation) => *conversation,
        // Whoever submits these waits for what they rest on.
        Change::ImportEnd(_)
        | Change::Index
        | Change::CreateToken(_)
        | Change::RevokeToken { .. }
        | Change::TokenUsed { .. }
        | Change::ForgetToken(_)
        | Change::Condensed { .. }
        | Change::Cursor { .. }
        | Change::Wake => 0,
    };
    usize::try_from(conversation).unwrap_or(0) % lanes
}
