//! The words that Go has for broken JSON, found from what serde_json says about it.
//!
//! Both stop at the same byte in nearly all cases and differ in what they call it. An unfinished text is
//! no case for this file: that is `unexpected EOF` wherever it breaks off.

/// Go's message for a syntax error in `text`.
pub(super) fn message(text: &str, error: &serde_json::Error) -> String {
    let at = offset(text, error).min(text.len().saturating_sub(1));
    let bytes = text.as_bytes();
    let wrong = bytes.get(at).copied().unwrap_or(b' ');
    let said = error.to_string();
    let place = if said.starts_with("expected ident") {
        literal(&bytes[..at])
    } else if said.starts_with("key must be a string") || (said.starts_with("trailing comma") && wrong == b'}') {
        "looking for beginning of object key string".to_owned()
    } else {
        let places = [
            ("expected `:`", "after object key"),
            ("expected `,` or `}`", "after object key:value pair"),
            ("expected `,` or `]`", "after array element"),
            ("control character", "in string literal"),
            ("invalid escape", "in string escape code"),
            ("invalid number", "in numeric literal"),
        ];
        let known = places.iter().find(|(start, _)| said.starts_with(start));
        known.map_or("looking for beginning of value", |(_, place)| place).to_owned()
    };
    format!("invalid character {} {place}", quoted(wrong))
}

/// Where the wrong byte stands. A column of zero means the line break before the line.
fn offset(text: &str, error: &serde_json::Error) -> usize {
    let lines_before = text.split_inclusive('\n').take(error.line().saturating_sub(1));
    (lines_before.map(str::len).sum::<usize>() + error.column()).saturating_sub(1)
}

/// Which literal was begun, and what should have come next.
fn literal(before: &[u8]) -> String {
    for literal in ["null", "true", "false"] {
        for begun in (1..literal.len()).rev() {
            if before.ends_with(&literal.as_bytes()[..begun]) {
                return format!("in literal {literal} (expecting '{}')", &literal[begun..=begun]);
            }
        }
    }
    "looking for beginning of value".to_owned()
}

/// Go takes each byte for a character of its own.
fn quoted(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        other => format!("'{}'", char::from(other).escape_debug()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each answer was measured on Ollama 0.17.4.
    #[test]
    fn broken_json_is_called_what_go_calls_it() {
        let cases = [
            (r#"{"a": nope}"#, "'o' in literal null (expecting 'u')"),
            (r#"{"a": tru}"#, "'}' in literal true (expecting 'e')"),
            (r#"{"a":1,}"#, "'}' looking for beginning of object key string"),
            ("{'a':1}", r"'\'' looking for beginning of object key string"),
            ("{1:2}", "'1' looking for beginning of object key string"),
            (r#"{"a" 1}"#, "'1' after object key"),
            (r#"{"a":1 "b"}"#, "'\"' after object key:value pair"),
            (r#"{"a":[1 2]}"#, "'2' after array element"),
            (r#"{"a":[1,]}"#, "']' looking for beginning of value"),
            (r#"{"a":"\q"}"#, "'q' in string escape code"),
            ("{\"a\":\"\n\"}", r"'\n' in string literal"),
            (r#"{"a":-x}"#, "'x' in numeric literal"),
            ("}", "'}' looking for beginning of value"),
            ("é", "'Ã' looking for beginning of value"),
        ];
        for (text, expected) in cases {
            let error = serde_json::from_str::<serde_json::Value>(text).expect_err(text);
            assert_eq!(message(text, &error), format!("invalid character {expected}"), "{text}");
        }
    }
}
