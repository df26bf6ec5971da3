//! Special tokens: which texts the server reads as one token wherever they stand, and the cut at them.
//!
//! llama.cpp takes control, user-defined and unknown tokens as special, and beyond what the file says
//! it declares some texts to be control tokens (`<|im_end|>` and its kin). That list grew between
//! versions, so a text may be counted differently by two servers: see [`Generation`].
//!
//! The cut is longest token first over the whole text. An automaton finds all candidates in one pass;
//! they then claim their places in that order.

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

use super::vocabulary::{TokenType, Vocabulary};

/// Which llama.cpp the upstream carries, as far as counting can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Generation {
    /// As in Ollama 0.17.
    Earlier,
    /// As in Ollama 0.33.
    #[default]
    Later,
}

impl Generation {
    pub fn other(self) -> Self {
        match self {
            Self::Earlier => Self::Later,
            Self::Later => Self::Earlier,
        }
    }
}

/// Control tokens by their text in every generation.
const CONTROL_TEXTS: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<|fim_prefix|>",
    "<fim-prefix>",
    "<fim_prefix>",
    "<｜fim▁begin｜>",
    "<PRE>",
    "▁<PRE>",
    "<|code_prefix|>",
    "<|fim_suffix|>",
    "<fim-suffix>",
    "<fim_suffix>",
    "<｜fim▁hole｜>",
    "<SUF>",
    "▁<SUF>",
    "<|code_suffix|>",
    "<|fim_middle|>",
    "<fim-middle>",
    "<fim_middle>",
    "<｜fim▁end｜>",
    "<MID>",
    "▁<MID>",
    "<|code_middle|>",
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
    "<|channel|>",
    "<|message|>",
    "<|start|>",
    "<|constrain|>",
];

/// Control tokens by their text in the later generation only.
const LATER_CONTROL_TEXTS: &[&str] = &[
    "</s>",
    "[EOT]",
    "[EOS]",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
    "<|flush|>",
    "<|calls|>",
    "<|prefix|>",
    "<|suffix|>",
    "<|middle|>",
    "[PAD]",
];

#[derive(Debug)]
pub(super) enum Fragment<'a> {
    Special(u32),
    Text { text: &'a str, after_special: bool },
}

#[derive(Debug)]
pub(super) struct SpecialTokens {
    /// Longest text first.
    tokens: Vec<SpecialToken>,
    automaton: Option<AhoCorasick>,
}

#[derive(Debug)]
struct SpecialToken {
    id: u32,
    text: String,
    later_only: bool,
    strips_space_after: bool,
}

impl SpecialTokens {
    pub(super) fn new(vocabulary: &Vocabulary) -> Self {
        let strips = strips_space_after_special(&vocabulary.model_name);
        let mut tokens: Vec<_> = (0..vocabulary.tokens.len())
            .filter_map(|id| {
                let text = &vocabulary.tokens[id];
                let by_type = matches!(
                    vocabulary.token_type(id),
                    TokenType::Control | TokenType::UserDefined | TokenType::Unknown
                );
                let by_text = CONTROL_TEXTS.contains(&text.as_str());
                let later = LATER_CONTROL_TEXTS.contains(&text.as_str());
                if text.is_empty() || !(by_type || by_text || later) {
                    return None;
                }
                Some(SpecialToken {
                    id: id as u32,
                    text: text.clone(),
                    later_only: !(by_type || by_text),
                    strips_space_after: strips && !matches!(text.as_str(), "<unk>" | "<s>" | "<|endoftext|>"),
                })
            })
            .collect();
        tokens.sort_by_key(|token| std::cmp::Reverse(token.text.len()));
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(tokens.iter().map(|token| token.text.as_str()))
            .ok()
            .filter(|_| !tokens.is_empty());
        Self { tokens, automaton }
    }

    /// Whether the two generations cut this text differently.
    pub(super) fn generations_differ(&self, text: &str) -> bool {
        self.tokens.iter().filter(|token| token.later_only).any(|token| text.contains(&token.text))
    }

    pub(super) fn fragments<'a>(&self, text: &'a str, generation: Generation, mut each: impl FnMut(Fragment<'a>)) {
        let mut position = 0;
        let mut after_special = true;
        for cut in self.cuts(text, generation) {
            if cut.start > position {
                each(Fragment::Text { text: &text[position..cut.start], after_special });
            }
            each(Fragment::Special(self.tokens[cut.token].id));
            after_special = true;
            position = cut.resume;
        }
        if position < text.len() {
            each(Fragment::Text { text: &text[position..], after_special });
        }
    }

    /// Where special tokens begin, in order.
    pub(super) fn starts(&self, text: &str, generation: Generation, mut each: impl FnMut(usize)) {
        for cut in self.cuts(text, generation) {
            each(cut.start);
        }
    }

    /// Longest token first over the whole text, leftmost first among equals; nothing is claimed twice.
    fn cuts(&self, text: &str, generation: Generation) -> Vec<Cut> {
        let mut found = self.found(text, generation);
        if found.is_empty() {
            return found;
        }
        found.sort_unstable_by_key(|cut| (cut.token, cut.start));
        let mut claimed = vec![false; text.len()];
        found.retain_mut(|cut| {
            if claimed[cut.start..cut.resume].contains(&true) {
                return false;
            }
            if self.tokens[cut.token].strips_space_after {
                let rest = text.as_bytes()[cut.resume..].iter().zip(&claimed[cut.resume..]);
                let space =
                    |(byte, claimed): &(&u8, &bool)| !**claimed && (byte.is_ascii_whitespace() || **byte == 0x0B);
                cut.resume += rest.take_while(space).count();
            }
            claimed[cut.start..cut.resume].fill(true);
            true
        });
        found.sort_unstable_by_key(|cut| cut.start);
        found
    }

    /// Every place where a special token stands, overlapping ones included.
    fn found(&self, text: &str, generation: Generation) -> Vec<Cut> {
        let Some(automaton) = &self.automaton else { return Vec::new() };
        automaton
            .find_overlapping_iter(text)
            .map(|found| Cut { start: found.start(), token: found.pattern().as_usize(), resume: found.end() })
            .filter(|cut| generation == Generation::Later || !self.tokens[cut.token].later_only)
            .collect()
    }
}

#[derive(Debug)]
struct Cut {
    start: usize,
    token: usize,
    /// Where the text goes on: after the token, and after the spaces it swallows.
    resume: usize,
}

fn strips_space_after_special(model_name: &str) -> bool {
    let name = model_name.to_lowercase();
    name.contains("phi-3") || name.contains("phi3")
}
