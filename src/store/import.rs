//! Histories that come from elsewhere: whole conversations, all of them or none.
//!
//! A large one would hold up everybody's commits, so it is written in slices, and belongs to nobody until it is
//! complete. What a crash leaves behind is nobody's, and is removed at the next start.

use super::append::{Origin, require, step};
use super::apply::{open_conversation, system_prompt, user};
use super::change::{Change, NewMessage};
use super::error::Failure;
use super::sql::{Sql, values};
use super::{Store, StoreError};
use crate::context::Link;
use crate::context::identity::ConversationId;

/// The user whose conversations nobody sees. No token can be made for it.
pub(super) const NOBODY: &str = "";

/// Messages of one slice: some tens of milliseconds.
const SLICE: usize = 1000;

/// Bytes of one slice, about.
const SLICE_BYTES: usize = 4 << 20;

/// A conversation that was had elsewhere.
#[derive(Debug, Clone)]
pub struct Import {
    pub conversation: ConversationId,
    pub user: String,
    /// When it was imported.
    pub at: i64,
    pub model: String,
    /// A name for the turn that brought it.
    pub turn: String,
    /// A JSON array of the system prompts.
    pub system: String,
    /// The session that it was, and whose.
    pub session: Option<String>,
    pub provider: Option<String>,
    /// What the intake made of it, as JSON.
    pub intake: Option<String>,
    pub lines: Vec<ImportedLine>,
}

/// What one line of it says: several messages, one, or none.
#[derive(Debug, Clone)]
pub struct ImportedLine {
    /// The last message of the line that it follows; none: it comes first.
    pub after: Option<Link>,
    pub messages: Vec<ImportedMessage>,
    /// As it was written, where that has to come back.
    pub written: Option<String>,
}

#[derive(Debug, Clone)]
pub struct ImportedMessage {
    pub at: i64,
    /// The status of an answer; none: not an answer. Whoever imports a conversation vouches for its
    /// answers, so it is recognised when it goes on.
    pub answer: Option<&'static str>,
    pub message: NewMessage,
}

/// A slice of an import, numbered from its first line.
#[derive(Debug, Clone)]
pub struct ImportedSlice {
    pub conversation: ConversationId,
    pub first: usize,
    pub lines: Vec<ImportedLine>,
}

impl Store {
    /// Stores conversations that were had elsewhere. Others' changes come in between; until the last of it is
    /// stored, nobody sees any.
    pub async fn import(&self, mut imports: Vec<Import>) -> Result<(), StoreError> {
        let stored = self.import_hidden(&mut imports).await;
        if stored.is_err() {
            for import in &imports {
                // What is left of it is removed at the next start, at the latest.
                let _ = self.delete(import.conversation).await;
            }
        }
        stored
    }

    async fn import_hidden(&self, imports: &mut [Import]) -> Result<(), StoreError> {
        for import in &mut *imports {
            let lines = std::mem::take(&mut import.lines);
            self.submit(Change::ImportBegin(Box::new(import.clone()))).await?;
            let (mut slice, mut messages, mut bytes, mut first) = (Vec::new(), 0, 0, 0);
            for piece in lines.into_iter().flat_map(pieces) {
                messages += piece.messages.len().max(1);
                bytes += piece.bytes();
                slice.push(piece);
                if messages >= SLICE || bytes >= SLICE_BYTES {
                    let lines = std::mem::take(&mut slice);
                    let next = first + lines.len();
                    let slice = ImportedSlice { conversation: import.conversation, first, lines };
                    self.submit(Change::ImportSlice(slice)).await?;
                    (messages, bytes, first) = (0, 0, next);
                }
            }
            if !slice.is_empty() {
                let slice = ImportedSlice { conversation: import.conversation, first, lines: slice };
                self.submit(Change::ImportSlice(slice)).await?;
            }
        }
        self.submit(Change::ImportEnd(imports.to_vec())).await
    }
}

/// A line with very many messages in pieces; the last of them has the line as it was written.
fn pieces(mut line: ImportedLine) -> Vec<ImportedLine> {
    let mut pieces = Vec::new();
    while line.messages.len() > SLICE {
        let rest = line.messages.split_off(SLICE);
        let messages = std::mem::replace(&mut line.messages, rest);
        let end = messages.last().map(|message| message.message.link);
        pieces.push(ImportedLine { after: line.after, messages, written: None });
        line.after = end;
    }
    pieces.push(line);
    pieces
}

impl ImportedSlice {
    pub(super) fn bytes(&self) -> usize {
        self.lines.iter().map(ImportedLine::bytes).sum()
    }
}

impl ImportedLine {
    fn bytes(&self) -> usize {
        let messages: usize = self.messages.iter().map(|message| message.message.bytes()).sum();
        64 + messages + self.written.as_ref().map_or(0, String::len)
    }
}

/// Makes a conversation of nobody's.
pub(super) fn begin(sql: Sql<'_>, import: &Import) -> Result<(), Failure> {
    open_conversation(sql, import.conversation, NOBODY, &import.model, import.at..=import.at, false)?;
    if let Sql::Postgres(session) = sql {
        session.hides(import.conversation)?;
    }
    sql.execute(
        "UPDATE conversations SET session = ?2, provider = ?3, intake = ?4 WHERE id = ?1",
        values![import.conversation, &import.session, &import.provider, &import.intake],
    )?;
    Ok(())
}

pub(super) fn add_slice(sql: Sql<'_>, slice: &ImportedSlice) -> Result<(), Failure> {
    for (number, line) in slice.lines.iter().enumerate() {
        let mut end = line.after.map(|link| require(sql, slice.conversation, link)).transpose()?;
        for message in &line.messages {
            let origin = Origin { at: message.at, answer: message.answer };
            end = Some(step(sql, slice.conversation, end, &message.message, origin)?);
        }
        if let Some(written) = &line.written {
            let (branch, seq) = (end.map(|end| end.branch), end.map_or(0, |end| end.seq));
            let number = (slice.first + number) as i64;
            sql.execute(
                "INSERT INTO imported_lines (conversation_id, number, branch_id, last_seq, line)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
                values![slice.conversation, number, branch, seq, written],
            )?;
        }
    }
    Ok(())
}

/// Gives the conversations to their users, with a turn that says how they came.
pub(super) fn end(sql: Sql<'_>, imports: &[Import]) -> Result<(), Failure> {
    for import in imports {
        let owner = user(sql, &import.user, import.at)?;
        sql.execute("UPDATE conversations SET user_id = ?2 WHERE id = ?1", values![import.conversation, owner])?;
        let newest = sql.one(
            "SELECT branch_id, seq FROM branches JOIN messages ON branch_id = branches.id
                 AND seq = (SELECT max(seq) FROM messages WHERE branch_id = branches.id)
             WHERE branches.conversation_id = ?1 ORDER BY messages.id DESC LIMIT 1",
            values![import.conversation],
            |row| Ok((row.get::<i64>(0)?, row.get::<i64>(1)?)),
        )?;
        let system = system_prompt(sql, import.conversation, &import.system)?;
        let (branch, seq) = (newest.map(|(branch, _)| branch), newest.map_or(0, |(_, seq)| seq));
        sql.execute(
            "INSERT INTO turns (id, conversation_id, branch_id, last_seq, at, finished_at, model, dialect, status,
                 system_id)
             VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6, 'import', 'complete', ?7)",
            values![&import.turn, import.conversation, branch, seq, import.at, &import.model, system],
        )?;
    }
    Ok(())
}
