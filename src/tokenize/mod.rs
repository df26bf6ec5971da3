//! From a model's vocabulary to a number of tokens, exactly as the model's server will count them.
//!
//! Exact means *as llama.cpp counts*, not as another tokenizer of the same family would: no Unicode
//! normalisation, special tokens parsed wherever they are written, and merges in the order of the
//! model's own list. What cannot be counted that way is counted by [`fallback`] and says so.
//!
//! A prompt is cut three times: at special tokens ([`special`]), at the pre-tokenizer's word borders
//! ([`split`]; byte-level BPE only), and into tokens ([`bpe`] or [`sentencepiece`]). The first two
//! cuts never depend on anything further away, which is why a count can be cached per piece of text.
//!
//! This room does no I/O, except that [`gguf`] reads from a reader it is given.

mod bpe;
mod classes;
pub mod fallback;
pub mod gguf;
pub mod inner;
mod remembered;
mod sentencepiece;
mod special;
mod split;
mod tables;
pub mod template;
mod vocabulary;

pub use special::Generation;
pub use tables::Tables;
pub(crate) use vocabulary::mapped_character;
pub use vocabulary::{Keys, TokenType, Vocabulary, VocabularyError, VocabularyKind};

use bpe::Bpe;
use sentencepiece::SentencePiece;
use special::{Fragment, SpecialTokens};

/// Counts and encodes text with one model's vocabulary.
#[derive(Debug)]
pub struct Tokenizer {
    model: Model,
    special: SpecialTokens,
    bos: Option<u32>,
    eos: Option<u32>,
    texts: TokenTexts,
}

#[derive(Debug)]
enum Model {
    Bpe(Box<Bpe>),
    SentencePiece(SentencePiece),
}

/// How many tokens a text has, and whether both known generations of llama.cpp agree on that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextCount {
    pub tokens: u32,
    /// What the other generation would count, when it differs.
    pub other_generation: Option<u32>,
}

impl Tokenizer {
    /// What kind of vocabulary it is.
    pub fn kind(&self) -> &'static str {
        match self.model {
            Model::Bpe(_) => "bpe",
            Model::SentencePiece(_) => "sentencepiece",
        }
    }

    /// From a vocabulary as it is told. Takes up to a tenth of a second; call it off the async threads.
    pub fn new(vocabulary: Vocabulary) -> Result<Self, VocabularyError> {
        Self::from_tables(&Tables::new(vocabulary)?)
    }

    /// From a vocabulary whose merges are resolved, which is quicker.
    pub fn from_tables(tables: &Tables) -> Result<Self, VocabularyError> {
        let vocabulary = &tables.vocabulary;
        let model = match vocabulary.kind {
            VocabularyKind::ByteLevelBpe => Model::Bpe(Box::new(Bpe::new(tables)?)),
            VocabularyKind::SentencePiece => Model::SentencePiece(SentencePiece::new(vocabulary)),
        };
        Ok(Self {
            model,
            special: SpecialTokens::new(vocabulary),
            bos: vocabulary.add_bos.then_some(vocabulary.bos).flatten(),
            eos: vocabulary.add_eos.then_some(vocabulary.eos).flatten(),
            texts: TokenTexts::new(vocabulary),
        })
    }

    /// Counts an already rendered prompt, with the tokens the vocabulary puts before and after it.
    pub fn count_prompt(&self, text: &str, generation: Generation) -> TextCount {
        let count = self.count(text, generation);
        let extra = self.ends();
        TextCount { tokens: count.tokens + extra, other_generation: count.other_generation.map(|other| other + extra) }
    }

    /// Tokens that surround every prompt: BOS and EOS, where the vocabulary asks for them.
    pub fn ends(&self) -> u32 {
        u32::from(self.bos.is_some()) + u32::from(self.eos.is_some())
    }

    /// Counts a piece of a prompt that starts and ends at a special token or at the prompt's own end.
    pub fn count(&self, text: &str, generation: Generation) -> TextCount {
        let tokens = self.count_with(text, generation);
        let ambiguous = self.special.generations_differ(text);
        let other_generation =
            ambiguous.then(|| self.count_with(text, generation.other())).filter(|other| *other != tokens);
        TextCount { tokens, other_generation }
    }

    /// The token ids of an already rendered prompt, BOS and EOS included.
    pub fn encode(&self, text: &str, generation: Generation) -> Vec<u32> {
        let mut ids = Vec::with_capacity(text.len() / 3 + 2);
        ids.extend(self.bos);
        self.fragments(text, generation, |fragment| match fragment {
            Fragment::Special(id) => ids.push(id),
            Fragment::Text { text, after_special } => match &self.model {
                Model::Bpe(bpe) => bpe.encode(text, &mut ids),
                Model::SentencePiece(spm) => spm.encode(text, after_special, &mut ids),
            },
        });
        ids.extend(self.eos);
        ids
    }

    /// How many tokens there are.
    pub fn vocabulary_size(&self) -> usize {
        self.texts.ends.len()
    }

    /// The text that a list of token ids stands for, as the server would write it; unknown ids are skipped.
    pub fn decode(&self, ids: &[u32]) -> String {
        self.texts.decode(ids, matches!(self.model, Model::SentencePiece(_)))
    }

    /// Cuts a text at its special tokens, for counting pieces of a prompt apart: where the first one
    /// begins, how many tokens there are from it up to the last one, and where the last one begins.
    /// `None` when it has no special token.
    pub fn cut_at_specials(&self, text: &str, generation: Generation) -> Option<(usize, u32, usize)> {
        let mut first = None;
        let mut last = 0;
        self.special.starts(text, generation, |start| {
            first.get_or_insert(start);
            last = start;
        });
        let first = first?;
        // The last special token goes with what follows it: it may swallow the space there.
        Some((first, self.count_with(&text[first..last], generation), last))
    }

    fn count_with(&self, text: &str, generation: Generation) -> u32 {
        let mut tokens = 0;
        self.fragments(text, generation, |fragment| match fragment {
            Fragment::Special(_) => tokens += 1,
            Fragment::Text { text, after_special } => {
                tokens += match &self.model {
                    Model::Bpe(bpe) => bpe.count(text),
                    Model::SentencePiece(spm) => spm.count(text, after_special),
                }
            }
        });
        tokens
    }

    fn fragments<'a>(&self, text: &'a str, generation: Generation, each: impl FnMut(Fragment<'a>)) {
        self.special.fragments(text, generation, each);
    }
}

/// The texts of all tokens in one buffer, for decoding.
#[derive(Debug)]
struct TokenTexts {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl TokenTexts {
    fn new(vocabulary: &Vocabulary) -> Self {
        let mut texts = Self { bytes: Vec::new(), ends: Vec::with_capacity(vocabulary.tokens.len()) };
        for id in 0..vocabulary.tokens.len() {
            texts.bytes.extend_from_slice(&vocabulary.raw_bytes(id));
            texts.ends.push(texts.bytes.len() as u32);
        }
        texts
    }

    fn decode(&self, ids: &[u32], strip_leading_space: bool) -> String {
        let mut out = Vec::new();
        for &id in ids {
            let id = id as usize;
            if let Some(&end) = self.ends.get(id) {
                let start = if id == 0 { 0 } else { self.ends[id - 1] };
                out.extend_from_slice(&self.bytes[start as usize..end as usize]);
            }
        }
        if strip_leading_space && out.first() == Some(&b' ') {
            out.remove(0);
        }
        String::from_utf8_lossy(&out).into_owned()
    }
}
