//! An error as Ollama thinks of it, and its shape in each dialect.
//!
//! Where an error arises decides more than its text: what the `/v1` middleware finds is typed by its
//! status, while the handler's errors get their type from a wrapper that 0.17 hard-coded. The content
//! type differs as well, and a trailing newline; all of that was recorded and is repeated here.

use http::StatusCode;
use serde_json::{Value, json};

use super::Flavour;
use super::go_json;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) message: String,
    pub(super) origin: Origin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// Found while the request was read; on `/v1`, before the native handler ran.
    Reading,
    /// Found by the native handler.
    Handler,
    /// Told by the runner, after a stream had been promised.
    Runner,
}

/// The families of error shapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorShape {
    Native,
    OpenAi,
    Anthropic,
}

impl Refusal {
    pub(super) fn reading(message: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, message: message.into(), origin: Origin::Reading }
    }

    pub(super) fn handler(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), origin: Origin::Handler }
    }

    pub(super) fn runner(message: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, message: message.into(), origin: Origin::Runner }
    }

    /// The body in a dialect's shape, as JSON text.
    pub(super) fn body(&self, shape: ErrorShape, flavour: Flavour) -> String {
        let value = match shape {
            ErrorShape::Native => json!({"error": self.message}),
            ErrorShape::OpenAi => json!({"error": {
                "message": self.message, "type": self.openai_type(flavour), "param": null, "code": null,
            }}),
            ErrorShape::Anthropic => json!({
                "type": "error",
                "error": {"type": type_of_status(self.status), "message": self.message},
                "request_id": format!("req_{}", random_hex()),
            }),
        };
        let mut body = go_json::encode(&value);
        if self.is_rewritten(shape) {
            body.push('\n');
        }
        body
    }

    pub(super) fn content_type(&self, shape: ErrorShape, stream: bool) -> &'static str {
        if self.is_rewritten(shape) || (stream && self.origin == Origin::Runner) {
            "application/json"
        } else {
            "application/json; charset=utf-8"
        }
    }

    /// Whether the `/v1` writer rewrote a native error, rather than the middleware writing its own.
    fn is_rewritten(&self, shape: ErrorShape) -> bool {
        shape != ErrorShape::Native && self.origin != Origin::Reading
    }

    fn openai_type(&self, flavour: Flavour) -> &'static str {
        match (flavour, self.origin) {
            (Flavour::V0_17, Origin::Handler | Origin::Runner) => "api_error",
            (Flavour::V0_17, Origin::Reading) | (Flavour::V0_33, _) => match self.status.as_u16() {
                400 => "invalid_request_error",
                404 => "not_found_error",
                _ => "api_error",
            },
        }
    }
}

fn type_of_status(status: StatusCode) -> &'static str {
    match status.as_u16() {
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        503 | 529 => "overloaded_error",
        _ => "api_error",
    }
}

/// Twenty-four hexadecimal digits, as in Anthropic's ids.
pub(super) fn random_hex() -> String {
    let mut hex = uuid::Uuid::new_v4().simple().to_string();
    hex.truncate(24);
    hex
}

/// A number below `limit`, for the ids that Ollama draws at random.
pub(super) fn random_below(limit: u128) -> u128 {
    // The low bits of a version 4 UUID are all random.
    (uuid::Uuid::new_v4().as_u128() & 0xFFFF_FFFF_FFFF) % limit
}

/// The name Go gives to a JSON value's type in its errors.
pub(super) fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
