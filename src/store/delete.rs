//! Deletion that deletes: every row that holds a word of a conversation, its place in the search index, and
//! what was made of its long messages. SQLite overwrites what it frees, and the writer empties the log after.
//!
//! A large conversation goes in slices, so that others' commits come in between. From the first moment it is
//! nobody's.

use std::time::Duration;

use super::append::anchor_tag;
use super::apply::{raise, user};
use super::change::Change;
use super::error::{Failure, Rejection};
use super::import::NOBODY;
use super::sql::{Sql, values};
use super::{Store, StoreError, index};
use crate::context::Link;
use crate::context::identity::ConversationId;

/// The name under which the highest number ever given is kept.
pub(super) const HIGHEST_CONVERSATION: &str = "highest_conversation";

/// Messages that go at once.
const SLICE: u32 = 250;

/// Characters of their texts that go at once, about.
const SLICE_CHARS: i64 = 4 << 20;

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
pub(super) fn hide(sql: Sql<'_>, conversation: ConversationId) -> Result<(), Failure> {
    let nobody = user(sql, NOBODY, 0)?;
    if let Sql::Postgres(session) = sql {
        session.hides(conversation)?;
    }
    match sql.execute("UPDATE conversations SET user_id = ?2 WHERE id = ?1", values![conversation, nobody])? {
        0 => Err(Rejection::UnknownConversation(conversation).into()),
        _ => Ok(()),
    }
}

/// The conversations that are nobody's.
pub(super) fn hidden(sql: Sql<'_>) -> Result<Vec<ConversationId>, Failure> {
    let statement = "SELECT conversations.id FROM conversations JOIN users ON users.id = user_id WHERE users.name = ?1";
    sql.many(statement, values![NOBODY], |row| row.get(0))
}

/// Deletes the next rows of it, and the conversation itself when there are none. Rejected when it is not there.
pub(super) fn delete_slice(sql: Sql<'_>, conversation: ConversationId) -> Result<(), Failure> {
    if let Sql::Postgres(session) = sql {
        // A turn that is ending elsewhere ends before this, or not at all.
        session.lock(conversation)?;
    }
    let more = forget_texts(sql, conversation)?;
    // In the same transaction: whoever chats next may be given the same numbers.
    index::messages_deleted(sql)?;
    if more {
        return Ok(());
    }
    let systems = system_prompts(sql, conversation)?;
    let mut full = false;
    for statement in TABLES {
        full |= sql.execute(statement, values![conversation, SLICE])? == SLICE as usize;
        if full {
            break;
        }
    }
    for system in systems {
        sql.execute(
            "DELETE FROM system_prompts WHERE id = ?1
             AND NOT EXISTS (SELECT 1 FROM turns WHERE system_id = ?1)
             AND NOT EXISTS (SELECT 1 FROM snapshots WHERE system_id = ?1)",
            values![system],
        )?;
    }
    if full {
        return Ok(());
    }
    raise(sql, HIGHEST_CONVERSATION, conversation)?;
    match sql.execute("DELETE FROM conversations WHERE id = ?1", values![conversation])? {
        0 => Err(Rejection::UnknownConversation(conversation).into()),
        _ => Ok(()),
    }
}

/// Those of the turns and snapshots that go next.
fn system_prompts(sql: Sql<'_>, conversation: ConversationId) -> Result<Vec<i64>, Failure> {
    sql.many(
        "SELECT DISTINCT system_id FROM (
             SELECT system_id FROM (SELECT system_id FROM turns WHERE conversation_id = ?1 LIMIT ?2) AS of_turns
             UNION ALL
             SELECT system_id FROM (SELECT system_id FROM snapshots WHERE conversation_id = ?1 LIMIT ?2) AS of_snapshots
         ) AS used",
        values![conversation, SLICE],
        |row| row.get(0),
    )
}

/// Deletes messages, and what finds them. The search index needs to be told what it had, and condensed texts are
/// known by the original's digest. Whether there may be more.
fn forget_texts(sql: Sql<'_>, conversation: ConversationId) -> Result<bool, Failure> {
    let sizes = sql.many(
        "SELECT id, length(text) FROM messages WHERE conversation_id = ?1 LIMIT ?2",
        values![conversation, SLICE],
        |row| Ok((row.get::<i64>(0)?, row.get::<i64>(1)?)),
    )?;
    let indexed = index::indexed_up_to(sql)?;
    let (mut gone, mut chars) = (0, 0);
    for (id, length) in &sizes {
        if chars >= SLICE_CHARS {
            break;
        }
        (gone, chars) = (gone + 1, chars + length);
        forget_text(sql, conversation, *id, indexed)?;
    }
    Ok(gone == SLICE as usize || gone < sizes.len())
}

fn forget_text(sql: Sql<'_>, conversation: ConversationId, id: i64, indexed: i64) -> Result<(), Failure> {
    let found = sql.one("SELECT text, link FROM messages WHERE id = ?1", values![id], |row| {
        Ok((row.get::<String>(0)?, row.get::<Link>(1)?))
    })?;
    let Some((text, link)) = found else { return Ok(()) };
    sql.execute(
        "DELETE FROM anchors WHERE tag = ?1 AND conversation_id = ?2",
        values![anchor_tag(&link), conversation],
    )?;
    if id <= indexed {
        index::remove(sql, id, &text)?;
    }
    sql.execute("DELETE FROM condensed WHERE digest = ?1", values![blake3::hash(text.as_bytes()).as_bytes()])?;
    sql.execute("DELETE FROM messages WHERE id = ?1", values![id])?;
    Ok(())
}
