//! The form in which a checked history is kept, key for key as other readers of it expect.
//!
//! Reading is lenient about what older writers left out, because nothing depends on it; writing always gives
//! everything.

use jiff::civil::DateTime;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{python_text, timestamp};

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct History {
    pub messages: Vec<HistoryMessage>,
    #[serde(default)]
    pub total_messages: usize,
    #[serde(default)]
    pub truncated_count: usize,
    #[serde(default)]
    pub metadata: Metadata,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HistoryMessage {
    pub role: String,
    pub content: String,
    #[serde(default = "unknown_time")]
    pub timestamp: String,
    /// Whether `content` is only the beginning of what was said.
    #[serde(default)]
    pub truncated: bool,
    /// Characters before truncation.
    #[serde(default)]
    pub original_length: usize,
    /// Code, images and the like, untouched. They count towards no limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Value>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Metadata {
    pub collection_time: String,
    /// The smallest and the largest timestamp, compared as text.
    pub oldest_message: Option<String>,
    pub newest_message: Option<String>,
}

impl HistoryMessage {
    /// A message in full length, without attachments.
    pub fn new(role: impl Into<String>, content: impl Into<String>, timestamp: impl Into<String>) -> Self {
        let content = content.into();
        Self {
            role: role.into(),
            original_length: python_text::length_chars(&content),
            content,
            timestamp: timestamp.into(),
            truncated: false,
            attachments: Vec::new(),
        }
    }
}

impl History {
    /// Counts and dates messages that are already cut to size.
    pub(super) fn of(messages: Vec<HistoryMessage>, now: DateTime) -> Self {
        let timestamps = || messages.iter().map(|message| &message.timestamp);
        let metadata = Metadata {
            collection_time: timestamp::isoformat(now),
            oldest_message: timestamps().min().cloned(),
            newest_message: timestamps().max().cloned(),
        };
        let truncated_count = messages.iter().filter(|message| message.truncated).count();
        Self { total_messages: messages.len(), truncated_count, metadata, messages }
    }
}

fn unknown_time() -> String {
    "unknown time".to_owned()
}
