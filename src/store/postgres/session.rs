//! One connection to the server: its prepared statements, and the transaction that is under way on it.
//!
//! It blocks its thread, and not for ever: a server that hangs is as good as gone after a while ([`PATIENCE`]).
//!
//! In a transaction events are held back until its end and numbered there (`flush`), because a number must not be
//! given before those below it are committed, and nobody should wait for that longer than a commit takes.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::Duration;

use postgres::types::ToSql;
use postgres::{Row, SimpleQueryMessage, Statement};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use super::replica::{DEAD_AFTER_MS, LEFT_BEHIND_AFTER_MS, NOW_MS, hiding_lease};
use super::waiting;
use crate::context::identity::ConversationId;
use crate::store::change::NewEvent;
use crate::store::error::{Failure, Rejection};
use crate::store::sql::{Sql, Value, values};

/// Statements that are kept prepared: more than there are.
const STATEMENTS: usize = 256;

/// After this long without an answer a connection is given up. The server ends a statement before that.
pub(super) const PATIENCE: Duration = Duration::from_secs(12);

/// What a goodbye may take.
const GOODBYE: Duration = Duration::from_millis(100);

/// Numbers that are remembered; more than this and all are asked for again.
const NUMBERS: usize = 50_000;

pub(in crate::store) struct Session {
    /// There until the end.
    client: RefCell<Option<Driven>>,
    /// None: for as long as it takes.
    patience: Cell<Option<Duration>>,
    prepared: RefCell<HashMap<String, Statement>>,
    /// What the transaction has done so far that others must hear of.
    told: RefCell<Told>,
    /// Numbers of users and system prompts that are committed. Users stay for ever, and the prompts are a conversation's
    /// own, which is locked whenever they are asked for.
    numbers: RefCell<HashMap<[u8; 32], i64>>,
    /// Who this is, in rows that belong to a process.
    replica: RefCell<Option<String>>,
    /// Where others are told.
    channel: RefCell<Option<String>>,
}

/// What is only known to have happened when the transaction is committed.
#[derive(Debug, Default, Clone)]
pub(super) struct Told {
    /// The versions that conversations have now.
    pub(super) versions: Vec<(ConversationId, i64)>,
    events: Vec<(NewEvent, Option<i64>)>,
    numbers: Vec<([u8; 32], i64)>,
    pub(super) tokens: bool,
    pub(super) gone: Vec<ConversationId>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Session")
    }
}

/// A connection, and what drives it while somebody waits for it.
pub(super) struct Driven {
    pub(super) runtime: Runtime,
    /// There until the end.
    pub(super) client: Option<Client>,
    pub(super) connection: JoinHandle<()>,
}

impl Drop for Driven {
    /// Says goodbye, if the server listens: it would note a broken connection otherwise.
    fn drop(&mut self) {
        drop(self.client.take());
        let connection = &mut self.connection;
        let _said_or_not = self.runtime.block_on(async { tokio::time::timeout(GOODBYE, connection).await });
    }
}

impl Session {
    pub(super) fn new(client: Driven) -> Self {
        Self {
            client: RefCell::new(Some(client)),
            patience: Cell::new(Some(PATIENCE)),
            prepared: RefCell::default(),
            told: RefCell::default(),
            numbers: RefCell::default(),
            replica: RefCell::default(),
            channel: RefCell::default(),
        }
    }

    /// A connection that writes for a replica.
    pub(super) fn writes_for(&self, replica: &str, channel: Option<&str>) {
        *self.replica.borrow_mut() = Some(replica.to_owned());
        *self.channel.borrow_mut() = channel.map(str::to_owned);
    }

    /// The name of the channel on which users of this schema tell each other. Channels are the whole database's.
    pub(super) fn channel(&self) -> Result<String, Failure> {
        let schema: Option<String> = Sql::Postgres(self).one("SELECT current_schema()", &[], |row| row.get(0))?;
        let digest = blake3::hash(schema.unwrap_or_default().as_bytes());
        Ok(format!("loadline_{}", &digest.to_hex()[..16]))
    }

    /// Waits for as long as it takes from now on: for work that nobody waits for.
    pub(super) fn takes_its_time(&self) {
        self.patience.set(None);
    }

    fn with<T>(&self, work: impl AsyncFnOnce(&Client) -> Result<T, postgres::Error>) -> Result<T, Failure> {
        let driven = self.client.borrow();
        let given_up = || Failure::Odd("the connection was given up");
        let Driven { runtime, client, .. } = driven.as_ref().ok_or_else(given_up)?;
        let client = client.as_ref().ok_or_else(given_up)?;
        let done = runtime.block_on(async {
            match self.patience.get() {
                None => Ok(work(client).await),
                Some(patience) => tokio::time::timeout(patience, work(client)).await,
            }
        });
        Ok(done.map_err(|_| Failure::Silent)??)
    }

    pub(in crate::store) fn execute(&self, statement: &str, values: &[Value<'_>]) -> Result<usize, Failure> {
        let prepared = self.statement(statement)?;
        let changed = self.with(async |client| client.execute(&prepared, &places(values)).await)?;
        Ok(usize::try_from(changed).unwrap_or(usize::MAX))
    }

    pub(in crate::store) fn query(&self, statement: &str, values: &[Value<'_>]) -> Result<Vec<Row>, Failure> {
        let prepared = self.statement(statement)?;
        self.with(async |client| client.query(&prepared, &places(values)).await)
    }

    fn statement(&self, written: &str) -> Result<Statement, Failure> {
        if let Some(prepared) = self.prepared.borrow().get(written) {
            return Ok(prepared.clone());
        }
        let prepared = self.with(async |client| client.prepare(&numbered(written)).await)?;
        let mut all = self.prepared.borrow_mut();
        if all.len() >= STATEMENTS {
            all.clear();
        }
        all.insert(written.to_owned(), prepared.clone());
        Ok(prepared)
    }

    /// Statements without values, one after the other.
    pub(in crate::store) fn batch(&self, statements: &str) -> Result<(), Failure> {
        self.with(async |client| client.batch_execute(statements).await)
    }

    /// The number of the schema.
    pub(in crate::store) fn schema(&self) -> Result<i64, Failure> {
        let newest = "SELECT coalesce(max(number), 0) FROM loadline_migrations";
        Ok(Sql::Postgres(self).one(newest, &[], |row| row.get(0))?.unwrap_or(0))
    }

    pub(super) fn begin(&self) -> Result<(), Failure> {
        self.told.take();
        self.batch("BEGIN")
    }

    /// All of it or nothing.
    pub(in crate::store) fn transacted<T>(&self, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        self.begin()?;
        match work() {
            Ok(done) => {
                self.commit()?;
                Ok(done)
            }
            Err(failure) => {
                if !failure.is_lost() {
                    self.rollback()?;
                }
                Err(failure)
            }
        }
    }

    /// How many processes use the schema.
    pub(in crate::store) fn others(&self) -> Result<i64, Failure> {
        let statement = format!("SELECT count(*) FROM replicas WHERE seen_at >= {NOW_MS} - ?1");
        Ok(Sql::Postgres(self).one(&statement, values![DEAD_AFTER_MS], |row| row.get(0))?.unwrap_or(0))
    }

    /// Begins the transaction with that number of a writer. False if it has happened already, or if the writer's row
    /// is gone. If the same one may still be under way on a connection that was lost, this waits for its end.
    pub(super) fn begin_numbered(&self, writer: &str, batch: i64) -> Result<bool, Failure> {
        self.told.take();
        // Made of our own numbers and letters only, and so one way there and back less.
        let claim = format!("BEGIN; UPDATE writers SET batch = {batch} WHERE id = '{writer}' AND batch < {batch}");
        let done = self.with(async |client| client.simple_query(&claim).await)?;
        let changed = done.iter().filter_map(|message| match message {
            SimpleQueryMessage::CommandComplete(rows) => Some(*rows),
            _ => None,
        });
        Ok(changed.last() == Some(1))
    }

    pub(super) fn rollback(&self) -> Result<(), Failure> {
        self.told.take();
        self.batch("ROLLBACK")
    }

    /// Commits, and says what others must hear of.
    pub(super) fn commit(&self) -> Result<(), Failure> {
        self.batch("COMMIT")
    }

    /// What the transaction has done, once it is committed.
    pub(super) fn take_told(&self) -> Told {
        let told = self.told.take();
        let mut numbers = self.numbers.borrow_mut();
        if numbers.len() + told.numbers.len() > NUMBERS {
            numbers.clear();
        }
        numbers.extend(told.numbers.iter().copied());
        told
    }

    /// A number that never changes once it is committed.
    pub(in crate::store) fn remembered(
        &self,
        of: [u8; 32],
        find: impl FnOnce() -> Result<i64, Failure>,
    ) -> Result<i64, Failure> {
        if let Some(number) = self.numbers.borrow().get(&of) {
            return Ok(*number);
        }
        let number = find()?;
        self.told.borrow_mut().numbers.push((of, number));
        Ok(number)
    }

    /// One change that may fail alone.
    pub(super) fn alone<T>(&self, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        let before = self.told.borrow().clone();
        self.batch("SAVEPOINT one")?;
        match work() {
            Ok(done) => {
                self.batch("RELEASE SAVEPOINT one")?;
                Ok(done)
            }
            Err(failure) if failure.is_of_the_change() => {
                self.batch("ROLLBACK TO SAVEPOINT one; RELEASE SAVEPOINT one")?;
                *self.told.borrow_mut() = before;
                Err(failure)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Locks a conversation until the commit, without a word to others.
    pub(in crate::store) fn lock(&self, conversation: ConversationId) -> Result<(), Failure> {
        let lock = "SELECT id FROM conversations WHERE id = ?1 FOR UPDATE";
        self.query(lock, values![conversation]).map(|_| ())
    }

    /// Whether a turn that has failed is one of this process's own that has not ended: others took it for dead too soon.
    pub(in crate::store) fn was_given_up(&self, turn: &str) -> Result<bool, Failure> {
        let Some(replica) = self.replica.borrow().clone() else { return Ok(false) };
        let statement = "SELECT 1 FROM turns WHERE id = ?1 AND finished_at IS NULL AND replica = ?2";
        Sql::Postgres(self).exists(statement, values![turn, &replica])
    }

    /// Locks a conversation until the commit, and gives it a new version.
    pub(in crate::store) fn touch(&self, conversation: ConversationId) -> Result<(), Failure> {
        let next = "UPDATE conversations SET version = version + 1 WHERE id = ?1 RETURNING version";
        let version = Sql::Postgres(self).one(next, values![conversation], |row| row.get(0))?;
        let version = version.ok_or(Rejection::UnknownConversation(conversation))?;
        self.told.borrow_mut().versions.push((conversation, version));
        Ok(())
    }

    /// A turn is answered by this process.
    pub(in crate::store) fn pends(&self, turn: &str) -> Result<(), Failure> {
        if let Some(replica) = &*self.replica.borrow() {
            self.execute("UPDATE turns SET replica = ?2 WHERE id = ?1", values![turn, replica])?;
        }
        Ok(())
    }

    /// A conversation is nobody's because somebody is importing or deleting it. What is still so much later was left
    /// behind.
    pub(in crate::store) fn hides(&self, conversation: ConversationId) -> Result<(), Failure> {
        let statement = format!(
            "INSERT INTO leases (name, holder, until) VALUES (?1, ?2, {NOW_MS} + ?3)
             ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until"
        );
        let holder = self.replica.borrow().clone().unwrap_or_default();
        self.execute(&statement, values![&hiding_lease(conversation), &holder, LEFT_BEHIND_AFTER_MS])?;
        Ok(())
    }

    pub(in crate::store) fn hold_event(&self, event: &NewEvent, user: Option<i64>) {
        self.told.borrow_mut().events.push((event.clone(), user));
    }

    /// Tokens are not what they were.
    pub(super) fn tokens_changed(&self) {
        self.told.borrow_mut().tokens = true;
    }

    /// A conversation is nobody's any more.
    pub(super) fn gone(&self, conversation: ConversationId) {
        self.told.borrow_mut().gone.push(conversation);
    }

    /// Writes what was held back, right before the commit.
    pub(super) fn flush(&self) -> Result<(), Failure> {
        let sql = Sql::Postgres(self);
        let told = self.told.borrow().clone();
        if told.tokens {
            sql.execute("UPDATE settings SET value = value + 1 WHERE name = 'token_changes'", &[])?;
            self.notify("tokens")?;
        }
        for conversation in &told.gone {
            self.notify(&format!("gone {conversation}"))?;
        }
        if told.events.is_empty() {
            return Ok(());
        }
        // Everybody who writes events waits for everybody else here, for the length of a commit.
        let raise = "UPDATE settings SET value = value + ?1 WHERE name = 'last_event' RETURNING value";
        let count = told.events.len() as i64;
        let last: i64 =
            sql.one(raise, values![count], |row| row.get(0))?.ok_or(Failure::Odd("events are not counted"))?;
        for (number, (event, user)) in (last - count + 1..).zip(&told.events) {
            sql.execute(
                "INSERT INTO events (id, at, kind, conversation_id, user_id, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                values![number, event.at, event.kind, event.conversation, *user, &event.body],
            )?;
        }
        self.notify("events")
    }

    fn notify(&self, word: &str) -> Result<(), Failure> {
        match &*self.channel.borrow() {
            // Made of our own letters only.
            Some(channel) => self.batch(&format!("NOTIFY {channel}, '{word}'")),
            None => Ok(()),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Closing waits for the server, and whoever drops this may be on a thread that must not.
        self.prepared.get_mut().clear();
        let client = self.client.get_mut().take();
        // Nor may it be dropped there.
        waiting(move || drop(client));
    }
}

fn places<'a>(values: &'a [Value<'a>]) -> Vec<&'a (dyn ToSql + Sync)> {
    values.iter().map(|value| value as &(dyn ToSql + Sync)).collect()
}

/// `?1` is `$1` there.
fn numbered(statement: &str) -> String {
    statement.replace('?', "$")
}
