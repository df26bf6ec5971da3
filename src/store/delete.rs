//! Deletion that deletes: every row that holds a word of a conversation, its place in the search index, and
//! what was made of its long messages. SQLite overwrites what it frees, and the writer empties the log after.

use rusqlite::{Connection, params};

use super::error::{Failure, Rejection};
use crate::context::identity::ConversationId;

/// The name under which the highest number ever given is kept.
pub(super) const HIGHEST_CONVERSATION: &str = "highest_conversation";

/// In the order in which nothing refers to what is gone.
const TABLES: [&str; 9] = [
    "DELETE FROM events WHERE conversation_id = ?1",
    "DELETE FROM receipts WHERE conversation_id = ?1",
    "DELETE FROM fronts WHERE conversation_id = ?1",
    "DELETE FROM snapshots WHERE conversation_id = ?1",
    "DELETE FROM checkpoints WHERE conversation_id = ?1",
    "DELETE FROM turns WHERE conversation_id = ?1",
    "DELETE FROM imported_lines WHERE conversation_id = ?1",
    "DELETE FROM messages WHERE conversation_id = ?1",
    "DELETE FROM branches WHERE conversation_id = ?1",
];

pub(super) fn delete(connection: &Connection, conversation: ConversationId) -> Result<(), Failure> {
    let systems = system_prompts(connection, conversation)?;
    forget_texts(connection, conversation)?;
    for sql in TABLES {
        connection.prepare_cached(sql)?.execute([conversation])?;
    }
    for system in systems {
        let mut unused = connection.prepare_cached(
            "DELETE FROM system_prompts WHERE id = ?1
             AND NOT EXISTS (SELECT 1 FROM turns WHERE system_id = ?1)
             AND NOT EXISTS (SELECT 1 FROM snapshots WHERE system_id = ?1)",
        )?;
        unused.execute([system])?;
    }
    let mut highest = connection.prepare_cached(
        "INSERT INTO settings (name, value) VALUES (?1, ?2)
         ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)",
    )?;
    highest.execute(params![HIGHEST_CONVERSATION, conversation])?;
    match connection.prepare_cached("DELETE FROM conversations WHERE id = ?1")?.execute([conversation])? {
        0 => Err(Rejection::UnknownConversation(conversation).into()),
        _ => Ok(()),
    }
}

fn system_prompts(connection: &Connection, conversation: ConversationId) -> rusqlite::Result<Vec<i64>> {
    let mut statement = connection.prepare_cached(
        "SELECT system_id FROM turns WHERE conversation_id = ?1
         UNION SELECT system_id FROM snapshots WHERE conversation_id = ?1",
    )?;
    statement.query_map([conversation], |row| row.get(0))?.collect()
}

/// The search index needs to be told what it had, and condensed texts are known by the original's digest.
fn forget_texts(connection: &Connection, conversation: ConversationId) -> rusqlite::Result<()> {
    let mut texts = connection.prepare_cached("SELECT id, text FROM messages WHERE conversation_id = ?1")?;
    let mut from_index = connection
        .prepare_cached("INSERT INTO messages_text (messages_text, rowid, text) VALUES ('delete', ?1, ?2)")?;
    let mut condensed = connection.prepare_cached("DELETE FROM condensed WHERE digest = ?1")?;
    let mut rows = texts.query([conversation])?;
    while let Some(row) = rows.next()? {
        let (id, text): (i64, String) = (row.get(0)?, row.get(1)?);
        from_index.execute(params![id, text])?;
        condensed.execute([blake3::hash(text.as_bytes()).as_bytes()])?;
    }
    Ok(())
}
