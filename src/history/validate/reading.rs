//! How JSON is read here: every value is accepted, and what it was is remembered.
//!
//! Ordinary typed reading stops at the first wrong type. A validator must go on
//! and name all faults of a line, so a reader here says only what it does with
//! the kinds it cares about; the rest is skimmed. Skimming still decodes every
//! string and number, and keeps serde_json's depth limit, so that no line passes
//! that a plain reader would refuse.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// More unknown keys than this are not watched for repetition, in one object.
const WATCHED_KEYS: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Null,
    Boolean,
    Number,
    String,
    Array,
    Object,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Null => "null",
            Self::Boolean => "boolean",
            Self::Number => "number",
            Self::String => "string",
            Self::Array => "array",
            Self::Object => "object",
        })
    }
}

/// What to make of one JSON value.
pub(super) trait Reading<'de>: Sized {
    type Out;

    /// The value was of this kind and nothing more is known of it.
    fn other(self, kind: Kind) -> Self::Out;

    fn flag(self, _flag: bool) -> Self::Out {
        self.other(Kind::Boolean)
    }

    /// A whole number of zero or more.
    fn count(self, _count: u64) -> Self::Out {
        self.other(Kind::Number)
    }

    fn text(self, _text: &str) -> Self::Out {
        self.other(Kind::String)
    }

    /// A string without escapes, which can be kept without a copy.
    fn borrowed_text(self, text: &'de str) -> Self::Out {
        self.text(text)
    }

    fn array<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Out, A::Error> {
        while items.next_element_seed(Any(Skim))?.is_some() {}
        Ok(self.other(Kind::Array))
    }

    fn object<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Out, A::Error> {
        while fields.next_key::<IgnoredAny>()?.is_some() {
            fields.next_value_seed(Any(Skim))?;
        }
        Ok(self.other(Kind::Object))
    }
}

/// Hands a value to a [`Reading`].
#[derive(Debug)]
pub(super) struct Any<R>(pub(super) R);

impl<'de, R: Reading<'de>> DeserializeSeed<'de> for Any<R> {
    type Value = R::Out;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<R::Out, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, R: Reading<'de>> Visitor<'de> for Any<R> {
    type Value = R::Out;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<R::Out, E> {
        Ok(self.0.other(Kind::Null))
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<R::Out, E> {
        Ok(self.0.flag(flag))
    }

    fn visit_u64<E: Error>(self, count: u64) -> Result<R::Out, E> {
        Ok(self.0.count(count))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<R::Out, E> {
        Ok(self.0.other(Kind::Number))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<R::Out, E> {
        Ok(self.0.other(Kind::Number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<R::Out, E> {
        Ok(self.0.text(text))
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<R::Out, E> {
        Ok(self.0.borrowed_text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<R::Out, A::Error> {
        self.0.array(items)
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<R::Out, A::Error> {
        self.0.object(fields)
    }
}

/// Learns only the kind of a value.
#[derive(Debug)]
pub(super) struct Skim;

impl Reading<'_> for Skim {
    type Out = Kind;

    fn other(self, kind: Kind) -> Kind {
        kind
    }
}

/// A field that should be a short string.
#[derive(Debug, Default)]
pub(super) enum Word<'a> {
    #[default]
    Absent,
    Text(Cow<'a, str>),
    Other(Kind),
}

impl Word<'_> {
    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Absent | Self::Other(_) => None,
        }
    }
}

#[derive(Debug)]
pub(super) struct ReadWord;

impl<'de> Reading<'de> for ReadWord {
    type Out = Word<'de>;

    fn other(self, kind: Kind) -> Word<'de> {
        Word::Other(kind)
    }

    fn text(self, text: &str) -> Word<'de> {
        Word::Text(Cow::Owned(text.to_owned()))
    }

    fn borrowed_text(self, text: &'de str) -> Word<'de> {
        Word::Text(Cow::Borrowed(text))
    }
}

/// A place for an object that may hold something else.
#[derive(Debug)]
pub(super) enum Shaped<T> {
    Object(T),
    Other(Kind),
}

/// Walks the keys of one object and notes the first that comes twice.
#[derive(Debug)]
pub(super) struct Keys<'de, A> {
    known: &'static [&'static str],
    seen: u32,
    others: Option<HashSet<Cow<'de, str>, foldhash::fast::RandomState>>,
    pub(super) repeated: Option<Box<str>>,
    fields: PhantomData<A>,
}

impl<'de, A: MapAccess<'de>> Keys<'de, A> {
    /// `known` holds at most 32 names.
    pub(super) fn new(known: &'static [&'static str]) -> Self {
        Self { known, seen: 0, others: None, repeated: None, fields: PhantomData }
    }

    /// The next key that is known; values under other keys are skimmed.
    pub(super) fn next(&mut self, fields: &mut A) -> Result<Option<&'static str>, A::Error> {
        while let Some(key) = fields.next_key_seed(Any(ReadWord))? {
            // JSON keys are always strings.
            let Word::Text(key) = key else { continue };
            if let Some(place) = self.known.iter().position(|known| *known == key) {
                let bit = 1 << place;
                if self.seen & bit != 0 {
                    self.repeat(&key);
                }
                self.seen |= bit;
                return Ok(self.known.get(place).copied());
            }
            self.watch(key);
            fields.next_value_seed(Any(Skim))?;
        }
        Ok(None)
    }

    fn watch(&mut self, key: Cow<'de, str>) {
        let others = self.others.get_or_insert_default();
        if others.contains(&key) {
            self.repeat(&key);
        } else if others.len() < WATCHED_KEYS {
            others.insert(key);
        }
    }

    fn repeat(&mut self, key: &str) {
        if self.repeated.is_none() {
            self.repeated = Some(key.into());
        }
    }
}
