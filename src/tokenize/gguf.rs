//! The head of a GGUF model file: its metadata, of which only what counting needs is kept.
//!
//! The file is untrusted: every length is checked against a bound before anything is allocated, and
//! the tensors after the head are never read.

use std::io::{self, BufRead, Read};

use super::vocabulary::{Keys, TokenType, Vocabulary, VocabularyError};

/// The largest vocabularies have about 260,000 tokens and twice as many merges.
const MAX_ITEMS: u64 = 4_000_000;
const MAX_STRING_BYTES: u64 = 16 << 20;
const MAX_KEYS: u64 = 100_000;
const MAX_NESTING: u32 = 4;

/// What a model file says about itself.
#[derive(Debug, Default)]
pub struct ModelFile {
    pub architecture: String,
    /// How many tokens the model was trained for, if the file says.
    pub trained_window: Option<u64>,
    pub chat_template: Option<String>,
    pub vocabulary: Vocabulary,
}

#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    #[error("this is not a GGUF file (it does not begin with `GGUF`)")]
    NotGguf,
    #[error("GGUF version {0} is not supported (2 and 3 are)")]
    Version(u32),
    #[error("the file is damaged: {0}")]
    Damaged(&'static str),
    #[error(transparent)]
    Vocabulary(#[from] VocabularyError),
    #[error("the file could not be read: {0}")]
    Read(#[from] io::Error),
}

/// Reads the head of a model file.
pub fn read(mut reader: impl BufRead) -> Result<ModelFile, GgufError> {
    let mut magic = [0; 4];
    reader.read_exact(&mut magic)?;
    if &magic != b"GGUF" {
        return Err(GgufError::NotGguf);
    }
    let version = u32::from_le_bytes(take(&mut reader)?);
    if !(2..=3).contains(&version) {
        return Err(GgufError::Version(version));
    }
    let _tensors = u64::from_le_bytes(take(&mut reader)?);
    let keys = u64::from_le_bytes(take(&mut reader)?);
    if keys > MAX_KEYS {
        return Err(GgufError::Damaged("too many keys"));
    }
    let mut head = Head::default();
    for _ in 0..keys {
        let key = string(&mut reader)?;
        let kind = u32::from_le_bytes(take(&mut reader)?);
        head.read_key(&key, kind, &mut reader)?;
    }
    head.finish()
}

#[derive(Default)]
struct Head {
    architecture: String,
    context_lengths: Vec<(String, u64)>,
    chat_template: Option<String>,
    keys: Keys,
    tokens: Vec<String>,
    merges: Vec<String>,
    scores: Vec<f32>,
    types: Vec<TokenType>,
}

impl Head {
    fn read_key(&mut self, key: &str, kind: u32, reader: &mut impl Read) -> Result<(), GgufError> {
        let value = value(reader, kind, is_wanted_list(key), 0)?;
        match (key, value) {
            ("general.architecture", Value::Text(text)) => self.architecture = text,
            ("general.name", Value::Text(text)) => self.keys.model_name = Some(text),
            ("tokenizer.ggml.model", Value::Text(text)) => self.keys.model = text,
            ("tokenizer.ggml.pre", Value::Text(text)) => self.keys.pre = Some(text),
            ("tokenizer.chat_template", Value::Text(text)) => self.chat_template = Some(text),
            ("tokenizer.ggml.bos_token_id", Value::Number(number)) => self.keys.bos = Some(number as u32),
            ("tokenizer.ggml.eos_token_id", Value::Number(number)) => self.keys.eos = Some(number as u32),
            ("tokenizer.ggml.add_bos_token", Value::Number(number)) => self.keys.add_bos = Some(number != 0.0),
            ("tokenizer.ggml.add_eos_token", Value::Number(number)) => self.keys.add_eos = Some(number != 0.0),
            ("tokenizer.ggml.add_space_prefix", Value::Number(number)) => {
                self.keys.add_space_prefix = Some(number != 0.0);
            }
            ("tokenizer.ggml.tokens", Value::Texts(texts)) => self.tokens = texts,
            ("tokenizer.ggml.merges", Value::Texts(texts)) => self.merges = texts,
            ("tokenizer.ggml.scores", Value::Numbers(numbers)) => {
                self.scores = numbers.into_iter().map(|number| number as f32).collect();
            }
            ("tokenizer.ggml.token_type", Value::Numbers(numbers)) => {
                self.types = numbers.into_iter().map(|number| TokenType::from_number(number as i64)).collect();
            }
            (other, Value::Number(number)) => {
                if let Some(architecture) = other.strip_suffix(".context_length") {
                    self.context_lengths.push((architecture.to_owned(), number as u64));
                }
            }
            (_, Value::Text(_) | Value::Texts(_) | Value::Numbers(_) | Value::Skipped) => {}
        }
        Ok(())
    }

    fn finish(self) -> Result<ModelFile, GgufError> {
        let mut vocabulary = Vocabulary::with_keys(self.keys)?;
        vocabulary.tokens = self.tokens;
        vocabulary.merges = self.merges;
        vocabulary.scores = self.scores;
        vocabulary.types = self.types;
        let trained_window = self
            .context_lengths
            .into_iter()
            .find(|(architecture, _)| *architecture == self.architecture)
            .map(|(_, length)| length);
        Ok(ModelFile { architecture: self.architecture, trained_window, chat_template: self.chat_template, vocabulary })
    }
}

fn is_wanted_list(key: &str) -> bool {
    matches!(
        key,
        "tokenizer.ggml.tokens" | "tokenizer.ggml.merges" | "tokenizer.ggml.scores" | "tokenizer.ggml.token_type"
    )
}

enum Value {
    Number(f64),
    Text(String),
    Numbers(Vec<f64>),
    Texts(Vec<String>),
    Skipped,
}

fn value(reader: &mut impl Read, kind: u32, keep_list: bool, nesting: u32) -> Result<Value, GgufError> {
    Ok(match kind {
        8 => Value::Text(string(reader)?),
        9 => return list(reader, keep_list, nesting),
        scalar => Value::Number(number(reader, scalar)?),
    })
}

fn list(reader: &mut impl Read, keep: bool, nesting: u32) -> Result<Value, GgufError> {
    let kind = u32::from_le_bytes(take(reader)?);
    let length = u64::from_le_bytes(take(reader)?);
    if length > MAX_ITEMS || nesting > MAX_NESTING {
        return Err(GgufError::Damaged("a list is too long or too deep"));
    }
    // Capacity grows with what is really read: a lying length costs nothing.
    match (kind, keep) {
        (8, true) => (0..length).map(|_| string(reader)).collect::<Result<_, _>>().map(Value::Texts),
        (9, _) => {
            for _ in 0..length {
                list(reader, false, nesting + 1)?;
            }
            Ok(Value::Skipped)
        }
        (8, false) => {
            for _ in 0..length {
                string(reader)?;
            }
            Ok(Value::Skipped)
        }
        (scalar, _) => (0..length).map(|_| number(reader, scalar)).collect::<Result<_, _>>().map(Value::Numbers),
    }
}

fn number(reader: &mut impl Read, kind: u32) -> Result<f64, GgufError> {
    Ok(match kind {
        0 | 7 => f64::from(take::<1>(reader)?[0]),
        1 => f64::from(i8::from_le_bytes(take(reader)?)),
        2 => f64::from(u16::from_le_bytes(take(reader)?)),
        3 => f64::from(i16::from_le_bytes(take(reader)?)),
        4 => f64::from(u32::from_le_bytes(take(reader)?)),
        5 => f64::from(i32::from_le_bytes(take(reader)?)),
        6 => f64::from(f32::from_le_bytes(take(reader)?)),
        10 => u64::from_le_bytes(take(reader)?) as f64,
        11 => i64::from_le_bytes(take(reader)?) as f64,
        12 => f64::from_le_bytes(take(reader)?),
        _ => return Err(GgufError::Damaged("an unknown type of value")),
    })
}

fn string(reader: &mut impl Read) -> Result<String, GgufError> {
    let length = u64::from_le_bytes(take(reader)?);
    if length > MAX_STRING_BYTES {
        return Err(GgufError::Damaged("a text is too long"));
    }
    let mut bytes = Vec::new();
    if reader.take(length).read_to_end(&mut bytes)? as u64 != length {
        return Err(GgufError::Damaged("it ends in the middle of a text"));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn take<const N: usize>(reader: &mut impl Read) -> Result<[u8; N], GgufError> {
    let mut bytes = [0; N];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}
