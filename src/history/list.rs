//! Reading a list of messages from JSON without letting it take more memory than it is worth.
//!
//! A body of some megabytes can hold millions of numbers, each many times its size in memory. So the elements are
//! read one by one, and reading stops at the first that is one too many, or too large.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// Messages of one list. Longer histories come as canonical JSONL.
const MAX_MESSAGES: usize = 100_000;

/// Bytes of one message, its attachments included.
const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// Bytes of anything that is no list.
const MAX_OTHER_BYTES: usize = 64 << 10;

/// What a body says: a list, by itself or under one of its names.
#[derive(Debug, Default)]
pub(super) struct Body {
    /// None: an object without a list.
    pub(super) history: Option<Value>,
    pub(super) preset: Option<Value>,
    pub(super) model: Option<String>,
    /// Whether it is a line of canonical JSONL instead.
    pub(super) is_session: bool,
}

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BodyVisitor)
    }
}

struct BodyVisitor;

impl<'de> Visitor<'de> for BodyVisitor {
    type Value = Body;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of messages, or an object with one")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<Body, A::Error> {
        ListVisitor.visit_seq(elements).map(|history| Body { history: Some(history), ..Body::default() })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Body, A::Error> {
        let (mut body, mut named) = (Body::default(), [false; 2]);
        while let Some(name) = fields.next_key::<String>()? {
            match name.as_str() {
                "conversation_history" => body.history = Some(fields.next_value::<List>()?.0),
                // The other name goes before it.
                "messages" if body.history.is_none() => body.history = Some(fields.next_value::<List>()?.0),
                "preset" => body.preset = Some(fields.next_value::<Small>()?.0).filter(|preset| !preset.is_null()),
                "model" => body.model = fields.next_value::<Small>()?.0.as_str().map(str::to_owned),
                _ => {
                    named[0] |= name == "sessionId";
                    named[1] |= name == "uuid";
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        body.is_session = named == [true; 2];
        Ok(body)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Body, E> {
        Ok(Body { history: Some(Value::Null), ..Body::default() })
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Body, E> {
        Ok(Body { history: Some(value.into()), ..Body::default() })
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Body, E> {
        Ok(Body { history: Some(value.into()), ..Body::default() })
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Body, E> {
        Ok(Body { history: Some(value.into()), ..Body::default() })
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Body, E> {
        Ok(Body { history: Some(value.into()), ..Body::default() })
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Body, E> {
        Ok(Body { history: Some(value.into()), ..Body::default() })
    }
}

/// A list, or something small that should have been one.
struct List(Value);

impl<'de> Deserialize<'de> for List {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        let read = if raw.get().starts_with('[') {
            let mut inner = serde_json::Deserializer::from_str(raw.get());
            inner.deserialize_seq(ListVisitor)
        } else {
            small(raw.get())
        };
        read.map(List).map_err(de::Error::custom)
    }
}

struct ListVisitor;

impl<'de> Visitor<'de> for ListVisitor {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of messages")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut messages: Vec<Value> = Vec::new();
        while let Some(raw) = elements.next_element::<&RawValue>()? {
            if messages.len() == MAX_MESSAGES {
                let reason =
                    format!("a list has at most {MAX_MESSAGES} messages: send a longer one as canonical JSONL");
                return Err(de::Error::custom(reason));
            }
            if raw.get().len() > MAX_MESSAGE_BYTES {
                return Err(de::Error::custom(format!("a message has at most {} MB", MAX_MESSAGE_BYTES >> 20)));
            }
            messages.push(serde_json::from_str(raw.get()).map_err(de::Error::custom)?);
        }
        Ok(messages.into())
    }
}

/// A value that takes little memory however it is written.
struct Small(Value);

impl<'de> Deserialize<'de> for Small {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        small(<&RawValue>::deserialize(deserializer)?.get()).map(Small).map_err(de::Error::custom)
    }
}

fn small(text: &str) -> serde_json::Result<Value> {
    if text.len() > MAX_OTHER_BYTES {
        return Err(de::Error::custom("something that should be small is very large"));
    }
    serde_json::from_str(text)
}
