//! JSON as it arrives: read without copying, edited without touching what is kept.
//!
//! A body is never turned into a tree. [`Fields`] lists the fields of one object as slices of the
//! original text; [`splice`] writes the body again with some of those slices replaced. What is not
//! replaced leaves byte by byte as it came, unknown fields included.
//!
//! Ollama's decoder is Go's, and Go takes more than JSON: keys in any case, duplicates, text after the
//! end, broken UTF-8. Such a body is first rewritten by [`lenient`] into the plain JSON that Go would
//! have understood; everything after that sees plain JSON only.

pub mod lenient;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Why a piece of JSON could not be read as what was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// Go might still read it: see [`lenient`].
    #[error("this is not plain JSON")]
    NotPlain,
    /// Plain JSON, but not of the type that the API wants here. Ollama refuses it, so it may go there.
    #[error("a field has a type that the API does not take")]
    WrongType,
    /// Ollama would take it, and come to harm.
    #[error("{0}")]
    Harmful(&'static str),
}

/// The fields of one JSON object, in order, as slices of the original text.
#[derive(Debug)]
pub struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Fields<'a> {
    /// Reads an object. `known` are the names the caller will ask for: a second spelling of one of them,
    /// or the same one twice, makes the object not plain.
    ///
    /// `null` is read as an object without fields, as Go reads it.
    pub fn read(json: &'a str, known: &[&str]) -> Result<Self, JsonError> {
        if json.trim() == "null" {
            return Ok(Self(Vec::new()));
        }
        let mut deserializer = serde_json::Deserializer::from_str(json);
        let fields = Fields::deserialize(&mut deserializer).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => JsonError::WrongType,
            _ => JsonError::NotPlain,
        })?;
        deserializer.end().map_err(|_| JsonError::NotPlain)?;
        for (index, (name, _)) in fields.0.iter().enumerate() {
            if known.contains(&name.as_ref()) {
                if fields.0[..index].iter().any(|(earlier, _)| earlier == name) {
                    return Err(JsonError::NotPlain);
                }
            } else if known.iter().any(|known| folds_to(name, known)) {
                return Err(JsonError::NotPlain);
            }
        }
        Ok(fields)
    }

    /// A field that is there and is not `null` (which Go reads as absent). The last of several wins.
    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.written(name).filter(|value| value.get() != "null")
    }

    /// A field as it is written, `null` included.
    pub fn written(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().rev().find(|(field, _)| field == name).map(|(_, value)| *value)
    }

    pub fn text(&self, name: &str) -> Result<Option<Cow<'a, str>>, JsonError> {
        self.get(name).map(text).transpose()
    }

    pub fn flag(&self, name: &str) -> Result<Option<bool>, JsonError> {
        match self.get(name).map(RawValue::get) {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(_) => Err(JsonError::WrongType),
        }
    }

    pub fn number(&self, name: &str) -> Result<Option<f64>, JsonError> {
        let parse = |raw: &RawValue| raw.get().parse::<f64>().ok().filter(|number| number.is_finite());
        self.get(name).map(|raw| parse(raw).ok_or(JsonError::WrongType)).transpose()
    }

    /// The elements of an array field; none when it is absent.
    pub fn array(&self, name: &str) -> Result<Vec<&'a RawValue>, JsonError> {
        self.get(name).map_or_else(|| Ok(Vec::new()), array)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Reads a JSON string.
pub fn text(raw: &RawValue) -> Result<Cow<'_, str>, JsonError> {
    let json = raw.get();
    if !json.starts_with('"') {
        return Err(JsonError::WrongType);
    }
    let inner = &json[1..json.len() - 1];
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Ok(Cow::Borrowed(inner));
    }
    // A lone surrogate is the one thing that a scanned string can still fail with.
    serde_json::from_str::<String>(json).map(Cow::Owned).map_err(|_| JsonError::NotPlain)
}

/// Reads the elements of a JSON array.
pub fn array(raw: &RawValue) -> Result<Vec<&RawValue>, JsonError> {
    struct Elements<'a>(Vec<&'a RawValue>);
    impl<'de> Deserialize<'de> for Elements<'de> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Collect;
            impl<'de> Visitor<'de> for Collect {
                type Value = Elements<'de>;
                fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                    formatter.write_str("an array")
                }
                fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                    let mut elements = Vec::new();
                    while let Some(element) = seq.next_element()? {
                        elements.push(element);
                    }
                    Ok(Elements(elements))
                }
            }
            deserializer.deserialize_seq(Collect)
        }
    }
    serde_json::from_str::<Elements<'_>>(raw.get()).map(|elements| elements.0).map_err(|_| JsonError::WrongType)
}

/// Where a slice of a body stands in it.
pub fn range_in(body: &str, part: &RawValue) -> Range<usize> {
    let start = part.get().as_ptr() as usize - body.as_ptr() as usize;
    start..start + part.get().len()
}

/// A body with some of its parts replaced. Parts are given in order and do not overlap.
pub fn splice(body: &str, parts: &[(Range<usize>, String)]) -> Vec<u8> {
    let grows: usize = parts.iter().map(|(_, with)| with.len()).sum();
    let mut out = Vec::with_capacity(body.len() + grows);
    let mut position = 0;
    for (range, with) in parts {
        out.extend_from_slice(&body.as_bytes()[position..range.start]);
        out.extend_from_slice(with.as_bytes());
        position = range.end;
    }
    out.extend_from_slice(&body.as_bytes()[position..]);
    out
}

/// A JSON string, quotes and escapes included.
pub fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Whether Go's decoder takes `name` for the field `known` although they are not equal.
pub fn folds_to(name: &str, known: &str) -> bool {
    let fold = |character: char| match character {
        '\u{17F}' => 's',
        '\u{212A}' => 'k',
        other => other.to_ascii_lowercase(),
    };
    name != known && name.chars().map(fold).eq(known.chars().map(fold))
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Fields<'de>;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::with_capacity(8);
                while let Some(Name(name)) = map.next_key()? {
                    fields.push((name, map.next_value()?));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

/// A field name, borrowed when it has no escapes.
struct Name<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Name<'de>;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a field name")
            }
            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Borrowed(name)))
            }
            fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Owned(name.to_owned())))
            }
        }
        deserializer.deserialize_str(Read)
    }
}

/// Whether a text is one JSON value and nothing else.
pub fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}
