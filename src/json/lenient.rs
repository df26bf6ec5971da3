//! What Go's decoder would make of a body that is not plain JSON, written as plain JSON.
//!
//! Go matches field names without regard to case, lets the last of several equal fields win, ignores
//! whatever follows the first value, and reads broken UTF-8 and lone surrogates as U+FFFD. This module
//! does the same, in one pass, for the two levels where names mean something to us: the request
//! itself, and the elements of its lists of messages. Anything deeper is copied with its strings mended.
//!
//! It refuses what Go refuses (bad syntax, more than 10,000 levels), by returning `None`.

use std::collections::HashMap;

/// Go's own limit.
const MAX_DEPTH: usize = 10_000;

/// The names that one object's fields are matched against.
#[derive(Debug, Clone, Copy)]
pub struct Names {
    pub known: &'static [&'static str],
    /// Fields that are lists of objects, and the names that matter in those.
    pub lists: &'static [(&'static str, &'static [&'static str])],
}

/// Rewrites a body as plain JSON; `None` if Go could not read it either.
pub fn rewrite(body: &[u8], names: Names) -> Option<String> {
    let mut reader = Reader { bytes: body, position: 0 };
    reader.skip_space();
    let mut out = String::with_capacity(body.len());
    if reader.peek() == Some(b'{') {
        reader.object(names, &mut out)?;
    } else {
        reader.copy(&mut out)?;
    }
    Some(out)
}

struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.position).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.position += 1;
        Some(byte)
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.position += 1;
        }
    }

    fn expect(&mut self, wanted: u8) -> Option<()> {
        self.skip_space();
        (self.next()? == wanted).then_some(())
    }

    /// Reads an object whose names matter: spellings are unified, the last of equals wins.
    fn object(&mut self, names: Names, out: &mut String) -> Option<()> {
        self.expect(b'{')?;
        let mut fields: Vec<(String, String)> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.position += 1;
        } else {
            loop {
                self.skip_space();
                let mut name = String::new();
                self.string(&mut name)?;
                let name = names
                    .known
                    .iter()
                    .find(|known| super::folds_to(&name, known))
                    .map_or(name, |known| (*known).to_owned());
                self.expect(b':')?;
                self.skip_space();
                let mut value = String::new();
                match names.lists.iter().find(|(list, _)| *list == name) {
                    Some((_, known)) if self.peek() == Some(b'[') => self.list(known, &mut value)?,
                    _ => self.copy(&mut value)?,
                }
                match places.get(&name) {
                    // Go merges two objects for one field into one map. Nobody writes that in good faith.
                    Some(&place) if value.starts_with('{') && fields[place].1.starts_with('{') => return None,
                    // Go leaves a field alone when a later `null` comes for it.
                    Some(&place) if value != "null" => fields[place].1 = value,
                    Some(_) => {}
                    None => {
                        places.insert(name.clone(), fields.len());
                        fields.push((name, value));
                    }
                }
                self.skip_space();
                match self.next()? {
                    b',' => {}
                    b'}' => break,
                    _ => return None,
                }
            }
        }
        out.push('{');
        for (index, (name, value)) in fields.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            out.push_str(&super::quote(name));
            out.push(':');
            out.push_str(value);
        }
        out.push('}');
        Some(())
    }

    fn list(&mut self, known: &'static [&'static str], out: &mut String) -> Option<()> {
        self.expect(b'[')?;
        out.push('[');
        self.skip_space();
        if self.peek() == Some(b']') {
            self.position += 1;
            out.push(']');
            return Some(());
        }
        loop {
            self.skip_space();
            if self.peek() == Some(b'{') {
                self.object(Names { known, lists: &[] }, out)?;
            } else {
                self.copy(out)?;
            }
            self.skip_space();
            match self.next()? {
                b',' => out.push(','),
                b']' => break,
                _ => return None,
            }
        }
        out.push(']');
        Some(())
    }

    /// Copies one value of any depth, without recursion: the open brackets are a list.
    fn copy(&mut self, out: &mut String) -> Option<()> {
        let mut open: Vec<u8> = Vec::new();
        loop {
            self.skip_space();
            match self.peek()? {
                bracket @ (b'{' | b'[') => {
                    self.position += 1;
                    out.push(char::from(bracket));
                    open.push(bracket);
                    if open.len() > MAX_DEPTH {
                        return None;
                    }
                    self.skip_space();
                    if self.peek()? == closing(bracket) {
                        // An empty container ends below, as any value does.
                    } else {
                        if bracket == b'{' {
                            self.name(out)?;
                        }
                        continue;
                    }
                }
                b'"' => {
                    let mut text = String::new();
                    self.string(&mut text)?;
                    out.push_str(&super::quote(&text));
                }
                _ => self.scalar(out)?,
            }
            // A value has ended: close what ends with it, or go on to the next one.
            loop {
                let Some(&bracket) = open.last() else { return Some(()) };
                self.skip_space();
                let byte = self.next()?;
                if byte == closing(bracket) {
                    out.push(char::from(byte));
                    open.pop();
                } else if byte == b',' {
                    out.push(',');
                    if bracket == b'{' {
                        self.name(out)?;
                    }
                    break;
                } else {
                    return None;
                }
            }
        }
    }

    fn name(&mut self, out: &mut String) -> Option<()> {
        self.skip_space();
        let mut name = String::new();
        self.string(&mut name)?;
        out.push_str(&super::quote(&name));
        self.expect(b':')?;
        out.push(':');
        Some(())
    }

    /// Numbers and the three words, which must be exactly JSON's.
    fn scalar(&mut self, out: &mut String) -> Option<()> {
        let start = self.position;
        while matches!(self.peek(), Some(b'+' | b'-' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z')) {
            self.position += 1;
        }
        let text = std::str::from_utf8(&self.bytes[start..self.position]).ok()?;
        super::is_json(text).then(|| out.push_str(text))
    }

    fn string(&mut self, out: &mut String) -> Option<()> {
        if self.next()? != b'"' {
            return None;
        }
        loop {
            match self.next()? {
                b'"' => return Some(()),
                b'\\' => self.escape(out)?,
                0..=0x1F => return None,
                byte @ 0x20..=0x7F => out.push(char::from(byte)),
                _ => {
                    self.position -= 1;
                    out.push(self.character());
                }
            }
        }
    }

    /// One character beyond ASCII; each byte that is part of none is a U+FFFD of its own.
    fn character(&mut self) -> char {
        for length in 2..=4 {
            if let Some(bytes) = self.bytes.get(self.position..self.position + length)
                && let Ok(text) = std::str::from_utf8(bytes)
                && let Some(character) = text.chars().next()
            {
                self.position += length;
                return character;
            }
        }
        self.position += 1;
        char::REPLACEMENT_CHARACTER
    }

    fn escape(&mut self, out: &mut String) -> Option<()> {
        out.push(match self.next()? {
            byte @ (b'"' | b'\\' | b'/') => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{C}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.hex()?;
                self.surrogates(first)
            }
            _ => return None,
        });
        Some(())
    }

    fn hex(&mut self) -> Option<u32> {
        let digits = self.bytes.get(self.position..self.position + 4)?;
        let digits =
            std::str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        self.position += 4;
        u32::from_str_radix(digits, 16).ok()
    }

    /// Joins a surrogate pair; a surrogate alone is U+FFFD, and what follows it is read on its own.
    fn surrogates(&mut self, first: u32) -> char {
        if (0xD800..0xDC00).contains(&first) && self.bytes[self.position..].starts_with(b"\\u") {
            let back = self.position;
            self.position += 2;
            if let Some(second @ 0xDC00..0xE000) = self.hex() {
                let code = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
                return char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
            }
            self.position = back;
        }
        char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER)
    }
}

fn closing(bracket: u8) -> u8 {
    if bracket == b'{' { b'}' } else { b']' }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: Names = Names { known: &["model", "messages"], lists: &[("messages", &["role", "content"])] };

    fn rewritten(body: &[u8]) -> Option<String> {
        rewrite(body, NAMES)
    }

    #[test]
    fn names_are_matched_as_go_matches_them_and_the_last_one_wins() {
        let body = r#"{"MODEL":"a","model":"b","meſſages":[{"ROLE":"user","Content":"x"}]} trailing"#;
        assert_eq!(
            rewritten(body.as_bytes()).as_deref(),
            Some(r#"{"model":"b","messages":[{"role":"user","content":"x"}]}"#)
        );
    }

    #[test]
    fn broken_text_becomes_replacement_characters() {
        assert_eq!(
            rewritten(b"{\"model\":\"\xFF\xFE\\ud800x\"}").as_deref(),
            Some("{\"model\":\"\u{FFFD}\u{FFFD}\u{FFFD}x\"}")
        );
        assert_eq!(rewritten(br#"{"model":"\ud83d\ude00"}"#).as_deref(), Some("{\"model\":\"😀\"}"));
    }

    #[test]
    fn depth_costs_no_stack_and_ends_where_go_ends() {
        let nested = |depth: usize| format!("{{\"x\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(rewritten(nested(9_990).as_bytes()).is_some());
        assert!(rewritten(nested(10_001).as_bytes()).is_none());
    }

    #[test]
    fn what_go_cannot_read_is_not_invented() {
        for body in [
            "",
            "{",
            "{\"a\":}",
            "{\"a\":1,}",
            "[1,]",
            "{\"a\":01}",
            "{\"a\" 1}",
            "{\"a\":\"\u{1}\"}",
            "nope",
            "{\"a\":1]",
        ] {
            assert_eq!(rewritten(body.as_bytes()), None, "{body}");
        }
    }

    #[test]
    fn plain_json_keeps_its_meaning() {
        let body = r#" {"a":[1,{"b":null,"c":[]},{}],"model":"m\n\u00e9","n":-1.5e3} "#;
        let before: serde_json::Value = serde_json::from_str(body).expect("json");
        let after: serde_json::Value =
            serde_json::from_str(&rewritten(body.as_bytes()).expect("go reads it")).expect("json");
        assert_eq!(before, after);
    }
}
