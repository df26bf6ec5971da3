//! The one form that every dialect's request becomes: what Ollama calls a chat or a generate request.
//!
//! It holds only what the simulator acts on. Options stay as they came, because Ollama looks at their
//! types after it has looked for the model.

use serde_json::Value;

use super::go_json::Object;
use super::tools::Tool;

/// One request for an answer.
#[derive(Debug, Clone, Default)]
pub(super) struct Ask {
    /// As the client wrote it; answers repeat it.
    pub(super) model: String,
    pub(super) prompt: Prompt,
    pub(super) tools: Vec<Tool>,
    pub(super) options: Object,
    pub(super) think: Think,
    /// `truncate: false` turns an overflow into an error.
    pub(super) refuse_overflow: bool,
    /// `shift: false` ends the answer where the window ends.
    pub(super) stop_at_window: bool,
    /// `keep_alive` of zero: unload the model afterwards.
    pub(super) unload: bool,
    pub(super) render_only: bool,
    pub(super) stream: bool,
}

#[derive(Debug, Clone)]
pub(super) enum Prompt {
    Chat(Vec<Message>),
    Generate(Box<Generate>),
}

impl Default for Prompt {
    fn default() -> Self {
        Self::Chat(Vec::new())
    }
}

impl Prompt {
    /// An empty prompt asks to load the model, or to unload it.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Chat(messages) => messages.is_empty(),
            Self::Generate(generate) => generate.prompt.is_empty(),
        }
    }
}

/// What only `/api/generate` and `/v1/completions` have.
#[derive(Debug, Clone, Default)]
pub(super) struct Generate {
    pub(super) prompt: String,
    pub(super) system: String,
    pub(super) suffix: String,
    pub(super) raw: bool,
    /// An empty list is not the same as none: it leaves the Modelfile's messages out.
    pub(super) context: Option<Vec<u32>>,
    pub(super) images: Vec<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Think {
    /// Not said: on, where the model can.
    #[default]
    Unset,
    Off,
    On,
    /// As Anthropic's dialect asks: on, and no error where the model cannot.
    OnIfAble,
    /// A level such as `high`, which only some models take.
    Level(String),
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Message {
    pub(super) role: String,
    pub(super) content: String,
    pub(super) thinking: String,
    /// A fingerprint for each image; what it shows does not matter here.
    pub(super) images: Vec<u32>,
    pub(super) tool_calls: Vec<ToolCall>,
    pub(super) tool_name: String,
    pub(super) tool_call_id: String,
}

impl Message {
    pub(super) fn new(role: &str, content: impl Into<String>) -> Self {
        Self { role: role.to_lowercase(), content: content.into(), ..Self::default() }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct ToolCall {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: Object,
}

/// Turns an image's data into a number that is the same for the same image.
pub(super) fn fingerprint(data: &str) -> u32 {
    let hash = blake3::hash(data.as_bytes());
    let bytes = hash.as_bytes();
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Whether a `keep_alive` says zero, in one of the ways Go reads a duration.
pub(super) fn is_zero_duration(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.trim_end_matches(|unit: char| unit.is_ascii_alphabetic()).parse() == Ok(0.0_f64),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
    }
}
