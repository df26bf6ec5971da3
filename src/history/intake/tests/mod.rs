//! Claims about the intake, preset by preset. Texts are compared whole, because callers match on them.

mod properties;
mod reasoning_first;
mod reasoning_first_limits;
mod requirements_first;
mod requirements_first_limits;
mod section;
mod values;

use jiff::civil::{DateTime, date};
use serde_json::{Value, json};

use super::{Checked, Fatal, History, HistoryMessage, Limits, Preset, check};

const NOW: &str = "2025-10-29T13:30:00.123456";
const TIME: &str = "2025-10-29T13:25:00";

fn now() -> DateTime {
    date(2025, 10, 29).at(13, 30, 0, 123_456_789)
}

fn said(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content, "timestamp": TIME})
}

fn checked(preset: Preset, history: Value) -> Checked {
    check(&history, preset, &Limits::default(), now()).unwrap()
}

fn refused(preset: Preset, history: Value) -> Fatal {
    *check(&history, preset, &Limits::default(), now()).unwrap_err()
}

fn kept(checked: &Checked) -> &History {
    checked.history.as_ref().unwrap()
}

fn only(checked: &Checked) -> &HistoryMessage {
    let [message] = kept(checked).messages.as_slice() else { panic!("{checked:?}") };
    message
}

/// Field, text and given position of every warning.
fn warned(checked: &Checked) -> Vec<(&str, &str, Option<usize>)> {
    checked.warnings.iter().map(|warning| (warning.field.as_str(), warning.message.as_str(), warning.index)).collect()
}

fn contents(history: &History) -> Vec<&str> {
    history.messages.iter().map(|message| message.content.as_str()).collect()
}
