//! The search index, kept up behind the commits: nobody's answer waits for it.
//!
//! The writer indexes what is new when it has nothing else to do, a slice at a time. A number says up to which
//! message it has come.

use rusqlite::{Connection, OptionalExtension, params};

/// The name under which the last indexed message is kept.
const INDEXED_UP_TO: &str = "indexed_up_to";

/// Messages and bytes of one slice: a millisecond or two of work, which somebody may have to wait for.
const SLICE_MESSAGES: u32 = 64;
const SLICE_BYTES: usize = 64 << 10;

/// Characters of a message that can be found: a pasted log must not fill the index.
const INDEXED_CHARS: u32 = 65_536;

/// The last message in the index.
pub(super) fn indexed_up_to(connection: &Connection) -> rusqlite::Result<i64> {
    let mut statement = connection.prepare_cached("SELECT value FROM settings WHERE name = ?1")?;
    Ok(statement.query_row([INDEXED_UP_TO], |row| row.get(0)).optional()?.unwrap_or(0))
}

/// Adds the next messages. Whether there may be more.
pub(super) fn add_slice(connection: &Connection) -> rusqlite::Result<bool> {
    let before = indexed_up_to(connection)?;
    let mut next =
        connection.prepare_cached("SELECT id, substr(text, 1, ?3) FROM messages WHERE id > ?1 ORDER BY id LIMIT ?2")?;
    let mut insert = connection.prepare_cached("INSERT INTO messages_text (rowid, text) VALUES (?1, ?2)")?;
    let mut rows = next.query(params![before, SLICE_MESSAGES, INDEXED_CHARS])?;
    let (mut last, mut bytes) = (before, 0);
    while let Some(row) = rows.next()? {
        let (id, text): (i64, String) = (row.get(0)?, row.get(1)?);
        insert.execute(params![id, text])?;
        (last, bytes) = (id, bytes + text.len());
        if bytes > SLICE_BYTES {
            break;
        }
    }
    if last > before {
        note(connection, last)?;
    }
    Ok(last > before)
}

/// Takes a message out that is about to be deleted. The index must be told exactly what it was given.
pub(super) fn remove(connection: &Connection, message: i64, text: &str) -> rusqlite::Result<()> {
    let mut remove = connection.prepare_cached(
        "INSERT INTO messages_text (messages_text, rowid, text) VALUES ('delete', ?1, substr(?2, 1, ?3))",
    )?;
    remove.execute(params![message, text, INDEXED_CHARS])?;
    Ok(())
}

/// After a deletion the numbers of the newest messages may be given again.
pub(super) fn messages_deleted(connection: &Connection) -> rusqlite::Result<()> {
    let newest: i64 =
        connection.prepare_cached("SELECT coalesce(max(id), 0) FROM messages")?.query_row([], |row| row.get(0))?;
    let indexed = indexed_up_to(connection)?;
    if newest < indexed { note(connection, newest) } else { Ok(()) }
}

fn note(connection: &Connection, up_to: i64) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO settings (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
    )?;
    statement.execute(params![INDEXED_UP_TO, up_to])?;
    Ok(())
}
