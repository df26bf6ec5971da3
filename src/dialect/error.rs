//! Errors in the shape that a client of each dialect expects.

use http::StatusCode;
use serde_json::json;

use crate::framing::Framing;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorShape {
    Native,
    OpenAi,
    Anthropic,
}

impl ErrorShape {
    /// The shape that clients of a path expect, gated or not.
    pub fn of_path(path: &str) -> Self {
        if path.starts_with("/v1/messages") {
            Self::Anthropic
        } else if path.starts_with("/v1/") {
            Self::OpenAi
        } else {
            Self::Native
        }
    }

    /// The body of an error.
    pub fn body(self, status: StatusCode, message: &str) -> String {
        match self {
            Self::Native => json!({ "error": message }),
            Self::OpenAi => json!({ "error": {
                "message": message, "type": self.kind(status), "param": null, "code": null,
            } }),
            Self::Anthropic => json!({
                "type": "error",
                "error": { "type": self.kind(status), "message": message },
                "request_id": format!("req_{}", uuid::Uuid::new_v4().simple()),
            }),
        }
        .to_string()
    }

    /// A frame that makes a client raise, for a stream that dies before its end.
    pub fn frame(self, framing: Framing, message: &str) -> String {
        let body = self.body(StatusCode::BAD_GATEWAY, message);
        match (framing, self) {
            (Framing::Whole, _) => String::new(),
            (Framing::Ndjson, _) => format!("{body}\n"),
            (Framing::Sse, Self::Anthropic) => format!("event: error\ndata: {body}\n\n"),
            (Framing::Sse, Self::OpenAi | Self::Native) => format!("data: {body}\n\n"),
        }
    }

    fn kind(self, status: StatusCode) -> &'static str {
        match status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 if self == Self::Anthropic => "request_too_large",
            429 => "rate_limit_error",
            503 if self == Self::Anthropic => "overloaded_error",
            400..=499 => "invalid_request_error",
            _ => "api_error",
        }
    }
}
