//! Where a message goes in its conversation's tree.
//!
//! A link stands for the whole history up to it, so a message whose link the conversation has is there
//! already: a client that resends, or a POST that is retried, stores nothing twice. What follows the
//! tip of a branch continues it; what follows anything else is an edit or another answer, and begins a
//! branch. No message is ever moved or changed; only how much is known of it grows.

use super::change::NewMessage;
use super::error::{Failure, Rejection};
use super::sql::{Sql, values};
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
    /// When it was said, of one that is known to have nothing after it, because it was written just now or was looked at.
    pub(super) at_tip: Option<i64>,
}

/// How messages came, and when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin {
    pub(super) at: i64,
    /// The status of an answer that came through us; none: the client sent it.
    pub(super) answer: Option<&'static str>,
}

/// The message with that link.
pub(super) fn locate(sql: Sql<'_>, conversation: ConversationId, link: Link) -> Result<Option<Position>, Failure> {
    sql.one(
        "SELECT branch_id, seq, answered FROM messages WHERE conversation_id = ?2 AND link = ?1",
        values![&link, conversation],
        |row| Ok(Position { branch: row.get(0)?, seq: row.get(1)?, answered: row.get(2)?, at_tip: None }),
    )
}

/// The same where it must be there, for going on from it. A message that nothing follows on its branch has no branches
/// that leave it either, so whatever comes next is new.
pub(super) fn require(sql: Sql<'_>, conversation: ConversationId, link: Link) -> Result<Position, Failure> {
    let found = sql.one(
        "SELECT branch_id, seq, answered, created_at, (SELECT next.seq FROM messages AS next
             WHERE next.branch_id = messages.branch_id AND next.seq = messages.seq + 1)
         FROM messages WHERE conversation_id = ?2 AND link = ?1",
        values![&link, conversation],
        |row| {
            let (at, next) = (row.get(3)?, row.get::<Option<i64>>(4)?);
            let at_tip = next.is_none().then_some(at);
            Ok(Position { branch: row.get(0)?, seq: row.get(1)?, answered: row.get(2)?, at_tip })
        },
    )?;
    found.ok_or(Rejection::UnknownLink(conversation).into())
}

/// Before the first message of a conversation that was made just now.
pub(super) fn root(sql: Sql<'_>, conversation: ConversationId, at: i64) -> Result<Position, Failure> {
    let branch = fork(sql, conversation, None, at)?;
    Ok(Position { branch, seq: 0, answered: false, at_tip: Some(i64::MIN) })
}

/// Goes from a position (none: before the first message) to the message, storing it if it is new.
pub(super) fn step(
    sql: Sql<'_>,
    conversation: ConversationId,
    from: Option<Position>,
    message: &NewMessage,
    origin: Origin,
) -> Result<Position, Failure> {
    let after_new = from.filter(|from| from.at_tip.is_some());
    if after_new.is_none()
        && let Some(known) = locate(sql, conversation, message.link)?
    {
        return adopt(sql, conversation, known, message.link, origin);
    }
    let branch = match from {
        Some(position) if after_new.is_some() || is_tip(sql, position)? => position.branch,
        _ => fork(sql, conversation, from, origin.at)?,
    };
    let (seq, answered) = from.map_or((0, false), |from| (from.seq, from.answered));
    let origin = Origin { at: origin.at.max(said_at(sql, from)?), ..origin };
    if origin.answer.is_some() && !answered {
        anchor(sql, conversation, message.link)?;
    }
    let answered = answered || origin.answer.is_some();
    let position = Position { branch, seq: seq + 1, answered, at_tip: Some(origin.at) };
    insert(sql, conversation, position, message, origin)?;
    Ok(position)
}

/// An answer may repeat what is stored: what was cut short is whole now, or what a client brought along
/// has come from us too. Everything after it has an answer of ours before it then.
fn adopt(
    sql: Sql<'_>,
    conversation: ConversationId,
    known: Position,
    link: Link,
    origin: Origin,
) -> Result<Position, Failure> {
    let Some(status) = origin.answer else { return Ok(known) };
    sql.execute(
        "UPDATE messages SET ours = 1, status = CASE status WHEN 'complete' THEN status ELSE ?3 END
         WHERE branch_id = ?1 AND seq = ?2",
        values![known.branch, known.seq, status],
    )?;
    if !known.answered {
        anchor(sql, conversation, link)?;
        sql.execute(
            "WITH RECURSIVE below(branch, low) AS (
                 SELECT CAST(?1 AS BIGINT), CAST(?2 AS BIGINT)
                 UNION ALL
                 SELECT branches.id, CAST(0 AS BIGINT) FROM below JOIN branches
                 ON branches.parent_id = below.branch AND branches.fork_seq >= below.low
             )
             UPDATE messages SET answered = 1 FROM below WHERE branch_id = below.branch AND seq >= below.low",
            values![known.branch, known.seq],
        )?;
    }
    Ok(Position { answered: true, ..known })
}

/// Makes a conversation one that histories with this answer may belong to: it is their first of ours.
fn anchor(sql: Sql<'_>, conversation: ConversationId, link: Link) -> Result<(), Failure> {
    sql.execute(
        "INSERT INTO anchors (tag, conversation_id) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
        values![anchor_tag(&link), conversation],
    )?;
    Ok(())
}

/// What an anchor is found by: enough of a link to leave few conversations, which are then looked at.
pub(super) fn anchor_tag(link: &Link) -> &[u8] {
    &link.as_bytes()[..ANCHOR_BYTES]
}

/// When the message before was said: a clock that went back does not turn the order round.
fn said_at(sql: Sql<'_>, from: Option<Position>) -> Result<i64, Failure> {
    let Some(from) = from else { return Ok(i64::MIN) };
    if let Some(at) = from.at_tip {
        return Ok(at);
    }
    let before = "SELECT created_at FROM messages WHERE branch_id = ?1 AND seq = ?2";
    let at = sql.one(before, values![from.branch, from.seq], |row| row.get(0))?;
    at.ok_or(Failure::Odd("a message that was just found is gone"))
}

/// Whether nothing follows a message on its branch.
pub(super) fn is_tip(sql: Sql<'_>, position: Position) -> Result<bool, Failure> {
    let next = "SELECT 1 FROM messages WHERE branch_id = ?1 AND seq = ?2";
    sql.exists(next, values![position.branch, position.seq + 1]).map(|next| !next)
}

/// A branch that leaves its parent after a message, or starts anew.
fn fork(sql: Sql<'_>, conversation: ConversationId, from: Option<Position>, at: i64) -> Result<i64, Failure> {
    let (parent, seq) = (from.map(|from| from.branch), from.map_or(0, |from| from.seq));
    sql.insert(
        "INSERT INTO branches (conversation_id, parent_id, fork_seq, created_at) VALUES (?1, ?2, ?3, ?4)",
        "id",
        values![conversation, parent, seq, at],
    )
}

fn insert(
    sql: Sql<'_>,
    conversation: ConversationId,
    position: Position,
    message: &NewMessage,
    origin: Origin,
) -> Result<(), Failure> {
    sql.execute(
        "INSERT INTO messages (conversation_id, branch_id, seq, link, role, text, thinking, tool_calls, tool_name,
             tool_call_id, images, raw, status, ours, answered, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
        values![
            conversation,
            position.branch,
            position.seq,
            &message.link,
            &message.role,
            &message.text,
            &message.thinking,
            &message.tool_calls,
            &message.tool_name,
            &message.tool_call_id,
            message.images,
            &message.raw,
            origin.answer.unwrap_or("complete"),
            origin.answer.is_some(),
            position.answered,
            origin.at,
        ],
    )?;
    Ok(())
}
