//! What hangs on a message besides its text: images in whichever API's words, and code.

use std::collections::VecDeque;

use serde_json::{Value, json};

/// What hangs on one message as its client wrote it.
#[derive(Debug, Default)]
pub(super) struct Attached {
    images: VecDeque<Value>,
    code: Vec<String>,
    /// Tool results by the call they are for: the images in them, and whether they tell of a failure.
    of_results: Vec<(String, Vec<Value>, bool)>,
}

impl Attached {
    /// The next image block; where it was not kept, one that says so.
    pub(super) fn next_image(&mut self) -> Value {
        let lost = || json!({ "type": "image", "source": { "type": "absent" } });
        self.images.pop_front().unwrap_or_else(lost)
    }

    pub(super) fn take_code(&mut self) -> Vec<String> {
        std::mem::take(&mut self.code)
    }

    /// The images in the result of a call, and whether it tells of a failure.
    pub(super) fn of_result(&self, call: &str) -> (Vec<Value>, bool) {
        let found = self.of_results.iter().find(|(id, _, _)| id == call);
        found.map(|(_, images, failed)| (images.clone(), *failed)).unwrap_or_default()
    }
}

/// Reads a message as its client wrote it.
pub(super) fn attached(raw: &str) -> Attached {
    let read: Value = serde_json::from_str(raw).unwrap_or_default();
    let given = read["attachments"].as_array().into_iter().flatten();
    let (pictures, others): (Vec<&Value>, Vec<&Value>) = given.partition(|one| is_image(one));
    let code = others.into_iter().filter_map(fenced).collect();
    let images = blocks(&read).into_iter().chain(pictures.into_iter().map(attachment_block)).collect();
    let mut of_results = Vec::new();
    for block in read["content"].as_array().into_iter().flatten().filter(|block| block["type"] == "tool_result") {
        let inside = block["content"].as_array().into_iter().flatten().filter_map(image_of_part);
        let id = block["tool_use_id"].as_str().unwrap_or_default();
        of_results.push((id.to_owned(), inside.collect(), block["is_error"] == true));
    }
    Attached { images, code, of_results }
}

/// The images of a message as its client wrote it, as image blocks.
pub(super) fn blocks(read: &Value) -> Vec<Value> {
    let native = read["images"].as_array().into_iter().flatten().filter_map(Value::as_str).map(base64_block);
    let parts = ["content", "output"].into_iter().filter_map(|name| read[name].as_array()).flatten();
    native.chain(parts.filter_map(image_of_part)).collect()
}

pub(super) fn is_image(attachment: &Value) -> bool {
    attachment["type"].as_str().is_some_and(|kind| kind.contains("image"))
}

/// Code as people write it in a message. The fence is longer than any inside.
fn fenced(attachment: &Value) -> Option<String> {
    let text = attachment["content"].as_str()?;
    let longest = text.split(|char| char != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    Some(format!("{fence}{}\n{text}\n{fence}", attachment["language"].as_str().unwrap_or_default()))
}

/// An image that was handed over beside a message.
fn attachment_block(attachment: &Value) -> Value {
    if let Some(part) = image_of_part(attachment) {
        return part;
    }
    let text = |name: &str| attachment[name].as_str();
    match text("url").or(text("content")).or(text("data")) {
        Some(url) if url.starts_with("data:") || url.contains("://") => url_block(url),
        Some(data) => base64_block(data),
        None => json!({ "type": "image", "source": { "type": "absent" } }),
    }
}

fn image_of_part(part: &Value) -> Option<Value> {
    match part["type"].as_str()? {
        "image" => part["source"].is_object().then(|| part.clone()),
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
