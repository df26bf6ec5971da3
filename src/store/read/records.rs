//! Everything beside the messages: conversations, turns, and what was made of them.

use std::collections::HashMap;

use super::Reads;
use super::rows::{
    self, CheckpointRow, ConversationRow, Counts, EventRow, ImportedLineRow, ReceiptRow, SnapshotRow, TurnRow,
};
use crate::context::Link;
use crate::context::identity::ConversationId;
use crate::store::StoreError;
use crate::store::delete::HIGHEST_CONVERSATION;
use crate::store::error::Failure;
use crate::store::sql::{Row, Value, values};

/// Messages are numbered without gaps, so that counting them is one step for each branch.
const CONVERSATION: &str = "SELECT conversations.id, users.name, model, conversations.created_at, updated_at,
    (SELECT CAST(coalesce(sum((SELECT max(seq) FROM messages WHERE branch_id = branches.id) - fork_seq), 0) AS BIGINT)
     FROM branches WHERE branches.conversation_id = conversations.id),
    (SELECT count(*) FROM branches WHERE branches.conversation_id = conversations.id),
    (SELECT substr(text, 1, 200) FROM messages WHERE role = 'user' AND branch_id =
        (SELECT min(id) FROM branches WHERE branches.conversation_id = conversations.id) ORDER BY seq LIMIT 1),
    session, provider
    FROM conversations JOIN users ON users.id = user_id AND users.name <> ''";

/// How a conversation stands, where others may have changed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Whose it is.
    pub user: String,
    /// Goes up with every change.
    pub version: i64,
    /// Who answered it last, where there are several.
    pub upstream: Option<String>,
    /// For how long somebody else will go on writing a checkpoint of it, unless they go on for longer.
    pub checkpoint_ms: Option<i64>,
}

/// Turns that are looked at for what was used last.
const LATEST_TURNS: u32 = 2000;

const EVENT: &str = "SELECT events.id, at, kind, conversation_id, users.name, body
    FROM events LEFT JOIN users ON users.id = user_id";

impl Reads {
    pub fn conversation(&self, id: ConversationId) -> Result<Option<ConversationRow>, StoreError> {
        self.one(&format!("{CONVERSATION} WHERE conversations.id = ?1"), values![id], conversation)
    }

    /// The newest first, of one user or of all, older than the conversation `before`.
    pub fn conversations(
        &self,
        user: Option<&str>,
        before: Option<ConversationId>,
        limit: u32,
    ) -> Result<Vec<ConversationRow>, StoreError> {
        let before = before.unwrap_or(i64::MAX);
        let order = "ORDER BY conversations.id DESC LIMIT ?2";
        match user {
            None => {
                let sql = format!("{CONVERSATION} WHERE conversations.id < ?1 {order}");
                self.many(&sql, values![before, limit], conversation)
            }
            Some(user) => {
                let user_id = "user_id = (SELECT id FROM users WHERE name = ?3)";
                let sql = format!("{CONVERSATION} WHERE conversations.id < ?1 AND {user_id} {order}");
                self.many(&sql, values![before, limit, user], conversation)
            }
        }
    }

    /// What leaves instead of the history up to a link, the oldest first.
    pub fn fronts(&self, conversation: ConversationId) -> Result<Vec<(Link, String, i64)>, StoreError> {
        let sql = "SELECT covered, body, created_at FROM fronts WHERE conversation_id = ?1 ORDER BY number";
        self.many(sql, values![conversation], |row| Ok((row.get::<Link>(0)?, row.get(1)?, row.get(2)?)))
    }

    /// Of one conversation or of all, the oldest first.
    pub fn snapshots(&self, conversation: Option<ConversationId>) -> Result<Vec<SnapshotRow>, StoreError> {
        let order = "ORDER BY snapshots.number";
        match conversation {
            None => self.many(&format!("{} {order}", rows::SNAPSHOT), &[], rows::snapshot),
            Some(id) => self.many(
                &format!("{} WHERE conversation_id = ?1 {order}", rows::SNAPSHOT),
                values![id],
                rows::snapshot,
            ),
        }
    }

    pub fn snapshot(&self, id: &str) -> Result<Option<SnapshotRow>, StoreError> {
        self.one(&format!("{} WHERE snapshots.id = ?1", rows::SNAPSHOT), values![id], rows::snapshot)
    }

    /// The oldest first.
    pub fn checkpoints(&self, conversation: ConversationId) -> Result<Vec<CheckpointRow>, StoreError> {
        let sql = "SELECT id, conversation_id, covered, first_seq, last_seq, level, author, level1, level2, level3,
            created_at FROM checkpoints WHERE conversation_id = ?1 ORDER BY number";
        self.many(sql, values![conversation], |row| {
            Ok(CheckpointRow {
                id: row.get(0)?,
                conversation: row.get(1)?,
                covered: row.get(2)?,
                first_message: row.get(3)?,
                last_message: row.get(4)?,
                level: row.get(5)?,
                author: row.get(6)?,
                texts: [row.get(7)?, row.get(8)?, row.get(9)?],
                created_at: row.get(10)?,
            })
        })
    }

    pub fn receipt(&self, id: &str) -> Result<Option<ReceiptRow>, StoreError> {
        let sql = "SELECT receipts.id, conversation_id, turn_id, users.name, body, receipts.created_at
            FROM receipts JOIN conversations ON conversations.id = conversation_id
            JOIN users ON users.id = user_id WHERE receipts.id = ?1";
        self.one(sql, values![id], |row| {
            Ok(ReceiptRow {
                id: row.get(0)?,
                conversation: row.get(1)?,
                turn: row.get(2)?,
                user: row.get(3)?,
                body: row.get(4)?,
                created_at: row.get(5)?,
            })
        })
    }

    /// The events after a number, in order.
    pub fn events(&self, after: i64, limit: u32) -> Result<Vec<EventRow>, StoreError> {
        self.many(&format!("{EVENT} WHERE events.id > ?1 ORDER BY events.id LIMIT ?2"), values![after, limit], event)
    }

    /// The latest events of one user or of all, in order.
    pub fn latest_events(&self, user: Option<&str>, limit: u32) -> Result<Vec<EventRow>, StoreError> {
        let order = "ORDER BY events.id DESC LIMIT ?1";
        let mut events = match user {
            None => self.many(&format!("{EVENT} {order}"), values![limit], event)?,
            Some(user) => {
                let sql = format!("{EVENT} WHERE user_id = (SELECT id FROM users WHERE name = ?2) {order}");
                self.many(&sql, values![limit, user], event)?
            }
        };
        events.reverse();
        Ok(events)
    }

    /// The number of the latest event; 0: there is none.
    pub fn last_event_id(&self) -> Result<i64, StoreError> {
        self.number("SELECT coalesce(max(id), 0) FROM events")
    }

    /// How far somebody who is told of events has come; none: nobody of that name was told of any.
    pub fn cursor(&self, name: &str) -> Result<Option<i64>, StoreError> {
        self.one("SELECT value FROM settings WHERE name = ?1", values![name], |row| row.get(0))
    }

    /// What was made of a long text.
    pub fn condensed(&self, digest: &[u8; 32]) -> Result<Option<String>, StoreError> {
        self.one("SELECT body FROM condensed WHERE digest = ?1", values![digest], |row| row.get(0))
    }

    /// In the order they began in.
    pub fn turns(&self, conversation: ConversationId) -> Result<Vec<TurnRow>, StoreError> {
        let sql = format!("{} WHERE conversation_id = ?1 ORDER BY turns.number", rows::TURN);
        self.many(&sql, values![conversation], rows::turn)
    }

    /// The same, only those after a number.
    pub fn turns_page(&self, conversation: ConversationId, after: i64, limit: u32) -> Result<Vec<TurnRow>, StoreError> {
        let sql =
            format!("{} WHERE conversation_id = ?1 AND turns.number > ?2 ORDER BY turns.number LIMIT ?3", rows::TURN);
        self.many(&sql, values![conversation, after, limit], rows::turn)
    }

    /// The latest turn that was counted.
    pub fn latest_turn(&self, conversation: ConversationId) -> Result<Option<TurnRow>, StoreError> {
        let sql = format!(
            "{} WHERE conversation_id = ?1 AND limit_tokens > 0 ORDER BY turns.number DESC LIMIT 1",
            rows::TURN
        );
        self.one(&sql, values![conversation], rows::turn)
    }

    /// A turn by its number, and its conversation.
    pub fn turn(&self, number: i64) -> Result<Option<(ConversationId, TurnRow)>, StoreError> {
        let sql = "SELECT conversation_id FROM turns WHERE number = ?1";
        let Some(conversation) = self.one(sql, values![number], |row| row.get(0))? else { return Ok(None) };
        let turn = self.one(&format!("{} WHERE turns.number = ?1", rows::TURN), values![number], rows::turn)?;
        Ok(turn.map(|turn| (conversation, turn)))
    }

    /// Tokens and limits of the latest turns that were counted, the oldest first.
    pub fn recent_usage(&self, conversation: ConversationId, limit: u32) -> Result<Vec<(u32, u32)>, StoreError> {
        let sql = "SELECT arrived_tokens, limit_tokens FROM turns WHERE conversation_id = ?1 AND limit_tokens > 0
            ORDER BY number DESC LIMIT ?2";
        let mut usage = self.many(sql, values![conversation, limit], |row| Ok((row.get(0)?, row.get(1)?)))?;
        usage.reverse();
        Ok(usage)
    }

    /// Those that were used last first, of one user or of all. Beyond the latest turns, the newest conversations.
    pub fn recent_conversations(&self, user: Option<&str>, limit: u32) -> Result<Vec<ConversationRow>, StoreError> {
        let sql = "SELECT conversation_id
            FROM (SELECT conversation_id, number FROM turns ORDER BY number DESC LIMIT ?1) AS latest
            JOIN conversations ON conversations.id = conversation_id
            WHERE CAST(?2 AS TEXT) IS NULL OR user_id = (SELECT id FROM users WHERE name = ?2)
            GROUP BY conversation_id ORDER BY max(number) DESC LIMIT ?3";
        let used: Vec<ConversationId> = self.many(sql, values![LATEST_TURNS, user, limit], |row| row.get(0))?;
        let mut found: Vec<ConversationRow> = Vec::new();
        for id in used {
            found.extend(self.conversation(id)?);
        }
        if found.len() >= limit as usize {
            return Ok(found);
        }
        let newest = self.conversations(user, None, limit)?;
        let others: Vec<_> = newest.into_iter().filter(|row| found.iter().all(|known| known.id != row.id)).collect();
        found.extend(others);
        found.truncate(limit as usize);
        Ok(found)
    }

    /// The place of a message in its history.
    pub fn position(&self, conversation: ConversationId, message: i64) -> Result<Option<u32>, StoreError> {
        let sql = "SELECT seq FROM messages WHERE id = ?1 AND conversation_id = ?2";
        self.one(sql, values![message, conversation], |row| row.get(0))
    }

    /// The system prompts of the latest turn: a JSON array.
    pub fn latest_system(&self, conversation: ConversationId) -> Result<Option<String>, StoreError> {
        let sql = "SELECT system_prompts.body FROM turns JOIN system_prompts ON system_prompts.id = system_id
            WHERE conversation_id = ?1 ORDER BY turns.number DESC LIMIT 1";
        self.one(sql, values![conversation], |row| row.get(0))
    }

    /// The models that answered, by the place of the answer.
    pub fn models(&self, conversation: ConversationId) -> Result<HashMap<(i64, u32), String>, StoreError> {
        let sql = "SELECT branch_id, last_seq, model FROM turns WHERE conversation_id = ?1 AND branch_id IS NOT NULL
            AND dialect <> 'import' ORDER BY number";
        let rows = self.many(sql, values![conversation], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)))?;
        Ok(rows.into_iter().collect())
    }

    /// Who answered a conversation last, where there are several.
    pub fn upstream(&self, conversation: ConversationId) -> Result<Option<String>, StoreError> {
        let sql = "SELECT upstream FROM conversations WHERE id = ?1";
        Ok(self.one(sql, values![conversation], |row| row.get::<Option<String>>(0))?.flatten())
    }

    /// Whose a conversation is.
    pub fn owner(&self, conversation: ConversationId) -> Result<Option<String>, StoreError> {
        let sql = "SELECT users.name FROM conversations JOIN users ON users.id = user_id
            WHERE conversations.id = ?1 AND users.name <> ''";
        self.one(sql, values![conversation], |row| row.get(0))
    }

    /// How many snapshots and checkpoints a conversation has.
    pub fn kept(&self, conversation: ConversationId) -> Result<(u32, u32), StoreError> {
        let sql = "SELECT (SELECT count(*) FROM snapshots WHERE conversation_id = ?1),
            (SELECT count(*) FROM checkpoints WHERE conversation_id = ?1)";
        Ok(self.one(sql, values![conversation], |row| Ok((row.get(0)?, row.get(1)?)))?.unwrap_or_default())
    }

    /// What the intake of an imported conversation said.
    pub fn intake(&self, conversation: ConversationId) -> Result<Option<String>, StoreError> {
        let sql = "SELECT intake FROM conversations WHERE id = ?1";
        Ok(self.one(sql, values![conversation], |row| row.get::<Option<String>>(0))?.flatten())
    }

    /// The lines of an imported session, in order.
    pub fn imported_lines(&self, conversation: ConversationId) -> Result<Vec<ImportedLineRow>, StoreError> {
        let sql = "SELECT branch_id, last_seq, line FROM imported_lines WHERE conversation_id = ?1 ORDER BY number";
        self.many(sql, values![conversation], |row| {
            Ok(ImportedLineRow { branch: row.get(0)?, last_seq: row.get(1)?, line: row.get(2)? })
        })
    }

    /// How many conversations there are.
    pub fn conversation_count(&self) -> Result<u64, StoreError> {
        Ok(self.number("SELECT count(*) FROM conversations")?.unsigned_abs())
    }

    pub fn counts(&self) -> Result<Counts, StoreError> {
        let messages =
            "SELECT CAST(coalesce(sum((SELECT max(seq) FROM messages WHERE branch_id = branches.id) - fork_seq), 0) AS BIGINT)
            FROM branches";
        Ok(Counts {
            users: self.number("SELECT count(*) FROM users")?.unsigned_abs(),
            conversations: self.conversation_count()?,
            messages: self.number(messages)?.unsigned_abs(),
            turns: self.number("SELECT count(*) FROM turns")?.unsigned_abs(),
        })
    }

    pub(in crate::store) fn newest_conversation(&self) -> Result<ConversationId, StoreError> {
        let deleted = format!("SELECT coalesce(max(value), 0) FROM settings WHERE name = '{HIGHEST_CONVERSATION}'");
        Ok(self.number("SELECT coalesce(max(id), 0) FROM conversations")?.max(self.number(&deleted)?))
    }

    fn number(&self, sql: &str) -> Result<i64, StoreError> {
        Ok(self.one(sql, &[], |row| row.get(0))?.unwrap_or(0))
    }

    pub(super) fn one<T: Send>(
        &self,
        statement: &str,
        values: &[Value<'_>],
        read: impl Fn(&Row<'_>) -> Result<T, Failure> + Send + Sync,
    ) -> Result<Option<T>, StoreError> {
        self.ask(|sql| sql.one(statement, values, &read))
    }

    pub(super) fn many<T: Send>(
        &self,
        statement: &str,
        values: &[Value<'_>],
        read: impl Fn(&Row<'_>) -> Result<T, Failure> + Send + Sync,
    ) -> Result<Vec<T>, StoreError> {
        self.ask(|sql| sql.many(statement, values, &read))
    }
}

fn event(row: &Row<'_>) -> Result<EventRow, Failure> {
    Ok(EventRow {
        id: row.get(0)?,
        at: row.get(1)?,
        kind: row.get(2)?,
        conversation: row.get(3)?,
        user: row.get(4)?,
        body: row.get(5)?,
    })
}

fn conversation(row: &Row<'_>) -> Result<ConversationRow, Failure> {
    Ok(ConversationRow {
        id: row.get(0)?,
        user: row.get(1)?,
        model: row.get(2)?,
        created_at: row.get(3)?,
        updated_at: row.get(4)?,
        messages: row.get(5)?,
        branches: row.get(6)?,
        title: row.get::<Option<String>>(7)?.unwrap_or_default(),
        session: row.get(8)?,
        provider: row.get(9)?,
    })
}
