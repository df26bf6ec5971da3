//! What reading gives: rows as they are stored.

use crate::context::Link;
use crate::context::identity::ConversationId;
use crate::store::error::Failure;
use crate::store::sql::Row;

/// The longest stored prefix of a history that has an answer of ours in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// The index of its last link.
    pub index: usize,
    pub conversation: ConversationId,
    /// Whether nothing follows on its branch.
    pub tip: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationRow {
    pub id: ConversationId,
    pub user: String,
    /// The model of the latest turn.
    pub model: String,
    pub created_at: i64,
    pub updated_at: i64,
    /// On all branches together.
    pub messages: u32,
    pub branches: u32,
    /// The beginning of what the user said first.
    pub title: String,
    /// Of an imported conversation: the session it was, and whose.
    pub session: Option<String>,
    pub provider: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageRow {
    pub id: i64,
    pub branch: i64,
    /// The position in the history, from 1.
    pub seq: u32,
    pub link: Link,
    pub role: String,
    pub text: String,
    pub thinking: String,
    /// A JSON array.
    pub tool_calls: Option<String>,
    pub tool_name: Option<String>,
    pub tool_call_id: Option<String>,
    pub images: u32,
    pub raw: Option<String>,
    pub status: String,
    /// Whether it is an answer that came through us.
    pub ours: bool,
    pub created_at: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotRow {
    pub id: String,
    pub conversation: ConversationId,
    pub user: String,
    pub branch: i64,
    pub last_seq: u32,
    /// The history's last message, for [`super::Reads::path`].
    pub link: Link,
    /// A JSON array.
    pub system: String,
    pub messages: u32,
    pub checkpoints: u32,
    pub tokens: u32,
    pub limit_tokens: u32,
    pub reason: String,
    pub created_at: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointRow {
    pub id: String,
    pub conversation: ConversationId,
    pub covered: Link,
    pub first_message: u32,
    pub last_message: u32,
    pub level: u8,
    pub author: String,
    pub texts: [String; 3],
    pub created_at: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiptRow {
    pub id: String,
    pub conversation: ConversationId,
    pub turn: String,
    pub user: String,
    pub body: String,
    pub created_at: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRow {
    pub id: i64,
    pub at: i64,
    pub kind: String,
    pub conversation: Option<ConversationId>,
    pub user: Option<String>,
    pub body: String,
}

/// A line of an imported session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedLineRow {
    /// Where its last message is; none and 0: before the first.
    pub branch: Option<i64>,
    pub last_seq: u32,
    pub line: String,
}

/// What is known only when a turn is finished is none before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnRow {
    pub number: i64,
    pub id: String,
    pub branch: Option<i64>,
    /// The turn's last message, its answer included; 0: there is none.
    pub last_seq: u32,
    pub at: i64,
    pub finished_at: Option<i64>,
    pub model: String,
    pub dialect: String,
    pub status: String,
    /// A JSON array.
    pub system: String,
    pub arrived_tokens: Option<u32>,
    pub sent_tokens: Option<u32>,
    pub limit_tokens: Option<u32>,
    pub reported_tokens: Option<u32>,
    pub basis: Option<String>,
    pub action: Option<String>,
    pub receipt: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    pub users: u64,
    pub conversations: u64,
    pub messages: u64,
    pub turns: u64,
}

pub(super) const MESSAGE: &str = "SELECT id, branch_id, seq, link, role, text, thinking, tool_calls, tool_name, \
    tool_call_id, images, raw, status, ours, created_at FROM messages";

pub(super) fn message(row: &Row<'_>) -> Result<MessageRow, Failure> {
    Ok(MessageRow {
        id: row.get(0)?,
        branch: row.get(1)?,
        seq: row.get(2)?,
        link: row.get(3)?,
        role: row.get(4)?,
        text: row.get(5)?,
        thinking: row.get(6)?,
        tool_calls: row.get(7)?,
        tool_name: row.get(8)?,
        tool_call_id: row.get(9)?,
        images: row.get(10)?,
        raw: row.get(11)?,
        status: row.get(12)?,
        ours: row.get(13)?,
        created_at: row.get(14)?,
    })
}

pub(super) const SNAPSHOT: &str = "SELECT snapshots.id, conversation_id, users.name, branch_id, last_seq, link, \
    system_prompts.body, messages, checkpoints, tokens, limit_tokens, reason, snapshots.created_at \
    FROM snapshots JOIN conversations ON conversations.id = conversation_id \
    JOIN users ON users.id = user_id AND users.name <> '' JOIN system_prompts ON system_prompts.id = system_id";

pub(super) fn snapshot(row: &Row<'_>) -> Result<SnapshotRow, Failure> {
    Ok(SnapshotRow {
        id: row.get(0)?,
        conversation: row.get(1)?,
        user: row.get(2)?,
        branch: row.get(3)?,
        last_seq: row.get(4)?,
        link: row.get(5)?,
        system: row.get(6)?,
        messages: row.get(7)?,
        checkpoints: row.get(8)?,
        tokens: row.get(9)?,
        limit_tokens: row.get(10)?,
        reason: row.get(11)?,
        created_at: row.get(12)?,
    })
}

pub(super) const TURN: &str = "SELECT turns.id, branch_id, last_seq, at, finished_at, model, dialect, status, \
    system_prompts.body, arrived_tokens, sent_tokens, limit_tokens, reported_tokens, basis, action, receipt_id, turns.number \
    FROM turns JOIN system_prompts ON system_prompts.id = system_id";

pub(super) fn turn(row: &Row<'_>) -> Result<TurnRow, Failure> {
    Ok(TurnRow {
        id: row.get(0)?,
        branch: row.get(1)?,
        last_seq: row.get(2)?,
        at: row.get(3)?,
        finished_at: row.get(4)?,
        model: row.get(5)?,
        dialect: row.get(6)?,
        status: row.get(7)?,
        system: row.get(8)?,
        arrived_tokens: row.get(9)?,
        sent_tokens: row.get(10)?,
        limit_tokens: row.get(11)?,
        reported_tokens: row.get(12)?,
        basis: row.get(13)?,
        action: row.get(14)?,
        receipt: row.get(15)?,
        number: row.get(16)?,
    })
}
