//! What can go wrong with the store, and whose fault it is.
//!
//! Errors can be cloned, because everyone whose change was in a failed commit is told the same.
//! Messages never hold what was to be stored.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use postgres::error::SqlState;
use rusqlite::ErrorCode;

use super::postgres::Address;
use crate::context::identity::ConversationId;

#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    #[error("{}", path.display())]
    File { path: PathBuf, source: Arc<io::Error> },
    #[error("the database {}", path.display())]
    Database { path: PathBuf, source: Arc<rusqlite::Error> },
    #[error(
        "the database {} is damaged ({detail}): it was left as it is; restore a copy, or move it away to begin anew",
        path.display()
    )]
    Corrupt { path: PathBuf, detail: String },
    #[error("{} is not a database of loadline: it was left as it is; set another store.data_dir", path.display())]
    NotOurs { path: PathBuf },
    #[error(
        "the database {} has schema {found} and this loadline knows {known}: use the version that wrote it, or a newer one",
        path.display()
    )]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error(
        "the database {} has schema {found} and this loadline needs {known}: `loadline serve` brings it up to date",
        path.display()
    )]
    Older { path: PathBuf, found: i64, known: i64 },
    #[error("the database {} may not be written: give its owner the right to, or set another store.data_dir", path.display())]
    ReadOnly { path: PathBuf },
    #[error("another loadline is serving from this data directory ({} is locked): stop it, or set another store.data_dir", path.display())]
    InUse { path: PathBuf },
    #[error("the database {place}: {reason}")]
    Server { place: String, reason: String },
    #[error("the database {place} cannot be reached ({reason}): is PostgreSQL running there? (store.url)")]
    Away { place: String, reason: String },
    #[error(
        "the database {place} has tables of somebody else's: it was left as it is; give Loadline a database, or a schema (?options=-csearch_path%3DNAME), of its own"
    )]
    ServerNotOurs { place: String },
    #[error("{place} is half a copy: run `loadline store copy` again, to its end")]
    HalfCopied { place: String },
    #[error("SQLite {found} has known faults: build with 3.51.3 or later")]
    OldLibrary { found: &'static str },
    #[error("too much is waiting to be stored: the disk is too slow or stuck; try again later")]
    QueueFull,
    #[error("all readers of the database are busy; try again later")]
    NoReader,
    #[error("the disk failed to confirm a write to {}: nothing more is stored until a restart; check the disk", path.display())]
    Untrusted { path: PathBuf },
    #[error("the store has stopped")]
    Stopped,
    #[error(transparent)]
    Rejected(#[from] Rejection),
}

/// A change that does not fit what is stored: the fault of the code that made it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    #[error("conversation {0} has no message with that link")]
    UnknownLink(ConversationId),
    #[error("there is no conversation {0}")]
    UnknownConversation(ConversationId),
    #[error("there is a token `{0}` already: revoke it first, or choose another name")]
    TokenExists(String),
    #[error("there is no such token in force")]
    UnknownToken,
    #[error("there is no turn {0}")]
    UnknownTurn(String),
    #[error("turn {0} is finished already")]
    FinishedTurn(String),
    #[error("conversation {0} belongs to somebody else")]
    ForeignConversation(ConversationId),
    #[error("checkpoint {0} belongs to another conversation")]
    ForeignCheckpoint(String),
    #[error("it does not fit what is stored: {0}")]
    DoesNotFit(String),
}

impl StoreError {
    pub(super) fn file(path: &Path, source: io::Error) -> Self {
        Self::File { path: path.to_owned(), source: Arc::new(source) }
    }

    /// Says what SQLite says, and calls damage by its name.
    pub(super) fn database(path: &Path, source: rusqlite::Error) -> Self {
        let damaged = Some(ErrorCode::DatabaseCorrupt) == source.sqlite_error_code()
            || Some(ErrorCode::NotADatabase) == source.sqlite_error_code();
        match damaged {
            true => Self::Corrupt { path: path.to_owned(), detail: source.to_string() },
            false => Self::Database { path: path.to_owned(), source: Arc::new(source) },
        }
    }
}

impl StoreError {
    /// Says what a server says, without the values that it may quote.
    pub(super) fn server(address: &Address, error: &postgres::Error) -> Self {
        let (place, reason) = (address.to_string(), in_short(error));
        if is_lost(error) { Self::Away { place, reason } } else { Self::Server { place, reason } }
    }
}

/// Why one change was not made, or one question not answered.
#[derive(Debug)]
pub(super) enum Failure {
    Sqlite(rusqlite::Error),
    Postgres(postgres::Error),
    Rejected(Rejection),
    /// What is stored is not what it must be.
    Odd(&'static str),
    /// The server has not answered in time.
    Silent,
}

impl From<postgres::Error> for Failure {
    fn from(error: postgres::Error) -> Self {
        Self::Postgres(error)
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<Rejection> for Failure {
    fn from(rejection: Rejection) -> Self {
        Self::Rejected(rejection)
    }
}

const SILENT: &str = "it does not answer";

impl Failure {
    pub(super) fn at(self, path: &Path) -> StoreError {
        match self {
            Self::Sqlite(error) => StoreError::database(path, error),
            Self::Postgres(error) => StoreError::Server { place: path.display().to_string(), reason: in_short(&error) },
            Self::Rejected(rejection) => rejection.into(),
            Self::Silent => StoreError::Away { place: path.display().to_string(), reason: SILENT.to_owned() },
            Self::Odd(reason) => StoreError::Corrupt { path: path.to_owned(), detail: reason.to_owned() },
        }
    }

    /// The same on a server.
    pub(super) fn on(self, address: &Address) -> StoreError {
        match self {
            Self::Postgres(error) => StoreError::server(address, &error),
            other => other.at(Path::new(&address.to_string())),
        }
    }

    /// Whether the change is at fault, and neither its neighbours nor the medium.
    pub(super) fn is_of_the_change(&self) -> bool {
        match self {
            Self::Sqlite(error) => !is_of_the_medium(error),
            Self::Postgres(error) => {
                error.code().is_some_and(|code| code.code().starts_with("22") || code.code().starts_with("23"))
            }
            Self::Rejected(_) | Self::Odd(_) => true,
            Self::Silent => false,
        }
    }

    /// Whether the connection is gone, or leads to where nothing can be written any more.
    pub(super) fn is_lost(&self) -> bool {
        match self {
            Self::Postgres(error) => is_lost(error),
            Self::Silent => true,
            Self::Sqlite(_) | Self::Rejected(_) | Self::Odd(_) => false,
        }
    }

    /// Whether another transaction was in the way, and this one can be done again.
    pub(super) fn is_conflict(&self) -> bool {
        const CODES: [SqlState; 3] =
            [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED, SqlState::LOCK_NOT_AVAILABLE];
        matches!(self, Self::Postgres(error) if error.code().is_some_and(|code| CODES.contains(code)))
    }

    pub(super) fn in_short(&self) -> String {
        match self {
            Self::Sqlite(error) => error.to_string(),
            Self::Postgres(error) => in_short(error),
            Self::Rejected(rejection) => rejection.to_string(),
            Self::Odd(reason) => (*reason).to_owned(),
            Self::Silent => SILENT.to_owned(),
        }
    }
}

fn is_lost(error: &postgres::Error) -> bool {
    /// Shut down, crashed, not up yet, given up on, or a standby by now; and all of class 08.
    const CODES: [SqlState; 6] = [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        SqlState::READ_ONLY_SQL_TRANSACTION,
        SqlState::TOO_MANY_CONNECTIONS,
    ];
    match error.code() {
        Some(code) => CODES.contains(code) || code.code().starts_with("08"),
        None => {
            let source = std::error::Error::source(error);
            error.is_closed()
                || source.is_some_and(|source| source.is::<io::Error>())
                || error.to_string().contains("connect")
        }
    }
}

/// A server quotes values in its details, never in its message.
fn in_short(error: &postgres::Error) -> String {
    match error.as_db_error() {
        Some(said) if *said.code() == SqlState::INVALID_SCHEMA_NAME => {
            "the schema that the address names is not there: create it first (CREATE SCHEMA … AUTHORIZATION …)"
                .to_owned()
        }
        Some(said) => format!("{} ({})", said.message(), said.code().code()),
        None => match crate::ollama::client::deepest(error) {
            said if said.contains("password missing") => {
                format!("{said}: set store.password_file, or PGPASSWORD, or write it in the address")
            }
            said => said,
        },
    }
}

/// Whether it is the medium that failed and not the change: then its neighbours fail with it.
pub(super) fn is_of_the_medium(error: &rusqlite::Error) -> bool {
    let change = [ErrorCode::ConstraintViolation, ErrorCode::TooBig, ErrorCode::TypeMismatch];
    error.sqlite_error_code().is_some_and(|code| !change.contains(&code))
}

/// Whether a sync failed. The kernel may have thrown away what it could not write, so a second sync
/// that succeeds proves nothing.
pub(super) fn is_failed_sync(error: &rusqlite::Error) -> bool {
    const CODES: [i32; 2] = [rusqlite::ffi::SQLITE_IOERR_FSYNC, rusqlite::ffi::SQLITE_IOERR_DIR_FSYNC];
    matches!(error, rusqlite::Error::SqliteFailure(error, _) if CODES.contains(&error.extended_code))
}
