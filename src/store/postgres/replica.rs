//! One Loadline among several: that it lives, what it knows of the others' doings, and what only one may do at a time.
//!
//! A thread says every other second that this process lives, and hears what others have done: at once where the server
//! can notify, within a second by looking where it cannot. Whoever was not seen for a while is taken for dead, and the
//! turns that it was answering have failed. All times are the server's, so that clocks need not agree.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dashmap::DashMap;
use postgres::Client;
use postgres::fallible_iterator::FallibleIterator;

use super::address::Address;
use super::keeper::{Keeper, PATIENCE};
use super::schema;
use super::session::{Session, Told};
use super::waiting;
use crate::context::identity::ConversationId;
use crate::store::error::Failure;
use crate::store::read::Standing;
use crate::store::sql::{Sql, values};
use crate::store::{StoreError, delete};

/// Milliseconds since the epoch, by the server's clock.
pub(super) const NOW_MS: &str = "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)";

/// How often this process says that it lives, looks what is new, and looks after what others left.
const SEEN_EVERY: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(800);
const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// How long the thread waits for news before it looks whether it is to end.
const TICK: Duration = Duration::from_millis(100);

/// Who was not seen for this long is dead.
pub(super) const DEAD_AFTER_MS: i64 = 15_000;

const DEAD_AFTER: Duration = Duration::from_millis(DEAD_AFTER_MS.unsigned_abs());

/// Connections for questions of this process's own.
const KEEPERS: usize = 3;

/// Rows of the dead are of use to nobody after this.
const FORGOTTEN_AFTER_MS: i64 = 24 * 3600 * 1000;

/// What is still nobody's after this is not being imported or deleted by anybody.
pub(super) const LEFT_BEHIND_AFTER_MS: i64 = 3600 * 1000;

/// Numbers of conversations that are taken at once.
const NUMBERS: i64 = 50;

/// Conversations whose versions are remembered.
const MAX_VERSIONS: usize = 200_000;

/// What others have done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// There may be new events.
    Events,
    /// Tokens may have been revoked.
    Tokens,
    /// A conversation is being deleted.
    Gone(ConversationId),
}

/// Who is told.
#[derive(Default)]
struct Watcher(OnceLock<Box<dyn Fn(Signal) + Send + Sync>>);

impl std::fmt::Debug for Watcher {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Watcher")
    }
}

#[derive(Debug)]
pub(in crate::store) struct Replica {
    pub(super) address: Arc<Address>,
    pub(super) id: String,
    /// Where the server tells others of what happens, if it does.
    pub(super) channel: Option<String>,
    /// The versions that conversations had when this process last read or changed them.
    versions: DashMap<ConversationId, i64>,
    numbers: Mutex<Range<i64>>,
    /// Connections for questions of this process's own; whoever finds none waits.
    keepers: Mutex<Vec<Keeper>>,
    given_back: Condvar,
    /// Whether the server was there when it was last needed.
    reached: AtomicBool,
    watcher: Watcher,
    stop: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Replica {
    /// Joins those who use the database, with the schema up to date.
    pub(in crate::store) fn join(address: Address) -> Result<Arc<Self>, StoreError> {
        let address = Arc::new(address);
        let channel = waiting(|| {
            let session = address.connect().map_err(|failure| failure.on(&address))?;
            schema::migrate(&session, &address)?;
            let channel = session.channel().map_err(|failure| failure.on(&address))?;
            let listens = session.batch(&format!("LISTEN {channel}; UNLISTEN {channel}")).is_ok();
            Ok::<_, StoreError>(listens.then_some(channel))
        })?;
        let replica = Arc::new(Self {
            id: uuid::Uuid::now_v7().simple().to_string(),
            channel,
            versions: DashMap::new(),
            numbers: Mutex::new(0..0),
            keepers: Mutex::new((0..KEEPERS).map(|_| Keeper::new(Arc::clone(&address))).collect()),
            given_back: Condvar::new(),
            reached: AtomicBool::new(true),
            watcher: Watcher::default(),
            stop: AtomicBool::new(false),
            thread: Mutex::default(),
            address,
        });
        replica.ask(|session| seen(session, &replica.id))?;
        let work = Arc::clone(&replica);
        let thread = thread::Builder::new().name("store-replica".to_owned()).spawn(move || work.live());
        let thread = thread.map_err(|error| StoreError::File { path: "a thread".into(), source: Arc::new(error) })?;
        *locked(&replica.thread) = Some(thread);
        Ok(replica)
    }

    /// Has what others do told to somebody. The first who asks is told.
    pub(in crate::store) fn watch(&self, watcher: Box<dyn Fn(Signal) + Send + Sync>) {
        let _another_was_first = self.watcher.0.set(watcher);
    }

    /// The secret of the installation, made on first use, the same for all.
    pub(in crate::store) fn secret(&self) -> Result<[u8; 32], StoreError> {
        let new = crate::store::secret::new();
        self.ask(move |session| {
            let sql = Sql::Postgres(session);
            let make = "INSERT INTO secrets (name, value) VALUES ('identity', ?1) ON CONFLICT (name) DO NOTHING";
            sql.execute(make, values![&new])?;
            let secret = sql.one("SELECT value FROM secrets WHERE name = 'identity'", &[], |row| row.get(0))?;
            secret.ok_or(Failure::Odd("the secret is gone"))
        })
    }

    /// A number that no conversation has or had.
    pub(in crate::store) fn next_conversation(&self) -> Result<ConversationId, StoreError> {
        if let Some(next) = locked(&self.numbers).next() {
            return Ok(next);
        }
        let raise = "UPDATE settings SET value = value + ?1 WHERE name = 'last_conversation' RETURNING value";
        let last: i64 = self.ask(|session| {
            let last = Sql::Postgres(session).one(raise, values![NUMBERS], |row| row.get(0))?;
            last.ok_or(Failure::Odd("conversations are not counted"))
        })?;
        // If two have asked at once, the rest of one's numbers is given to nobody.
        *locked(&self.numbers) = last - NUMBERS + 2..last + 1;
        Ok(last - NUMBERS + 1)
    }

    /// How a conversation stands, and whether that is what this process knows of it.
    pub(in crate::store) fn standing(
        &self,
        conversation: ConversationId,
    ) -> Result<Option<(Standing, bool)>, StoreError> {
        let statement = format!(
            "SELECT users.name, version, (SELECT until - {NOW_MS} FROM leases
                 WHERE leases.name = ?2 AND left(holder, 32) <> ?3 AND until > {NOW_MS}), upstream
             FROM conversations JOIN users ON users.id = user_id WHERE conversations.id = ?1"
        );
        let lease = checkpoint_lease(conversation);
        let known = self.versions.get(&conversation).map(|version| *version);
        let standing = self.ask(|session| {
            Sql::Postgres(session).one(&statement, values![conversation, &lease, &self.id], |row| {
                Ok(Standing {
                    user: row.get(0)?,
                    version: row.get(1)?,
                    checkpoint_ms: row.get(2)?,
                    upstream: row.get(3)?,
                })
            })
        })?;
        Ok(standing.map(|standing| {
            let same = known == Some(standing.version);
            (standing, same)
        }))
    }

    /// What is read of a conversation from now on is at least of that version.
    pub(in crate::store) fn note_version(&self, conversation: ConversationId, version: i64) {
        if self.versions.len() >= MAX_VERSIONS {
            self.versions.clear();
        }
        self.versions.insert(conversation, version);
    }

    /// What this process has committed it knows, unless somebody else came in between.
    pub(super) fn committed(&self, told: &Told) {
        for (conversation, version) in &told.versions {
            let known = self.versions.get(conversation).map_or(0, |known| *known);
            if known + 1 == *version {
                self.note_version(*conversation, *version);
            }
        }
    }

    /// Takes what only one may have at a time, or has it for longer. Whether it was to be had.
    pub(in crate::store) fn lease(&self, name: &str, holder: &str, time: Duration) -> Result<bool, StoreError> {
        let holder = self.holder(holder);
        let statement = format!(
            "INSERT INTO leases (name, holder, until) VALUES (?1, ?2, {NOW_MS} + ?3) ON CONFLICT (name) DO UPDATE
             SET holder = excluded.holder, until = excluded.until
             WHERE leases.holder = excluded.holder OR leases.until <= {NOW_MS}"
        );
        let time = i64::try_from(time.as_millis()).unwrap_or(i64::MAX / 4);
        self.ask(|session| Ok(session.execute(&statement, values![name, &holder, time])? == 1))
    }

    /// Gives it back.
    pub(in crate::store) fn release(&self, name: &str, holder: &str) -> Result<(), StoreError> {
        let holder = self.holder(holder);
        let statement = "DELETE FROM leases WHERE name = ?1 AND holder = ?2";
        self.ask(|session| session.execute(statement, values![name, &holder]).map(|_| ()))
    }

    /// Who has it: this process, and which of those who want it there.
    fn holder(&self, holder: &str) -> String {
        format!("{} {holder}", self.id)
    }

    /// Bytes of the database, all of it; none where the server does not tell.
    pub(in crate::store) fn size(&self) -> Option<u64> {
        let size = |session: &Session| {
            Sql::Postgres(session).one("SELECT pg_database_size(current_database())", &[], |row| row.get::<i64>(0))
        };
        self.ask(size).ok().flatten().map(i64::unsigned_abs)
    }

    fn ask<T: Send>(&self, question: impl Fn(&Session) -> Result<T, Failure> + Send + Sync) -> Result<T, StoreError> {
        let started = Instant::now();
        let mut keeper = waiting(|| {
            let none = |keepers: &mut Vec<Keeper>| keepers.is_empty();
            let waited = self.given_back.wait_timeout_while(locked(&self.keepers), PATIENCE, none);
            waited.unwrap_or_else(PoisonError::into_inner).0.pop()
        })
        .ok_or(StoreError::NoReader)?;
        let asked = keeper.ask_since(started, question);
        locked(&self.keepers).push(keeper);
        self.given_back.notify_one();
        asked
    }

    /// Whether the server was there when it was last needed.
    pub(in crate::store) fn is_reached(&self) -> bool {
        self.reached.load(Ordering::Relaxed)
    }

    /// Leaves the others. Turns that were not ended by now have failed, and all of that is done before this returns.
    pub(in crate::store) fn leave(&self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = locked(&self.thread).take() {
            let _ = thread.join();
        }
        let left = self.ask(|session| {
            let sql = Sql::Postgres(session);
            sql.execute(
                "UPDATE turns SET status = 'failed' WHERE status = 'pending' AND replica = ?1",
                values![&self.id],
            )?;
            sql.execute("DELETE FROM leases WHERE left(holder, 32) = ?1", values![&self.id])?;
            sql.execute("DELETE FROM writers WHERE replica = ?1", values![&self.id])?;
            sql.execute("DELETE FROM replicas WHERE id = ?1", values![&self.id])
        });
        if let Err(error) = left {
            tracing::warn!(%error, "others will find out by themselves that this process has ended");
        }
    }

    fn live(&self) {
        let mut news = News::default();
        while !self.stop.load(Ordering::Relaxed) {
            if let Err(error) = self.follow(&mut news) {
                if self.reached.swap(false, Ordering::Relaxed) {
                    tracing::warn!(%error, "the database is away: trying again until it is back");
                }
                // Whatever was missed meanwhile is looked for afterwards.
                thread::sleep(TICK);
            }
        }
    }

    /// Lives and listens on one connection until it is lost.
    fn follow(&self, news: &mut News) -> Result<(), StoreError> {
        let server = |error: postgres::Error| StoreError::server(&self.address, &error);
        let own = |failure: Failure| failure.on(&self.address);
        let mut client = self.address.listener().map_err(server)?;
        if let Some(channel) = &self.channel {
            client.batch_execute(&format!("LISTEN {channel}")).map_err(server)?;
        }
        let session = self.address.connect().map_err(own)?;
        if !self.reached.swap(true, Ordering::Relaxed) {
            tracing::info!("the database is back");
        }
        // After an outage everybody seems to be dead; those who are not say so first.
        let (mut seen_at, mut looked_at, mut swept_at) = (None, None, None);
        let since = Instant::now();
        while !self.stop.load(Ordering::Relaxed) {
            if is_due(&mut seen_at, SEEN_EVERY) {
                seen(&session, &self.id).map_err(own)?;
            }
            if since.elapsed() >= DEAD_AFTER && is_due(&mut swept_at, SWEEP_EVERY) {
                match sweep(&session) {
                    Err(failure) if failure.is_conflict() => {}
                    swept => swept.map_err(own)?,
                }
            }
            if is_due(&mut looked_at, LOOK_EVERY) {
                for signal in news.look(&session).map_err(own)? {
                    self.tell(signal);
                }
            }
            if self.channel.is_some() {
                hear(&mut client, |signal| self.tell(signal)).map_err(server)?;
            } else {
                thread::sleep(TICK);
            }
        }
        Ok(())
    }

    fn tell(&self, signal: Signal) {
        if let Signal::Gone(conversation) = signal {
            self.versions.remove(&conversation);
        }
        if let Some(watcher) = self.watcher.0.get() {
            watcher(signal);
        }
    }
}

/// The lease of whoever has the model write a conversation's checkpoint just now: others wait for it.
pub fn checkpoint_lease(conversation: ConversationId) -> String {
    format!("checkpoint {conversation}")
}

/// The lease of whoever imports or deletes a conversation that is nobody's meanwhile.
pub(super) fn hiding_lease(conversation: ConversationId) -> String {
    format!("hidden {conversation}")
}

/// What was the newest when this process last looked.
#[derive(Debug, Default)]
struct News {
    event: i64,
    token_changes: i64,
}

impl News {
    fn look(&mut self, session: &Session) -> Result<Vec<Signal>, Failure> {
        let statement = "SELECT name, value FROM settings WHERE name IN ('last_event', 'token_changes')";
        let mut signals = Vec::new();
        let numbers = Sql::Postgres(session).many(statement, &[], |row| Ok((row.get::<String>(0)?, row.get(1)?)))?;
        for (name, value) in numbers {
            let (known, signal) = match name.as_str() {
                "last_event" => (&mut self.event, Signal::Events),
                _ => (&mut self.token_changes, Signal::Tokens),
            };
            if std::mem::replace(known, value) != value {
                signals.push(signal);
            }
        }
        Ok(signals)
    }
}

/// Waits a moment for what the server says.
fn hear(client: &mut Client, mut tell: impl FnMut(Signal)) -> Result<(), postgres::Error> {
    let mut notifications = client.notifications();
    let mut heard = notifications.timeout_iter(TICK);
    while let Some(notification) = heard.next()? {
        let word = notification.payload();
        match word.strip_prefix("gone ").and_then(|id| id.parse().ok()) {
            Some(conversation) => tell(Signal::Gone(conversation)),
            None if word == "tokens" => tell(Signal::Tokens),
            None => tell(Signal::Events),
        }
    }
    Ok(())
}

fn is_due(last: &mut Option<Instant>, every: Duration) -> bool {
    let due = last.is_none_or(|last| last.elapsed() >= every);
    if due {
        *last = Some(Instant::now());
    }
    due
}

fn seen(session: &Session, id: &str) -> Result<(), Failure> {
    let statement = format!(
        "INSERT INTO replicas (id, seen_at) VALUES (?1, {NOW_MS})
         ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at"
    );
    session.execute(&statement, values![id]).map(|_| ())
}

/// Looks after what the dead have left: turns that nobody answers, and conversations that nobody imports or deletes.
fn sweep(session: &Session) -> Result<(), Failure> {
    let sql = Sql::Postgres(session);
    let dead = format!("SELECT id FROM replicas WHERE seen_at >= {NOW_MS} - ?1");
    let failed = format!(
        "UPDATE turns SET status = 'failed' WHERE status = 'pending' AND (replica IS NULL OR replica NOT IN ({dead}))"
    );
    sql.execute(&failed, values![DEAD_AFTER_MS])?;
    let old = format!("DELETE FROM replicas WHERE seen_at < {NOW_MS} - ?1");
    if sql.execute(&old, values![FORGOTTEN_AFTER_MS])? > 0 {
        sql.execute("DELETE FROM writers WHERE replica NOT IN (SELECT id FROM replicas)", &[])?;
    }
    sql.execute(&format!("DELETE FROM leases WHERE until < {NOW_MS} - ?1"), values![FORGOTTEN_AFTER_MS])?;
    let left = format!(
        "SELECT conversations.id FROM conversations JOIN users ON users.id = user_id
         WHERE users.name = '' AND NOT EXISTS (SELECT 1 FROM leases
             WHERE leases.name = 'hidden ' || CAST(conversations.id AS TEXT) AND until > {NOW_MS}) LIMIT 1"
    );
    for conversation in sql.many(&left, &[], |row| row.get(0))? {
        // Each slice is a transaction; the next look goes on where this one stops.
        session.begin()?;
        match delete::delete_slice(sql, conversation) {
            Ok(()) => session.commit()?,
            Err(failure) if failure.is_of_the_change() => session.rollback()?,
            Err(failure) => {
                session.rollback()?;
                return Err(failure);
            }
        }
    }
    Ok(())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
