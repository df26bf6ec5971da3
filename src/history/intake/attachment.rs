//! How an attachment looks in a prompt: code in full, an image as a mention, anything else by its type.
//!
//! The data of images never gets into a prompt this way, and neither does the query of an address, which may hold a
//! key.

use serde_json::Value;

use super::python_text;
use super::section::inline;

/// The attachment as text without indentation; more than one line only if it is code.
pub(super) fn shown(attachment: &Value) -> String {
    let kind = attachment.get("type").and_then(Value::as_str);
    match kind {
        Some("code") => match attachment.get("content") {
            Some(content) => fenced(attachment.get("language"), &python_text::text(content)),
            None => "[attachment: code]".to_owned(),
        },
        Some("image" | "image_url" | "input_image") => match image_source(attachment) {
            Some(source) => format!("[image: {}]", inline(&source)),
            None => "[image]".to_owned(),
        },
        Some(other) => match attachment.get("name").and_then(Value::as_str) {
            Some(name) => format!("[attachment: {} {}]", inline(other), inline(name)),
            None => format!("[attachment: {}]", inline(other)),
        },
        None => "[attachment: unknown]".to_owned(),
    }
}

/// A code block whose fence is longer than any row of backticks in the code.
fn fenced(language: Option<&Value>, code: &str) -> String {
    let longest_row = code.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest_row.saturating_add(1).max(3));
    let language = inline(language.and_then(Value::as_str).unwrap_or_default());
    let language: String = language.chars().filter(|c| c.is_alphanumeric() || "+-#._".contains(*c)).collect();
    let code = code.strip_suffix('\n').unwrap_or(code);
    format!("{fence}{language}\n{code}\n{fence}")
}

/// The name of an image, its media type, or where it is to be found.
fn image_source(image: &Value) -> Option<String> {
    let source = image.get("source").unwrap_or(image);
    let declared = ["media_type", "mime_type", "mimeType"].into_iter().find_map(|key| source.get(key)?.as_str());
    let named = ["name", "filename"].into_iter().find_map(|key| image.get(key)?.as_str());
    if let Some(told) = named.or(declared) {
        return Some(told.to_owned());
    }
    let address = source.get("image_url").or_else(|| source.get("url"))?;
    let address = address.as_str().or_else(|| address.get("url")?.as_str())?;
    if let Some(data) = address.strip_prefix("data:") {
        return data.split([';', ',']).next().filter(|media_type| is_media_type(media_type)).map(str::to_owned);
    }
    // Anything that is no address of the web may be the data itself.
    let is_web = address.starts_with("https://") || address.starts_with("http://");
    is_web.then(|| address.split(['?', '#']).next().unwrap_or_default().to_owned())
}

/// Only what `image/…` can be; the start of bare data cannot.
fn is_media_type(text: &str) -> bool {
    text.strip_prefix("image/").is_some_and(|name| name.len() < 32 && !name.contains('/'))
}
