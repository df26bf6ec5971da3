//! Texts as PostgreSQL takes them: any but those with a NUL in them, which a chat may well have.
//!
//! A NUL is written as a mark and `0`, the mark itself as a mark and `1`. The mark is a character that Unicode
//! guarantees to be nobody's, so nearly every text is stored as it is.

use std::borrow::Cow;

const MARK: char = '\u{10ffff}';

/// A text on its way into the database.
pub(in crate::store) fn written(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', MARK]) {
        return Cow::Borrowed(text);
    }
    let mut written = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        match char {
            '\0' => written.extend([MARK, '0']),
            MARK => written.extend([MARK, '1']),
            char => written.push(char),
        }
    }
    Cow::Owned(written)
}

/// The same on its way back.
pub(in crate::store) fn read(text: &str) -> Cow<'_, str> {
    if !text.contains(MARK) {
        return Cow::Borrowed(text);
    }
    let mut read = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match char {
            // A cut may have left the mark alone.
            MARK => read.extend(chars.next().map(|which| if which == '0' { '\0' } else { MARK })),
            char => read.push(char),
        }
    }
    Cow::Owned(read)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_text_comes_back_and_none_has_a_nul(text in r"[a\x00\u{10ffff}01ü]{0,24}") {
            let stored = written(&text);
            prop_assert!(!stored.contains('\0'));
            prop_assert_eq!(read(&stored), text.as_str());
        }
    }

    #[test]
    fn an_ordinary_text_is_stored_as_it_is() {
        assert!(matches!(written("ahoy"), Cow::Borrowed("ahoy")));
        assert!(matches!(read("ahoy"), Cow::Borrowed("ahoy")));
    }
}
