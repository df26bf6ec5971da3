//! One line of a session file, read once and without judgement.
//!
//! Only what the checks need is kept: short strings are borrowed from the line,
//! long texts are reduced to their kind and length. Nothing here reports; see
//! `check` for that.

use serde::de::{DeserializeSeed, MapAccess};
use serde_json::value::RawValue;

use super::content::{Content, ReadContent, Tally};
use super::reading::{Any, Keys, Kind, ReadWord, Reading, Shaped, Skim, Word};

/// The counts of `usage` that must be whole numbers, in the order of their bits.
pub(super) const USAGE_COUNTS: [&str; 4] =
    ["input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"];

#[derive(Debug, Default)]
pub(super) struct Line<'a> {
    pub(super) uuid: Word<'a>,
    pub(super) timestamp: Word<'a>,
    pub(super) kind: Word<'a>,
    pub(super) session_id: Word<'a>,
    pub(super) provider: Word<'a>,
    pub(super) parent_uuid: Word<'a>,
    pub(super) message: Option<Shaped<Message<'a>>>,
    pub(super) metadata: Option<&'a RawValue>,
    pub(super) repeated: Option<Box<str>>,
}

#[derive(Debug, Default)]
pub(super) struct Message<'a> {
    pub(super) role: Word<'a>,
    pub(super) content: Content<'a>,
    pub(super) model: Option<Kind>,
    /// One bit for each of `USAGE_COUNTS` that is not a count.
    pub(super) usage: Option<Shaped<u8>>,
    pub(super) repeated: Option<Box<str>>,
}

/// Reads a whole line; refuses only what is not JSON.
pub(super) fn read<'a>(text: &'a str, tally: &Tally) -> serde_json::Result<Shaped<Line<'a>>> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let line = Any(ReadLine(tally)).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(line)
}

struct ReadLine<'t>(&'t Tally);

impl<'de> Reading<'de> for ReadLine<'_> {
    type Out = Shaped<Line<'de>>;

    fn other(self, kind: Kind) -> Self::Out {
        Shaped::Other(kind)
    }

    fn object<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Out, A::Error> {
        let mut keys = Keys::new(&[
            "uuid",
            "timestamp",
            "type",
            "sessionId",
            "provider",
            "message",
            "parentUuid",
            "providerMetadata",
        ]);
        let mut line = Line::default();
        while let Some(key) = keys.next(&mut fields)? {
            match key {
                "message" => line.message = Some(fields.next_value_seed(Any(ReadMessage(self.0)))?),
                "providerMetadata" => line.metadata = Some(fields.next_value::<&RawValue>()?),
                _ => {
                    let word = fields.next_value_seed(Any(ReadWord))?;
                    match key {
                        "uuid" => line.uuid = word,
                        "timestamp" => line.timestamp = word,
                        "type" => line.kind = word,
                        "sessionId" => line.session_id = word,
                        "provider" => line.provider = word,
                        _ => line.parent_uuid = word,
                    }
                }
            }
        }
        line.repeated = keys.repeated;
        Ok(Shaped::Object(line))
    }
}

struct ReadMessage<'t>(&'t Tally);

impl<'de> Reading<'de> for ReadMessage<'_> {
    type Out = Shaped<Message<'de>>;

    fn other(self, kind: Kind) -> Self::Out {
        Shaped::Other(kind)
    }

    fn object<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Out, A::Error> {
        let mut keys = Keys::new(&["role", "content", "model", "usage"]);
        let mut message = Message::default();
        while let Some(key) = keys.next(&mut fields)? {
            match key {
                "role" => message.role = fields.next_value_seed(Any(ReadWord))?,
                "content" => message.content = fields.next_value_seed(Any(ReadContent(self.0)))?,
                "model" => message.model = Some(fields.next_value_seed(Any(Skim))?),
                _ => message.usage = Some(fields.next_value_seed(Any(ReadUsage))?),
            }
        }
        message.repeated = keys.repeated;
        Ok(Shaped::Object(message))
    }
}

struct ReadUsage;

impl<'de> Reading<'de> for ReadUsage {
    type Out = Shaped<u8>;

    fn other(self, kind: Kind) -> Self::Out {
        Shaped::Other(kind)
    }

    fn object<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Out, A::Error> {
        let mut keys = Keys::new(&USAGE_COUNTS);
        let mut wrong = 0;
        while let Some(key) = keys.next(&mut fields)? {
            let is_count = fields.next_value_seed(Any(IsCount))?;
            if let Some(place) = USAGE_COUNTS.iter().position(|name| *name == key) {
                wrong |= u8::from(!is_count) << place;
            }
        }
        Ok(Shaped::Object(wrong))
    }
}

/// Whether a value is a whole number of zero or more, or null for an unknown one.
struct IsCount;

impl Reading<'_> for IsCount {
    type Out = bool;

    fn other(self, kind: Kind) -> bool {
        kind == Kind::Null
    }

    fn count(self, _: u64) -> bool {
        true
    }
}
