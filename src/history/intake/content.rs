//! What a handed-over message says, and what hangs on it.
//!
//! Content is text, or a list of parts as chat APIs have them: texts are joined line by line, images move to the
//! attachments. A list with anything else in it is not taken apart. Attachments are carried, never looked into.

use serde_json::{Map, Value};

/// Text taken from a list of parts, and the images that stood between.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) text: String,
    pub(super) images: Vec<Value>,
}

/// The parts of a content that is a list of nothing but parts.
pub(super) fn parts(content: &Value) -> Option<Parts> {
    let entries = content.as_array().filter(|entries| !entries.is_empty())?;
    let mut texts = Vec::new();
    let mut images = Vec::new();
    for entry in entries {
        match entry.get("type")?.as_str()? {
            "text" | "input_text" => texts.push(entry.get("text")?.as_str()?),
            "image_url" | "image" | "input_image" => images.push(entry.clone()),
            _ => return None,
        }
    }
    Some(Parts { text: texts.join("\n"), images })
}

/// The attachments of a message as a list; a single one need not be wrapped in a list.
pub(super) fn attachments(message: &Map<String, Value>) -> Vec<Value> {
    match message.get("attachments") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(attachments)) => attachments.clone(),
        Some(single) => vec![single.clone()],
    }
}
