//! One message, in the form that Ollama itself turns every dialect into before it renders a prompt.
//!
//! A dialect may write one message of its own as several of these (content parts) or several as one;
//! `source` remembers which of the dialect's messages each came from.

use std::borrow::Cow;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message<'a> {
    pub role: Role<'a>,
    pub text: Cow<'a, str>,
    pub thinking: Cow<'a, str>,
    pub images: u32,
    pub tool_calls: Vec<ToolCall<'a>>,
    pub tool_name: Option<Cow<'a, str>>,
    pub tool_call_id: Option<Cow<'a, str>>,
    /// Index of the dialect's own message.
    pub source: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Role<'a> {
    System,
    User,
    Assistant,
    Tool,
    /// Whatever else a client writes; Ollama takes any role.
    Other(Cow<'a, str>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall<'a> {
    pub id: Cow<'a, str>,
    pub name: Cow<'a, str>,
    /// The arguments as JSON text, as they were written.
    pub arguments: Cow<'a, str>,
    /// The arguments in one fixed spelling, for comparing: clients write them back in their own.
    pub canonical_arguments: String,
}

impl<'a> Role<'a> {
    /// Ollama lowercases roles.
    pub fn named(name: Cow<'a, str>) -> Self {
        let known =
            [("user", Self::User), ("assistant", Self::Assistant), ("system", Self::System), ("tool", Self::Tool)];
        for (text, role) in known {
            if name.eq_ignore_ascii_case(text) {
                return role;
            }
        }
        Self::Other(Cow::Owned(name.to_lowercase()))
    }

    pub fn name(&self) -> &str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
            Self::Other(name) => name,
        }
    }
}

impl<'a> Message<'a> {
    /// A message with nothing but text.
    pub fn plain(role: Role<'a>, text: impl Into<Cow<'a, str>>, source: usize) -> Self {
        Self {
            role,
            text: text.into(),
            thinking: Cow::Borrowed(""),
            images: 0,
            tool_calls: Vec::new(),
            tool_name: None,
            tool_call_id: None,
            source,
        }
    }

    /// The same, with the texts of this one.
    pub fn borrowed(&self) -> Message<'_> {
        Message {
            role: match &self.role {
                Role::System => Role::System,
                Role::User => Role::User,
                Role::Assistant => Role::Assistant,
                Role::Tool => Role::Tool,
                Role::Other(name) => Role::Other(Cow::Borrowed(name)),
            },
            text: Cow::Borrowed(&self.text),
            thinking: Cow::Borrowed(&self.thinking),
            images: self.images,
            tool_calls: self.tool_calls.iter().map(ToolCall::borrowed).collect(),
            tool_name: self.tool_name.as_deref().map(Cow::Borrowed),
            tool_call_id: self.tool_call_id.as_deref().map(Cow::Borrowed),
            source: self.source,
        }
    }

    /// The same with texts of its own.
    pub fn to_owned_message(&self) -> Message<'static> {
        let own = |text: &Cow<'_, str>| Cow::Owned(text.clone().into_owned());
        let call = |call: &ToolCall<'_>| ToolCall {
            id: own(&call.id),
            name: own(&call.name),
            arguments: own(&call.arguments),
            canonical_arguments: call.canonical_arguments.clone(),
        };
        Message {
            role: match &self.role {
                Role::System => Role::System,
                Role::User => Role::User,
                Role::Assistant => Role::Assistant,
                Role::Tool => Role::Tool,
                Role::Other(name) => Role::Other(own(name)),
            },
            text: own(&self.text),
            thinking: own(&self.thinking),
            images: self.images,
            tool_calls: self.tool_calls.iter().map(call).collect(),
            tool_name: self.tool_name.as_ref().map(own),
            tool_call_id: self.tool_call_id.as_ref().map(own),
            source: self.source,
        }
    }
}

impl ToolCall<'_> {
    fn borrowed(&self) -> ToolCall<'_> {
        ToolCall {
            id: Cow::Borrowed(&self.id),
            name: Cow::Borrowed(&self.name),
            arguments: Cow::Borrowed(&self.arguments),
            canonical_arguments: self.canonical_arguments.clone(),
        }
    }
}
