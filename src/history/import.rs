//! Reading canonical JSONL: a session becomes a conversation again.
//!
//! The opposite of [`super::export`]: what Loadline has exported gives back the same messages, and what others
//! have written gives what they mean. Each line is kept as it came, but for space around it. A file
//! with several sessions gives several conversations; a line goes behind its parent, so branches stay branches,
//! and behind the line before it when it names none that was read. A file that does not pass the validation is
//! not imported at all.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

use super::StoredCall;
use super::export::{NO_OUTPUT, UNREADABLE};
use super::validate::{Options, Report, Validator, timestamp};
use crate::context::identity::ConversationId;
use crate::context::{ChainKey, Link, Message, Role};
use crate::store::{Import, ImportedLine, ImportedMessage, NewMessage};

/// What a conversation is said to have been had with when its file does not say.
const UNKNOWN_MODEL: &str = "imported";

/// Sessions of one file. They become visible at once, and that must not take long.
pub const MAX_SESSIONS: usize = 1000;

/// Statuses that a message can have.
const STATUSES: [&str; 3] = ["complete", "incomplete", "cancelled"];

/// A session that was read.
#[derive(Debug)]
pub struct Session {
    pub id: String,
    pub provider: String,
    pub model: String,
    pub system: Vec<String>,
    lines: Vec<Line>,
    /// Whether anything was said yet.
    begun: bool,
}

#[derive(Debug)]
struct Line {
    /// The line it follows, by its index.
    parent: Option<usize>,
    at_ms: i64,
    status: &'static str,
    messages: Vec<Message<'static>>,
    /// The message as it was written, where it holds more than the messages do.
    raw: Option<String>,
    written: String,
}

/// Whose conversation it becomes.
#[derive(Debug)]
pub struct Owner<'a> {
    pub key: &'a ChainKey,
    pub user: &'a str,
    pub conversation: ConversationId,
    pub now_ms: i64,
}

/// What is read of a line; what else is in it stays in the line.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Read {
    uuid: String,
    parent_uuid: Option<String>,
    timestamp: String,
    r#type: String,
    session_id: String,
    provider: String,
    message: Value,
    provider_metadata: Option<Metadata>,
}

/// What our own exports note for us.
#[derive(Debug, Deserialize)]
struct Metadata {
    #[serde(default)]
    loadline: Value,
}

/// Why a file is not read.
#[derive(Debug)]
pub enum Unread {
    Invalid(Box<Report>),
    TooManySessions,
}

/// Reads a file that is in memory. What does not pass gives the report that says why.
pub fn sessions(text: &[u8], options: &Options) -> Result<(Vec<Session>, Report), Unread> {
    let mut validator = Validator::new(options);
    let lines = || text.split(|byte| *byte == b'\n');
    lines().for_each(|line| validator.line(line));
    let report = validator.finish();
    if !report.is_valid() {
        return Err(Unread::Invalid(Box::new(report)));
    }
    let mut sessions: Vec<Session> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut places: HashMap<(usize, String), usize> = HashMap::new();
    for line in lines() {
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        let Ok(written) = std::str::from_utf8(line) else { continue };
        let written = written.trim();
        let Ok(read) = serde_json::from_str::<Read>(written) else { continue };
        let id = read.session_id.clone();
        if sessions.len() >= MAX_SESSIONS && !known.contains_key(&id) {
            return Err(Unread::TooManySessions);
        }
        let at = *known.entry(id.clone()).or_insert_with(|| {
            sessions.push(Session {
                id,
                provider: read.provider.clone(),
                model: UNKNOWN_MODEL.to_owned(),
                system: Vec::new(),
                lines: Vec::new(),
                begun: false,
            });
            sessions.len() - 1
        });
        let session = &mut sessions[at];
        let parent = read.parent_uuid.clone().and_then(|uuid| places.get(&(at, uuid)).copied());
        places.insert((at, read.uuid.clone()), session.lines.len());
        session.add(&read, parent, written);
    }
    Ok((sessions, report))
}

impl Session {
    pub fn messages(&self) -> usize {
        self.lines.iter().map(|line| line.messages.len()).sum()
    }

    /// As the store takes it.
    pub fn import(&self, owner: &Owner<'_>) -> Import {
        let mut ends: Vec<Option<Link>> = Vec::with_capacity(self.lines.len());
        let mut lines = Vec::with_capacity(self.lines.len());
        for line in &self.lines {
            let before = match line.parent {
                Some(parent) => ends.get(parent),
                None => ends.last(),
            };
            let after = before.copied().flatten();
            let start = owner.key.start(owner.user);
            let mut end = after;
            let mut messages = Vec::with_capacity(line.messages.len());
            for (number, message) in line.messages.iter().enumerate() {
                let link = owner.key.extend(end.unwrap_or(start), message);
                end = Some(link);
                let raw = line.raw.as_deref().filter(|_| number == 0);
                messages.push(ImportedMessage {
                    // Nothing was said in the future: what is said next would come before it.
                    at: line.at_ms.min(owner.now_ms),
                    answer: is_answer(&message.role).then_some(line.status),
                    message: NewMessage::of(link, message, raw),
                });
            }
            ends.push(end);
            lines.push(ImportedLine { after, messages, written: Some(line.written.clone()) });
        }
        Import {
            conversation: owner.conversation,
            user: owner.user.to_owned(),
            at: owner.now_ms,
            model: self.model.clone(),
            turn: uuid::Uuid::now_v7().simple().to_string(),
            system: Value::from(self.system.clone()).to_string(),
            session: Some(self.id.clone()),
            provider: Some(self.provider.clone()),
            intake: None,
            lines,
        }
    }

    fn add(&mut self, read: &Read, parent: Option<usize>, written: &str) {
        let message = &read.message;
        if let Some(model) = message["model"].as_str().filter(|model| !model.is_empty()) {
            self.model = model.to_owned();
        }
        let metadata = read.provider_metadata.as_ref().map_or(&Value::Null, |metadata| &metadata.loadline);
        let at = metadata["at"].as_str().and_then(moment).or_else(|| moment(&read.timestamp));
        let status = STATUSES.into_iter().find(|status| metadata["status"] == *status).unwrap_or("complete");
        let is_meta = read.r#type == "meta";
        if is_meta && message["role"] == "system" && !self.begun {
            self.system.push(plain_text(&message["content"]));
        }
        let messages = if is_meta { Vec::new() } else { messages(message, metadata) };
        self.begun |= !messages.is_empty();
        let raw = messages.iter().any(|message| message.images > 0).then(|| message.to_string());
        self.lines.push(Line { parent, at_ms: at.unwrap_or(0), status, messages, raw, written: written.to_owned() });
    }
}

/// What Ollama would make of a canonical message: its text, then the results in it.
fn messages(message: &Value, metadata: &Value) -> Vec<Message<'static>> {
    // A system prompt is no message, whatever it says of itself.
    let noted = metadata["role"].as_str().filter(|role| !role.eq_ignore_ascii_case("system"));
    let role = Role::named(Cow::Owned(noted.or(message["role"].as_str()).unwrap_or("user").to_owned()));
    let mut main = Message::plain(role, "", 0);
    let mut results = Vec::new();
    match &message["content"] {
        Value::Array(blocks) => {
            blocks.iter().for_each(|block| add_block(block, &metadata["calls"], &mut main, &mut results));
        }
        content => main.text = text_of(content).into(),
    }
    let says_something =
        !main.text.is_empty() || main.images > 0 || !main.tool_calls.is_empty() || !main.thinking.is_empty();
    let mut messages = Vec::new();
    if says_something || results.is_empty() {
        messages.push(main);
    }
    messages.append(&mut results);
    for result in messages.iter_mut().filter(|message| message.role == Role::Tool) {
        if metadata["empty"] == true && result.text == NO_OUTPUT {
            result.text = Cow::Borrowed("");
        }
        result.tool_name = metadata["toolName"].as_str().map(|name| name.to_owned().into());
        // Noted where the export had to give the call another id; null: the result named none.
        if let Some(noted) = metadata.get("toolCallId") {
            result.tool_call_id = noted.as_str().map(|id| id.to_owned().into());
        }
    }
    messages
}

fn add_block(block: &Value, calls: &Value, main: &mut Message<'static>, results: &mut Vec<Message<'static>>) {
    match block["type"].as_str() {
        Some("text") => main.text.to_mut().push_str(block["text"].as_str().unwrap_or_default()),
        Some("thinking") => main.thinking.to_mut().push_str(block["thinking"].as_str().unwrap_or_default()),
        Some("image") => main.images += 1,
        Some("tool_use") => {
            let call = StoredCall {
                id: text_of(&block["id"]),
                name: text_of(&block["name"]),
                arguments: block["input"].clone(),
            };
            let noted = &calls[main.tool_calls.len().to_string()];
            main.tool_calls.push(restored(call, noted).into_tool_call());
        }
        Some("tool_result") => {
            let text = plain_text(&block["content"]);
            let tool_call_id = block["tool_use_id"].as_str().map(|id| Cow::Owned(id.to_owned()));
            results.push(Message { tool_call_id, ..Message::plain(Role::Tool, text, 0) });
        }
        _ => {}
    }
}

/// A call as it was before an export had to write it otherwise.
fn restored(mut call: StoredCall, noted: &Value) -> StoredCall {
    if let Some(id) = noted["id"].as_str() {
        call.id = id.to_owned();
    }
    if let Some(name) = noted["name"].as_str() {
        call.name = name.to_owned();
    }
    if noted[UNREADABLE] == true {
        call.arguments = call.arguments[UNREADABLE].take();
    }
    call
}

/// Whoever speaks for a model.
pub(super) fn is_answer(role: &Role<'_>) -> bool {
    matches!(role.name(), "assistant" | "orchestrator")
}

/// A moment as the validation takes it.
fn moment(text: &str) -> Option<i64> {
    timestamp::parse(text).map(jiff::Timestamp::as_millisecond)
}

/// A text, or the texts of blocks one after the other.
pub(super) fn plain_text(content: &Value) -> String {
    match content {
        Value::Array(blocks) => blocks.iter().filter_map(|block| block["text"].as_str()).collect(),
        other => text_of(other),
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
