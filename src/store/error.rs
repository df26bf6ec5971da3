//! What can go wrong with the store, and whose fault it is.
//!
//! Errors can be cloned, because everyone whose change was in a failed commit is told the same.
//! Messages never hold what was to be stored.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::ErrorCode;

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

/// Why one change was not made.
#[derive(Debug)]
pub(super) enum Failure {
    Sqlite(rusqlite::Error),
    Rejected(Rejection),
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

impl Failure {
    pub(super) fn at(self, path: &Path) -> StoreError {
        match self {
            Self::Sqlite(error) => StoreError::database(path, error),
            Self::Rejected(rejection) => rejection.into(),
        }
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
