//! A model that the simulator claims to have: its vocabulary, its window, and what its Modelfile says.
//!
//! Names follow Ollama's rule that `X` and `X:latest` are the same. Namespaces and registries are not
//! understood: a name is compared as text, without regard to case.

use std::sync::Arc;

use super::vocabulary::{Table, from_tiktoken};
use crate::tokenize::{Tokenizer, Vocabulary, VocabularyError};

/// One model. All fields are open, so a test can say exactly what it needs.
#[derive(Debug, Clone)]
pub struct SimModel {
    pub name: String,
    pub tokenizer: Arc<Tokenizer>,
    pub vocabulary: Arc<Vocabulary>,
    pub trained_window: u32,
    /// `PARAMETER num_ctx` of the Modelfile.
    pub num_ctx: Option<u32>,
    /// `SYSTEM` of the Modelfile.
    pub system: Option<String>,
    /// `MESSAGE`s of the Modelfile: role and content.
    pub messages: Vec<(String, String)>,
    pub tools: bool,
    pub thinking: bool,
    pub vision: bool,
}

impl SimModel {
    /// A plain chat model: no Modelfile settings, no tools, trained for 8,192 tokens.
    pub fn new(name: &str, vocabulary: Vocabulary) -> Result<Self, VocabularyError> {
        let tokenizer = Arc::new(Tokenizer::new(vocabulary.clone())?);
        Ok(Self {
            name: name.to_owned(),
            tokenizer,
            vocabulary: Arc::new(vocabulary),
            trained_window: 8192,
            num_ctx: None,
            system: None,
            messages: Vec::new(),
            tools: false,
            thinking: false,
            vision: false,
        })
    }

    /// The model a simulator has when it is told of none: `sim`, with GPT-2's vocabulary.
    pub fn standard() -> Result<Self, VocabularyError> {
        Self::new("sim", from_tiktoken(Table::R50k))
    }

    /// The same weights under another name; the vocabulary is shared, not built again.
    pub fn renamed(&self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self.clone() }
    }

    /// The name with its tag, as `/api/tags` lists it.
    pub(super) fn tagged_name(&self) -> String {
        tagged(&self.name)
    }

    pub(super) fn answers_to(&self, name: &str) -> bool {
        tagged(&self.name).eq_ignore_ascii_case(&tagged(name))
    }

    /// Another one whenever anything but the name is another, as with Ollama.
    pub(super) fn digest(&self) -> String {
        let Self { name: _, tokenizer: _, vocabulary, trained_window, num_ctx, system, messages, .. } = self;
        let mut hasher = blake3::Hasher::new();
        let said = (trained_window, num_ctx, system, messages, self.capabilities());
        hasher.update(format!("{said:?}{}{:?}", vocabulary.pre, vocabulary.kind).as_bytes());
        for text in vocabulary.tokens.iter().chain(&vocabulary.merges) {
            hasher.update(text.as_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }

    pub(super) fn capabilities(&self) -> Vec<&'static str> {
        let has = [("completion", true), ("vision", self.vision), ("tools", self.tools), ("thinking", self.thinking)];
        has.into_iter().filter(|(_, has)| *has).map(|(capability, _)| capability).collect()
    }
}

fn tagged(name: &str) -> String {
    if name.contains(':') { name.to_owned() } else { format!("{name}:latest") }
}
