//! Bridging: everything of one store into another, a file or a server on either side.
//!
//! Row by row in the order of their keys, a transaction for each few hundred, with a note in the target of how far it has
//! come: a copy that was broken off goes on where it was. Afterwards both sides are read once more and compared row by
//! row. Nobody may serve from either side meanwhile, and a target that holds something else is refused. Numbers stay,
//! and so does the secret that conversations are recognised with.

use std::cmp::Ordering;
use std::fs::File;
use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::apply::raise;
use super::delete::HIGHEST_CONVERSATION;
use super::error::Failure;
use super::index::INDEXED_UP_TO;
use super::postgres::{self, Session, waiting};
use super::sql::{Cell, Column, Sql, Value, values};
use super::{Durability, Home, StoreError, open, secret};

/// Rows of one transaction at most, and at first: rows with pictures in them are large. And of one statement in it.
const ROWS: u32 = 512;
const FIRST_ROWS: u32 = 16;
const ROWS_AT_ONCE: usize = 25;

/// Under which a target keeps whose copy it is, and how far each table has come.
const SOURCE: &str = "copy source";

/// There as long as a copy is not whole.
pub(super) const UNFINISHED: &str = "copy unfinished";

/// Bytes of one transaction, about.
const MOST_BYTES: usize = 8 << 20;

/// A table, its columns, and how many of the first of them are its key.
struct Table {
    name: &'static str,
    columns: &'static [&'static str],
    key: usize,
    /// Whether the server numbers its rows.
    numbered: bool,
}

/// In an order in which nothing refers to what comes later.
const TABLES: [Table; 14] = [
    Table { name: "users", columns: &["id", "name", "created_at"], key: 1, numbered: true },
    Table {
        name: "conversations",
        columns: &["id", "user_id", "model", "created_at", "updated_at", "session", "provider", "intake", "upstream"],
        key: 1,
        numbered: false,
    },
    Table {
        name: "branches",
        columns: &["id", "conversation_id", "parent_id", "fork_seq", "created_at"],
        key: 1,
        numbered: true,
    },
    Table { name: "system_prompts", columns: &["id", "digest", "body"], key: 1, numbered: true },
    Table {
        name: "messages",
        columns: &[
            "id",
            "conversation_id",
            "branch_id",
            "seq",
            "link",
            "role",
            "text",
            "thinking",
            "tool_calls",
            "tool_name",
            "tool_call_id",
            "images",
            "raw",
            "status",
            "ours",
            "answered",
            "created_at",
        ],
        key: 1,
        numbered: true,
    },
    Table { name: "anchors", columns: &["tag", "conversation_id"], key: 2, numbered: false },
    Table {
        name: "turns",
        columns: &[
            "number",
            "id",
            "conversation_id",
            "branch_id",
            "last_seq",
            "at",
            "finished_at",
            "model",
            "dialect",
            "status",
            "system_id",
            "arrived_tokens",
            "sent_tokens",
            "limit_tokens",
            "reported_tokens",
            "basis",
            "action",
            "receipt_id",
        ],
        key: 1,
        numbered: true,
    },
    Table {
        name: "checkpoints",
        columns: &[
            "number",
            "id",
            "conversation_id",
            "first_seq",
            "last_seq",
            "covered",
            "level",
            "author",
            "level1",
            "level2",
            "level3",
            "created_at",
        ],
        key: 1,
        numbered: true,
    },
    Table {
        name: "fronts",
        columns: &["number", "conversation_id", "covered", "body", "created_at"],
        key: 1,
        numbered: true,
    },
    Table {
        name: "snapshots",
        columns: &[
            "number",
            "id",
            "conversation_id",
            "branch_id",
            "last_seq",
            "link",
            "messages",
            "checkpoints",
            "tokens",
            "limit_tokens",
            "system_id",
            "reason",
            "created_at",
        ],
        key: 1,
        numbered: true,
    },
    Table {
        name: "receipts",
        columns: &["number", "id", "conversation_id", "turn_id", "body", "created_at"],
        key: 1,
        numbered: true,
    },
    Table {
        name: "events",
        columns: &["id", "at", "kind", "conversation_id", "user_id", "body"],
        key: 1,
        numbered: false,
    },
    Table {
        name: "tokens",
        columns: &[
            "id",
            "user_id",
            "name",
            "digest",
            "hint",
            "scopes",
            "created_at",
            "expires_at",
            "revoked_at",
            "last_used_at",
        ],
        key: 1,
        numbered: true,
    },
    Table {
        name: "imported_lines",
        columns: &["conversation_id", "number", "branch_id", "last_seq", "line"],
        key: 2,
        numbered: false,
    },
];

/// What has no key that is in the same order on both sides, and is small.
const CONDENSED: Table =
    Table { name: "condensed", columns: &["digest", "body", "created_at"], key: 1, numbered: false };

/// Why nothing was copied, or not all.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0} and {1} are the same store")]
    Same(String, String),
    #[error("{0} holds something else already: copy into an empty database or directory")]
    NotEmpty(String),
    #[error("{count} Loadline(s) serve from {place}: stop them first, or what they store meanwhile is missing")]
    InUse { place: String, count: i64 },
    #[error("{table} is not the same on both sides ({detail}): copy again into an empty target")]
    Differs { table: &'static str, detail: String },
}

/// How far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub what: &'static str,
    pub table: &'static str,
    pub done: u64,
    pub of: u64,
}

/// What was copied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Copied {
    /// It was copied before, to its end, and may have been used since: nothing was done.
    pub before: bool,
    /// Of each table: rows that are the same on both sides now, and how many of them were written this time.
    pub tables: Vec<(&'static str, u64, u64)>,
}

/// Copies everything, and compares it. Waits for both sides, so not for a thread that drives others.
pub fn copy(from: &Home, to: &Home, mut tell: impl FnMut(Progress) + Send) -> Result<Copied, CopyError> {
    waiting(move || {
        if from.to_string() == to.to_string() {
            return Err(CopyError::Same(from.to_string(), to.to_string()));
        }
        let from = Side::existing(from)?;
        let to = Side::open(to)?;
        if !to.takes(&from)? {
            return Ok(Copied { before: true, ..Copied::default() });
        }
        let mut tables = Vec::new();
        for table in TABLES.iter().chain([&CONDENSED]) {
            let written = copy_table(&from, &to, table, &mut tell)?;
            tables.push((table.name, written));
        }
        copy_settings(&from, &to)?;
        to.number_on()?;
        let compared: Result<Vec<_>, CopyError> = tables
            .into_iter()
            .zip(TABLES.iter().chain([&CONDENSED]))
            .map(|((name, written), table)| Ok((name, compare(&from, &to, table, &mut tell)?, written)))
            .collect();
        let tables = compared?;
        to.change(|sql| sql.execute("DELETE FROM settings WHERE name = ?1", values![UNFINISHED]))?;
        Ok(Copied { tables, before: false })
    })
}

/// One of the two stores, which nobody else uses.
struct Side {
    home: Home,
    engine: Engine,
    _lock: Option<File>,
}

enum Engine {
    Sqlite(Connection),
    Postgres(Box<Session>),
}

/// What one column of one row holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Held {
    Null,
    Int(i64),
    Text(String),
    Blob(Vec<u8>),
}

impl Column for Held {
    const MISSED: &'static str = "a column holds something odd";

    fn read(cell: Cell<'_>) -> Option<Self> {
        Some(match cell {
            Cell::Null => Self::Null,
            Cell::Int(number) => Self::Int(number),
            Cell::Text(text) => Self::Text(text.into_owned()),
            Cell::Blob(bytes) => Self::Blob(bytes.to_vec()),
        })
    }
}

impl Held {
    fn value(&self) -> Value<'_> {
        match self {
            Self::Null => Value::Null,
            Self::Int(number) => Value::Int(*number),
            Self::Text(text) => Value::Text(text),
            Self::Blob(bytes) => Value::Blob(bytes),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Null | Self::Int(_) => 8,
            Self::Text(text) => text.len(),
            Self::Blob(bytes) => bytes.len(),
        }
    }
}

type Row = Vec<Held>;

impl Side {
    /// A source must be there already: a path that was mistyped is not made.
    fn existing(home: &Home) -> Result<Self, CopyError> {
        match &home.server {
            None => drop(home.open_read_only()?),
            Some(address) => address.check()?,
        }
        Self::open(home)
    }

    fn open(home: &Home) -> Result<Self, CopyError> {
        let Some(address) = &home.server else {
            open::make_dir(&home.dir)?;
            let lock = open::lock(&home.dir)?;
            let connection = open::writer(&home.dir, Durability::Full)?;
            return Ok(Self { home: home.clone(), engine: Engine::Sqlite(connection), _lock: Some(lock) });
        };
        let session = postgres::open_alone(address)?;
        let side = Self { home: home.clone(), engine: Engine::Postgres(Box::new(session)), _lock: None };
        let count = side.ask(|sql| match sql {
            Sql::Sqlite(_) => Ok(0),
            Sql::Postgres(session) => session.others(),
        })?;
        if count > 0 {
            return Err(CopyError::InUse { place: home.to_string(), count });
        }
        Ok(side)
    }

    fn sql(&self) -> Sql<'_> {
        match &self.engine {
            Engine::Sqlite(connection) => Sql::Sqlite(connection),
            Engine::Postgres(session) => Sql::Postgres(session),
        }
    }

    fn failed(&self, failure: Failure) -> StoreError {
        match &self.home.server {
            Some(address) => failure.on(address),
            None => failure.at(&open::database_path(&self.home.dir)),
        }
    }

    fn ask<T>(&self, work: impl FnOnce(Sql<'_>) -> Result<T, Failure>) -> Result<T, StoreError> {
        work(self.sql()).map_err(|failure| self.failed(failure))
    }

    /// All of it or nothing.
    fn change<T>(&self, work: impl FnOnce(Sql<'_>) -> Result<T, Failure>) -> Result<T, StoreError> {
        let changed = || match &self.engine {
            Engine::Sqlite(connection) => {
                let transaction = rusqlite::Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
                let done = work(Sql::Sqlite(&transaction))?;
                transaction.commit()?;
                Ok(done)
            }
            Engine::Postgres(session) => session.transacted(|| work(Sql::Postgres(session))),
        };
        changed().map_err(|failure| self.failed(failure))
    }

    fn secret(&self) -> Result<Option<[u8; 32]>, StoreError> {
        match &self.engine {
            Engine::Sqlite(_) => secret::read(&self.home.dir),
            Engine::Postgres(_) => {
                self.ask(|sql| sql.one("SELECT value FROM secrets WHERE name = 'identity'", &[], |row| row.get(0)))
            }
        }
    }

    fn setting(&self, name: &str) -> Result<Option<i64>, StoreError> {
        self.ask(|sql| sql.one("SELECT value FROM settings WHERE name = ?1", values![name], |row| row.get(0)))
    }

    /// Makes sure that this is a target for that source: an empty one, or one that was begun. False if it was copied to
    /// its end before.
    fn takes(&self, from: &Self) -> Result<bool, CopyError> {
        let source = match from.secret()? {
            Some(secret) => secret,
            // A store that nobody has served from yet.
            None => from.make_secret(&secret::new())?,
        };
        let begun = i64::from_le_bytes(blake3::hash(&source).as_bytes()[..8].try_into().unwrap_or_default());
        let empty = self.ask(|sql| {
            Ok(!sql.exists("SELECT 1 FROM conversations LIMIT 1", &[])?
                && !sql.exists("SELECT 1 FROM tokens LIMIT 1", &[])?)
        })?;
        let unfinished = self.setting(UNFINISHED)?.is_some();
        match (self.setting(SOURCE)?, self.secret()?) {
            (Some(known), Some(secret)) if known == begun && secret == source && unfinished => return Ok(true),
            (Some(known), Some(secret)) if known == begun && secret == source && !empty => return Ok(false),
            _ if empty => {}
            _ => return Err(CopyError::NotEmpty(self.home.to_string())),
        }
        self.make_secret(&source)?;
        self.change(|sql| {
            set(sql, UNFINISHED, 1)?;
            set(sql, SOURCE, begun)
        })?;
        Ok(true)
    }

    fn make_secret(&self, secret: &[u8; 32]) -> Result<[u8; 32], StoreError> {
        match &self.engine {
            Engine::Sqlite(_) => secret::write(&self.home.dir, secret)?,
            Engine::Postgres(_) => self.change(|sql| {
                sql.execute(
                    "INSERT INTO secrets (name, value) VALUES ('identity', ?1)
                     ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                    values![secret],
                )?;
                Ok(())
            })?,
        }
        Ok(*secret)
    }

    /// The next rows after a key, in its order.
    fn rows(&self, table: &Table, after: Option<&[Held]>, limit: u32) -> Result<Vec<Row>, StoreError> {
        let (columns, keys) = (table.columns.join(", "), table.columns[..table.key].join(", "));
        let read = |row: &super::sql::Row<'_>| (0..table.columns.len()).map(|column| row.get(column)).collect();
        self.ask(|sql| match after {
            None => {
                let statement = format!("SELECT {columns} FROM {} ORDER BY {keys} LIMIT ?1", table.name);
                sql.many(&statement, values![limit], read)
            }
            Some(after) => {
                let places: Vec<String> = (0..table.key).map(|key| format!("?{}", key + 2)).collect();
                let statement = format!(
                    "SELECT {columns} FROM {} WHERE ({keys}) > ({}) ORDER BY {keys} LIMIT ?1",
                    table.name,
                    places.join(", ")
                );
                let values: Vec<Value<'_>> =
                    std::iter::once(limit.into()).chain(after.iter().map(Held::value)).collect();
                sql.many(&statement, &values, read)
            }
        })
    }

    fn count(&self, table: &Table) -> Result<u64, StoreError> {
        let statement = format!("SELECT count(*) FROM {}", table.name);
        let count = self.ask(|sql| sql.one(&statement, &[], |row| row.get::<i64>(0)))?;
        Ok(count.unwrap_or(0).unsigned_abs())
    }

    /// Has numbers that are given from now on be higher than those that were copied.
    fn number_on(&self) -> Result<(), StoreError> {
        let Engine::Postgres(session) = &self.engine else { return Ok(()) };
        self.ask(|sql| {
            for table in TABLES.iter().filter(|table| table.numbered) {
                let key = table.columns[0];
                let newest = format!("SELECT coalesce(max({key}), 0) FROM {}", table.name);
                let newest: i64 = sql.one(&newest, &[], |row| row.get(0))?.unwrap_or(0);
                session.batch(&format!("ALTER TABLE {} ALTER COLUMN {key} RESTART WITH {}", table.name, newest + 1))?;
            }
            Ok(())
        })
    }
}

fn set(sql: Sql<'_>, name: &str, value: i64) -> Result<(), Failure> {
    sql.execute(
        "INSERT INTO settings (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        values![name, value],
    )?;
    Ok(())
}

/// How many rows were written.
fn copy_table(from: &Side, to: &Side, table: &Table, tell: &mut impl FnMut(Progress)) -> Result<u64, CopyError> {
    let (of, mut written) = (from.count(table)?, 0);
    // Those whose key is one number go on after the last that is there; others are passed over one by one.
    let mut after = resumed(to, table)?;
    let mut done = if after.is_some() { to.count(table)? } else { 0 };
    let mut limit = FIRST_ROWS;
    loop {
        tell(Progress { what: "copying", table: table.name, done, of });
        let rows = from.rows(table, after.as_deref(), limit)?;
        limit = next_limit(limit, &rows);
        let Some(last) = rows.last() else { return Ok(written) };
        after = Some(last[..table.key].to_vec());
        written += to.change(|sql| insert(sql, table, &rows))?;
        done += rows.len() as u64;
    }
}

/// More at once, or fewer, as large as these were.
fn next_limit(limit: u32, rows: &[Row]) -> u32 {
    let bytes: usize = rows.iter().flatten().map(Held::bytes).sum();
    let next = if bytes > MOST_BYTES {
        limit / 2
    } else if bytes < MOST_BYTES / 4 {
        limit * 2
    } else {
        limit
    };
    next.clamp(1, ROWS)
}

/// The last key that a target has, if everything before it is there as well.
fn resumed(to: &Side, table: &Table) -> Result<Option<Vec<Held>>, StoreError> {
    if table.key != 1 {
        return Ok(None);
    }
    let statement = format!("SELECT max({}) FROM {}", table.columns[0], table.name);
    let last = to.ask(|sql| match table.name {
        "condensed" => Ok(None),
        _ => sql.one(&statement, &[], |row| row.get::<Option<i64>>(0)),
    })?;
    Ok(last.flatten().map(|last| vec![Held::Int(last)]))
}

fn insert(sql: Sql<'_>, table: &Table, rows: &[Row]) -> Result<u64, Failure> {
    let width = table.columns.len();
    let mut written = 0;
    for some in rows.chunks(ROWS_AT_ONCE) {
        let place = |row: usize| {
            let places: Vec<String> = (0..width).map(|column| format!("?{}", row * width + column + 1)).collect();
            format!("({})", places.join(", "))
        };
        let places: Vec<String> = (0..some.len()).map(place).collect();
        let statement = format!(
            "INSERT INTO {} ({}) VALUES {} ON CONFLICT DO NOTHING",
            table.name,
            table.columns.join(", "),
            places.join(", ")
        );
        let values: Vec<Value<'_>> = some.iter().flatten().map(Held::value).collect();
        written += sql.execute(&statement, &values)? as u64;
    }
    Ok(written)
}

/// Numbers by name: those that mean the same on both sides, and the last ones that were given.
fn copy_settings(from: &Side, to: &Side) -> Result<(), StoreError> {
    /// What each side keeps for itself.
    const OWN: [&str; 6] = [INDEXED_UP_TO, SOURCE, UNFINISHED, "last_conversation", "last_event", "token_changes"];
    let all = from.ask(|sql| {
        sql.many("SELECT name, value FROM settings", &[], |row| Ok((row.get::<String>(0)?, row.get::<i64>(1)?)))
    })?;
    let newest = |statement: &str| -> Result<i64, StoreError> {
        Ok(from.ask(|sql| sql.one(statement, &[], |row| row.get::<i64>(0)))?.unwrap_or(0))
    };
    let given = all.iter().filter(|(name, _)| name == HIGHEST_CONVERSATION || name == "last_conversation");
    let given = given.map(|(_, value)| *value).max().unwrap_or(0);
    let conversation = newest("SELECT coalesce(max(id), 0) FROM conversations")?.max(given);
    // Numbers of events that are gone with their conversations are not given again either.
    let given = match &from.engine {
        Engine::Sqlite(_) => newest("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'events'")?,
        Engine::Postgres(_) => newest("SELECT coalesce(max(value), 0) FROM settings WHERE name = 'last_event'")?,
    };
    let event = newest("SELECT coalesce(max(id), 0) FROM events")?.max(given);
    to.change(|sql| {
        for (name, value) in all.iter().filter(|(name, _)| !OWN.contains(&name.as_str())) {
            raise(sql, name, *value)?;
        }
        raise(sql, HIGHEST_CONVERSATION, conversation)?;
        match sql {
            Sql::Postgres(_) => {
                raise(sql, "last_conversation", conversation)?;
                raise(sql, "last_event", event)
            }
            Sql::Sqlite(_) => {
                sql.execute("DELETE FROM sqlite_sequence WHERE name = 'events'", &[])?;
                sql.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('events', ?1)", values![event])?;
                Ok(())
            }
        }
    })
}

/// Reads both sides and compares them. How many rows are the same.
fn compare(from: &Side, to: &Side, table: &Table, tell: &mut impl FnMut(Progress)) -> Result<u64, CopyError> {
    let (of, mut same) = (from.count(table)?, 0);
    let mut after: Option<Row> = None;
    let mut limit = FIRST_ROWS;
    loop {
        tell(Progress { what: "comparing", table: table.name, done: same, of });
        let (mine, theirs) = (from.rows(table, after.as_deref(), limit)?, to.rows(table, after.as_deref(), limit)?);
        limit = next_limit(limit, &mine);
        for (one, other) in mine.iter().zip(&theirs) {
            if let Some(column) = one.iter().zip(other).position(|(one, other)| one.cmp(other) != Ordering::Equal) {
                let detail = format!("row {:?}, column {}", &one[..table.key], table.columns[column]);
                return Err(CopyError::Differs { table: table.name, detail });
            }
        }
        if mine.len() != theirs.len() {
            let detail = format!("{} rows against {}", of, to.count(table)?);
            return Err(CopyError::Differs { table: table.name, detail });
        }
        same += mine.len() as u64;
        let Some(last) = mine.last() else { return Ok(same) };
        after = Some(last[..table.key].to_vec());
    }
}

/// A place as it is written on a command line: an address, or a directory.
pub fn home(written: &str, password: Option<&str>, authority: Option<&Path>) -> Result<Home, super::AddressError> {
    let is_address = written.starts_with("postgres://") || written.starts_with("postgresql://");
    let server = is_address.then(|| super::Address::new(written, password, authority)).transpose()?;
    Ok(Home { dir: if is_address { Default::default() } else { written.into() }, server })
}
