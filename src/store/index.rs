//! The search index, kept up behind the commits: nobody's answer waits for it.
//!
//! The writer indexes what is new when it has nothing else to do, a slice at a time. A number says up to which
//! message it has come. PostgreSQL keeps its own, and nothing here has anything to do for it.

use super::error::Failure;
use super::sql::{Sql, values};

/// The name under which the last indexed message is kept.
pub(super) const INDEXED_UP_TO: &str = "indexed_up_to";

/// Messages and characters of one slice: a millisecond or two of work, which somebody may have to wait for.
const SLICE_MESSAGES: u32 = 64;
const SLICE_CHARS: i64 = 64 << 10;

/// Characters of a message that can be found: a pasted log must not fill the index.
const INDEXED_CHARS: u32 = 65_536;

/// The last message in the index.
pub(super) fn indexed_up_to(sql: Sql<'_>) -> Result<i64, Failure> {
    if matches!(sql, Sql::Postgres(_)) {
        return Ok(0);
    }
    Ok(sql.one("SELECT value FROM settings WHERE name = ?1", values![INDEXED_UP_TO], |row| row.get(0))?.unwrap_or(0))
}

/// Adds the next messages. Whether there may be more.
pub(super) fn add_slice(sql: Sql<'_>) -> Result<bool, Failure> {
    if matches!(sql, Sql::Postgres(_)) {
        return Ok(false);
    }
    let before = indexed_up_to(sql)?;
    let sizes = sql.many(
        "SELECT id, min(length(text), ?3) FROM messages WHERE id > ?1 ORDER BY id LIMIT ?2",
        values![before, SLICE_MESSAGES, INDEXED_CHARS],
        |row| Ok((row.get::<i64>(0)?, row.get::<i64>(1)?)),
    )?;
    let (mut last, mut chars) = (before, 0);
    for (id, length) in sizes {
        let copied =
            "INSERT INTO messages_text (rowid, text) SELECT id, substr(text, 1, ?2) FROM messages WHERE id = ?1";
        sql.execute(copied, values![id, INDEXED_CHARS])?;
        (last, chars) = (id, chars + length);
        if chars > SLICE_CHARS {
            break;
        }
    }
    if last > before {
        note(sql, last)?;
    }
    Ok(last > before)
}

/// Takes a message out that is about to be deleted. The index must be told exactly what it was given.
pub(super) fn remove(sql: Sql<'_>, message: i64, text: &str) -> Result<(), Failure> {
    sql.execute(
        "INSERT INTO messages_text (messages_text, rowid, text) VALUES ('delete', ?1, substr(?2, 1, ?3))",
        values![message, text, INDEXED_CHARS],
    )?;
    Ok(())
}

/// After a deletion the numbers of the newest messages may be given again.
pub(super) fn messages_deleted(sql: Sql<'_>) -> Result<(), Failure> {
    if matches!(sql, Sql::Postgres(_)) {
        return Ok(());
    }
    let newest = sql.one("SELECT coalesce(max(id), 0) FROM messages", &[], |row| row.get(0))?.unwrap_or(0);
    let indexed = indexed_up_to(sql)?;
    if newest < indexed { note(sql, newest) } else { Ok(()) }
}

fn note(sql: Sql<'_>, up_to: i64) -> Result<(), Failure> {
    sql.execute(
        "INSERT INTO settings (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        values![INDEXED_UP_TO, up_to],
    )?;
    Ok(())
}
