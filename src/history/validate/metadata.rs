//! Looks into `providerMetadata`, which belongs to the provider and is otherwise
//! left alone.
//!
//! Two things matter in it: whether the writer vouches for a pause, and whether
//! it repeats the text of the message. Most strings are ruled out by their length;
//! only if one is left is the message read a second time. The comparing has a
//! budget, so a hostile line cannot make it long.

use std::borrow::Cow;

use serde::de::{DeserializeSeed, MapAccess, SeqAccess};
use serde_json::value::RawValue;

use super::content::TextLengths;
use super::reading::{Any, Kind, ReadWord, Reading, Shaped, Word};
use super::texts;

const MAX_CANDIDATES: usize = 256;
const COMPARE_BUDGET_BYTES: usize = 256 << 20;

#[derive(Debug, Default)]
pub(super) struct Metadata<'a> {
    /// The writer says that the session was taken up again here.
    pub(super) resumed: bool,
    candidates: Vec<Candidate<'a>>,
}

/// A string that may repeat the message, and the top key it was found under.
#[derive(Debug)]
struct Candidate<'a> {
    key: String,
    text: Cow<'a, str>,
}

/// Refuses only what is not JSON.
pub(super) fn read(raw: &RawValue, lengths: TextLengths) -> serde_json::Result<Shaped<Metadata<'_>>> {
    let mut deserializer = serde_json::Deserializer::from_str(raw.get());
    Any(ReadMetadata { lengths }).deserialize(&mut deserializer)
}

impl Metadata<'_> {
    /// The top key under which a text of the message in `line` is repeated.
    pub(super) fn repeats(&self, line: &str) -> Option<&str> {
        if self.candidates.is_empty() {
            return None;
        }
        let texts = texts::of_message(line).ok()?;
        let mut budget_bytes = COMPARE_BUDGET_BYTES;
        for candidate in &self.candidates {
            for text in &texts {
                budget_bytes = budget_bytes.checked_sub(text.len() + candidate.text.len())?;
                if texts::is_repeated(&candidate.text, text) {
                    return Some(&candidate.key);
                }
            }
        }
        None
    }
}

struct ReadMetadata {
    lengths: TextLengths,
}

impl<'de> Reading<'de> for ReadMetadata {
    type Out = Shaped<Metadata<'de>>;

    fn other(self, kind: Kind) -> Self::Out {
        Shaped::Other(kind)
    }

    fn object<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Out, A::Error> {
        let mut metadata = Metadata::default();
        while let Some(key) = fields.next_key_seed(Any(ReadWord))? {
            let key = key.as_text().unwrap_or_default();
            let candidates = &mut metadata.candidates;
            let is_true = fields.next_value_seed(Any(ReadValue { key, lengths: self.lengths, candidates }))?;
            metadata.resumed |= key == "resumed" && is_true;
        }
        Ok(Shaped::Object(metadata))
    }
}

/// Says whether a value is `true`, and gathers the strings in it.
struct ReadValue<'s, 'de> {
    key: &'s str,
    lengths: TextLengths,
    candidates: &'s mut Vec<Candidate<'de>>,
}

impl<'de> ReadValue<'_, 'de> {
    fn again(&mut self) -> Any<ReadValue<'_, 'de>> {
        Any(ReadValue { key: self.key, lengths: self.lengths, candidates: self.candidates })
    }

    fn note(self, text: &str, keep: impl FnOnce() -> Cow<'de, str>) {
        let may_repeat = texts::is_long_enough(text) && self.lengths.may_match(text.len());
        if may_repeat && self.candidates.len() < MAX_CANDIDATES {
            self.candidates.push(Candidate { key: self.key.to_owned(), text: keep() });
        }
    }
}

impl<'de> Reading<'de> for ReadValue<'_, 'de> {
    type Out = bool;

    fn other(self, _: Kind) -> bool {
        false
    }

    fn flag(self, flag: bool) -> bool {
        flag
    }

    fn text(self, text: &str) -> bool {
        self.note(text, || Cow::Owned(text.to_owned()));
        false
    }

    fn borrowed_text(self, text: &'de str) -> bool {
        self.note(text, || Cow::Borrowed(text));
        false
    }

    fn array<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<bool, A::Error> {
        while items.next_element_seed(self.again())?.is_some() {}
        Ok(false)
    }

    fn object<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<bool, A::Error> {
        while let Some(Word::Text(_)) = fields.next_key_seed(Any(ReadWord))? {
            fields.next_value_seed(self.again())?;
        }
        Ok(false)
    }
}
