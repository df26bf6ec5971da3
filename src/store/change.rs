//! What the store can be asked to write. Ids and times are made by the code that knows why.

use serde_json::{Value, json};

use super::import::{Import, ImportedSlice};
use super::tokens::NewToken;
use crate::context::identity::ConversationId;
use crate::context::{Link, Message, ToolCall};

/// One thing that happens wholly or not at all.
#[derive(Debug, Clone)]
pub enum Change {
    Begin(BeginTurn),
    Finish(FinishTurn),
    Compaction(Compaction),
    Event(NewEvent),
    /// A conversation that was had elsewhere is to come, without its lines: nobody's until its end.
    ImportBegin(Box<Import>),
    ImportSlice(ImportedSlice),
    /// The conversations are complete, and their users'.
    ImportEnd(Vec<Import>),
    /// Everything that is stored can be found by search afterwards, within reason.
    Index,
    /// A conversation is nobody's from now on.
    Hide(ConversationId),
    /// A part of a conversation goes; rejected when there is nothing left.
    DeleteSlice(ConversationId),
    CreateToken(NewToken),
    RevokeToken {
        id: i64,
        at: i64,
    },
    TokenUsed {
        id: i64,
        at: i64,
    },
    /// A token that was made for one call is not even remembered as one that was.
    ForgetToken(i64),
    /// What was made of a long text, by the text's digest. A digest that is known keeps its body.
    Condensed {
        digest: [u8; 32],
        body: String,
        at: i64,
    },
    /// How far somebody who is told of events has come: the number of the last one. It never goes back.
    Cursor {
        name: String,
        value: i64,
    },
    /// Nothing: the writer is to look whether there is anything.
    Wake,
}

/// A message of a history. System messages are not among them: they add no link, and are kept with
/// the turn that sent them.
#[derive(Debug, Clone)]
pub struct NewMessage {
    pub link: Link,
    pub role: String,
    pub text: String,
    pub thinking: String,
    /// A JSON array.
    pub tool_calls: Option<String>,
    pub tool_name: Option<String>,
    pub tool_call_id: Option<String>,
    pub images: u32,
    /// The message as it came, where it holds more than the fields here.
    pub raw: Option<String>,
}

/// A request that was placed in a conversation.
#[derive(Debug, Clone)]
pub struct BeginTurn {
    pub turn: String,
    pub conversation: ConversationId,
    pub user: String,
    pub at: i64,
    pub model: String,
    pub dialect: &'static str,
    /// Who answers it, where there are several.
    pub upstream: Option<String>,
    /// A JSON array of the system prompts as they were sent.
    pub system: String,
    /// The last message that is known to be stored; none: `messages` start at the root.
    pub after: Option<Link>,
    /// The messages that follow. Those that are stored already are recognised by their links.
    pub messages: Vec<NewMessage>,
}

/// What became of a turn. Only a turn that was begun and not finished can be.
#[derive(Debug, Clone)]
pub struct FinishTurn {
    pub turn: String,
    /// The one that the turn was begun in.
    pub conversation: ConversationId,
    pub at: i64,
    pub status: TurnStatus,
    /// Stored after the turn's last message, as an answer of ours.
    pub answer: Option<NewMessage>,
    /// Nought and empty: it was not counted, or not sent.
    pub arrived_tokens: u32,
    pub sent_tokens: u32,
    pub limit_tokens: u32,
    pub reported_tokens: Option<u32>,
    pub basis: &'static str,
    pub action: &'static str,
    /// Its id and its body.
    pub receipt: Option<(String, String)>,
    /// Who answered it, if that was not who was to.
    pub upstream: Option<String>,
    pub events: Vec<NewEvent>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnStatus {
    Complete,
    Incomplete,
    Cancelled,
    Failed,
    Refused,
}

impl TurnStatus {
    pub const ALL: [Self; 5] = [Self::Complete, Self::Incomplete, Self::Cancelled, Self::Failed, Self::Refused];

    pub fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Incomplete => "incomplete",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
            Self::Refused => "refused",
        }
    }

    /// What this says of the turn's answer: whatever there is of one after a failure is not whole.
    pub(super) fn of_answer(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Cancelled => "cancelled",
            Self::Incomplete | Self::Failed | Self::Refused => "incomplete",
        }
    }
}

/// What was made to leave instead of a history, with all that is needed to take it back.
#[derive(Debug, Clone)]
pub struct Compaction {
    pub conversation: ConversationId,
    pub at: i64,
    /// What leaves instead of the history up to a link. A later one for the same link replaces it.
    pub front: Option<(Link, String)>,
    pub checkpoints: Vec<NewCheckpoint>,
    pub snapshot: Option<NewSnapshot>,
    pub events: Vec<NewEvent>,
}

/// A history as it was: a position in the tree, which no later message changes. An id that is known
/// keeps its snapshot.
#[derive(Debug, Clone)]
pub struct NewSnapshot {
    pub id: String,
    /// The history's last message.
    pub link: Link,
    /// A JSON array of the system prompts.
    pub system: String,
    pub messages: u32,
    pub checkpoints: u32,
    pub tokens: u32,
    pub limit_tokens: u32,
    pub reason: String,
}

/// A summary of a stretch of a history, at three lengths. An id that is known
/// takes what is new.
#[derive(Debug, Clone)]
pub struct NewCheckpoint {
    pub id: String,
    /// The last message that it covers.
    pub covered: Link,
    /// Positions in the history.
    pub first_message: u32,
    pub last_message: u32,
    pub level: u8,
    pub author: String,
    /// Level 1, 2 and 3.
    pub texts: [String; 3],
}

#[derive(Debug, Clone)]
pub struct NewEvent {
    pub at: i64,
    pub kind: &'static str,
    pub conversation: Option<ConversationId>,
    pub user: Option<String>,
    pub body: String,
}

impl Change {
    /// The events in it.
    pub fn events(&self) -> &[NewEvent] {
        match self {
            Self::Event(event) => std::slice::from_ref(event),
            Self::Finish(finish) => &finish.events,
            Self::Compaction(compaction) => &compaction.events,
            Self::Begin(_)
            | Self::ImportBegin(_)
            | Self::ImportSlice(_)
            | Self::ImportEnd(_)
            | Self::Index
            | Self::Hide(_)
            | Self::DeleteSlice(_)
            | Self::CreateToken(_)
            | Self::RevokeToken { .. }
            | Self::TokenUsed { .. }
            | Self::ForgetToken(_)
            | Self::Condensed { .. }
            | Self::Cursor { .. }
            | Self::Wake => &[],
        }
    }

    /// Roughly the memory it takes while it waits.
    pub(super) fn bytes(&self) -> usize {
        const EACH: usize = 256;
        let events = |events: &[NewEvent]| events.iter().map(|event| EACH + event.body.len()).sum::<usize>();
        EACH + match self {
            Self::Begin(begin) => begin.system.len() + begin.messages.iter().map(NewMessage::bytes).sum::<usize>(),
            Self::Finish(finish) => {
                let receipt = finish.receipt.as_ref().map_or(0, |(_, body)| body.len());
                finish.answer.as_ref().map_or(0, NewMessage::bytes) + receipt + events(&finish.events)
            }
            Self::Compaction(compaction) => {
                let texts = compaction.checkpoints.iter().flat_map(|checkpoint| &checkpoint.texts).map(String::len);
                let front = compaction.front.as_ref().map_or(0, |(_, body)| body.len());
                let system = compaction.snapshot.as_ref().map_or(0, |snapshot| snapshot.system.len());
                texts.sum::<usize>() + front + system + events(&compaction.events)
            }
            Self::ImportSlice(slice) => slice.bytes(),
            Self::ImportBegin(import) => import.intake.as_ref().map_or(0, String::len),
            Self::ImportEnd(imports) => imports.iter().map(|import| import.system.len()).sum(),
            Self::Wake => return 0,
            Self::Index
            | Self::Hide(_)
            | Self::DeleteSlice(_)
            | Self::CreateToken(_)
            | Self::RevokeToken { .. }
            | Self::TokenUsed { .. }
            | Self::ForgetToken(_) => 0,
            Self::Event(event) => event.body.len(),
            Self::Condensed { body, .. } => body.len(),
            Self::Cursor { name, .. } => name.len(),
        }
    }
}

impl NewMessage {
    /// A message as it is stored; `raw` where it holds more than that.
    pub fn of(link: Link, message: &Message<'_>, raw: Option<&str>) -> Self {
        let call = |call: &ToolCall<'_>| {
            let arguments: Value =
                serde_json::from_str(&call.arguments).unwrap_or_else(|_| call.arguments.as_ref().into());
            json!({ "id": call.id, "name": call.name, "arguments": arguments })
        };
        let calls: Vec<Value> = message.tool_calls.iter().map(call).collect();
        Self {
            link,
            role: message.role.name().to_owned(),
            text: message.text.clone().into_owned(),
            thinking: message.thinking.clone().into_owned(),
            tool_calls: (!calls.is_empty()).then(|| Value::from(calls).to_string()),
            tool_name: message.tool_name.as_ref().map(|name| name.clone().into_owned()),
            tool_call_id: message.tool_call_id.as_ref().map(|id| id.clone().into_owned()),
            images: message.images,
            raw: raw.map(str::to_owned),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let optional = [&self.tool_calls, &self.tool_name, &self.tool_call_id, &self.raw];
        let optional: usize = optional.into_iter().flatten().map(String::len).sum();
        256 + self.text.len() + self.thinking.len() + optional
    }
}
