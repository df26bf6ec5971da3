//! Canonical JSONL: one message a line, in the form that session tools share.
//!
//! Tool calls are blocks of the assistant's message, tool results blocks of a user's message, system prompts
//! are `meta` lines. Ids follow from what is stored, so exporting twice gives the same bytes. What was imported
//! leaves as it came, line by line; what was said after it is written behind it, in the same session.
//!
//! A line that is made here passes the strict validation: a result without its call is told as plain text, an id
//! that comes twice is told apart, a clock that went back stands still. What that changes is noted in
//! `providerMetadata.loadline`, and importing reads it again. Only what is older than the validation likes stays so.

use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::{Map, Value, json};

use super::images::{self, Attached};
use super::import::plain_text;
use super::validate::timestamp;
use super::{StoredCall, calls};
use crate::context::Link;
use crate::store::{ConversationRow, ImportedLineRow, MessageRow, Reads, SnapshotRow, StoreError};

/// What stands for a tool result that said nothing: the format wants something.
pub(super) const NO_OUTPUT: &str = "(no output)";

/// Where arguments stand that look like JSON and are none.
pub(super) const UNREADABLE: &str = "unreadable";

/// A longer silence is vouched for, because readers find it unusual.
const GAP_MS: i64 = 24 * 60 * 60 * 1000;

const PROVIDER: &str = "loadline";

/// What is exported.
#[derive(Debug, Default)]
struct Session {
    id: String,
    provider: String,
    /// The model of messages that no turn is known of, and those of the others by their place.
    model: String,
    models: HashMap<(i64, u32), String>,
    system: Vec<String>,
    rows: Vec<MessageRow>,
    imported: Vec<ImportedLineRow>,
}

/// A conversation as canonical lines: what was imported, and the history that ends in a message, or in what was said
/// last.
pub fn conversation(store: &Reads, row: &ConversationRow, to: Option<Link>) -> Result<String, StoreError> {
    let session = Session {
        id: row.session.clone().unwrap_or_else(|| format!("conversation-{}", row.id)),
        provider: row.provider.clone().unwrap_or_else(|| PROVIDER.to_owned()),
        model: row.model.clone(),
        models: store.models(row.id)?,
        system: super::system_prompts(&store.latest_system(row.id)?.unwrap_or_default()),
        rows: store.path(row.id, to)?,
        imported: store.imported_lines(row.id)?,
    };
    Ok(Export::new(session).written())
}

/// A snapshot as canonical lines: the history up to where it was taken.
pub fn snapshot(store: &Reads, row: &SnapshotRow) -> Result<String, StoreError> {
    let conversation = store.conversation(row.conversation)?;
    let conversation = conversation.as_ref();
    let rows = store.path(row.conversation, Some(row.link))?;
    let mut imported = store.imported_lines(row.conversation)?;
    let places: HashSet<(i64, u32)> = rows.iter().map(|row| (row.branch, row.seq)).collect();
    imported.retain(|line| line.branch.is_none_or(|branch| places.contains(&(branch, line.last_seq))));
    let session = Session {
        id: conversation.and_then(|row| row.session.clone()).unwrap_or_else(|| row.id.clone()),
        provider: conversation.and_then(|row| row.provider.clone()).unwrap_or_else(|| PROVIDER.to_owned()),
        model: conversation.map(|row| row.model.clone()).unwrap_or_default(),
        models: store.models(row.conversation)?,
        system: super::system_prompts(&row.system),
        rows,
        imported,
    };
    Ok(Export::new(session).written())
}

/// Lines as they are being written.
#[derive(Debug)]
struct Export {
    session: Session,
    out: String,
    parent: Option<String>,
    last_ms: Option<i64>,
    /// Ids of calls that were written.
    used: HashSet<String>,
    /// Calls that wait for a result: the id as it was said, and as it was written.
    open: VecDeque<(String, String)>,
    /// What hangs on the message as its client wrote it, for the rows that it became.
    attached: Attached,
}

impl Export {
    fn new(session: Session) -> Self {
        Self {
            session,
            out: String::new(),
            parent: None,
            last_ms: None,
            used: HashSet::new(),
            open: VecDeque::new(),
            attached: Attached::default(),
        }
    }

    fn written(mut self) -> String {
        let rows = std::mem::take(&mut self.session.rows);
        let covered = self.as_they_came(&rows);
        let started = rows.get(covered).or(rows.first()).map_or(0, |row| row.created_at);
        for (number, text) in std::mem::take(&mut self.session.system).iter().enumerate() {
            let uuid = self.uuid(&format!("system {covered} {number} {text}"));
            self.add(&uuid, "meta", started, json!({ "role": "system", "content": text }), Map::new());
        }
        rows.iter().take(covered).for_each(|row| self.track(row));
        rows.iter().skip(covered).for_each(|row| self.message(row));
        if self.out.is_empty() {
            // A file without lines would be no session.
            let (uuid, now) = (self.uuid("nothing"), jiff::Timestamp::now().as_millisecond());
            self.add(&uuid, "meta", now, json!({ "role": "note", "content": "no messages" }), Map::new());
        }
        self.out
    }

    /// Writes what was imported. Returns how many of the rows that covers; what follows them goes behind the line
    /// that has the last of them.
    fn as_they_came(&mut self, rows: &[MessageRow]) -> usize {
        let places: HashMap<(i64, u32), usize> =
            rows.iter().enumerate().map(|(number, row)| ((row.branch, row.seq), number)).collect();
        let mut covered = 0;
        // The system prompts as importing takes them, and those that were told last.
        let (mut first, mut last, mut in_run) = (Vec::new(), Vec::new(), false);
        let mut begun = false;
        for line in std::mem::take(&mut self.session.imported) {
            let read: Value = serde_json::from_str(&line.line).unwrap_or_default();
            begun |= line.branch.is_some();
            if read["type"] == "meta" && read["message"]["role"] == "system" {
                let text = plain_text(&read["message"]["content"]);
                if !in_run {
                    last.clear();
                }
                last.push(text.clone());
                first.extend(Some(text).filter(|_| !begun));
                in_run = true;
            } else {
                in_run = false;
            }
            let number = line.branch.and_then(|branch| places.get(&(branch, line.last_seq)));
            if line.branch.is_none() || number.is_some() {
                self.parent = read["uuid"].as_str().map(str::to_owned);
            }
            covered = covered.max(number.map_or(0, |number| number + 1));
            if let Some(at) = read["timestamp"].as_str().and_then(timestamp::parse) {
                // Rounded up: ours have no finer time, and must not come before.
                let whole = at.as_millisecond();
                self.last_ms = Some(if at.subsec_nanosecond() % 1_000_000 > 0 { whole + 1 } else { whole });
            }
            self.out.push_str(&line.line);
            self.out.push('\n');
        }
        if self.session.system == first || self.session.system == last {
            self.session.system.clear();
        }
        covered
    }

    /// Notes the calls of a message that left as it came.
    fn track(&mut self, row: &MessageRow) {
        if row.role == "tool" {
            self.answered(row.tool_call_id.as_deref());
        }
        for call in calls(row) {
            self.used.insert(call.id.clone());
            self.open.push_back((call.id.clone(), call.id));
        }
    }

    fn message(&mut self, row: &MessageRow) {
        let uuid = self.uuid(&row.link.to_hex());
        let mut note = Map::new();
        if row.status != "complete" {
            note.insert("status".to_owned(), row.status.as_str().into());
        }
        if let Some(raw) = &row.raw {
            self.attached = images::attached(raw);
        }
        let (kind, message) = match row.role.as_str() {
            "tool" => ("user", self.result(row, &mut note)),
            role @ ("assistant" | "orchestrator") => {
                if role != "assistant" {
                    note.insert("role".to_owned(), role.into());
                }
                ("assistant", self.answer(row, &uuid, &mut note))
            }
            role => {
                if role != "user" {
                    note.insert("role".to_owned(), role.into());
                }
                ("user", json!({ "role": "user", "content": self.content(row, Vec::new()) }))
            }
        };
        self.add(&uuid, kind, row.created_at, message, note);
    }

    /// The result of a call; of none that waits for one, what was said all the same.
    fn result(&mut self, row: &MessageRow, note: &mut Map<String, Value>) -> Value {
        let empty = row.text.is_empty();
        if empty {
            note.insert("empty".to_owned(), true.into());
        }
        if let Some(name) = &row.tool_name {
            note.insert("toolName".to_owned(), name.as_str().into());
        }
        let text = if empty { NO_OUTPUT } else { &row.text };
        let named = row.tool_call_id.as_deref();
        if let Some(id) = self.answered(named) {
            let (mut pictures, failed) = self.attached.of_result(named.unwrap_or_default());
            pictures.extend((0..row.images).map(|_| self.attached.next_image()));
            let content = if pictures.is_empty() {
                json!(text)
            } else {
                let blocks = [json!({ "type": "text", "text": text })].into_iter().chain(pictures);
                blocks.collect()
            };
            if named != Some(id.as_str()) {
                note.insert("toolCallId".to_owned(), named.into());
            }
            let mut result = json!({ "type": "tool_result", "tool_use_id": id, "content": content });
            if failed {
                result["is_error"] = true.into();
            }
            return json!({ "role": "user", "content": [result] });
        }
        note.insert("role".to_owned(), "tool".into());
        note.insert("toolCallId".to_owned(), named.into());
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

    fn answer(&mut self, row: &MessageRow, uuid: &str, note: &mut Map<String, Value>) -> Value {
        let (mut uses, mut changed) = (Vec::new(), Map::new());
        for (number, said) in calls(row).into_iter().enumerate() {
            let written = self.written_call(&said, &format!("call-{uuid}-{number}"));
            let StoredCall { id, name, arguments } = &written;
            uses.push(json!({ "type": "tool_use", "id": id, "name": name, "input": arguments }));
            self.open.push_back((said.id.clone(), id.clone()));
            let mut before = Map::new();
            if written.id != said.id {
                before.insert("id".to_owned(), said.id.into());
            }
            if written.name != said.name {
                before.insert("name".to_owned(), said.name.into());
            }
            if written.arguments != said.arguments {
                before.insert(UNREADABLE.to_owned(), true.into());
            }
            if !before.is_empty() {
                changed.insert(number.to_string(), before.into());
            }
        }
        if !changed.is_empty() {
            note.insert("calls".to_owned(), changed.into());
        }
        let content = self.content(row, uses);
        let model = self.session.models.get(&(row.branch, row.seq)).unwrap_or(&self.session.model);
        json!({ "role": "assistant", "content": content, "model": model })
    }

    /// A call as the format wants it: with an id that no other has, a name, and arguments that are decoded.
    fn written_call(&mut self, said: &StoredCall, fresh_id: &str) -> StoredCall {
        let mut call = said.clone();
        if call.id.is_empty() || self.used.contains(&call.id) {
            call.id = fresh_id.to_owned();
        }
        self.used.insert(call.id.clone());
        if call.name.is_empty() {
            call.name = "unnamed".to_owned();
        }
        if let Some(text) = call.arguments.as_str().filter(|text| text.trim_start().starts_with(['{', '['])) {
            call.arguments = json!({ (UNREADABLE): text });
        }
        call
    }

    /// Plain text where it is only that, blocks otherwise.
    fn content(&mut self, row: &MessageRow, uses: Vec<Value>) -> Value {
        let mut blocks = Vec::new();
        if !row.thinking.is_empty() && row.role == "assistant" {
            blocks.push(json!({ "type": "thinking", "thinking": row.thinking }));
        }
        let pictures: Vec<Value> = (0..row.images).map(|_| self.attached.next_image()).collect();
        let code = self.attached.take_code();
        let more_than_text = !(blocks.is_empty() && pictures.is_empty() && uses.is_empty() && code.is_empty());
        if !row.text.is_empty() && more_than_text {
            blocks.push(json!({ "type": "text", "text": row.text }));
        }
        blocks.extend(code.into_iter().map(|text| json!({ "type": "text", "text": text })));
        blocks.extend(pictures);
        blocks.extend(uses);
        if blocks.is_empty() { json!(row.text) } else { Value::from(blocks) }
    }

    fn uuid(&self, name: &str) -> String {
        let mut half = [0; 16];
        let digest = blake3::hash(format!("{}\n{name}", self.session.id).as_bytes());
        half.copy_from_slice(&digest.as_bytes()[..16]);
        uuid::Uuid::from_bytes(half).to_string()
    }

    fn add(&mut self, uuid: &str, kind: &str, at_ms: i64, message: Value, mut note: Map<String, Value>) {
        let told_ms = self.last_ms.map_or(at_ms, |last| last.max(at_ms));
        if told_ms != at_ms {
            note.insert("at".to_owned(), written_time(at_ms).into());
        }
        let mut metadata = Map::new();
        if self.last_ms.is_some_and(|last| told_ms - last > GAP_MS) {
            metadata.insert("resumed".to_owned(), true.into());
        }
        if !note.is_empty() {
            metadata.insert("loadline".to_owned(), note.into());
        }
        let mut line = json!({
            "uuid": uuid,
            "parentUuid": self.parent,
            "timestamp": written_time(told_ms),
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
        self.last_ms = Some(told_ms);
    }
}

fn written_time(at_ms: i64) -> String {
    jiff::Timestamp::from_millisecond(at_ms).map(|at| format!("{at:.3}")).unwrap_or_default()
}
