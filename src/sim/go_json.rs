//! JSON as Go reads and writes it, as far as clients can tell the difference.
//!
//! Reading: field names match without regard to case, `null` is an absent field, what follows the first
//! value is ignored, and errors have Go's words. Writing: `<`, `>`, `&` and two line separators are
//! escaped. Lone surrogates, which Go mends, are refused here: serde_json cannot read them.

use serde_json::{Map, Value};

use super::go_syntax;
use super::refusal::Refusal;

pub(super) type Object = Map<String, Value>;

/// Writes a value on one line, escaped as Go's encoder does it.
pub(super) fn encode(value: &Value) -> String {
    let plain = value.to_string();
    if !plain.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return plain;
    }
    // These characters occur inside strings only, so they can be replaced in the text.
    let mut out = String::with_capacity(plain.len() + 64);
    for character in plain.chars() {
        match character {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            other => out.push(other),
        }
    }
    out
}

/// Reads a request body. `go_type` is the struct that Go would name; `if_empty` its word for no body.
pub(super) fn decode(body: &[u8], go_type: &str, if_empty: &str) -> Result<Object, Refusal> {
    let text = String::from_utf8_lossy(body);
    if text.trim_ascii().is_empty() {
        return Err(Refusal::reading(if_empty));
    }
    match serde_json::Deserializer::from_str(&text).into_iter::<Value>().next() {
        Some(Ok(Value::Object(object))) => Ok(object),
        None | Some(Ok(Value::Null)) => Ok(Object::new()),
        Some(Ok(other)) => {
            let kind = json_kind(&other);
            Err(Refusal::reading(format!("json: cannot unmarshal {kind} into Go value of type {go_type}")))
        }
        Some(Err(error)) if error.is_eof() => Err(Refusal::reading("unexpected EOF")),
        Some(Err(error)) => Err(Refusal::reading(go_syntax::message(&text, &error))),
    }
}

/// A field that is there and not `null`; of several spellings, the last.
pub(super) fn field<'a>(object: &'a Object, name: &str) -> Option<&'a Value> {
    let mut latest_first = object.iter().rev();
    latest_first.find(|(key, value)| key.eq_ignore_ascii_case(name) && !value.is_null()).map(|(_, value)| value)
}

/// A string field, empty when absent. `owner` is the Go struct that an error would name.
pub(super) fn text(object: &Object, name: &str, owner: &str) -> Result<String, Refusal> {
    match field(object, name) {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(mismatch(other, owner, name, "string")),
    }
}

pub(super) fn flag(object: &Object, name: &str, owner: &str) -> Result<Option<bool>, Refusal> {
    match field(object, name) {
        None => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(other) => Err(mismatch(other, owner, name, "bool")),
    }
}

pub(super) fn whole(object: &Object, name: &str, owner: &str) -> Result<Option<i64>, Refusal> {
    match field(object, name) {
        None => Ok(None),
        Some(value) => value.as_i64().map(Some).ok_or_else(|| mismatch(value, owner, name, "int")),
    }
}

/// The elements of an array field; none when it is absent.
pub(super) fn list<'a>(object: &'a Object, name: &str, owner: &str, go_type: &str) -> Result<&'a [Value], Refusal> {
    match field(object, name) {
        None => Ok(&[]),
        Some(Value::Array(list)) => Ok(list),
        Some(other) => Err(mismatch(other, owner, name, go_type)),
    }
}

/// An element of a list that has to be an object.
pub(super) fn object<'a>(value: &'a Value, owner: &str, name: &str, go_type: &str) -> Result<&'a Object, Refusal> {
    value.as_object().ok_or_else(|| mismatch(value, owner, name, go_type))
}

pub(super) fn mismatch(value: &Value, owner: &str, name: &str, go_type: &str) -> Refusal {
    let kind = match value {
        Value::Number(number) if go_type == "int" => format!("number {number}"),
        other => json_kind(other).to_owned(),
    };
    Refusal::reading(format!("json: cannot unmarshal {kind} into Go struct field {owner}.{name} of type {go_type}"))
}

pub(super) fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn go_escapes_what_html_would_read() {
        assert_eq!(encode(&json!({"a": "<|x|>&\u{2028}"})), "{\"a\":\"\\u003c|x|\\u003e\\u0026\\u2028\"}");
    }

    #[test]
    fn broken_bodies_get_the_words_go_has_for_them() {
        let message = |body: &str| {
            decode(body.as_bytes(), "api.ChatRequest", "missing request body").map_err(|refusal| refusal.message)
        };
        assert_eq!(message(" \n"), Err("missing request body".to_owned()));
        assert_eq!(message("{"), Err("unexpected EOF".to_owned()));
        assert_eq!(message("[]"), Err("json: cannot unmarshal array into Go value of type api.ChatRequest".to_owned()));
        assert_eq!(message("{\"a\":x}"), Err("invalid character 'x' looking for beginning of value".to_owned()));
        assert_eq!(message("{} trailing").map(|object| object.len()), Ok(0));
    }

    #[test]
    fn names_match_in_any_case() {
        let object = decode(br#"{"MODEL":"a"}"#, "", "").expect("an object");
        assert_eq!(text(&object, "model", "").expect("a string"), "a");
    }
}
