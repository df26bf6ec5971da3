//! The tables, and bringing them up to date while others may be starting as well.
//!
//! Each step is one transaction that first claims its number. Whoever comes second waits for the first, finds the
//! number taken and goes on. A schema that is newer, or somebody else's, is refused and left as it is.

use std::thread;
use std::time::Duration;

use postgres::error::SqlState;

use super::address::Address;
use super::session::Session;
use crate::store::StoreError;
use crate::store::error::Failure;
use crate::store::sql::Sql;

const MIGRATIONS: &[&str] = &[include_str!("migrations/0001_first.sql")];

/// The words of a message: accents and punctuation do not count, nor does what comes after many characters. An index
/// is made of the very same expression.
pub(in crate::store) const FOLDED_TEXT: &str = "to_tsvector('simple', translate(left(text, 65536), 'ÀÁÂÃÄÅÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØÙÚÛÜÝàáâãäåçèéêëìíîïñòóôõöøùúûüýÿ./-_@:', \
     'AAAAAACEEEEIIIINOOOOOOUUUUYaaaaaaceeeeiiiinoooooouuuuyy      '))";

/// What is looked for, in the same way.
pub(in crate::store) const FOLDED_QUESTION: &str = "to_tsquery('simple', translate(?1, 'ÀÁÂÃÄÅÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØÙÚÛÜÝàáâãäåçèéêëìíîïñòóôõöøùúûüýÿ./-_@', \
     'AAAAAACEEEEIIIINOOOOOOUUUUYaaaaaaceeeeiiiinoooooouuuuyy     '))";

/// How often a step is tried that meets others.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(250);

/// Makes or updates the tables.
pub(super) fn migrate(session: &Session, address: &Address) -> Result<(), StoreError> {
    let failed = |error: Failure| error.on(address);
    // Two who make it at the same moment may both be told that it is there.
    retried(&[SqlState::DUPLICATE_TABLE, SqlState::DUPLICATE_OBJECT], || {
        session.batch("CREATE TABLE IF NOT EXISTS loadline_migrations (number BIGINT PRIMARY KEY, at BIGINT NOT NULL)")
    })
    .map_err(failed)?;
    let from = check_not_newer(session, address)?;
    for (number, statements) in (1_i64..).zip(MIGRATIONS).filter(|(number, _)| *number > from) {
        match retried(&[], || step(session, number, statements)) {
            Ok(()) => {}
            Err(Failure::Postgres(error)) if error.code() == Some(&SqlState::DUPLICATE_TABLE) => {
                return Err(StoreError::ServerNotOurs { place: address.to_string() });
            }
            Err(error) => return Err(failed(error)),
        }
    }
    // Looking first: making it takes a lock that everybody who writes waits for, even if it is there.
    let there = "SELECT 1 FROM pg_indexes WHERE schemaname = current_schema() AND indexname = 'messages_text'";
    if Sql::Postgres(session).exists(there, &[]).unwrap_or(false) {
        return Ok(());
    }
    // Without it searching takes longer; an engine that cannot do it does without.
    let index = format!("CREATE INDEX IF NOT EXISTS messages_text ON messages USING gin (({FOLDED_TEXT}))");
    if let Err(error) = retried(&[SqlState::DUPLICATE_TABLE], || session.batch(&index)) {
        tracing::warn!(error = %error.on(address), "there is no index for searching messages: searches read them all");
    }
    Ok(())
}

/// The schema is there and known, for those who do not change it.
pub(super) fn check(session: &Session, address: &Address) -> Result<(), StoreError> {
    let known = MIGRATIONS.len() as i64;
    match check_not_newer(session, address) {
        Ok(found) if found < known => Err(StoreError::Older { path: address.to_string().into(), found, known }),
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    }
}

fn check_not_newer(session: &Session, address: &Address) -> Result<i64, StoreError> {
    let found = match session.schema() {
        Ok(found) => found,
        Err(Failure::Postgres(error)) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => 0,
        Err(error) => return Err(error.on(address)),
    };
    let known = MIGRATIONS.len() as i64;
    if found > known {
        return Err(StoreError::Newer { path: address.to_string().into(), found, known });
    }
    Ok(found)
}

fn step(session: &Session, number: i64, statements: &str) -> Result<(), Failure> {
    session.begin()?;
    let claim = format!("INSERT INTO loadline_migrations (number, at) VALUES ({number}, {})", super::replica::NOW_MS);
    let done = match session.batch(&claim) {
        // Somebody else has done it.
        Err(Failure::Postgres(error)) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {
            return session.rollback();
        }
        Err(error) => Err(error),
        Ok(()) => session.batch(statements),
    };
    match done {
        Ok(()) => session.commit(),
        Err(error) => {
            let _ = session.rollback();
            Err(error)
        }
    }
}

/// Two that make the same table at the same moment may both fail.
fn retried(also: &[SqlState], mut work: impl FnMut() -> Result<(), Failure>) -> Result<(), Failure> {
    let mut tries = 0;
    loop {
        tries += 1;
        match work() {
            Err(Failure::Postgres(error)) if tries < TRIES && met_another(&error, also) => thread::sleep(PAUSE),
            done => return done,
        }
    }
}

fn met_another(error: &postgres::Error, also: &[SqlState]) -> bool {
    let codes = [
        SqlState::UNIQUE_VIOLATION,
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::LOCK_NOT_AVAILABLE,
    ];
    error.code().is_some_and(|code| codes.contains(code) || also.contains(code))
}
