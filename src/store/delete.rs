//! Deletion that deletes: every row that holds a word of a conversation, its place in the search index, and
//! what was made of its long messages. SQLite overwrites what it frees, and the writer empties the log after.
//!
//! A large conversation goes in slices, so that others' commits come in between. From the first moment it is
//! nobody's.

use std::time::Duration;

use rusqlite::{Connection, params};

use super::append::anchor_tag;
use super::apply::user;
use super::change::Change;
use super::error::{Failure, Rejection};
use super::import::NOBODY;
use super::read::StoredLink;
use super::{Store, StoreError, index};
use crate::context::identity::ConversationId;

/// The name under which the highest number ever given is kept.
pub(super) const HIGHEST_CONVERSATION: &str = "highest_conversation";

/// Messages that go at once.
const SLICE: u32 = 250;

/// Bytes of their texts that go at once.
const SLICE_BYTES: usize = 4 << 20;

/// A wait when too much is to be stored.
const QUEUE_PAUSE: Duration = Duration::from_millis(200);

/// In the order in which nothing refers to what is gone; the newest rows first, because branches refer to older ones.
const TABLES: [&str; 8] = [
    "DELETE FROM events WHERE id IN (SELECT id FROM events WHERE conversation_id = ?1 LIMIT ?2)",
    "DELETE FROM receipts WHERE number IN (SELECT number FROM receipts WHERE conversation_id = ?1 LIMIT ?2)",
    "DELETE FROM fronts WHERE number IN (SELECT number FROM fronts WHERE conversation_id = ?1 LIMIT ?2)",
    "DELETE FROM checkpoints WHERE number IN (SELECT number FROM checkpoints WHERE conversation_id = ?1 LIMIT ?2)",
    "DELETE FROM snapshots WHERE number IN (SELECT number FROM snapshots WHERE conversation_id = ?1 LIMIT ?2)",
    "DELETE FROM turns WHERE number IN (SELECT number FROM turns WHERE conversation_id = ?1 LIMIT ?2)",
    "DELETE FROM imported_lines WHERE conversation_id = ?1 AND number IN
        (SELECT number FROM imported_lines WHERE conversation_id = ?1 LIMIT ?2)",
    "DELETE FROM branches WHERE id IN
        (SELECT id FROM branches WHERE conversation_id = ?1 ORDER BY id DESC LIMIT ?2)",
];

impl Store {
    /// Deletes a conversation. Ready when nothing of it is left.
    pub async fn delete(&self, conversation: ConversationId) -> Result<(), StoreError> {
        self.submit(Change::Hide(conversation)).await?;
        loop {
            match self.submit(Change::DeleteSlice(conversation)).await {
                Ok(()) => {}
                // Others are busy: it is hidden already, and can wait.
                Err(StoreError::QueueFull) => tokio::time::sleep(QUEUE_PAUSE).await,
                Err(StoreError::Rejected(Rejection::UnknownConversation(_))) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Makes a conversation nobody's.
pub(super) fn hide(connection: &Connection, conversation: ConversationId) -> Result<(), Failure> {
    let nobody = user(connection, NOBODY, 0)?;
    let mut statement = connection.prepare_cached("UPDATE conversations SET user_id = ?2 WHERE id = ?1")?;
    match statement.execute(params![conversation, nobody])? {
        0 => Err(Rejection::UnknownConversation(conversation).into()),
        _ => Ok(()),
    }
}

/// The conversations that are nobody's.
pub(super) fn hidden(connection: &Connection) -> rusqlite::Result<Vec<ConversationId>> {
    let mut statement = connection.prepare_cached(
        "SELECT conversations.id FROM conversations JOIN users ON users.id = user_id WHERE users.name = ?1",
    )?;
    statement.query_map([NOBODY], |row| row.get(0))?.collect()
}

/// Deletes the next rows of it, and the conversation itself when there are none. Rejected when it is not there.
pub(super) fn delete_slice(connection: &Connection, conversation: ConversationId) -> Result<(), Failure> {
    let more = forget_texts(connection, conversation)?;
    // In the same transaction: whoever chats next may be given the same numbers.
    index::messages_deleted(connection)?;
    if more {
        return Ok(());
    }
    let systems = system_prompts(connection, conversation)?;
    let mut full = false;
    for sql in TABLES {
        full |= connection.prepare_cached(sql)?.execute(params![conversation, SLICE])? == SLICE as usize;
        if full {
            break;
        }
    }
    for system in systems {
        let mut unused = connection.prepare_cached(
            "DELETE FROM system_prompts WHERE id = ?1
             AND NOT EXISTS (SELECT 1 FROM turns WHERE system_id = ?1)
             AND NOT EXISTS (SELECT 1 FROM snapshots WHERE system_id = ?1)",
        )?;
        unused.execute([system])?;
    }
    if full {
        return Ok(());
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

/// Those of the turns and snapshots that go next.
fn system_prompts(connection: &Connection, conversation: ConversationId) -> rusqlite::Result<Vec<i64>> {
    let mut statement = connection.prepare_cached(
        "SELECT DISTINCT system_id FROM (
             SELECT system_id FROM (SELECT system_id FROM turns WHERE conversation_id = ?1 LIMIT ?2)
             UNION ALL SELECT system_id FROM (SELECT system_id FROM snapshots WHERE conversation_id = ?1 LIMIT ?2))",
    )?;
    statement.query_map(params![conversation, SLICE], |row| row.get(0))?.collect()
}

/// Deletes messages, and what finds them. The search index needs to be told what it had, and condensed texts are
/// known by the original's digest. Whether there may be more.
fn forget_texts(connection: &Connection, conversation: ConversationId) -> rusqlite::Result<bool> {
    let mut texts =
        connection.prepare_cached("SELECT id, text, link FROM messages WHERE conversation_id = ?1 LIMIT ?2")?;
    let (mut found, mut bytes) = (Vec::<(i64, String, StoredLink)>::new(), 0);
    let mut rows = texts.query(params![conversation, SLICE])?;
    while let Some(row) = rows.next()?.filter(|_| bytes < SLICE_BYTES) {
        let (id, text, link): (i64, String, StoredLink) = (row.get(0)?, row.get(1)?, row.get(2)?);
        bytes += text.len();
        found.push((id, text, link));
    }
    drop(rows);
    let indexed = index::indexed_up_to(connection)?;
    let mut condensed = connection.prepare_cached("DELETE FROM condensed WHERE digest = ?1")?;
    let mut gone = connection.prepare_cached("DELETE FROM messages WHERE id = ?1")?;
    let mut anchors = connection.prepare_cached("DELETE FROM anchors WHERE tag = ?1 AND conversation_id = ?2")?;
    for (id, text, link) in &found {
        anchors.execute(params![anchor_tag(&link.0), conversation])?;
        if *id <= indexed {
            index::remove(connection, *id, text)?;
        }
        condensed.execute([blake3::hash(text.as_bytes()).as_bytes()])?;
        gone.execute([id])?;
    }
    Ok(found.len() == SLICE as usize || bytes >= SLICE_BYTES)
}
