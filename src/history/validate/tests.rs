//! What the validator promises, by small examples and by chance.

mod codes;
mod guide;
mod properties;
mod streams;
mod times;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Code, Options, Report, validate};

fn options() -> Options {
    Options::at("2025-11-06T12:00:00Z".parse::<Timestamp>().unwrap())
}

/// A good message; `minute` makes its uuid and its time.
fn message(minute: usize, kind: &str, content: Value) -> Value {
    json!({
        "uuid": format!("m-{minute}"),
        "timestamp": format!("2025-11-06T09:{minute:02}:00Z"),
        "type": kind,
        "sessionId": "abc-123",
        "provider": "cursor",
        "message": { "role": kind, "content": content },
    })
}

fn tool_use(id: &str) -> Value {
    json!({ "type": "tool_use", "id": id, "name": "read_file", "input": { "path": "a.rs" } })
}

fn tool_result(id: &str) -> Value {
    json!({ "type": "tool_result", "tool_use_id": id, "content": "fn main() {}", "is_error": false })
}

/// The message after `change` was made to it.
fn changed(mut message: Value, change: impl FnOnce(&mut Value)) -> Value {
    change(&mut message);
    message
}

fn jsonl(messages: &[Value]) -> String {
    messages.iter().map(|message| format!("{message}\n")).collect()
}

fn check(file: impl AsRef<[u8]>) -> Report {
    validate(file.as_ref(), &options()).unwrap()
}

fn codes(report: &Report) -> Vec<(usize, Code)> {
    report.errors.iter().chain(&report.warnings).map(|issue| (issue.line, issue.code)).collect()
}
