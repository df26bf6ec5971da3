//! Full-text search over what a user has said and was told.
//!
//! Words are looked up in the index, the last one by its beginning, and the best matches come first. Scripts
//! that are written without spaces have no words there, so what the index does not find is looked for as it
//! is written.

use super::Reads;
use crate::context::identity::ConversationId;
use crate::store::StoreError;
use crate::store::error::Failure;
use crate::store::postgres::{FOLDED_QUESTION, FOLDED_TEXT};
use crate::store::sql::{Row, Sql, values};

/// Around a word that was found, and where something was left out of the excerpt.
const FOUND: (char, char) = ('\u{2}', '\u{3}');

/// A longer question is cut.
const MAX_CHARS: usize = 512;

/// Words of a question beyond this add nothing but work.
const MAX_WORDS: usize = 16;

/// Characters around what was found as it is written.
const AROUND: usize = 80;

/// A message that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    pub conversation: ConversationId,
    pub message: i64,
    pub role: String,
    pub created_at: i64,
    /// The place in the message, with control characters (STX, ETX) around what was found.
    pub excerpt: String,
}

impl Reads {
    /// The messages of a user (none: of all) that have all the words, in one conversation or in any.
    pub fn search(
        &self,
        user: Option<&str>,
        conversation: Option<ConversationId>,
        words: &str,
        limit: u32,
    ) -> Result<Vec<Hit>, StoreError> {
        let words: String = words.chars().filter(|char| *char != '\0').take(MAX_CHARS).collect();
        let Some(question) = question(&words) else { return Ok(Vec::new()) };
        let found = self.ask(|sql| match sql {
            Sql::Sqlite(_) => indexed(sql, user, conversation, &question, limit),
            Sql::Postgres(_) => match indexed_by_server(sql, user, conversation, &words, limit) {
                // An engine that only speaks the protocol may not have such an index.
                Err(Failure::Postgres(error)) if !is_lost(&error) => {
                    as_written(sql, user, conversation, words.trim(), limit)
                }
                found => found,
            },
        })?;
        if found.is_empty() && words.chars().any(is_written_without_spaces) {
            return self.ask(|sql| as_written(sql, user, conversation, words.trim(), limit));
        }
        Ok(found)
    }
}

fn indexed(
    sql: Sql<'_>,
    user: Option<&str>,
    conversation: Option<ConversationId>,
    question: &str,
    limit: u32,
) -> Result<Vec<Hit>, Failure> {
    // By rank alone: then an excerpt is made of what is shown only.
    let statement = format!(
        "SELECT messages.conversation_id, messages.id, role, messages.created_at,
             snippet(messages_text, 0, char(2), char(3), '…', 24)
         FROM messages_text JOIN messages ON messages.id = messages_text.rowid
         WHERE messages_text MATCH ?1 AND {} ORDER BY rank LIMIT ?2",
        whose(user, conversation)
    );
    sql.many(&statement, values![question, limit, user.unwrap_or_default(), conversation.unwrap_or(0)], hit)
}

fn indexed_by_server(
    sql: Sql<'_>,
    user: Option<&str>,
    conversation: Option<ConversationId>,
    words: &str,
    limit: u32,
) -> Result<Vec<Hit>, Failure> {
    let statement = format!(
        "SELECT messages.conversation_id, messages.id, role, messages.created_at, text FROM messages
         WHERE {FOLDED_TEXT} @@ {FOLDED_QUESTION} AND {}
         ORDER BY ts_rank({FOLDED_TEXT}, {FOLDED_QUESTION}) DESC, messages.id DESC LIMIT ?2",
        whose(user, conversation)
    );
    let question = question_for_server(words);
    let values = values![&question, limit, user.unwrap_or_default(), conversation.unwrap_or(0)];
    let mut found = sql.many(&statement, values, hit)?;
    for hit in &mut found {
        let word = words.split_whitespace().find(|word| contains(&hit.excerpt, word)).unwrap_or_default();
        hit.excerpt = excerpt(&hit.excerpt, word);
    }
    Ok(found)
}

fn as_written(
    sql: Sql<'_>,
    user: Option<&str>,
    conversation: Option<ConversationId>,
    words: &str,
    limit: u32,
) -> Result<Vec<Hit>, Failure> {
    let like = match sql {
        Sql::Sqlite(_) => "LIKE",
        Sql::Postgres(_) => "ILIKE",
    };
    let statement = format!(
        "SELECT messages.conversation_id, messages.id, role, messages.created_at, text FROM messages
         WHERE text {like} ?1 ESCAPE '\\' AND {} ORDER BY messages.id DESC LIMIT ?2",
        whose(user, conversation)
    );
    let pattern = pattern(words);
    let values = values![&pattern, limit, user.unwrap_or_default(), conversation.unwrap_or(0)];
    let mut found = sql.many(&statement, values, hit)?;
    for hit in &mut found {
        hit.excerpt = excerpt(&hit.excerpt, words);
    }
    Ok(found)
}

/// Whether the connection is gone, and the question was not.
fn is_lost(error: &postgres::Error) -> bool {
    error.code().is_none()
}

/// Which messages may be found: parameter 3 is the user's name, 4 the conversation.
fn whose(user: Option<&str>, conversation: Option<ConversationId>) -> &'static str {
    const OF_USER: &str = "messages.conversation_id IN (SELECT conversations.id FROM conversations JOIN users
        ON users.id = user_id WHERE users.name = ?3 AND ?4 = 0)";
    const OF_CONVERSATION: &str = "messages.conversation_id = ?4 AND ?3 = '' AND messages.conversation_id NOT IN
        (SELECT conversations.id FROM conversations JOIN users ON users.id = user_id WHERE users.name = '')";
    const OF_BOTH: &str = "messages.conversation_id = (SELECT conversations.id FROM conversations JOIN users
        ON users.id = user_id WHERE users.name = ?3 AND conversations.id = ?4)";
    // What is half imported or half deleted is nobody's.
    const OF_ALL: &str = "?3 = '' AND ?4 = 0 AND messages.conversation_id NOT IN
        (SELECT conversations.id FROM conversations JOIN users ON users.id = user_id WHERE users.name = '')";
    match (user, conversation) {
        (Some(_), Some(_)) => OF_BOTH,
        (Some(_), None) => OF_USER,
        (None, Some(_)) => OF_CONVERSATION,
        (None, None) => OF_ALL,
    }
}

/// Chinese, Japanese, Thai, Lao, Burmese and Khmer: no word of these can be looked up by itself.
fn is_written_without_spaces(char: char) -> bool {
    matches!(u32::from(char), 0x0e00..=0x0eff | 0x1000..=0x109f | 0x1780..=0x17ff | 0x3040..=0x30ff | 0x3400..=0x9fff | 0xf900..=0xfaff | 0x20000..=0x3ffff)
}

fn hit(row: &Row<'_>) -> Result<Hit, Failure> {
    Ok(Hit {
        conversation: row.get(0)?,
        message: row.get(1)?,
        role: row.get(2)?,
        created_at: row.get(3)?,
        excerpt: row.get(4)?,
    })
}

/// Each word in quotes, so that nothing in it is an operator.
fn question(words: &str) -> Option<String> {
    let words: Vec<&str> = words.split_whitespace().take(MAX_WORDS).collect();
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{}\"", word.replace('"', "\"\""))).collect();
    (!quoted.is_empty()).then(|| format!("{}*", quoted.join(" ")))
}

/// The same in PostgreSQL's way of asking.
fn question_for_server(words: &str) -> String {
    let quoted = |word: &str| format!("'{}'", word.replace('\\', "\\\\").replace('\'', "''"));
    let words: Vec<String> = words.split_whitespace().take(MAX_WORDS).map(quoted).collect();
    format!("{}:*", words.join(" & "))
}

fn contains(text: &str, word: &str) -> bool {
    text.to_ascii_lowercase().contains(&word.to_ascii_lowercase())
}

fn pattern(words: &str) -> String {
    let escaped = words.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
    format!("%{escaped}%")
}

/// The surroundings of what was looked for.
fn excerpt(text: &str, words: &str) -> String {
    // As `LIKE` compares: the case of ASCII letters does not matter.
    let at = text.to_ascii_lowercase().find(&words.to_ascii_lowercase()).unwrap_or(0);
    let before: Vec<char> = text[..at].chars().rev().take(AROUND).collect();
    let found: String = text[at..].chars().take(words.chars().count()).collect();
    let after: String = text[at + found.len()..].chars().take(AROUND).collect();
    let before: String = before.into_iter().rev().collect();
    let more = |cut: bool| if cut { "…" } else { "" };
    let (left, right) = (more(before.len() < at), more(at + found.len() + after.len() < text.len()));
    format!("{left}{before}{}{found}{}{after}{right}", FOUND.0, FOUND.1)
}
