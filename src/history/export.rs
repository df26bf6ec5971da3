//! Canonical JSONL: one message a line, in the form that session tools share.
//!
//! Tool calls are blocks of the assistant's message, tool results blocks of a user's message, system prompts
//! are `meta` lines. Ids follow from what is stored, so exporting twice gives the same bytes. What was imported
//! leaves as it came, line by line; what was said after it is written behind it, in the same session.
//!
//! A line that is made here always passes the strict validation: a result without its call is told as plain
//! text, an id that comes twice is told apart, a clock that went back stands still. What that hides is noted in
//! `providerMetadata`, and importing reads it again.

use std::collections::{HashSet, VecDeque};

use serde_json::{Map, Value, json};

use crate::store::{ConversationRow, ImportedLineRow, MessageRow, Reads, SnapshotRow, StoreError};

/// What stands for a tool result that said nothing: the format wants something.
pub(super) const NO_OUTPUT: &str = "(no output)";

/// A longer silence is vouched for, because readers find it unusual.
const GAP_MS: i64 = 24 * 60 * 60 * 1000;

const PROVIDER: &str = "loadline";

/// What all lines of an export have in common.
#[derive(Debug, Clone, Copy)]
pub struct Session<'a> {
    pub id: &'a str,
    pub provider: &'a str,
    pub model: &'a str,
    pub system: &'a [String],
}

/// A conversation as canonical lines: the history that ends in what was said last.
pub fn conversation(store: &Reads, row: &ConversationRow) -> Result<String, StoreError> {
    let system = super::system_prompts(&store.latest_system(row.id)?.unwrap_or_default());
    let named = format!("conversation-{}", row.id);
    let session = Session {
        id: row.session.as_deref().unwrap_or(&named),
        provider: row.provider.as_deref().unwrap_or(PROVIDER),
        model: &row.model,
        system: &system,
    };
    Ok(lines(session, &store.path(row.id, None)?, &store.imported_lines(row.id)?))
}

/// A snapshot as canonical lines.
pub fn snapshot(store: &Reads, row: &SnapshotRow) -> Result<String, StoreError> {
    let conversation = store.conversation(row.conversation)?;
    let conversation = conversation.as_ref();
    let system = super::system_prompts(&row.system);
    let session = Session {
        id: conversation.and_then(|row| row.session.as_deref()).unwrap_or(&row.id),
        provider: conversation.and_then(|row| row.provider.as_deref()).unwrap_or(PROVIDER),
        model: conversation.map_or("", |row| &row.model),
        system: &system,
    };
    let rows = store.path(row.conversation, Some(row.link))?;
    Ok(lines(session, &rows, &store.imported_lines(row.conversation)?))
}

/// A history as canonical lines. Of what it was imported as, the lines that lie on its way.
pub fn lines(session: Session<'_>, rows: &[MessageRow], imported: &[ImportedLineRow]) -> String {
    let mut export = Export::new(session);
    let places: HashSet<(i64, u32)> = rows.iter().map(|row| (row.branch, row.seq)).collect();
    let mut covered = 0;
    for line in imported {
        match line.branch {
            Some(branch) if !places.contains(&(branch, line.last_seq)) => continue,
            Some(_) => covered = covered.max(line.last_seq),
            None => {}
        }
        export.as_it_came(&line.line);
    }
    if imported.is_empty() {
        let started = rows.first().map_or(0, |row| row.created_at);
        session.system.iter().enumerate().for_each(|(number, text)| export.system(number, text, started));
    }
    for row in rows {
        if row.seq <= covered { export.track(row) } else { export.message(row) }
    }
    export.out
}

/// Lines as they are being written.
struct Export<'a> {
    session: Session<'a>,
    out: String,
    parent: Option<String>,
    last_ms: Option<i64>,
    /// Ids of calls that were written.
    used: HashSet<String>,
    /// Calls that wait for a result: the id as it was said, and as it was written.
    open: VecDeque<(String, String)>,
    /// Images of the message as its client wrote it, for the rows that it became.
    images: VecDeque<Value>,
}

impl<'a> Export<'a> {
    fn new(session: Session<'a>) -> Self {
        Self {
            session,
            out: String::new(),
            parent: None,
            last_ms: None,
            used: HashSet::new(),
            open: VecDeque::new(),
            images: VecDeque::new(),
        }
    }

    fn as_it_came(&mut self, line: &str) {
        let read: Value = serde_json::from_str(line).unwrap_or_default();
        self.parent = read["uuid"].as_str().map(str::to_owned);
        let at = read["timestamp"].as_str().and_then(|at| at.parse::<jiff::Timestamp>().ok());
        self.last_ms = at.map(jiff::Timestamp::as_millisecond).or(self.last_ms);
        self.out.push_str(line);
        self.out.push('\n');
    }

    fn system(&mut self, number: usize, text: &str, at_ms: i64) {
        let uuid = self.uuid(&format!("system {number} {text}"));
        self.add(&uuid, "meta", at_ms, json!({ "role": "system", "content": text }), Map::new());
    }

    /// Notes the calls of a message that left as it came.
    fn track(&mut self, row: &MessageRow) {
        if row.role == "tool" {
            self.answered(row.tool_call_id.as_deref());
        }
        for call in calls(row) {
            let id = call["id"].as_str().unwrap_or_default().to_owned();
            self.used.insert(id.clone());
            self.open.push_back((id.clone(), id));
        }
    }

    fn message(&mut self, row: &MessageRow) {
        let uuid = self.uuid(&row.link.to_hex());
        let mut metadata = Map::new();
        if row.status != "complete" {
            metadata.insert("status".to_owned(), row.status.as_str().into());
        }
        if let Some(raw) = &row.raw {
            self.images = images(raw).into();
        }
        let (kind, message) = match row.role.as_str() {
            "tool" => ("user", self.result(row, &mut metadata)),
            "assistant" => ("assistant", self.answer(row, &uuid)),
            role => {
                if role != "user" {
                    metadata.insert("role".to_owned(), role.into());
                }
                ("user", json!({ "role": "user", "content": self.content(row, Vec::new()) }))
            }
        };
        self.add(&uuid, kind, row.created_at, message, metadata);
    }

    /// The result of a call; of none that waits for one, what was said all the same.
    fn result(&mut self, row: &MessageRow, metadata: &mut Map<String, Value>) -> Value {
        let empty = row.text.is_empty();
        if empty {
            metadata.insert("empty".to_owned(), true.into());
        }
        if let Some(name) = &row.tool_name {
            metadata.insert("toolName".to_owned(), name.as_str().into());
        }
        let text = if empty { NO_OUTPUT } else { &row.text };
        if let Some(id) = self.answered(row.tool_call_id.as_deref()) {
            let result = json!({ "type": "tool_result", "tool_use_id": id, "content": text });
            return json!({ "role": "user", "content": [result] });
        }
        metadata.insert("role".to_owned(), "tool".into());
        if let Some(id) = &row.tool_call_id {
            metadata.insert("toolCallId".to_owned(), id.as_str().into());
        }
        json!({ "role": "user", "content": text })
    }

    /// The written id of the call that a result is for: the one it names, or else the first that waits.
    fn answered(&mut self, named: Option<&str>) -> Option<String> {
        let at = match named.filter(|id| !id.is_empty()) {
            Some(id) => self.open.iter().position(|(said, _)| said == id)?,
            None => 0,
        };
        self.open.remove(at).map(|(_, written)| written)
    }

    fn answer(&mut self, row: &MessageRow, uuid: &str) -> Value {
        let mut uses = Vec::new();
        for (number, call) in calls(row).iter().enumerate() {
            let said = call["id"].as_str().unwrap_or_default().to_owned();
            let fresh = !said.is_empty() && !self.used.contains(&said);
            let written = if fresh { said.clone() } else { format!("call-{uuid}-{number}") };
            self.used.insert(written.clone());
            let name = call["name"].as_str().filter(|name| !name.is_empty()).unwrap_or("unnamed");
            uses.push(json!({ "type": "tool_use", "id": written, "name": name, "input": input(&call["arguments"]) }));
            self.open.push_back((said, written));
        }
        json!({ "role": "assistant", "content": self.content(row, uses), "model": self.session.model })
    }

    /// Plain text where it is only that, blocks otherwise.
    fn content(&mut self, row: &MessageRow, uses: Vec<Value>) -> Value {
        let mut blocks = Vec::new();
        if !row.thinking.is_empty() && row.role == "assistant" {
            blocks.push(json!({ "type": "thinking", "thinking": row.thinking }));
        }
        let pictures: Vec<Value> = (0..row.images).map(|_| self.image()).collect();
        let more_than_text = !blocks.is_empty() || !pictures.is_empty() || !uses.is_empty();
        if !row.text.is_empty() && more_than_text {
            blocks.push(json!({ "type": "text", "text": row.text }));
        }
        blocks.extend(pictures);
        blocks.extend(uses);
        if blocks.is_empty() { json!(row.text) } else { Value::from(blocks) }
    }

    fn image(&mut self) -> Value {
        let lost = || json!({ "type": "image", "source": { "type": "absent" } });
        self.images.pop_front().unwrap_or_else(lost)
    }

    fn uuid(&self, name: &str) -> String {
        let mut half = [0; 16];
        let digest = blake3::hash(format!("{}\n{name}", self.session.id).as_bytes());
        half.copy_from_slice(&digest.as_bytes()[..16]);
        uuid::Uuid::from_bytes(half).to_string()
    }

    fn add(&mut self, uuid: &str, kind: &str, at_ms: i64, message: Value, mut metadata: Map<String, Value>) {
        let at_ms = self.last_ms.map_or(at_ms, |last| last.max(at_ms));
        if self.last_ms.is_some_and(|last| at_ms - last > GAP_MS) {
            metadata.insert("resumed".to_owned(), true.into());
        }
        let at = jiff::Timestamp::from_millisecond(at_ms).map(|at| format!("{at:.3}")).unwrap_or_default();
        let mut line = json!({
            "uuid": uuid,
            "parentUuid": self.parent,
            "timestamp": at,
            "type": kind,
            "sessionId": self.session.id,
            "provider": self.session.provider,
            "message": message,
        });
        if !metadata.is_empty() {
            line["providerMetadata"] = metadata.into();
        }
        self.out.push_str(&line.to_string());
        self.out.push('\n');
        self.parent = Some(uuid.to_owned());
        self.last_ms = Some(at_ms);
    }
}

/// Arguments that a model wrote badly are a text; what looks like JSON and is none is told as such.
fn input(arguments: &Value) -> Value {
    match arguments.as_str() {
        Some(text) if text.starts_with(['{', '[']) => json!({ "unreadable": text }),
        _ => arguments.clone(),
    }
}

fn calls(row: &MessageRow) -> Vec<Value> {
    row.tool_calls.as_deref().and_then(|calls| serde_json::from_str(calls).ok()).unwrap_or_default()
}

/// The images of a message as its client wrote it, whichever API it spoke, as image blocks.
pub fn images(raw: &str) -> Vec<Value> {
    let read: Value = serde_json::from_str(raw).unwrap_or_default();
    let native = read["images"].as_array().into_iter().flatten().filter_map(Value::as_str).map(base64_block);
    let parts = ["content", "output"].into_iter().filter_map(|name| read[name].as_array()).flatten();
    native.chain(parts.filter_map(image_of_part)).collect()
}

fn image_of_part(part: &Value) -> Option<Value> {
    match part["type"].as_str()? {
        "image" => Some(part.clone()),
        "image_url" => Some(url_block(part["image_url"]["url"].as_str().or(part["image_url"].as_str())?)),
        "input_image" => Some(url_block(part["image_url"].as_str()?)),
        _ => None,
    }
}

fn url_block(url: &str) -> Value {
    let data = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    let source = match data {
        Some((media_type, data)) => json!({ "type": "base64", "media_type": media_type, "data": data }),
        None => json!({ "type": "url", "url": url }),
    };
    json!({ "type": "image", "source": source })
}

fn base64_block(data: &str) -> Value {
    const BEGINNINGS: [(&str, &str); 4] =
        [("iVBOR", "image/png"), ("/9j/", "image/jpeg"), ("R0lG", "image/gif"), ("UklG", "image/webp")];
    let known = BEGINNINGS.iter().find(|(beginning, _)| data.starts_with(beginning));
    let media_type = known.map_or("application/octet-stream", |(_, media_type)| *media_type);
    json!({ "type": "image", "source": { "type": "base64", "media_type": media_type, "data": data } })
}
