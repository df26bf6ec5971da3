//! The upstream's own word that a prompt does not fit, in the shapes of both known versions.

use http::StatusCode;

use crate::context::{Tokens, Window};
use crate::json::Fields;

/// What an overflow error says. Older versions say nothing but that it is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overflow {
    pub prompt_tokens: Option<Tokens>,
    pub window: Option<Window>,
}

/// Reads an error body; `None` if it is about something else.
pub fn read(status: StatusCode, body: &str) -> Option<Overflow> {
    if status != StatusCode::BAD_REQUEST {
        return None;
    }
    let message = message(body)?;
    if message.contains("exceeds the context length") || message.contains("exceeds maximum context length") {
        return Some(Overflow::default());
    }
    if !message.contains("exceed_context_size_error") && !message.contains("exceeds the available context size") {
        return None;
    }
    // The newer shape is an error object inside the text of the error.
    let inner = Fields::read(&message, &[]).ok();
    let inner = inner.as_ref().and_then(|fields| fields.get("error")).map_or("{}", |raw| raw.get());
    let numbers = Fields::read(inner, &[]).ok()?;
    let number = |name| numbers.number(name).ok().flatten().map(|number| number as u32);
    Some(Overflow { prompt_tokens: number("n_prompt_tokens"), window: number("n_ctx") })
}

/// The text of an error in any of the three shapes.
fn message(body: &str) -> Option<String> {
    let fields = Fields::read(body.trim(), &[]).ok()?;
    let error = fields.get("error")?;
    if error.get().starts_with('"') {
        return crate::json::text(error).ok().map(|text| text.into_owned());
    }
    Fields::read(error.get(), &[]).ok()?.text("message").ok()?.map(|text| text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_errors_are_understood() {
        let older = r#"{"error":"the input length exceeds the context length"}"#;
        assert_eq!(read(StatusCode::BAD_REQUEST, older), Some(Overflow::default()));
        let newer = r#"{"error":"{\"error\":{\"code\":400,\"message\":\"request (1504 tokens) exceeds the available context size (512 tokens), try increasing it\",\"type\":\"exceed_context_size_error\",\"n_prompt_tokens\":1504,\"n_ctx\":512}}"}"#;
        assert_eq!(
            read(StatusCode::BAD_REQUEST, newer),
            Some(Overflow { prompt_tokens: Some(1504), window: Some(512) })
        );
    }

    #[test]
    fn other_errors_are_left_alone() {
        assert_eq!(read(StatusCode::BAD_REQUEST, r#"{"error":"model is required"}"#), None);
        assert_eq!(read(StatusCode::NOT_FOUND, r#"{"error":"exceeds the context length"}"#), None);
    }
}
