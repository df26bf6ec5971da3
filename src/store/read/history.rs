//! Histories: which one a request goes on from, and what is on the way to a message.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::Reads;
use super::rows::{self, Found, MessageRow};
use crate::context::Link;
use crate::context::identity::ConversationId;
use crate::store::StoreError;
use crate::store::append;
use crate::store::error::Failure;
use crate::store::sql::{Sql, Value, values};

/// Conversations that are looked at for one answer: an opening that everybody is answered alike.
const MAX_CANDIDATES: u32 = 10_000;

/// The stretch of a branch that belongs to a history: after `low`, up to `high`.
struct Stretch {
    branch: i64,
    low: i64,
    high: i64,
}

impl Reads {
    /// The longest prefix of a history that is stored for that user with an answer of ours in it. Where several
    /// conversations have it, the newest is meant.
    pub fn find(&self, user: &str, links: &[Link]) -> Result<Option<Found>, StoreError> {
        self.ask(|sql| match sql {
            Sql::Sqlite(connection) => {
                // One look for all of it: each by itself would lock the file.
                let connection = connection.unchecked_transaction()?;
                find(Sql::Sqlite(&connection), user, links)
            }
            Sql::Postgres(_) => find(sql, user, links),
        })
    }

    /// The history up to a link, or up to what was said last; oldest first, empty if there is none.
    pub fn path(&self, conversation: ConversationId, to: Option<Link>) -> Result<Vec<MessageRow>, StoreError> {
        self.path_page(conversation, to, 0, u32::MAX)
    }

    /// The same, only `limit` messages of it that come after a position.
    pub fn path_page(
        &self,
        conversation: ConversationId,
        to: Option<Link>,
        after_seq: u32,
        limit: u32,
    ) -> Result<Vec<MessageRow>, StoreError> {
        self.ask(|sql| {
            let end = match to {
                Some(link) => append::locate(sql, conversation, link)?.map(|end| (end.branch, end.seq)),
                None => last_said(sql, conversation)?,
            };
            let Some((branch, seq)) = end else { return Ok(Vec::new()) };
            let mut messages = Vec::new();
            for stretch in lineage(sql, branch, seq, i64::from(after_seq))? {
                let room = i64::from(limit) - messages.len() as i64;
                read_stretch(sql, &stretch, i64::from(after_seq), room, &mut messages)?;
            }
            Ok(messages)
        })
    }

    /// The history up to a place on a branch, after a position; oldest first.
    pub fn path_to(&self, branch: i64, seq: u32, after_seq: u32) -> Result<Vec<MessageRow>, StoreError> {
        self.ask(|sql| {
            let mut messages = Vec::new();
            for stretch in lineage(sql, branch, i64::from(seq), i64::from(after_seq))? {
                read_stretch(sql, &stretch, i64::from(after_seq), i64::MAX, &mut messages)?;
            }
            Ok(messages)
        })
    }

    /// The ends of a conversation's branches, the one that was used last first.
    pub fn tips(&self, conversation: ConversationId) -> Result<Vec<MessageRow>, StoreError> {
        let statement = format!(
            "{} WHERE conversation_id = ?1 AND NOT EXISTS (SELECT 1 FROM messages AS next
                 WHERE next.branch_id = messages.branch_id AND next.seq = messages.seq + 1)
             ORDER BY id DESC",
            rows::MESSAGE
        );
        self.many(&statement, values![conversation], rows::message)
    }

    /// The link of a message.
    pub fn link(&self, conversation: ConversationId, message: i64) -> Result<Option<Link>, StoreError> {
        let statement = "SELECT link FROM messages WHERE id = ?1 AND conversation_id = ?2";
        self.one(statement, values![message, conversation], |row| row.get(0))
    }

    /// When each message was stored.
    pub fn seen_at(&self, conversation: ConversationId, links: &[Link]) -> Result<Vec<Option<i64>>, StoreError> {
        self.ask(|sql| match sql {
            Sql::Sqlite(_) => {
                let statement = "SELECT created_at FROM messages WHERE conversation_id = ?2 AND link = ?1";
                let at = |link: &Link| sql.one(statement, values![link, conversation], |row| row.get(0));
                links.iter().map(at).collect()
            }
            // One question for all: each by itself would be a way there and back.
            Sql::Postgres(_) => {
                let statement = "SELECT link, created_at FROM messages WHERE conversation_id = ?2 AND link = ANY(?1)";
                let asked: Vec<&[u8]> = links.iter().map(|link| link.as_bytes().as_slice()).collect();
                let values = [Value::Blobs(&asked), conversation.into()];
                let found = sql.many(statement, &values, |row| Ok((row.get::<Link>(0)?, row.get::<i64>(1)?)))?;
                let found: HashMap<Link, i64> = found.into_iter().collect();
                Ok(links.iter().map(|link| found.get(link).copied()).collect())
            }
        })
    }
}

fn find(sql: Sql<'_>, user: &str, links: &[Link]) -> Result<Option<Found>, Failure> {
    let Some(user) = sql.one("SELECT id FROM users WHERE name = ?1", values![user], |row| row.get::<i64>(0))? else {
        return Ok(None);
    };
    let links = distinct(links);
    let mut best: Option<(usize, ConversationId, append::Position)> = None;
    for conversation in candidates(sql, user, &links)? {
        // Of equals the newest, which came first.
        let beyond = best.as_ref().map_or(0, |(place, ..)| place + 1);
        if let Some((place, position)) = longest(sql, conversation, &links, beyond)? {
            best = Some((place, conversation, position));
        }
    }
    let Some((place, conversation, position)) = best.filter(|(.., position)| position.answered) else {
        return Ok(None);
    };
    Ok(Some(Found { index: links[place].0, conversation, tip: append::is_tip(sql, position)? }))
}

/// The links of a history that an answer of ours may have, each with the last index that has it.
///
/// Messages of the system have no link of their own but that of the message before them, or that of an empty history,
/// which is never stored. An answer is never first, so the first link is left out whatever it is: then all links
/// before one that is stored are stored.
fn distinct(links: &[Link]) -> Vec<(usize, Link)> {
    let mut distinct: Vec<(usize, Link)> = Vec::with_capacity(links.len());
    for (index, link) in links.iter().enumerate() {
        match distinct.last_mut() {
            Some((last, same)) if same == link => *last = index,
            _ => distinct.push((index, *link)),
        }
    }
    if !distinct.is_empty() {
        distinct.remove(0);
    }
    distinct
}

/// The conversations of a user with an answer of this history in them, the newest first.
fn candidates(sql: Sql<'_>, user: i64, links: &[(usize, Link)]) -> Result<Vec<ConversationId>, Failure> {
    const FROM: &str =
        "SELECT conversation_id FROM anchors JOIN conversations ON conversations.id = conversation_id WHERE tag";
    const AMONG: &str = "AND user_id = ?2 ORDER BY conversation_id DESC LIMIT ?3";
    let mut found: Vec<ConversationId> = Vec::new();
    match sql {
        Sql::Sqlite(_) => {
            let statement = format!("{FROM} = ?1 {AMONG}");
            for (_, link) in links {
                let tag = append::anchor_tag(link);
                found.extend(sql.many(&statement, values![tag, user, MAX_CANDIDATES], |row| row.get::<i64>(0))?);
            }
        }
        // One question for all: each by itself would be a way there and back.
        Sql::Postgres(_) => {
            let statement = format!("{FROM} = ANY(?1) {AMONG}");
            let tags: Vec<&[u8]> = links.iter().map(|(_, link)| append::anchor_tag(link)).collect();
            let values = [Value::Blobs(&tags), user.into(), MAX_CANDIDATES.into()];
            found.extend(sql.many(&statement, &values, |row| row.get::<i64>(0))?);
        }
    }
    found.sort_unstable_by_key(|conversation| Reverse(*conversation));
    found.dedup();
    Ok(found)
}

/// Up to which link a conversation has a history, if that is not before `least`. A link is stored only if all before
/// it are, and a request mostly adds one or two messages: the search is from the end in growing steps, then by halves.
fn longest(
    sql: Sql<'_>,
    conversation: ConversationId,
    links: &[(usize, Link)],
    least: usize,
) -> Result<Option<(usize, append::Position)>, Failure> {
    let at = |place: usize| append::locate(sql, conversation, links[place].1);
    if least > 0 && (least >= links.len() || at(least)?.is_none()) {
        return Ok(None);
    }
    // All before `stored` are, none from `missing` on is.
    let (mut stored, mut missing, mut step) = (least, links.len(), 1);
    let mut best = None;
    while stored < missing {
        let probe = match best {
            None => missing.saturating_sub(step).max(stored),
            Some(_) => stored + (missing - stored) / 2,
        };
        match at(probe)? {
            Some(position) => {
                best = Some((probe, position));
                stored = probe + 1;
            }
            None => (missing, step) = (probe, step * 2),
        }
    }
    Ok(best)
}

/// The newest message is always the tip of its branch.
fn last_said(sql: Sql<'_>, conversation: ConversationId) -> Result<Option<(i64, i64)>, Failure> {
    sql.one(
        "SELECT branch_id, seq FROM branches JOIN messages ON branch_id = branches.id
             AND seq = (SELECT max(seq) FROM messages WHERE branch_id = branches.id)
         WHERE branches.conversation_id = ?1
         ORDER BY messages.id DESC LIMIT 1",
        values![conversation],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )
}

/// The branches that a history runs through, oldest first, as far as they reach beyond `after`.
fn lineage(sql: Sql<'_>, branch: i64, seq: i64, after: i64) -> Result<Vec<Stretch>, Failure> {
    let statement = "SELECT parent_id, fork_seq FROM branches WHERE id = ?1";
    let (mut stretches, mut next, mut high) = (Vec::new(), Some(branch), seq);
    while let Some(branch) = next.filter(|_| high > after) {
        let found = sql.one(statement, values![branch], |row| Ok((row.get::<Option<i64>>(0)?, row.get::<i64>(1)?)))?;
        let (parent, low) = found.ok_or(Failure::Odd("a branch that a history runs through is gone"))?;
        stretches.push(Stretch { branch, low, high });
        (next, high) = (parent, low);
    }
    stretches.reverse();
    Ok(stretches)
}

fn read_stretch(
    sql: Sql<'_>,
    stretch: &Stretch,
    after: i64,
    limit: i64,
    messages: &mut Vec<MessageRow>,
) -> Result<(), Failure> {
    let statement = format!("{} WHERE branch_id = ?1 AND seq > ?2 AND seq <= ?3 ORDER BY seq LIMIT ?4", rows::MESSAGE);
    let range = values![stretch.branch, stretch.low.max(after), stretch.high, limit];
    messages.extend(sql.many(&statement, range, rows::message)?);
    Ok(())
}
