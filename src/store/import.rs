//! Histories that come from elsewhere: a whole conversation at once, with the lines it was written as.

use rusqlite::{Connection, params};

use super::append::{Origin, Position, step};
use super::apply::{open_conversation, system_prompt};
use super::change::NewMessage;
use super::error::Failure;
use crate::context::identity::ConversationId;

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
    /// The line that it follows, by its index; none: the line before it.
    pub after: Option<usize>,
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

impl Import {
    pub(super) fn bytes(&self) -> usize {
        let line = |line: &ImportedLine| {
            let messages: usize = line.messages.iter().map(|message| message.message.bytes()).sum();
            64 + messages + line.written.as_ref().map_or(0, String::len)
        };
        self.lines.iter().map(line).sum::<usize>() + self.intake.as_ref().map_or(0, String::len) + self.system.len()
    }
}

pub(super) fn import(connection: &Connection, import: &Import) -> Result<(), Failure> {
    open_conversation(connection, import.conversation, &import.user, &import.model, import.at)?;
    connection
        .prepare_cached("UPDATE conversations SET session = ?2, provider = ?3, intake = ?4 WHERE id = ?1")?
        .execute(params![import.conversation, import.session, import.provider, import.intake])?;
    let mut ends: Vec<Option<Position>> = Vec::with_capacity(import.lines.len());
    for (number, line) in import.lines.iter().enumerate() {
        let before = match line.after {
            Some(parent) => ends.get(parent).copied().flatten(),
            None => ends.last().copied().flatten(),
        };
        let mut end = before;
        for message in &line.messages {
            let origin = Origin { at: message.at, answer: message.answer };
            end = Some(step(connection, import.conversation, end, &message.message, origin)?);
        }
        if let Some(written) = &line.written {
            let mut statement = connection.prepare_cached(
                "INSERT INTO imported_lines (conversation_id, number, branch_id, last_seq, line)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?;
            let (branch, seq) = (end.map(|end| end.branch), end.map_or(0, |end| end.seq));
            statement.execute(params![import.conversation, number as i64, branch, seq, written])?;
        }
        ends.push(end);
    }
    let end = ends.last().copied().flatten();
    let mut statement = connection.prepare_cached(
        "INSERT INTO turns (id, conversation_id, branch_id, last_seq, at, finished_at, model, dialect, status, system_id)
         VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6, 'import', 'complete', ?7)",
    )?;
    let system = system_prompt(connection, &import.system)?;
    statement.execute(params![
        import.turn,
        import.conversation,
        end.map(|end| end.branch),
        end.map_or(0, |end| end.seq),
        import.at,
        import.model,
        system
    ])?;
    Ok(())
}
