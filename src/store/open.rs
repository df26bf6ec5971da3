//! Opening the data directory: who may, which file, and whether it can be trusted.
//!
//! It refuses a directory that another process serves from, a file that is damaged, somebody else's or
//! of a newer schema, and says which file it was. It never recreates, repairs or empties one.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, MAIN_DB, OpenFlags, TransactionBehavior};

use super::{Durability, StoreError};

/// Locked by the process that serves.
const LOCK: &str = "loadline.lock";

/// Each is applied once, in this order; `user_version` says how many were.
const MIGRATIONS: &[&str] = &[
    include_str!("migrations/0001_first.sql"),
    include_str!("migrations/0002_history.sql"),
    include_str!("migrations/0003_events.sql"),
    include_str!("migrations/0004_locality.sql"),
    include_str!("migrations/0005_upstreams.sql"),
];

/// "Load" in ASCII, so that `file` and we can tell whose database it is.
const APPLICATION_ID: i64 = 0x4c6f_6164;

/// Earlier ones can damage a database when a checkpoint meets a writer.
const OLDEST_LIBRARY: i32 = 3_051_003;

/// How long a statement waits for another process, such as a backup, to let go of the file.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// What the check after a crash may take; a large file is checked as far as that goes.
const CHECK_TIME: Duration = Duration::from_secs(2);

/// A write-ahead log that was needed once, for a large import say, gives its space back down to this.
const LOG_BYTES_KEPT: i64 = 64 << 20;

/// What the writer may keep of the database in memory: links are looked up all over it.
const WRITER_CACHE_KIB: i64 = 4 << 10;

/// Statements that a connection keeps prepared: more than there are.
const STATEMENTS: usize = 64;

pub(super) fn database_path(dir: &Path) -> PathBuf {
    dir.join("loadline.db")
}

pub(super) fn log_path(dir: &Path) -> PathBuf {
    dir.join("loadline.db-wal")
}

/// Makes the directory if it is not there, for its owner only.
pub(super) fn make_dir(dir: &Path) -> Result<(), StoreError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| StoreError::file(dir, error))
}

/// Locks the directory for one serving process, as long as the file is held. The system lets go of it
/// when the process ends, however it ends.
pub(super) fn lock(dir: &Path) -> Result<File, StoreError> {
    let path = dir.join(LOCK);
    let file = private().write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(|error| StoreError::file(&path, error))?;
    match file.try_lock() {
        Ok(()) => {
            // Whatever address is in it was somebody else's.
            file.set_len(0).map_err(|error| StoreError::file(&path, error))?;
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse { path }),
        Err(TryLockError::Error(error)) => Err(StoreError::file(&path, error)),
    }
}

/// Writes an address into the file that is locked.
pub(super) fn announce(dir: &Path, mut lock: &File, address: &str) -> Result<(), StoreError> {
    let mut write = || {
        lock.set_len(0)?;
        lock.rewind()?;
        lock.write_all(address.as_bytes())
    };
    write().map_err(|error| StoreError::file(&dir.join(LOCK), error))
}

/// The address in it, while it is locked: what a process that has ended left there may be anybody's by now, and
/// whoever calls it sends a token along.
pub(super) fn announced(dir: &Path) -> Option<String> {
    let path = dir.join(LOCK);
    let address = fs::read_to_string(&path).ok().filter(|address| address.starts_with("http://"))?;
    let locked = File::open(&path).is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)));
    locked.then_some(address)
}

/// The connection that writes, with the schema up to date.
pub(super) fn writer(dir: &Path, durability: Durability) -> Result<Connection, StoreError> {
    let path = database_path(dir);
    let error = |error| StoreError::database(&path, error);
    check_library()?;
    let crashed = crashed(dir)?;
    make_file(dir, &path).map_err(|error| StoreError::file(&path, error))?;
    let mut connection = connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    if connection.is_readonly(MAIN_DB).map_err(error)? {
        return Err(StoreError::ReadOnly { path });
    }
    let version = version(&connection, &path)?;
    if crashed {
        check(&connection, &path, CHECK_TIME)?;
    }
    prepare(&connection, durability).map_err(error)?;
    migrate(&mut connection, version).map_err(error)?;
    connection.execute("UPDATE turns SET status = 'failed' WHERE status = 'pending'", []).map_err(error)?;
    write_back_at_close(&connection, true).map_err(error)?;
    Ok(connection)
}

/// Whether closing the connection moves the write-ahead log into the database. Not before the database
/// is known to be good, and not when the disk cannot be trusted.
pub(super) fn write_back_at_close(connection: &Connection, wanted: bool) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, !wanted).map(|_| ())
}

/// A connection that writes beside a serving process, to a database that is there and up to date.
pub(super) fn beside(dir: &Path) -> Result<Connection, StoreError> {
    let path = database_path(dir);
    reader(dir)?;
    let connection = connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    prepare(&connection, Durability::Full).map_err(|error| StoreError::database(&path, error))?;
    Ok(connection)
}

/// A connection that cannot write.
pub(super) fn reader(dir: &Path) -> Result<Connection, StoreError> {
    let path = database_path(dir);
    check_library()?;
    // SQLite would only say that it cannot.
    fs::metadata(&path).map_err(|error| StoreError::file(&path, error))?;
    let connection = connect(&path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let (found, known) = (version(&connection, &path)?, MIGRATIONS.len() as i64);
    if found < known {
        return Err(StoreError::Older { path, found, known });
    }
    Ok(connection)
}

fn connect(path: &Path, access: OpenFlags) -> Result<Connection, StoreError> {
    let connection = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX);
    let prepared = connection.and_then(|connection| {
        write_back_at_close(&connection, false)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        // A plan depends on the statement alone, or each new value would have it made again.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        // What the schema says is not trusted to call functions, nor pages to be well formed.
        connection.execute_batch("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;")?;
        Ok(connection)
    });
    prepared.map_err(|error| StoreError::database(path, error))
}

/// The number of the schema, of a file that is ours or new. Reading it reads the header and the schema.
fn version(connection: &Connection, path: &Path) -> Result<i64, StoreError> {
    let read = || {
        let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        Ok((number("application_id")?, number("user_version")?, tables))
    };
    let (application, found, tables) = read().map_err(|error| StoreError::database(path, error))?;
    let (ours, new) = (application == APPLICATION_ID, application == 0 && found == 0 && tables == 0);
    if !ours && !new {
        return Err(StoreError::NotOurs { path: path.to_owned() });
    }
    let known = MIGRATIONS.len() as i64;
    if found > known {
        return Err(StoreError::Newer { path: path.to_owned(), found, known });
    }
    Ok(found)
}

fn prepare(connection: &Connection, durability: Durability) -> rusqlite::Result<()> {
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    let synchronous = match durability {
        Durability::Full => "FULL",
        Durability::Normal => "NORMAL",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    // Every reference is written by code that has just looked up or made what it refers to, so only tests have it
    // looked up once more with every insert.
    connection.pragma_update(None, "foreign_keys", cfg!(debug_assertions))?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
    // What was deleted is overwritten.
    connection.pragma_update_and_check(None, "secure_delete", true, |_| Ok(()))?;
    connection.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES_KEPT, |_| Ok(()))?;
    // The writer does it itself: SQLite would not tell us if a sync failed there.
    connection.pragma_update_and_check(None, "wal_autocheckpoint", 0, |_| Ok(()))
}

fn migrate(connection: &mut Connection, from: i64) -> rusqlite::Result<()> {
    for (number, sql) in (1_i64..).zip(MIGRATIONS).filter(|(number, _)| *number > from) {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(sql)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", number)?;
        transaction.commit()?;
    }
    Ok(())
}

/// Whether the process that wrote last did not come to its end: it would have emptied the log.
fn crashed(dir: &Path) -> Result<bool, StoreError> {
    let path = database_path(dir);
    let length = |path: &Path| match fs::metadata(path) {
        Ok(metadata) => Ok(metadata.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(StoreError::file(path, error)),
    };
    let (database, log) = (length(&path)?, length(&log_path(dir))?);
    if database == 0 && log > 0 {
        // SQLite would take the file for a new one, and delete the log.
        let detail = "it is empty, and its write-ahead log is not".to_owned();
        return Err(StoreError::Corrupt { path, detail });
    }
    Ok(log > 0)
}

/// How far a look for damage got that found none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checked {
    /// All of it was looked at.
    Whole,
    /// The time was over before the end.
    Partly,
}

/// Looks for damaged pages. After a clean end there is no reason to, and reading it all takes long.
pub(super) fn check(connection: &Connection, path: &Path, within: Duration) -> Result<Checked, StoreError> {
    let handle = connection.get_interrupt_handle();
    let (done, timer) = mpsc::channel::<()>();
    let timer = std::thread::Builder::new().spawn(move || {
        if timer.recv_timeout(within) == Err(mpsc::RecvTimeoutError::Timeout) {
            handle.interrupt();
        }
    });
    let timer = timer.map_err(|error| StoreError::file(path, error))?;
    let found = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
    drop(done);
    // Joined, so that no late interrupt meets the next statement.
    let _ = timer.join();
    match found {
        Ok(detail) if detail != "ok" => Err(StoreError::Corrupt { path: path.to_owned(), detail }),
        Ok(_) => Ok(Checked::Whole),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => Ok(Checked::Partly),
        Err(error) => Err(StoreError::database(path, error)),
    }
}

/// Makes the file before SQLite does, so that nobody else can read it for a moment; SQLite gives the
/// files beside it the same mode.
fn make_file(dir: &Path, path: &Path) -> io::Result<()> {
    match private().write(true).create_new(true).open(path) {
        Ok(file) => {
            file.sync_all()?;
            File::open(dir)?.sync_all()
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let mode = fs::metadata(path)?.permissions().mode();
            let shared = mode & 0o077 != 0;
            if shared { fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o700)) } else { Ok(()) }
        }
        Err(error) => Err(error),
    }
}

fn check_library() -> Result<(), StoreError> {
    let new_enough = rusqlite::version_number() >= OLDEST_LIBRARY;
    if new_enough { Ok(()) } else { Err(StoreError::OldLibrary { found: rusqlite::version() }) }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}
