//! The checks of one message: its fields, its meaning, its place in the session.
//!
//! Every fault of a line is named, not only the first. A line that fails still
//! takes part in the session, so that one fault does not look like many.

use std::fmt::Display;

use jiff::Timestamp;

use super::block::{self, MessageType};
use super::code::Code;
use super::content::{Content, MAX_BLOCKS, Tally};
use super::findings::{Findings, Shown};
use super::line::{Line, Message, USAGE_COUNTS};
use super::metadata::Metadata;
use super::reading::{Kind, Shaped, Word};
use super::session::Session;
use super::timestamp;

/// More metadata than this is worth a warning.
const LARGE_METADATA_BYTES: usize = 16 << 10;

/// A line that is a JSON object, with what was learnt while reading it.
#[derive(Debug)]
pub(super) struct Candidate<'a> {
    pub(super) text: &'a str,
    pub(super) line: Line<'a>,
    pub(super) metadata: Option<Shaped<Metadata<'a>>>,
    pub(super) tally: Tally,
}

impl Candidate<'_> {
    pub(super) fn check(&self, now: Timestamp, session: &mut Session, findings: &mut Findings) {
        let line = &self.line;
        if let Some(key) = &line.repeated {
            repeated(Shown(key), findings);
        }
        let uuid = required_name(&line.uuid, "uuid", findings);
        if let Some(session_id) = required_name(&line.session_id, "sessionId", findings) {
            session.enter(session_id, findings);
        }
        if let Some(provider) = required_name(&line.provider, "provider", findings) {
            session.provider(provider, findings);
        }
        let message_type = check_type(&line.kind, findings);
        self.check_time(now, session, findings);
        match &line.parent_uuid {
            Word::Text(parent) => session.parent(parent, uuid, findings),
            Word::Absent | Word::Other(Kind::Null) => {}
            Word::Other(kind) => wrong_type("parentUuid", "a string", *kind, findings),
        }
        if let Some(uuid) = uuid {
            session.uuid(uuid, findings);
        }
        match &line.message {
            None => missing("message", findings),
            Some(Shaped::Other(kind)) => wrong_type("message", "an object", *kind, findings),
            Some(Shaped::Object(message)) => self.check_message(message, message_type, session, findings),
        }
        self.check_metadata(findings);
    }

    fn check_time(&self, now: Timestamp, session: &mut Session, findings: &mut Findings) {
        let Some(text) = required_text(&self.line.timestamp, "timestamp", findings) else { return };
        let Some(time) = timestamp::parse(text) else {
            let message = format_args!("timestamp \"{}\" is not a valid RFC 3339 date and time", Shown(text));
            findings.add_in(Code::InvalidTimestampFormat, "timestamp", message);
            return;
        };
        let resumed = matches!(&self.metadata, Some(Shaped::Object(metadata)) if metadata.resumed);
        session.time(time, now, resumed, findings);
    }

    fn check_message(
        &self,
        message: &Message<'_>,
        message_type: Option<MessageType>,
        session: &mut Session,
        findings: &mut Findings,
    ) {
        if let Some(key) = &message.repeated {
            repeated(format_args!("message.{}", Shown(key)), findings);
        }
        check_role(&message.role, message_type, findings);
        optional(message.model, Kind::String, "message.model", findings);
        check_usage(message, findings);
        if self.tally.has_too_many_blocks() {
            let message = format_args!("message has more than {MAX_BLOCKS} content blocks");
            findings.add_in(Code::InvalidContent, "message.content", message);
        }
        match &message.content {
            Content::Absent => missing("message.content", findings),
            Content::Text { .. } => {}
            Content::Other(kind) => {
                let message = format_args!("message.content must be a string or an array of blocks, found {kind}");
                findings.add_in(Code::InvalidContent, "message.content", message);
            }
            Content::Blocks(blocks) => {
                // Without a usable type the role says best whose message it is.
                let owner = message_type.or_else(|| MessageType::from_name(message.role.as_text()?));
                block::check_all(blocks, owner, session, findings);
            }
        }
    }

    fn check_metadata(&self, findings: &mut Findings) {
        let size_bytes = self.line.metadata.map_or(0, |raw| raw.get().len());
        if size_bytes > LARGE_METADATA_BYTES {
            let message = format_args!("providerMetadata has {size_bytes} bytes of JSON");
            findings.add_in(Code::LargeMetadata, "providerMetadata", message);
        }
        match &self.metadata {
            None | Some(Shaped::Other(Kind::Null)) => {}
            Some(Shaped::Other(kind)) => wrong_type("providerMetadata", "an object", *kind, findings),
            Some(Shaped::Object(metadata)) => {
                if let Some(key) = metadata.repeats(self.text) {
                    let field = format_args!("providerMetadata.{}", Shown(key));
                    let message = "providerMetadata repeats content of the message";
                    findings.add_in(Code::DuplicateContentInMetadata, field, message);
                }
            }
        }
    }
}

fn check_type(kind: &Word<'_>, findings: &mut Findings) -> Option<MessageType> {
    let name = required_text(kind, "type", findings)?;
    let message_type = MessageType::from_name(name);
    if message_type.is_none() {
        let message = format_args!("type must be \"user\", \"assistant\" or \"meta\", found \"{}\"", Shown(name));
        findings.add_in(Code::InvalidMessageType, "type", message);
    }
    message_type
}

fn check_role(role: &Word<'_>, message_type: Option<MessageType>, findings: &mut Findings) {
    let Some(role) = required_text(role, "message.role", findings) else { return };
    let Some(message_type) = message_type else { return };
    let is_valid = match message_type {
        MessageType::User | MessageType::Assistant => matches!(role, "user" | "assistant"),
        MessageType::Meta => !role.is_empty(),
    };
    let shown = Shown(role);
    if !is_valid {
        let message = format_args!("role must be \"user\" or \"assistant\", found \"{shown}\"");
        findings.add_in(Code::InvalidRole, "message.role", message);
    } else if message_type != MessageType::Meta && role != message_type.as_str() {
        let message = format_args!("role \"{shown}\" does not match message type \"{}\"", message_type.as_str());
        findings.add_in(Code::RoleTypeMismatch, "message.role", message);
    }
}

fn check_usage(message: &Message<'_>, findings: &mut Findings) {
    match message.usage {
        None | Some(Shaped::Other(Kind::Null)) => {}
        Some(Shaped::Other(kind)) => {
            let message = format_args!("usage must be an object, found {kind}");
            findings.add_in(Code::InvalidUsage, "message.usage", message);
        }
        Some(Shaped::Object(wrong)) => {
            for (place, name) in USAGE_COUNTS.iter().enumerate() {
                if wrong & (1 << place) != 0 {
                    let message = format_args!("usage.{name} must be a whole number of zero or more");
                    findings.add_in(Code::InvalidUsage, format_args!("message.usage.{name}"), message);
                }
            }
        }
    }
}

/// A required string that identifies something and so must not be empty.
fn required_name<'w>(word: &'w Word<'_>, field: &str, findings: &mut Findings) -> Option<&'w str> {
    let name = required_text(word, field, findings)?;
    if name.is_empty() {
        findings.add_in(Code::EmptyField, field, format_args!("required field \"{field}\" is empty"));
        return None;
    }
    Some(name)
}

pub(super) fn required_text<'w>(word: &'w Word<'_>, field: impl Display, findings: &mut Findings) -> Option<&'w str> {
    match word {
        Word::Text(text) => return Some(text),
        Word::Absent => missing(field, findings),
        Word::Other(kind) => wrong_type(field, "a string", *kind, findings),
    }
    None
}

/// A required field of which only the kind matters.
pub(super) fn required(found: Option<Kind>, wanted: Kind, field: impl Display, findings: &mut Findings) {
    match found {
        None => missing(field, findings),
        Some(kind) if kind != wanted => wrong_type(field, format_args!("of type {wanted}"), kind, findings),
        Some(_) => {}
    }
}

/// An optional field of which only the kind matters.
pub(super) fn optional(found: Option<Kind>, wanted: Kind, field: impl Display, findings: &mut Findings) {
    if found != Some(Kind::Null) && found.is_some() {
        required(found, wanted, field, findings);
    }
}

pub(super) fn missing(field: impl Display, findings: &mut Findings) {
    findings.add_in(Code::MissingField, &field, format_args!("required field \"{field}\" is missing"));
}

pub(super) fn wrong_type(field: impl Display, wanted: impl Display, found: Kind, findings: &mut Findings) {
    findings.add_in(Code::InvalidFieldType, &field, format_args!("\"{field}\" must be {wanted}, found {found}"));
}

pub(super) fn repeated(field: impl Display, findings: &mut Findings) {
    findings.add_in(Code::DuplicateField, &field, format_args!("\"{field}\" is written more than once"));
}
