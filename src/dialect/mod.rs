//! The six APIs that Ollama speaks, each in a file of its own.
//!
//! A dialect reads its JSON into the one middle form ([`Request`]), applies a plan to its own original
//! text, and reads answers ([`Answer`]). Nobody translates one dialect into another. A new dialect is
//! one file and its arm in the matches below.
//!
//! What a dialect's JSON becomes as Ollama's own messages follows what Ollama does, odd corners
//! included, because that is what will be rendered and counted.

pub mod answer;
mod anthropic;
mod chat;
mod completions;
pub mod error;
mod generate;
mod openai;
mod responses;
mod write;

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::context::plan::Kind;
use crate::context::{Edit, Message, Note, Plan, ToolCall};
use crate::json::lenient::{self, Names};
use crate::json::{self, Fields, JsonError};
use crate::tokenize::template::Facts;

pub use answer::Answer;
pub use error::ErrorShape;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    Chat,
    Generate,
    OpenAiChat,
    Completions,
    Responses,
    Anthropic,
}

/// A request, understood.
#[derive(Debug)]
pub struct Request<'a> {
    pub model: Cow<'a, str>,
    pub stream: bool,
    pub prompt: Prompt<'a>,
    /// What each of the dialect's own messages is to the planner; empty when there is nothing to edit.
    pub kinds: Vec<Kind>,
    /// As the request says it, before anything is clamped.
    pub num_ctx: Option<f64>,
    /// Room that the request asks for the answer.
    pub answer_tokens: Option<u32>,
    /// Fields that a rendering of the same prompt must carry along: name and JSON text.
    pub render_with: Vec<(&'static str, Cow<'a, str>)>,
    /// On this route a model that cannot think is not asked to, where others refuse.
    pub thinks_if_able: bool,
    /// Ollama adds something of its own that cannot be rendered from here.
    pub approximate: bool,
    /// Where the messages stand in the body, for dialects that read each by itself.
    pub list: Option<List>,
    /// What was found out before about the first of the messages.
    pub facts: Vec<Facts>,
    /// Where the body says whether the prompt may be cut.
    pub truncate: Option<Range<usize>>,
}

/// The list of messages in a body.
#[derive(Debug, Clone, Default)]
pub struct List {
    /// The array, brackets included.
    pub range: Range<usize>,
    /// Each of its elements.
    pub elements: Vec<Range<usize>>,
    /// How many of Ollama's messages come before those of the list.
    pub before: usize,
}

impl List {
    /// Where an array and its elements stand in a body.
    fn of(body: &str, array: Option<&RawValue>, elements: &[&RawValue], before: usize) -> Option<Self> {
        let range = json::range_in(body, array?);
        Some(Self { range, elements: elements.iter().map(|raw| json::range_in(body, raw)).collect(), before })
    }
}

/// What will be rendered.
#[derive(Debug)]
pub enum Prompt<'a> {
    Chat(Vec<Message<'a>>),
    Generate(Box<Generate<'a>>),
}

/// The prompt of `/api/generate`, which is no list of messages.
#[derive(Debug, Default)]
pub struct Generate<'a> {
    pub prompt: Cow<'a, str>,
    pub system: Option<Cow<'a, str>>,
    pub suffix: Option<Cow<'a, str>>,
    pub template: Option<Cow<'a, str>>,
    /// How many tokens of an earlier answer go before the prompt.
    pub context: Option<usize>,
    pub largest_context_id: Option<u64>,
    pub raw: bool,
    pub images: u32,
}

impl Prompt<'_> {
    /// Nothing to say: a request to load or unload the model.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Chat(messages) => messages.is_empty(),
            Self::Generate(generate) => generate.prompt.is_empty(),
        }
    }

    pub fn images(&self) -> u32 {
        match self {
            Self::Chat(messages) => messages.iter().map(|message| message.images).sum(),
            Self::Generate(generate) => generate.images,
        }
    }
}

impl Dialect {
    pub const ALL: [Self; 6] =
        [Self::Chat, Self::Generate, Self::OpenAiChat, Self::Completions, Self::Responses, Self::Anthropic];

    /// The gated path, already normalised.
    pub fn of_path(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dialect| dialect.path() == path)
    }

    pub fn path(self) -> &'static str {
        match self {
            Self::Chat => "/api/chat",
            Self::Generate => "/api/generate",
            Self::OpenAiChat => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
            Self::Responses => "/v1/responses",
            Self::Anthropic => "/v1/messages",
        }
    }

    /// The API that a body is written in, when nothing but the body tells: its field `path` says, or its other
    /// fields do.
    pub fn of_body(body: &[u8]) -> Self {
        let value: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        let named = value.get("path").and_then(serde_json::Value::as_str).and_then(Self::of_path);
        let has = |name: &str| value.get(name).is_some();
        let has_parts = || {
            let messages = value["messages"].as_array();
            messages.is_some_and(|messages| messages.iter().any(|message| message["content"].is_array()))
        };
        match named {
            Some(dialect) => dialect,
            None if has("messages") && has("system") => Self::Anthropic,
            None if has("messages") && has_parts() => Self::OpenAiChat,
            None if has("messages") => Self::Chat,
            None if has("input") => Self::Responses,
            None => Self::Generate,
        }
    }

    /// A short name for logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Generate => "generate",
            Self::OpenAiChat => "openai-chat",
            Self::Completions => "openai-completions",
            Self::Responses => "openai-responses",
            Self::Anthropic => "anthropic",
        }
    }

    /// Whether requests can say `truncate: false`.
    pub fn has_truncate(self) -> bool {
        matches!(self, Self::Chat | Self::Generate)
    }

    pub fn errors(self) -> ErrorShape {
        match self {
            Self::Chat | Self::Generate => ErrorShape::Native,
            Self::OpenAiChat | Self::Completions | Self::Responses => ErrorShape::OpenAi,
            Self::Anthropic => ErrorShape::Anthropic,
        }
    }

    fn names(self) -> Names {
        match self {
            Self::Chat => chat::NAMES,
            Self::Generate => generate::NAMES,
            Self::OpenAiChat => openai::NAMES,
            Self::Completions => completions::NAMES,
            Self::Responses => responses::NAMES,
            Self::Anthropic => anthropic::NAMES,
        }
    }

    /// The body as plain JSON: itself, or what Go would have read it as. `None` if Go cannot read it.
    pub fn plain(self, body: &[u8]) -> Option<Cow<'_, str>> {
        match simdutf8::basic::from_utf8(body).ok().and_then(|text| self.read_plain(text)) {
            Some((text, _)) => Some(Cow::Borrowed(text)),
            None => self.rewrite(body).map(Cow::Owned),
        }
    }

    /// Reads a body that is plain JSON already, as nearly all are; `None` if it is not.
    pub fn read_plain(self, text: &str) -> Option<(&str, Result<Request<'_>, JsonError>)> {
        match self.parse(text) {
            Err(JsonError::NotPlain) => None,
            read => Some((text, read)),
        }
    }

    /// What Go would read a body as, written as plain JSON; `None` if Go cannot read it.
    pub fn rewrite(self, body: &[u8]) -> Option<String> {
        lenient::rewrite(body, self.names())
    }

    /// Reads a plain body.
    pub fn parse(self, body: &str) -> Result<Request<'_>, JsonError> {
        match self {
            Self::Chat => chat::parse(body),
            Self::Generate => generate::parse(body),
            Self::OpenAiChat => openai::parse(body),
            Self::Completions => completions::parse(body),
            Self::Responses => responses::parse(body),
            Self::Anthropic => anthropic::parse(body),
        }
    }

    /// Writes the body again with a plan applied. What is kept leaves as it came. `known` is where the
    /// messages stand, if that is known already.
    pub fn apply(self, body: &str, plan: &Plan, known: Option<&List>) -> Result<String, JsonError> {
        if plan.is_identity() {
            return Ok(body.to_owned());
        }
        let name = match self {
            Self::Chat | Self::OpenAiChat | Self::Anthropic => "messages",
            Self::Responses => "input",
            // One prompt, no messages: there is nothing to leave out.
            Self::Generate | Self::Completions => return Ok(body.to_owned()),
        };
        let found;
        let list = match known {
            Some(list) => list,
            None => {
                let fields = Fields::read(body, &[name])?;
                let Some(raw) = fields.get(name) else { return Ok(body.to_owned()) };
                let Some(list) = List::of(body, Some(raw), &json::array(raw)?, 0) else { return Ok(body.to_owned()) };
                found = list;
                &found
            }
        };
        let rebuilt = rebuild(body, list, plan);
        let bytes = json::splice(body, &[(list.range.clone(), rebuilt)]);
        String::from_utf8(bytes).map_err(|_| JsonError::NotPlain)
    }

    /// The messages of a body, each as it is written.
    pub fn written_messages(self, body: &str) -> Vec<&RawValue> {
        let list = match self {
            Self::Chat | Self::OpenAiChat | Self::Anthropic => "messages",
            Self::Responses => "input",
            Self::Generate | Self::Completions => return Vec::new(),
        };
        Fields::read(body, &[list]).and_then(|fields| fields.array(list)).unwrap_or_default()
    }

    /// The messages of a body as JSON text, for showing what would be sent.
    pub fn messages_json(self, body: &str) -> String {
        let list = match self {
            Self::Chat | Self::OpenAiChat | Self::Anthropic => "messages",
            Self::Responses => "input",
            Self::Generate | Self::Completions => "prompt",
        };
        let raw = Fields::read(body, &[list]).ok().and_then(|fields| fields.get(list).map(|raw| raw.get().to_owned()));
        raw.unwrap_or_else(|| "[]".to_owned())
    }

    /// Sets `truncate` to false, so that a wrong guess of ours is an error and not a silent cut. Given is where the
    /// request says it, if it does.
    pub fn forbid_truncation(self, body: Bytes, said: Option<Range<usize>>) -> Bytes {
        if !self.has_truncate() {
            return body;
        }
        let opening = body.iter().position(|byte| *byte == b'{').map_or(0, |brace| brace + 1);
        let (range, text): (Range<usize>, &[u8]) = match said {
            Some(said) => (said, b"false"),
            None => (opening..opening, b"\"truncate\":false,"),
        };
        let mut out = Vec::with_capacity(body.len() + text.len());
        out.extend_from_slice(&body[..range.start]);
        out.extend_from_slice(text);
        out.extend_from_slice(&body[range.end..]);
        out.into()
    }
}

fn user_note(note: &Note) -> String {
    format!("{{\"role\":\"user\",\"content\":{}}}", json::quote(&note.text))
}

fn rebuild(body: &str, list: &List, plan: &Plan) -> String {
    let mut out = String::from("[");
    let mut add = |text: &str| {
        if out.len() > 1 {
            out.push(',');
        }
        out.push_str(text);
    };
    for edit in &plan.edits {
        match edit {
            Edit::Keep(range) => {
                list.elements[range.clone()].iter().for_each(|element| add(&body[element.clone()]));
            }
            Edit::Replace(_, Some(inserted)) => add(&user_note(inserted)),
            Edit::Replace(_, None) => {}
            Edit::Rewrite(index, text) => add(&with_text(&body[list.elements[*index].clone()], text)),
        }
    }
    out.push(']');
    out
}

/// A message with another text. One that has more in it than text stays as it is.
fn with_text(written: &str, text: &str) -> String {
    let replaced = Fields::read(written, &["content"]).ok().and_then(|fields| {
        let content = fields.get("content").filter(|content| content.get().starts_with('"'))?;
        String::from_utf8(json::splice(written, &[(json::range_in(written, content), json::quote(text))])).ok()
    });
    replaced.unwrap_or_else(|| written.to_owned())
}

/// The sampling room a request asks for; negative numbers and zero mean "as much as you like" upstream.
fn answer_room(number: Option<f64>) -> Option<u32> {
    number.filter(|number| *number >= 1.0).map(|number| number as u32)
}

/// Makes a tool call whose arguments are the JSON object `arguments`.
pub(crate) fn tool_call<'a>(
    id: Option<Cow<'a, str>>,
    name: Option<Cow<'a, str>>,
    arguments: Cow<'a, str>,
) -> ToolCall<'a> {
    let canonical_arguments = canonical(&arguments);
    ToolCall { id: id.unwrap_or_default(), name: name.unwrap_or_default(), arguments, canonical_arguments }
}

/// One spelling for equal JSON: keys sorted, no spaces.
fn canonical(json: &str) -> String {
    fn sorted(value: serde_json::Value) -> serde_json::Value {
        match value {
            serde_json::Value::Object(map) => {
                let mut fields: Vec<_> = map.into_iter().map(|(name, value)| (name, sorted(value))).collect();
                fields.sort_by(|left, right| left.0.cmp(&right.0));
                fields.into_iter().collect::<serde_json::Map<_, _>>().into()
            }
            serde_json::Value::Array(items) => items.into_iter().map(sorted).collect(),
            scalar => scalar,
        }
    }
    serde_json::from_str(json).map_or_else(|_| json.to_owned(), |value| sorted(value).to_string())
}
