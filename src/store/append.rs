//! Where a message goes in its conversation's tree.
//!
//! A link stands for the whole history up to it, so a message whose link the conversation has is there
//! already: a client that resends, or a POST that is retried, stores nothing twice. What follows the
//! tip of a branch continues it; what follows anything else is an edit or another answer, and begins a
//! branch. No message is ever moved or changed; only how much is known of it grows.

use rusqlite::{Connection, OptionalExtension, params};

use super::change::NewMessage;
use super::error::{Failure, Rejection};
use crate::context::Link;
use crate::context::identity::ConversationId;

/// Bytes of a link that an anchor has.
const ANCHOR_BYTES: usize = 8;

/// A message in the tree.
#[derive(Debug, Clone, Copy)]
pub(super) struct Position {
    pub(super) branch: i64,
    pub(super) seq: i64,
    pub(super) answered: bool,
    /// When it was said, of one that was written just now: nothing can have followed it yet.
    pub(super) just_written: Option<i64>,
}

/// How messages came, and when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin {
    pub(super) at: i64,
    /// The status of an answer that came through us; none: the client sent it.
    pub(super) answer: Option<&'static str>,
}

/// The message with that link.
pub(super) fn locate(
    connection: &Connection,
    conversation: ConversationId,
    link: Link,
) -> rusqlite::Result<Option<Position>> {
    let mut statement = connection
        .prepare_cached("SELECT branch_id, seq, answered FROM messages WHERE conversation_id = ?2 AND link = ?1")?;
    let position = |row: &rusqlite::Row<'_>| {
        Ok(Position { branch: row.get(0)?, seq: row.get(1)?, answered: row.get(2)?, just_written: None })
    };
    statement.query_row(params![link.as_bytes(), conversation], position).optional()
}

/// The same where it must be there.
pub(super) fn require(connection: &Connection, conversation: ConversationId, link: Link) -> Result<Position, Failure> {
    locate(connection, conversation, link)?.ok_or(Rejection::UnknownLink(conversation).into())
}

/// Before the first message of a conversation that was made just now.
pub(super) fn root(connection: &Connection, conversation: ConversationId, at: i64) -> rusqlite::Result<Position> {
    let branch = fork(connection, conversation, None, at)?;
    Ok(Position { branch, seq: 0, answered: false, just_written: Some(i64::MIN) })
}

/// Goes from a position (none: before the first message) to the message, storing it if it is new.
pub(super) fn step(
    connection: &Connection,
    conversation: ConversationId,
    from: Option<Position>,
    message: &NewMessage,
    origin: Origin,
) -> Result<Position, Failure> {
    let after_new = from.filter(|from| from.just_written.is_some());
    if after_new.is_none()
        && let Some(known) = locate(connection, conversation, message.link)?
    {
        return adopt(connection, conversation, known, message.link, origin);
    }
    let branch = match from {
        Some(position) if after_new.is_some() || is_tip(connection, position)? => position.branch,
        _ => fork(connection, conversation, from, origin.at)?,
    };
    let (seq, answered) = from.map_or((0, false), |from| (from.seq, from.answered));
    let origin = Origin { at: origin.at.max(said_at(connection, from)?), ..origin };
    if origin.answer.is_some() && !answered {
        anchor(connection, conversation, message.link)?;
    }
    let answered = answered || origin.answer.is_some();
    let position = Position { branch, seq: seq + 1, answered, just_written: Some(origin.at) };
    insert(connection, conversation, position, message, origin)?;
    Ok(position)
}

/// An answer may repeat what is stored: what was cut short is whole now, or what a client brought along
/// has come from us too. Everything after it has an answer of ours before it then.
fn adopt(
    connection: &Connection,
    conversation: ConversationId,
    known: Position,
    link: Link,
    origin: Origin,
) -> Result<Position, Failure> {
    let Some(status) = origin.answer else { return Ok(known) };
    let mut better = connection.prepare_cached(
        "UPDATE messages SET ours = 1, status = CASE status WHEN 'complete' THEN status ELSE ?3 END
         WHERE branch_id = ?1 AND seq = ?2",
    )?;
    better.execute(params![known.branch, known.seq, status])?;
    if !known.answered {
        anchor(connection, conversation, link)?;
        let mut answered = connection.prepare_cached(
            "WITH RECURSIVE below(branch, low) AS (
                 VALUES (?1, ?2)
                 UNION ALL
                 SELECT branches.id, 0 FROM below JOIN branches
                 ON branches.parent_id = below.branch AND branches.fork_seq >= below.low
             )
             UPDATE messages SET answered = 1 FROM below WHERE branch_id = below.branch AND seq >= below.low",
        )?;
        answered.execute(params![known.branch, known.seq])?;
    }
    Ok(Position { answered: true, ..known })
}

/// Makes a conversation one that histories with this answer may belong to: it is their first of ours.
fn anchor(connection: &Connection, conversation: ConversationId, link: Link) -> rusqlite::Result<()> {
    let mut statement = connection
        .prepare_cached("INSERT INTO anchors (tag, conversation_id) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?;
    statement.execute(params![anchor_tag(&link), conversation])?;
    Ok(())
}

/// What an anchor is found by: enough of a link to leave few conversations, which are then looked at.
pub(super) fn anchor_tag(link: &Link) -> &[u8] {
    &link.as_bytes()[..ANCHOR_BYTES]
}

/// When the message before was said: a clock that went back does not turn the order round.
fn said_at(connection: &Connection, from: Option<Position>) -> rusqlite::Result<i64> {
    let Some(from) = from else { return Ok(i64::MIN) };
    if let Some(at) = from.just_written {
        return Ok(at);
    }
    let mut before = connection.prepare_cached("SELECT created_at FROM messages WHERE branch_id = ?1 AND seq = ?2")?;
    before.query_row(params![from.branch, from.seq], |row| row.get(0))
}

/// Whether nothing follows a message on its branch.
pub(super) fn is_tip(connection: &Connection, position: Position) -> rusqlite::Result<bool> {
    let mut next = connection.prepare_cached("SELECT 1 FROM messages WHERE branch_id = ?1 AND seq = ?2")?;
    next.exists(params![position.branch, position.seq + 1]).map(|next| !next)
}

/// A branch that leaves its parent after a message, or starts anew.
fn fork(
    connection: &Connection,
    conversation: ConversationId,
    from: Option<Position>,
    at: i64,
) -> rusqlite::Result<i64> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO branches (conversation_id, parent_id, fork_seq, created_at) VALUES (?1, ?2, ?3, ?4)",
    )?;
    let (parent, seq) = (from.map(|from| from.branch), from.map_or(0, |from| from.seq));
    statement.insert(params![conversation, parent, seq, at])
}

fn insert(
    connection: &Connection,
    conversation: ConversationId,
    position: Position,
    message: &NewMessage,
    origin: Origin,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO messages (conversation_id, branch_id, seq, link, role, text, thinking, tool_calls, tool_name,
             tool_call_id, images, raw, status, ours, answered, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
    )?;
    statement.execute(params![
        conversation,
        position.branch,
        position.seq,
        message.link.as_bytes(),
        message.role,
        message.text,
        message.thinking,
        message.tool_calls,
        message.tool_name,
        message.tool_call_id,
        message.images,
        message.raw,
        origin.answer.unwrap_or("complete"),
        origin.answer.is_some(),
        position.answered,
        origin.at,
    ])?;
    Ok(())
}
