//! A history that arrives: canonical JSONL, or a list of messages as one of the presets takes it.
//!
//! Which it is can be seen from what it says. A list is checked by its preset, and what the preset makes of it is
//! kept beside the conversation; the conversation itself keeps every message whole, because what is cut can be
//! cut again and what is lost cannot be found.

use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::images::is_image;
use super::import::{self, MAX_SESSIONS, Owner, Session, Unread};
use super::intake::{self, Checked, Fatal, HistoryMessage, Limits, Preset, ReasoningLimits, RequirementsLimits};
use super::list::Body;
use super::validate::{self, Options, Report};
use crate::context::identity::ConversationId;
use crate::context::{Link, Message, Role};
use crate::store::{Import, ImportedLine, ImportedMessage, NewMessage};

/// What arrived, read and found good.
#[derive(Debug)]
pub enum Arrival {
    Canonical { sessions: Vec<Session>, report: Box<Report> },
    List(Box<List>),
}

/// A list of messages.
#[derive(Debug)]
pub struct List {
    pub preset: Preset,
    pub checked: Checked,
    model: Option<String>,
    /// Every message, whole.
    messages: Vec<Whole>,
    /// Entries that are no messages, by their place.
    left_out: Vec<usize>,
}

/// Why it is not taken.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("neither a JSON list of messages nor canonical JSONL: {0} (with curl, send a file by --data-binary @FILE)")]
    Unreadable(String),
    #[error("a file has at most {MAX_SESSIONS} sessions: split it")]
    TooManySessions,
    #[error("not valid canonical JSONL: {} errors", .0.errors.len() + .0.errors_left_out)]
    Canonical(Box<Report>),
    #[error("{0}")]
    List(#[from] Box<Fatal>),
    #[error("unknown preset `{0}`: use requirements-first or reasoning-first")]
    Preset(String),
}

/// Reads what arrived. A preset that it names itself goes before the one that was asked for.
pub fn read(body: &[u8], preset: Preset, limits: &Limits, now: jiff::Timestamp) -> Result<Arrival, Refused> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    match serde_json::from_slice::<Body>(body) {
        Ok(read) if !read.is_session => list(read, preset, limits, now).map(|list| Arrival::List(Box::new(list))),
        Err(error) if !looks_like_lines(body) => Err(Refused::Unreadable(error.to_string())),
        Ok(_) | Err(_) => {
            let read = import::sessions(body, &Options::at(now));
            let (sessions, report) = read.map_err(|unread| match unread {
                Unread::Invalid(report) => Refused::Canonical(report),
                Unread::TooManySessions => Refused::TooManySessions,
            })?;
            if sessions.is_empty() {
                return Err(Refused::Unreadable("there is nothing in it".to_owned()));
            }
            Ok(Arrival::Canonical { sessions, report: Box::new(report) })
        }
    }
}

/// Whether the first line is a line of a session by itself.
fn looks_like_lines(body: &[u8]) -> bool {
    let first = body.split(|byte| *byte == b'\n').find(|line| !line.trim_ascii().is_empty()).unwrap_or_default();
    first.trim_ascii_start().starts_with(b"{") && serde_json::from_slice::<IgnoredAny>(first).is_ok()
}

fn list(body: Body, preset: Preset, limits: &Limits, now: jiff::Timestamp) -> Result<List, Refused> {
    let preset = match body.preset {
        None => preset,
        Some(named) => {
            let name = named.as_str().map_or_else(|| named.to_string(), str::to_owned);
            name.parse().map_err(|_| Refused::Preset(name))?
        }
    };
    let missing = || Refused::Unreadable("the object has neither `conversation_history` nor `messages`".to_owned());
    let history = body.history.ok_or_else(missing)?;
    let clock = jiff::tz::TimeZone::UTC.to_datetime(now);
    let checked = intake::check(&history, preset, limits, clock)?;
    let (messages, left_out) = whole(&history, preset, clock);
    Ok(List { preset, checked, model: body.model, messages, left_out })
}

/// A message of a list in its full length, and as it was written if it says more.
#[derive(Debug)]
struct Whole {
    said: HistoryMessage,
    raw: Option<String>,
}

/// Every message that is sound by itself, also those that the preset leaves out; and where the others are.
fn whole(history: &Value, preset: Preset, now: jiff::civil::DateTime) -> (Vec<Whole>, Vec<usize>) {
    const FIELDS: [&str; 3] = ["role", "content", "timestamp"];
    let most = usize::MAX / 4;
    let boundless = Limits {
        reasoning_first: ReasoningLimits {
            max_messages: most,
            user_chars: most,
            assistant_chars: most,
            total_chars: most,
            min_keep: 0,
        },
        requirements_first: RequirementsLimits { max_messages: most, user_chars: most, assistant_chars: most },
    };
    let entries = history.as_array().map_or(&[][..], Vec::as_slice);
    let (mut kept, mut left_out) = (Vec::with_capacity(entries.len()), Vec::new());
    for (number, entry) in entries.iter().enumerate() {
        let checked = intake::check(&Value::from(vec![entry.clone()]), preset, &boundless, now);
        let Some(mut said) = checked.ok().and_then(|checked| checked.history?.messages.pop()) else {
            left_out.push(number);
            continue;
        };
        if entry["content"].is_null() {
            said.content.clear();
        }
        let more = entry.as_object().is_some_and(|fields| fields.keys().any(|name| !FIELDS.contains(&name.as_str())));
        let raw = (more || !said.attachments.is_empty()).then(|| entry.to_string());
        kept.push(Whole { said, raw });
    }
    (kept, left_out)
}

impl List {
    pub fn messages(&self) -> usize {
        self.messages.len()
    }

    /// As the store takes it.
    pub fn import(&self, owner: &Owner<'_>) -> Import {
        let mut end: Option<Link> = None;
        let mut lines = Vec::with_capacity(self.messages.len());
        for whole in &self.messages {
            let said = &whole.said;
            let role = Role::named(said.role.as_str().into());
            let answer = import::is_answer(&role).then_some("complete");
            let images = said.attachments.iter().filter(|one| is_image(one)).count() as u32;
            let message = Message { images, ..Message::plain(role, said.content.as_str(), 0) };
            let after = end;
            let link = owner.key.extend(after.unwrap_or_else(|| owner.key.start(owner.user)), &message);
            end = Some(link);
            let imported = ImportedMessage {
                at: milliseconds(&said.timestamp).unwrap_or(owner.now_ms).min(owner.now_ms),
                answer,
                message: NewMessage::of(link, &message, whole.raw.as_deref()),
            };
            lines.push(ImportedLine { after, messages: vec![imported], written: None });
        }
        Import {
            conversation: owner.conversation,
            user: owner.user.to_owned(),
            at: owner.now_ms,
            model: self.model.clone().unwrap_or_else(|| "imported".to_owned()),
            turn: uuid::Uuid::now_v7().simple().to_string(),
            system: "[]".to_owned(),
            session: None,
            provider: None,
            intake: self.checked.history.as_ref().and_then(|history| serde_json::to_string(history).ok()),
            lines,
        }
    }

    /// What the check said, for programs.
    pub fn said(&self) -> Value {
        json!({
            "preset": self.preset.name(),
            "conversation_history": self.checked.history,
            "warnings": self.checked.warnings,
            // Those of them that are no messages, or empty: the one thing that is not kept.
            "left_out": self.left_out,
        })
    }
}

impl Arrival {
    /// What is to be stored, and what is said about it. `next` gives numbers for conversations.
    pub fn imports<E>(
        &self,
        owner: &Owner<'_>,
        mut next: impl FnMut() -> Result<ConversationId, E>,
    ) -> Result<(Vec<Import>, Value), E> {
        let (mut imports, mut made) = (Vec::new(), Vec::new());
        let mut add = |import: Import, mut about: Value| {
            about["id"] = import.conversation.into();
            imports.push(import);
            made.push(about);
        };
        match self {
            Self::List(list) => {
                let owner = Owner { conversation: next()?, ..*owner };
                add(list.import(&owner), json!({ "id": 0, "messages": list.messages() }));
            }
            Self::Canonical { sessions, .. } => {
                for session in sessions {
                    let owner = Owner { conversation: next()?, ..*owner };
                    let about = json!({
                        "id": 0, "session": session.id, "provider": session.provider, "messages": session.messages(),
                    });
                    add(session.import(&owner), about);
                }
            }
        }
        let mut said = json!({ "id": made.first().map(|one| one["id"].clone()), "conversations": made });
        if let (Value::Object(said), Value::Object(more)) = (&mut said, self.said()) {
            said.extend(more);
        }
        Ok((imports, said))
    }

    /// What the checks said, for programs.
    fn said(&self) -> Value {
        match self {
            Self::List(list) => list.said(),
            Self::Canonical { report, .. } => json!({ "warnings": validate::json(report, "", false)["warnings"] }),
        }
    }
}

impl Refused {
    /// For programs: what is wrong, where, and what would be right.
    pub fn said(&self) -> Value {
        match self {
            Self::Unreadable(_) | Self::Preset(_) | Self::TooManySessions => json!({ "error": self.to_string() }),
            Self::Canonical(report) => {
                let report = validate::json(report, "", false);
                json!({ "error": self.to_string(), "errors": report["errors"], "warnings": report["warnings"] })
            }
            Self::List(fatal) => json!({
                "error": fatal.to_string(),
                "field": fatal.field,
                "message": fatal.message,
                "error_type": fatal.error_type,
                "value": fatal.value,
                "warnings": fatal.warnings,
            }),
        }
    }
}

/// A point in time as people write it; without an offset it is taken for UTC.
fn milliseconds(text: &str) -> Option<i64> {
    if let Ok(at) = text.parse::<jiff::Timestamp>() {
        return Some(at.as_millisecond());
    }
    let at: jiff::civil::DateTime = text.parse().ok()?;
    jiff::tz::TimeZone::UTC.to_timestamp(at).ok().map(jiff::Timestamp::as_millisecond)
}
