//! The content of a message as it is read: a text or blocks, without judgement.
//!
//! Long texts are reduced to their kind and length; see `block` for the checks.
//! The number of blocks is limited, because each costs more memory here than it
//! may cost in the file.

use std::cell::Cell;

use serde::de::{MapAccess, SeqAccess};

use super::reading::{Any, Keys, Kind, ReadWord, Reading, Shaped, Skim, Word};

/// One message may hold this many content blocks, nested ones included.
pub(super) const MAX_BLOCKS: usize = 100_000;

/// The content of a message or of a tool result.
#[derive(Debug, Default)]
pub(super) enum Content<'a> {
    #[default]
    Absent,
    Text {
        empty: bool,
    },
    Blocks(Vec<Shaped<Block<'a>>>),
    Other(Kind),
}

/// A content block with the fields of all block types, as `type` may come last.
#[derive(Debug, Default)]
pub(super) struct Block<'a> {
    pub(super) kind: Word<'a>,
    pub(super) text: Option<Kind>,
    pub(super) thinking: Option<Kind>,
    pub(super) signature: Option<Kind>,
    pub(super) id: Word<'a>,
    pub(super) name: Word<'a>,
    pub(super) input: Option<Input>,
    pub(super) tool_use_id: Word<'a>,
    pub(super) content: Content<'a>,
    pub(super) is_error: Option<Kind>,
    pub(super) source: Option<Kind>,
    pub(super) repeated: Option<Box<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    /// A string that looks like an encoded object or array.
    Stringified,
    Other,
}

/// What is counted while a line is read.
#[derive(Debug, Default)]
pub(super) struct Tally {
    blocks: Cell<usize>,
    lengths: Cell<TextLengths>,
}

impl Tally {
    pub(super) fn has_too_many_blocks(&self) -> bool {
        self.blocks.get() > MAX_BLOCKS
    }

    pub(super) fn lengths(&self) -> TextLengths {
        self.lengths.get()
    }
}

/// Which lengths the texts of a message have: one bit for each length below 64
/// bytes, and bit 0 for all longer ones. It tells cheaply that a string of the
/// metadata cannot be one of them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TextLengths(u64);

impl TextLengths {
    fn with(self, length_bytes: usize) -> Self {
        Self(self.0 | Self::bit(length_bytes))
    }

    pub(super) fn may_match(self, length_bytes: usize) -> bool {
        self.0 & Self::bit(length_bytes) != 0
    }

    fn bit(length_bytes: usize) -> u64 {
        if length_bytes < 64 { 1 << length_bytes } else { 1 }
    }
}

/// Reads a string, or an array of blocks up to the limit.
pub(super) struct ReadContent<'t>(pub(super) &'t Tally);

impl<'de> Reading<'de> for ReadContent<'_> {
    type Out = Content<'de>;

    fn other(self, kind: Kind) -> Self::Out {
        Content::Other(kind)
    }

    fn text(self, text: &str) -> Self::Out {
        ReadText(self.0).text(text);
        Content::Text { empty: text.is_empty() }
    }

    fn array<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Out, A::Error> {
        let mut blocks = Vec::new();
        while !self.0.has_too_many_blocks() {
            match items.next_element_seed(Any(ReadBlock(self.0)))? {
                Some(block) => blocks.push(block),
                None => return Ok(Content::Blocks(blocks)),
            }
        }
        while items.next_element_seed(Any(Skim))?.is_some() {}
        Ok(Content::Blocks(blocks))
    }
}

struct ReadBlock<'t>(&'t Tally);

impl<'de> Reading<'de> for ReadBlock<'_> {
    type Out = Shaped<Block<'de>>;

    fn other(self, kind: Kind) -> Self::Out {
        self.0.blocks.set(self.0.blocks.get() + 1);
        Shaped::Other(kind)
    }

    fn object<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Out, A::Error> {
        let tally = self.0;
        tally.blocks.set(tally.blocks.get() + 1);
        let mut keys = Keys::new(&[
            "type",
            "text",
            "thinking",
            "signature",
            "id",
            "name",
            "input",
            "tool_use_id",
            "content",
            "is_error",
            "source",
        ]);
        let mut block = Block::default();
        while let Some(key) = keys.next(&mut fields)? {
            match key {
                "type" => block.kind = fields.next_value_seed(Any(ReadWord))?,
                "text" => block.text = Some(fields.next_value_seed(Any(ReadText(tally)))?),
                "thinking" => block.thinking = Some(fields.next_value_seed(Any(ReadText(tally)))?),
                "signature" => block.signature = Some(fields.next_value_seed(Any(Skim))?),
                "id" => block.id = fields.next_value_seed(Any(ReadWord))?,
                "name" => block.name = fields.next_value_seed(Any(ReadWord))?,
                "input" => block.input = Some(fields.next_value_seed(Any(ReadInput))?),
                "tool_use_id" => block.tool_use_id = fields.next_value_seed(Any(ReadWord))?,
                "content" => block.content = fields.next_value_seed(Any(ReadContent(tally)))?,
                "is_error" => block.is_error = Some(fields.next_value_seed(Any(Skim))?),
                _ => block.source = Some(fields.next_value_seed(Any(Skim))?),
            }
        }
        block.repeated = keys.repeated;
        Ok(Shaped::Object(block))
    }
}

/// A text of the message: only its kind and length are kept.
struct ReadText<'t>(&'t Tally);

impl Reading<'_> for ReadText<'_> {
    type Out = Kind;

    fn other(self, kind: Kind) -> Kind {
        kind
    }

    fn text(self, text: &str) -> Kind {
        self.0.lengths.set(self.0.lengths.get().with(text.len()));
        Kind::String
    }
}

struct ReadInput;

impl Reading<'_> for ReadInput {
    type Out = Input;

    fn other(self, _: Kind) -> Input {
        Input::Other
    }

    fn text(self, text: &str) -> Input {
        if text.trim_start().starts_with(['{', '[']) { Input::Stringified } else { Input::Other }
    }
}
