//! Real vocabularies without a model file: the tables that come with tiktoken, written as a GGUF has them.
//!
//! tiktoken ranks whole tokens and has no list of merges; llama.cpp wants one. A token's merge is what is
//! left when its bytes are merged by all better ranks: exactly two parts. ChatML's control tokens are
//! added at the end, because the simulator's template writes them.
//!
//! Nothing is downloaded, and a token that no two parts make is left without a merge.

use foldhash::{HashMap, HashMapExt};

use crate::tokenize::{TokenType, Vocabulary, VocabularyKind, mapped_character};

/// The tables that can be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// GPT-2's, 50,256 tokens; the fastest to build.
    R50k,
    /// GPT-4's, 100,256 tokens.
    Cl100k,
    /// GPT-4o's, 199,998 tokens.
    O200k,
}

/// What the ChatML template needs beyond the tables' own tokens, in the order of their ids.
const CONTROL_TOKENS: [&str; 3] = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"];

/// Builds a vocabulary from one of tiktoken's tables.
pub fn from_tiktoken(table: Table) -> Vocabulary {
    let (bpe, tokens, pre) = match table {
        Table::R50k => (tiktoken_rs::r50k_base_singleton(), 50_256, "gpt-2"),
        // "dbrx" splits as cl100k does, and does not look whole words up before merging.
        Table::Cl100k => (tiktoken_rs::cl100k_base_singleton(), 100_256, "dbrx"),
        Table::O200k => (tiktoken_rs::o200k_base_singleton(), 199_998, "gpt-4o"),
    };
    let texts: Vec<Vec<u8>> = (0..tokens).map(|rank| bpe.decode_bytes(&[rank]).unwrap_or_default()).collect();
    from_ranked(&texts, pre)
}

/// Builds a vocabulary from tokens in the order of their ranks, best first.
pub fn from_ranked(texts: &[Vec<u8>], pre: &str) -> Vocabulary {
    let merges = recover_merges(texts);
    let mut tokens: Vec<String> = texts.iter().map(|bytes| mapped(bytes)).collect();
    let mut types = vec![TokenType::Normal; tokens.len()];
    for control in CONTROL_TOKENS {
        tokens.push(control.to_owned());
        types.push(TokenType::Control);
    }
    let end_of_turn = tokens.len() as u32 - 2;
    Vocabulary {
        kind: VocabularyKind::ByteLevelBpe,
        pre: pre.to_owned(),
        tokens,
        types,
        merges,
        eos: Some(end_of_turn),
        model_name: "sim".to_owned(),
        ..Vocabulary::default()
    }
}

fn mapped(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| mapped_character(byte)).collect()
}

/// The merges in the order of their ranks, each written `left right`.
fn recover_merges(texts: &[Vec<u8>]) -> Vec<String> {
    let mut ranks: HashMap<&[u8], u32> = HashMap::with_capacity(texts.len());
    for (rank, bytes) in texts.iter().enumerate() {
        ranks.insert(bytes.as_slice(), rank as u32);
    }
    let mut merges = Vec::with_capacity(texts.len());
    let mut parts = Parts::default();
    for (rank, bytes) in texts.iter().enumerate() {
        if bytes.len() < 2 {
            continue;
        }
        if let Some(middle) = parts.last_border(bytes, rank as u32, &ranks) {
            let mut merge = mapped(&bytes[..middle]);
            merge.push(' ');
            merge.push_str(&mapped(&bytes[middle..]));
            merges.push(merge);
        }
    }
    merges
}

/// Working space for taking one token apart, reused from token to token.
#[derive(Default)]
struct Parts {
    /// Where parts begin, and the rank that the part and its right neighbour have together.
    starts: Vec<(usize, u32)>,
}

impl Parts {
    /// Merges a token's bytes by all ranks better than its own; the border between the two parts left.
    fn last_border(&mut self, bytes: &[u8], own_rank: u32, ranks: &HashMap<&[u8], u32>) -> Option<usize> {
        let better = |from: usize, to: usize| {
            ranks.get(&bytes[from..to]).copied().filter(|rank| *rank < own_rank).unwrap_or(u32::MAX)
        };
        let end = bytes.len();
        self.starts.clear();
        self.starts.extend((0..end).map(|at| (at, if at + 2 <= end { better(at, at + 2) } else { u32::MAX })));
        while self.starts.len() > 2 {
            let (at, (_, rank)) = self.starts.iter().copied().enumerate().min_by_key(|(at, (_, rank))| (*rank, *at))?;
            if rank == u32::MAX {
                return None;
            }
            self.starts.remove(at + 1);
            self.starts[at].1 = self.end_after_next(at, end).map_or(u32::MAX, |to| better(self.starts[at].0, to));
            if at > 0 {
                let to = self.starts.get(at + 1).map_or(end, |next| next.0);
                self.starts[at - 1].1 = better(self.starts[at - 1].0, to);
            }
        }
        self.starts.get(1).map(|second| second.0)
    }

    /// Where the right neighbour of a part ends; `None` for the last part, which has none.
    fn end_after_next(&self, at: usize, end: usize) -> Option<usize> {
        self.starts.get(at + 1)?;
        Some(self.starts.get(at + 2).map_or(end, |after| after.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenize::{Generation, Tokenizer};

    const MIXED: &[&str] = &[
        "The quick brown fox jumps over 13 lazy dogs, doesn't it? I'LL SEE.",
        "fn main() {\n    let x: Vec<u32> = (0..10).map(|i| i * 2).collect();\n\tprintln!(\"{x:?}\");\n}\n\n\n",
        "Größenwahn übt Maß, naïve façade; Привет, мир! Γειά σου κόσμε. 東京は日本の首都です。 안녕하세요 مرحبا بالعالم",
        "emoji 🚢⚓️👩‍👩‍👧‍👦 and symbols ≠ ∑ → €   three spaces   \u{a0}nbsp\r\n12345678901234567890",
        "https://example.org/a_b-c?d=e&f=%20#g  ______ ======== camelCase HTTPServer XMLHttpRequest2",
    ];

    /// Combining marks: tiktoken's o200k keeps them in a word, while the `gpt-4o` rule in the llama.cpp of
    /// Ollama 0.17.4 has no `\p{M}`. We count as llama.cpp does, so only the older tables can agree here.
    const MARKS: &str = "नमस्ते दुनिया";

    #[test]
    fn each_table_counts_as_tiktoken_counts() {
        let tables = [
            (Table::R50k, tiktoken_rs::r50k_base_singleton()),
            (Table::Cl100k, tiktoken_rs::cl100k_base_singleton()),
            (Table::O200k, tiktoken_rs::o200k_base_singleton()),
        ];
        for (table, theirs) in tables {
            let ours = Tokenizer::new(from_tiktoken(table)).expect("the vocabulary is complete");
            let marks = (table != Table::O200k).then_some(&MARKS);
            for text in MIXED.iter().chain(marks) {
                assert_eq!(ours.encode(text, Generation::Later), theirs.encode_ordinary(text), "{table:?}: {text}");
            }
        }
    }

    #[test]
    fn every_token_of_two_bytes_or_more_has_its_merge() {
        let vocabulary = from_tiktoken(Table::R50k);
        assert_eq!(vocabulary.merges.len(), 50_000);
        assert_eq!(vocabulary.merges[0], "\u{120} t");
    }
}
