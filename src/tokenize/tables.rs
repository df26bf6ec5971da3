//! A vocabulary with its merges resolved into numbers: what takes long about making a tokenizer, in a form that can
//! be kept and read back.
//!
//! A merge is written as two texts. Each text gets a number: a token's id, or a number past the last id for a text
//! that only exists on the way to another merge.

use foldhash::{HashMap, HashMapExt};
use serde::{Deserialize, Serialize};

use super::vocabulary::{
    TokenType, Vocabulary, VocabularyError, VocabularyKind, add_bytes_of_mapped, mapped_character,
};

/// Everything that a tokenizer is made from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Tables {
    /// Without its merges.
    pub(super) vocabulary: Vocabulary,
    /// Left, right, and what they become; best first.
    pub(super) merges: Vec<(u32, u32, u32)>,
    /// The number of each single byte.
    pub(super) byte_symbols: Vec<u32>,
    /// For each number past the last id, how many tokens the server writes instead of it.
    pub(super) unreal_lengths: Vec<u32>,
}

impl Tables {
    pub fn new(mut vocabulary: Vocabulary) -> Result<Self, VocabularyError> {
        vocabulary.check()?;
        let written = std::mem::take(&mut vocabulary.merges);
        let (merges, byte_symbols, unreal_lengths) = match vocabulary.kind {
            VocabularyKind::SentencePiece => Default::default(),
            VocabularyKind::ByteLevelBpe => resolve(&vocabulary, &written),
        };
        Ok(Self { vocabulary, merges, byte_symbols, unreal_lengths })
    }
}

type Resolved = (Vec<(u32, u32, u32)>, Vec<u32>, Vec<u32>);

fn resolve(vocabulary: &Vocabulary, written: &[String]) -> Resolved {
    let mut interner = Interner::new(vocabulary);
    let byte_symbols = (0..=255).map(|byte| interner.symbol(&[byte])).collect();
    let mut merges = Vec::with_capacity(written.len());
    let mut bytes = Vec::new();
    for merge in written {
        let Some((left, right)) = split_merge(merge) else { continue };
        bytes.clear();
        if !add_bytes_of_mapped(left, &mut bytes) {
            continue;
        }
        let middle = bytes.len();
        if !add_bytes_of_mapped(right, &mut bytes) {
            continue;
        }
        let merged = interner.symbol(&bytes);
        merges.push((interner.symbol(&bytes[..middle]), interner.symbol(&bytes[middle..]), merged));
    }
    (merges, byte_symbols, interner.unreal_lengths)
}

/// The bytes of each token that text can become, with its number. Control tokens are cut out of the text before.
pub(super) fn texts_of_tokens(vocabulary: &Vocabulary) -> HashMap<Box<[u8]>, u32> {
    let mut texts: HashMap<Box<[u8]>, u32> = HashMap::with_capacity(vocabulary.tokens.len());
    let mut bytes = Vec::new();
    for (id, text) in vocabulary.tokens.iter().enumerate() {
        bytes.clear();
        if !matches!(vocabulary.token_type(id), TokenType::Control) && add_bytes_of_mapped(text, &mut bytes) {
            texts.insert(bytes.as_slice().into(), id as u32);
        }
    }
    texts
}

/// Gives each distinct text one number.
struct Interner {
    symbols: HashMap<Box<[u8]>, u32>,
    first_unreal: u32,
    unreal_lengths: Vec<u32>,
}

impl Interner {
    fn new(vocabulary: &Vocabulary) -> Self {
        let first_unreal = vocabulary.tokens.len() as u32;
        Self { symbols: texts_of_tokens(vocabulary), first_unreal, unreal_lengths: Vec::new() }
    }

    fn symbol(&mut self, bytes: &[u8]) -> u32 {
        if let Some(&symbol) = self.symbols.get(bytes) {
            return symbol;
        }
        let symbol = self.first_unreal + self.unreal_lengths.len() as u32;
        // The server writes such a text byte by byte of its mapped form, and drops what is no token:
        // of the mapped characters only the ASCII ones are single bytes.
        let length = bytes
            .iter()
            .map(|&byte| mapped_character(byte))
            .filter(|character| character.is_ascii() && self.symbols.contains_key([*character as u8].as_slice()))
            .count();
        self.unreal_lengths.push(length as u32);
        self.symbols.insert(bytes.into(), symbol);
        symbol
    }
}

/// A merge is written `left right`; the space that separates them is never the first character.
fn split_merge(merge: &str) -> Option<(&str, &str)> {
    let first = merge.chars().next()?.len_utf8();
    let space = first + merge[first..].find(' ')?;
    Some((&merge[..space], &merge[space + 1..]))
}
