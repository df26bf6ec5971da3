//! JSON values as Python shows them, because the callers that hand over histories know these names and texts.
//!
//! Only what the intake prints is here: names of types, plain values as text, what counts as blank. Arrays and
//! objects become compact JSON, not Python's own notation.

use serde_json::{Number, Value};

/// Foreign text is quoted in findings up to this length.
const QUOTED_CHARS: usize = 200;

/// The name of the type a Python caller would see.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "NoneType",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float",
        Value::Number(_) => "int",
        Value::String(_) => "str",
        Value::Array(_) => "list",
        Value::Object(_) => "dict",
    }
}

/// What `str()` gives for plain values, compact JSON for the others.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => number_text(number),
        Value::String(text) => text.clone(),
        Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// Whether Python takes the value for false.
pub(super) fn is_falsy(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(truth) => !truth,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(entries) => entries.is_empty(),
        Value::Object(entries) => entries.is_empty(),
    }
}

/// Without the blanks around it. Python also counts four separators of ASCII as blank.
pub(super) fn strip(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c))
}

pub(super) fn length_chars(text: &str) -> usize {
    text.chars().count()
}

/// The first `limit_chars` characters, or all if there are no more.
pub(super) fn first_chars(text: &str, limit_chars: usize) -> &str {
    text.char_indices().nth(limit_chars).and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

/// Foreign text short enough to be quoted in a finding.
pub(super) fn clipped(text: &str) -> String {
    let kept = first_chars(text, QUOTED_CHARS);
    if kept.len() < text.len() { format!("{kept}…") } else { kept.to_owned() }
}

fn number_text(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => float_text(float),
        _ => number.to_string(),
    }
}

/// Python writes an exponent below 1e-4 and from 1e16 on, with a sign and at least two digits.
fn float_text(float: f64) -> String {
    if float == 0.0 || (1e-4..1e16).contains(&float.abs()) {
        return format!("{float:?}");
    }
    let scientific = format!("{float:e}");
    match scientific.split_once('e') {
        Some((mantissa, exponent)) => match exponent.strip_prefix('-') {
            Some(digits) => format!("{mantissa}e-{digits:0>2}"),
            None => format!("{mantissa}e+{exponent:0>2}"),
        },
        None => scientific,
    }
}
