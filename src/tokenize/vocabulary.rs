//! A vocabulary as a model file or `/api/show` tells it, before any table is built from it.
//!
//! The defaults here are llama.cpp's: which tokenizer adds a BOS on its own, which one puts a space
//! before the first word. Absent keys mean those defaults, never a guess of ours.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// Everything that decides how a model counts.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Vocabulary {
    pub kind: VocabularyKind,
    /// Name of the pre-tokenizer (`tokenizer.ggml.pre`).
    pub pre: String,
    pub tokens: Vec<String>,
    /// Empty when the file has none: then every token is normal.
    pub types: Vec<TokenType>,
    pub scores: Vec<f32>,
    /// Pairs `left right`, best first.
    pub merges: Vec<String>,
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub add_bos: bool,
    pub add_eos: bool,
    pub add_space_prefix: bool,
    /// `general.name`: some tokenizers strip spaces after special tokens for some names.
    pub model_name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum VocabularyKind {
    #[default]
    ByteLevelBpe,
    SentencePiece,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TokenType {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl TokenType {
    pub fn from_number(number: i64) -> Self {
        match number {
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => Self::Normal,
        }
    }
}

/// Why a vocabulary cannot be used. The fault is the model's or the upstream's, and the cure is the estimate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VocabularyError {
    #[error("tokenizer model `{0}` is not supported (byte-level BPE and SentencePiece are)")]
    UnsupportedModel(String),
    #[error("pre-tokenizer `{0}` is not known")]
    UnknownPreTokenizer(String),
    #[error("the vocabulary is incomplete: {0}")]
    Incomplete(&'static str),
}

/// The optional keys of a vocabulary, as found; [`Vocabulary::with_keys`] fills in llama.cpp's defaults.
#[derive(Debug, Clone, Default)]
pub struct Keys {
    pub model: String,
    pub pre: Option<String>,
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub add_bos: Option<bool>,
    pub add_eos: Option<bool>,
    pub add_space_prefix: Option<bool>,
    pub model_name: Option<String>,
}

impl Vocabulary {
    /// An empty vocabulary with the defaults that its tokenizer has; the lists are filled in afterwards.
    pub fn with_keys(keys: Keys) -> Result<Self, VocabularyError> {
        let kind = match keys.model.as_str() {
            "gpt2" => VocabularyKind::ByteLevelBpe,
            "llama" => VocabularyKind::SentencePiece,
            other => return Err(VocabularyError::UnsupportedModel(other.to_owned())),
        };
        let pre = keys.pre.unwrap_or_else(|| "default".to_owned());
        let sentencepiece = kind == VocabularyKind::SentencePiece;
        let bos_by_default = sentencepiece || super::split::adds_bos_by_default(&pre);
        Ok(Self {
            kind,
            bos: keys.bos.or(Some(if sentencepiece { 1 } else { 11 })),
            eos: keys.eos.or(Some(if sentencepiece { 2 } else { 11 })),
            add_bos: keys.add_bos.unwrap_or(bos_by_default),
            add_eos: keys.add_eos.unwrap_or(false),
            add_space_prefix: keys.add_space_prefix.unwrap_or(sentencepiece),
            model_name: keys.model_name.unwrap_or_default(),
            pre,
            ..Self::default()
        })
    }

    /// Refuses what could only give wrong counts.
    pub fn check(&self) -> Result<(), VocabularyError> {
        if self.tokens.is_empty() {
            return Err(VocabularyError::Incomplete("it has no tokens"));
        }
        match self.kind {
            VocabularyKind::ByteLevelBpe if self.merges.is_empty() => {
                Err(VocabularyError::Incomplete("byte-level BPE needs merges"))
            }
            VocabularyKind::SentencePiece if self.scores.len() != self.tokens.len() => {
                Err(VocabularyError::Incomplete("SentencePiece needs a score for each token"))
            }
            VocabularyKind::ByteLevelBpe | VocabularyKind::SentencePiece => Ok(()),
        }
    }

    pub(super) fn token_type(&self, id: usize) -> TokenType {
        self.types.get(id).copied().unwrap_or(TokenType::Normal)
    }

    /// The bytes a token stands for in running text.
    pub(super) fn raw_bytes(&self, id: usize) -> Vec<u8> {
        let text = &self.tokens[id];
        match (self.kind, self.token_type(id)) {
            (_, TokenType::Control | TokenType::UserDefined | TokenType::Unknown) => text.as_bytes().to_vec(),
            (VocabularyKind::ByteLevelBpe, _) => {
                let mut bytes = Vec::with_capacity(text.len());
                if add_bytes_of_mapped(text, &mut bytes) { bytes } else { text.as_bytes().to_vec() }
            }
            (VocabularyKind::SentencePiece, TokenType::Byte) => text
                .strip_prefix("<0x")
                .and_then(|rest| rest.strip_suffix('>'))
                .and_then(|hex| u8::from_str_radix(hex, 16).ok())
                .map_or_else(|| text.as_bytes().to_vec(), |byte| vec![byte]),
            (VocabularyKind::SentencePiece, _) => text.replace('\u{2581}', " ").into_bytes(),
        }
    }
}

/// Byte-level BPE writes each byte as one printable character. These are those characters.
static CHARACTER_OF_BYTE: LazyLock<[char; 256]> = LazyLock::new(|| {
    let mut table = ['\0'; 256];
    let mut next = 256_u32;
    for byte in 0..=255_u8 {
        let printable = matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
        table[byte as usize] = if printable {
            char::from(byte)
        } else {
            let character = char::from_u32(next).unwrap_or('\0');
            next += 1;
            character
        };
    }
    table
});

/// The character that stands for a byte in a byte-level vocabulary.
pub(crate) fn mapped_character(byte: u8) -> char {
    CHARACTER_OF_BYTE[byte as usize]
}

/// And the other way round; characters from here on stand for no byte.
const MAPPED: usize = 0x144;
static BYTE_OF_CHARACTER: LazyLock<[Option<u8>; MAPPED]> = LazyLock::new(|| {
    let mut table = [None; MAPPED];
    for (byte, character) in (0..=255).zip(CHARACTER_OF_BYTE.iter()) {
        table[*character as usize] = Some(byte);
    }
    table
});

/// Adds the bytes that a byte-level token's text stands for. Not if it has a character that stands for none: then it
/// says so, and what was added is of no use.
pub(super) fn add_bytes_of_mapped(text: &str, bytes: &mut Vec<u8>) -> bool {
    let table = &*BYTE_OF_CHARACTER;
    for character in text.chars() {
        match table.get(character as usize) {
            Some(Some(byte)) => bytes.push(*byte),
            Some(None) | None => return false,
        }
    }
    true
}
