//! A history that arrives: canonical JSONL, or a list of messages as one of the presets takes it.
//!
//! Which it is can be seen from what it says. A list is checked by its preset, and what the preset makes of it is
//! kept beside the conversation; the conversation itself keeps every message whole, because what is cut can be
//! cut again and what is lost cannot be found.

use serde_json::{Value, json};

use super::import::{self, Owner, Session};
use super::intake::{self, Checked, Fatal, HistoryMessage, Limits, Preset, ReasoningLimits, RequirementsLimits};
use super::validate::{self, Options, Report};
use crate::context::identity::ConversationId;
use crate::context::{Link, Message, Role};
use crate::proxy::record::new_message;
use crate::store::{Import, ImportedLine, ImportedMessage};

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
    messages: Vec<HistoryMessage>,
}

/// Why it is not taken.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("neither a JSON list of messages nor canonical JSONL: {0}")]
    Unreadable(String),
    #[error("not valid canonical JSONL: {} errors", .0.errors.len() + .0.errors_left_out)]
    Canonical(Box<Report>),
    #[error("{0}")]
    List(#[from] Box<Fatal>),
    #[error("unknown preset `{0}`: use requirements-first or reasoning-first")]
    Preset(String),
}

/// Reads what arrived. A preset that it names itself goes before the one that was asked for.
pub fn read(body: &[u8], preset: Preset, limits: &Limits, now: jiff::Timestamp) -> Result<Arrival, Refused> {
    let whole = serde_json::from_slice::<Value>(body);
    let is_session = |value: &Value| value.get("sessionId").is_some() && value.get("uuid").is_some();
    match whole {
        Ok(value) if !is_session(&value) => list(&value, preset, limits, now).map(|list| Arrival::List(Box::new(list))),
        Err(error) if !looks_like_lines(body) => Err(Refused::Unreadable(error.to_string())),
        Ok(_) | Err(_) => {
            let (sessions, report) = import::sessions(body, &Options::at(now)).map_err(Refused::Canonical)?;
            if sessions.is_empty() {
                return Err(Refused::Unreadable("there is nothing in it".to_owned()));
            }
            Ok(Arrival::Canonical { sessions, report: Box::new(report) })
        }
    }
}

/// Whether the first line is an object by itself.
fn looks_like_lines(body: &[u8]) -> bool {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let first = body.split(|byte| *byte == b'\n').find(|line| !line.trim_ascii().is_empty()).unwrap_or_default();
    serde_json::from_slice::<serde_json::Map<String, Value>>(first).is_ok()
}

fn list(value: &Value, preset: Preset, limits: &Limits, now: jiff::Timestamp) -> Result<List, Refused> {
    let named = value.get("preset").filter(|preset| !preset.is_null());
    let preset = match named {
        None => preset,
        Some(named) => {
            let name = named.as_str().map_or_else(|| named.to_string(), str::to_owned);
            name.parse().map_err(|_| Refused::Preset(name))?
        }
    };
    let history = match value {
        Value::Object(fields) => {
            let found = ["conversation_history", "messages"].into_iter().find_map(|name| fields.get(name));
            let missing = || Refused::Unreadable("the object has neither `conversation_history` nor `messages`".into());
            found.ok_or_else(missing)?
        }
        other => other,
    };
    let clock = jiff::tz::TimeZone::UTC.to_datetime(now);
    let checked = intake::check(history, preset, limits, clock)?;
    let model = value.get("model").and_then(Value::as_str).map(str::to_owned);
    let messages = whole(history, preset, limits, clock);
    Ok(List { preset, checked, model, messages })
}

/// Every message in its full length. Those that the preset has not even looked at come along if they are sound.
fn whole(history: &Value, preset: Preset, limits: &Limits, now: jiff::civil::DateTime) -> Vec<HistoryMessage> {
    let boundless = Limits {
        reasoning_first: ReasoningLimits {
            max_messages: usize::MAX,
            user_chars: usize::MAX / 4,
            assistant_chars: usize::MAX / 4,
            total_chars: usize::MAX,
            min_keep: limits.reasoning_first.min_keep,
        },
        requirements_first: RequirementsLimits {
            max_messages: usize::MAX,
            user_chars: usize::MAX / 4,
            assistant_chars: usize::MAX / 4,
        },
    };
    let checked = intake::check(history, preset, &boundless, now).or_else(|_| {
        let all = history.as_array().map_or(&[][..], Vec::as_slice);
        let newest = &all[all.len().saturating_sub(limits.of(preset).max_messages)..];
        intake::check(&Value::from(newest.to_vec()), preset, &boundless, now)
    });
    checked.ok().and_then(|checked| checked.history).map(|history| history.messages).unwrap_or_default()
}

impl List {
    pub fn messages(&self) -> usize {
        self.messages.len()
    }

    /// As the store takes it.
    pub fn import(&self, owner: &Owner<'_>) -> Import {
        let mut link: Link = owner.key.start(owner.user);
        let mut lines = Vec::with_capacity(self.messages.len());
        for said in &self.messages {
            let role = Role::named(said.role.as_str().into());
            let answer = matches!(said.role.as_str(), "assistant" | "orchestrator").then_some("complete");
            let images = said.attachments.iter().filter(|one| is_image(one)).count() as u32;
            let message = Message { images, ..Message::plain(role, said.content.as_str(), 0) };
            link = owner.key.extend(link, &message);
            let raw = (!said.attachments.is_empty()).then(|| {
                json!({ "role": said.role, "content": said.content, "attachments": said.attachments }).to_string()
            });
            let imported = ImportedMessage {
                at: milliseconds(&said.timestamp).unwrap_or(owner.now_ms),
                answer,
                message: new_message(link, &message, raw.as_deref()),
            };
            lines.push(ImportedLine { after: None, messages: vec![imported], written: None });
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
        })
    }
}

impl Arrival {
    /// One change for each conversation, with what to say about it. `next` gives numbers for them.
    pub fn imports(&self, owner: &Owner<'_>, mut next: impl FnMut() -> ConversationId) -> Vec<(Import, Value)> {
        let mut numbered = |make: &dyn Fn(&Owner<'_>) -> (Import, Value)| {
            let (mut import, mut said) = make(&Owner { conversation: next(), ..*owner });
            said["id"] = import.conversation.into();
            import.turn = uuid::Uuid::now_v7().simple().to_string();
            (import, said)
        };
        match self {
            Self::List(list) => {
                vec![numbered(&|owner| (list.import(owner), json!({ "id": 0, "messages": list.messages() })))]
            }
            Self::Canonical { sessions, .. } => sessions
                .iter()
                .map(|session| {
                    numbered(&|owner| {
                        let about = json!({ "id": 0, "session": session.id, "provider": session.provider, "messages": session.messages() });
                        (session.import(owner), about)
                    })
                })
                .collect(),
        }
    }

    /// What is said of the whole, for programs.
    pub fn said(&self) -> Value {
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
            Self::Unreadable(_) | Self::Preset(_) => json!({ "error": self.to_string() }),
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

fn is_image(attachment: &Value) -> bool {
    attachment["type"].as_str().is_some_and(|kind| kind.contains("image"))
}
