//! The texts of a message, for comparing them with its metadata.
//!
//! They are not kept when a line is first read, since few lines need them; this
//! reads such a line again. Nothing else of the line is stored.

use std::borrow::Cow;

use serde::de::{DeserializeSeed, MapAccess, SeqAccess};

use super::reading::{Any, Kind, ReadWord, Reading, Skim};

/// Shorter strings repeat by chance.
const REPEAT_CHARACTERS: usize = 16;
/// From this length on, a part of a text counts as a repetition too.
const PART_CHARACTERS: usize = 64;

/// The texts of the message in `line`, its thinking and its tool results that
/// are long enough to be compared.
pub(super) fn of_message(line: &str) -> serde_json::Result<Vec<Cow<'_, str>>> {
    let mut texts = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_str(line);
    Any(ReadTexts { inside: Inside::Line, texts: &mut texts }).deserialize(&mut deserializer)?;
    Ok(texts)
}

pub(super) fn is_long_enough(text: &str) -> bool {
    has_characters(text, REPEAT_CHARACTERS)
}

/// Whether two strings are equal, or one is a long part of the other.
pub(super) fn is_repeated(candidate: &str, text: &str) -> bool {
    if candidate == text {
        return true;
    }
    let (short, long) = if candidate.len() < text.len() { (candidate, text) } else { (text, candidate) };
    has_characters(short, PART_CHARACTERS) && memchr::memmem::find(long.as_bytes(), short.as_bytes()).is_some()
}

fn has_characters(text: &str, count: usize) -> bool {
    text.len() >= count && text.chars().nth(count - 1).is_some()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    Line,
    Message,
    Content,
}

impl Inside {
    /// Where the value under `key` stands, if texts may be found there.
    fn under(self, key: &str) -> Option<Self> {
        match (self, key) {
            (Self::Line, "message") => Some(Self::Message),
            (Self::Message, "content") | (Self::Content, "text" | "thinking" | "content") => Some(Self::Content),
            (Self::Line | Self::Message | Self::Content, _) => None,
        }
    }
}

struct ReadTexts<'s, 'de> {
    inside: Inside,
    texts: &'s mut Vec<Cow<'de, str>>,
}

impl<'de> ReadTexts<'_, 'de> {
    fn again(&mut self, inside: Inside) -> Any<ReadTexts<'_, 'de>> {
        Any(ReadTexts { inside, texts: self.texts })
    }

    fn wants(&self, text: &str) -> bool {
        self.inside == Inside::Content && is_long_enough(text)
    }
}

impl<'de> Reading<'de> for ReadTexts<'_, 'de> {
    type Out = ();

    fn other(self, _: Kind) {}

    fn text(self, text: &str) {
        if self.wants(text) {
            self.texts.push(Cow::Owned(text.to_owned()));
        }
    }

    fn borrowed_text(self, text: &'de str) {
        if self.wants(text) {
            self.texts.push(Cow::Borrowed(text));
        }
    }

    fn array<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(self.again(self.inside))?.is_some() {}
        Ok(())
    }

    fn object<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<(), A::Error> {
        while let Some(key) = fields.next_key_seed(Any(ReadWord))? {
            match self.inside.under(key.as_text().unwrap_or_default()) {
                Some(inside) => fields.next_value_seed(self.again(inside))?,
                None => drop(fields.next_value_seed(Any(Skim))?),
            }
        }
        Ok(())
    }
}
