//! The checks of content blocks: text, thinking, tool calls, tool results, images.
//!
//! Four types are canonical; `image` is Loadline's own addition for attachments.
//! A tool result may hold text and images and nothing else: a call or a result
//! hidden inside one would never be matched.

use std::fmt;

use super::check::{missing, optional, repeated, required, required_text, wrong_type};
use super::code::Code;
use super::content::{Block, Content, Input};
use super::findings::{Findings, Shown};
use super::reading::{Kind, Shaped, Word};
use super::session::Session;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageType {
    User,
    Assistant,
    Meta,
}

impl MessageType {
    pub(super) fn from_name(name: &str) -> Option<Self> {
        [Self::User, Self::Assistant, Self::Meta].into_iter().find(|message_type| message_type.as_str() == name)
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Meta => "meta",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockType {
    Text,
    Thinking,
    ToolUse,
    ToolResult,
    Image,
}

impl BlockType {
    const ALL: [Self; 5] = [Self::Text, Self::Thinking, Self::ToolUse, Self::ToolResult, Self::Image];

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|block_type| block_type.as_str() == name)
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Thinking => "thinking",
            Self::ToolUse => "tool_use",
            Self::ToolResult => "tool_result",
            Self::Image => "image",
        }
    }
}

/// Where a block stands, for instance `message.content[2].content[0]`.
#[derive(Debug, Clone, Copy)]
struct Place {
    index: usize,
    nested: Option<usize>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "message.content[{}]", self.index)?;
        self.nested.map_or(Ok(()), |nested| write!(f, ".content[{nested}]"))
    }
}

/// A field of a block.
#[derive(Debug, Clone, Copy)]
struct Field(Place, &'static str);

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// Checks the blocks of one message. `owner` is the type of that message, if known.
pub(super) fn check_all(
    blocks: &[Shaped<Block<'_>>],
    owner: Option<MessageType>,
    session: &mut Session,
    findings: &mut Findings,
) {
    for (index, block) in blocks.iter().enumerate() {
        let place = Place { index, nested: None };
        match block {
            Shaped::Object(block) => check(block, place, owner, session, findings),
            Shaped::Other(kind) => {
                findings.add_in(
                    Code::InvalidContent,
                    place,
                    format_args!("content block must be an object, found {kind}"),
                );
            }
        }
    }
}

fn check(block: &Block<'_>, place: Place, owner: Option<MessageType>, session: &mut Session, findings: &mut Findings) {
    let Some(block_type) = check_type(block, place, findings) else { return };
    match block_type {
        BlockType::Text | BlockType::Image => check_plain(block, block_type, place, findings),
        BlockType::Thinking => {
            required(block.thinking, Kind::String, Field(place, "thinking"), findings);
            optional(block.signature, Kind::String, Field(place, "signature"), findings);
            if owner == Some(MessageType::User) {
                findings.add_in(Code::ThinkingInUserMessage, place, "thinking block in a user message");
            }
        }
        BlockType::ToolUse => check_tool_use(block, place, owner, session, findings),
        BlockType::ToolResult => check_tool_result(block, place, owner, session, findings),
    }
}

fn check_type(block: &Block<'_>, place: Place, findings: &mut Findings) -> Option<BlockType> {
    if let Some(key) = &block.repeated {
        repeated(format_args!("{place}.{}", Shown(key)), findings);
    }
    let name = match &block.kind {
        Word::Text(name) => name,
        Word::Absent => {
            let message = "content block has no type";
            findings.add_in(Code::InvalidContentBlock, Field(place, "type"), message);
            return None;
        }
        Word::Other(kind) => {
            let message = format_args!("type of a content block must be a string, found {kind}");
            findings.add_in(Code::InvalidContentBlock, Field(place, "type"), message);
            return None;
        }
    };
    let block_type = BlockType::from_name(name);
    if block_type.is_none() {
        let message = format_args!("unknown content block type \"{}\"", Shown(name));
        findings.add_in(Code::UnknownBlockType, Field(place, "type"), message);
    }
    block_type
}

/// The blocks that may stand in a tool result too.
fn check_plain(block: &Block<'_>, block_type: BlockType, place: Place, findings: &mut Findings) {
    if block_type == BlockType::Image {
        required(block.source, Kind::Object, Field(place, "source"), findings);
    } else {
        required(block.text, Kind::String, Field(place, "text"), findings);
    }
}

fn check_tool_use(
    block: &Block<'_>,
    place: Place,
    owner: Option<MessageType>,
    session: &mut Session,
    findings: &mut Findings,
) {
    if let Some(other @ (MessageType::User | MessageType::Meta)) = owner {
        let message =
            format_args!("tool_use blocks must be in assistant messages, found in {} message", other.as_str());
        findings.add_in(Code::InvalidToolUseMessageType, place, message);
    }
    let id_field = Field(place, "id");
    match required_text(&block.id, id_field, findings) {
        Some("") => findings.add_in(Code::EmptyToolUseId, id_field, "tool_use block has empty id"),
        Some(id) if owner == Some(MessageType::Assistant) => session.call(id, id_field, findings),
        Some(_) | None => {}
    }
    let name_field = Field(place, "name");
    if required_text(&block.name, name_field, findings) == Some("") {
        findings.add_in(Code::EmptyToolUseName, name_field, "tool_use block has empty name");
    }
    match block.input {
        None => missing(Field(place, "input"), findings),
        Some(Input::Stringified) => {
            let message = "tool_use input is a string of JSON instead of a JSON value";
            findings.add_in(Code::StringifiedToolInput, Field(place, "input"), message);
        }
        Some(Input::Other) => {}
    }
}

fn check_tool_result(
    block: &Block<'_>,
    place: Place,
    owner: Option<MessageType>,
    session: &mut Session,
    findings: &mut Findings,
) {
    if let Some(other @ (MessageType::Assistant | MessageType::Meta)) = owner {
        let message = format_args!("tool_result blocks must be in user messages, found in {} message", other.as_str());
        findings.add_in(Code::InvalidToolResultMessageType, place, message);
    }
    let id_field = Field(place, "tool_use_id");
    match required_text(&block.tool_use_id, id_field, findings) {
        Some("") => findings.add_in(Code::EmptyToolResultId, id_field, "tool_result block has empty tool_use_id"),
        Some(id) => session.result(id, id_field, findings),
        None => {}
    }
    optional(block.is_error, Kind::Boolean, Field(place, "is_error"), findings);
    let content_field = Field(place, "content");
    let is_empty = match &block.content {
        Content::Text { empty } => *empty,
        Content::Other(Kind::Null) => true,
        Content::Blocks(items) => {
            check_result_items(items, place, findings);
            items.is_empty()
        }
        Content::Absent => {
            missing(content_field, findings);
            false
        }
        Content::Other(kind) => {
            wrong_type(content_field, "a string or an array of text and image blocks", *kind, findings);
            false
        }
    };
    if is_empty {
        findings.add_in(Code::EmptyToolResultContent, content_field, "tool_result block has empty content");
    }
}

fn check_result_items(items: &[Shaped<Block<'_>>], outer: Place, findings: &mut Findings) {
    for (nested, item) in items.iter().enumerate() {
        let place = Place { nested: Some(nested), ..outer };
        let block = match item {
            Shaped::Object(block) => block,
            Shaped::Other(kind) => {
                let message = format_args!("content of a tool_result must be made of blocks, found {kind}");
                findings.add_in(Code::InvalidContentBlock, place, message);
                continue;
            }
        };
        match check_type(block, place, findings) {
            Some(block_type @ (BlockType::Text | BlockType::Image)) => check_plain(block, block_type, place, findings),
            Some(other @ (BlockType::Thinking | BlockType::ToolUse | BlockType::ToolResult)) => {
                let message = format_args!("{} block is not allowed inside a tool_result", other.as_str());
                findings.add_in(Code::InvalidContentBlock, place, message);
            }
            None => {}
        }
    }
}
