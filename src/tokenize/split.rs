//! Pre-tokenizers: where a byte-level BPE may never merge across.
//!
//! Each family of models has its own rule, published as a regular expression and implemented by
//! llama.cpp with quirks of its own; the quirks are what counts here. The three rules that most models
//! use are scanners over characters, because this is the hottest loop of a count. The rest are stages
//! of regular expressions: each stage cuts the pieces of the stage before it into matches and gaps.

use std::sync::Arc;

use regex::Regex;

use super::classes::{Classes, LETTER, NUMBER, SPACE};
use super::vocabulary::VocabularyError;

/// A pre-tokenizer: the stages it applies, one after the other.
#[derive(Debug, Clone)]
pub(super) struct Splitter {
    stages: Vec<Stage>,
    /// Whether a word that is itself a token stays whole, whatever the merges say.
    pub(super) whole_words_first: bool,
}

#[derive(Debug, Clone)]
enum Stage {
    /// `'s|'t|…| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
    Gpt2,
    /// The rule of llama 3 and its kin, which differ in how many digits go together.
    Cl100k {
        digits: usize,
    },
    /// The rule of gpt-4o and tekken: a word also ends where lower case meets upper case.
    CaseAware {
        digits: usize,
        contractions: bool,
    },
    Pattern(Arc<Regex>),
    /// As [`Stage::Pattern`], for patterns that end in `\s+(?!\S)|\s+`: of several spaces the last one
    /// is left to the word that follows. The pattern itself is written with `\s+` only.
    SpacesLast(Arc<Regex>),
}

/// The pre-tokenizers that put a BOS before the prompt when the file does not say.
pub(super) fn adds_bos_by_default(pre: &str) -> bool {
    matches!(
        pre,
        "llama3"
            | "llama-v3"
            | "llama-bpe"
            | "falcon3"
            | "falcon-h1"
            | "pixtral"
            | "midm-2.0"
            | "lfm2"
            | "tekken"
            | "chameleon"
    )
}

impl Splitter {
    pub(super) fn named(pre: &str) -> Result<Self, VocabularyError> {
        let mut whole_words_first = false;
        let stages = match pre {
            "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "falcon-h1" | "pixtral" | "midm-2.0" | "lfm2" => {
                whole_words_first = true;
                vec![Stage::Cl100k { digits: 3 }]
            }
            "dbrx" | "smaug-bpe" | "glm4" | "chatglm-bpe" => vec![Stage::Cl100k { digits: 3 }],
            "qwen2" | "deepseek-r1-qwen" | "kormo" | "f2llmv2" | "stablelm2" | "hunyuan" | "megrez" | "grok-2" => {
                vec![Stage::Cl100k { digits: 1 }]
            }
            "minicpm5" => {
                whole_words_first = true;
                vec![pattern(r"\p{N}{1,3}")?, Stage::Cl100k { digits: usize::MAX }]
            }
            "gpt-2" | "phi-2" | "jina-es" | "jina-de" | "gigachat" | "jina-v2-es" | "jina-v2-de" | "a.x-4.0"
            | "mellum" | "modern-bert" | "jina-v1-en" | "jina-v2-code" | "roberta-bpe" | "mpt" | "olmo" | "jais"
            | "trillion" | "granite-docling" | "exaone4" => vec![Stage::Gpt2],
            "starcoder" | "refact" | "command-r" | "smollm" | "codeshell" | "exaone" | "minerva-7b" => {
                vec![pattern(r"\p{N}")?, Stage::Gpt2]
            }
            "gpt-4o" | "llama4" | "kanana2" | "talkie" | "minimax-m2" => {
                vec![Stage::CaseAware { digits: 3, contractions: true }]
            }
            "tekken" => {
                whole_words_first = true;
                vec![Stage::CaseAware { digits: 1, contractions: false }]
            }
            "deepseek-llm" => vec![
                pattern(r"[\r\n]")?,
                pattern(DEEPSEEK_WORDS)?,
                // U+3000 is missing on purpose: it is read as a space before this rule is asked.
                pattern(r"\s?[!-/:-~\u{FF01}-\u{FF0F}\u{FF1A}-\u{FF5E}\u{2018}-\u{201F}\u{3001}-\u{3002}]+")?,
                pattern(r"\s+$")?,
                pattern(r"[\u{4E00}-\u{9FA5}\u{800}-\u{4E00}\u{AC00}-\u{D7FF}]+")?,
                pattern(r"\p{N}+")?,
            ],
            "deepseek-coder" => vec![
                pattern(r"[\r\n]")?,
                pattern(r"\s?\p{L}+")?,
                pattern(r"\s?\p{P}+")?,
                pattern(r"[\u{4E00}-\u{9FA5}\u{800}-\u{4E00}\u{AC00}-\u{D7FF}]+")?,
                pattern(r"\p{N}")?,
            ],
            "deepseek-v3" | "hunyuan-dense" => {
                vec![
                    pattern(r"\p{N}{1,3}")?,
                    pattern(r"[\u{4E00}-\u{9FA5}\u{3040}-\u{309F}\u{30A0}-\u{30FF}]+")?,
                    spaces_last(DEEPSEEK3_WORDS)?,
                ]
            }
            "falcon" => vec![pattern(r"[\p{P}\$\+<=>\^~\|`]+")?, Stage::Gpt2, pattern("[0-9][0-9][0-9]")?],
            "bloom" | "poro-chat" | "gpt3-finnish" => vec![pattern(BLOOM_WORDS)?],
            "viking" => vec![pattern(BLOOM_WORDS)?, pattern(r"\p{N}")?],
            "default" => {
                vec![pattern(r"[\p{P}\$\+<=>\^~\|]+")?, Stage::Gpt2, pattern(r"\p{N}+")?, pattern("[0-9][0-9][0-9]")?]
            }
            unknown => return Err(VocabularyError::UnknownPreTokenizer(unknown.to_owned())),
        };
        Ok(Self { stages, whole_words_first })
    }

    /// Calls `each` with every word of the text, in order; the words together are the text.
    pub(super) fn words<'a>(&self, text: &'a str, each: &mut dyn FnMut(&'a str)) {
        Self::stage(&self.stages, text, each);
    }

    fn stage<'a>(stages: &[Stage], text: &'a str, each: &mut dyn FnMut(&'a str)) {
        let Some((first, rest)) = stages.split_first() else { return each(text) };
        let mut next = |word: &'a str| {
            if rest.is_empty() { each(word) } else { Self::stage(rest, word, each) }
        };
        match first {
            Stage::Gpt2 => Scanner::new(text).gpt2(&mut next),
            Stage::Cl100k { digits } => Scanner::new(text).cl100k(*digits, &mut next),
            Stage::CaseAware { digits, contractions } => {
                Scanner::new(text).case_aware(*digits, *contractions, &mut next);
            }
            Stage::Pattern(pattern) => matches_and_gaps(pattern, text, |_, end| end, &mut next),
            Stage::SpacesLast(pattern) => matches_and_gaps(pattern, text, before_last_space(text), &mut next),
        }
    }
}

/// Hands out the matches of a pattern and the gaps between them. `end_of` may end a match earlier.
fn matches_and_gaps<'a>(
    pattern: &Regex,
    text: &'a str,
    end_of: impl Fn(usize, usize) -> usize,
    next: &mut dyn FnMut(&'a str),
) {
    let mut position = 0;
    while let Some(found) = pattern.find_at(text, position) {
        if found.start() > position {
            next(&text[position..found.start()]);
        }
        let end = end_of(found.start(), found.end());
        if end == found.start() {
            // An empty match would never end; none of the patterns has one.
            position = found.start();
            break;
        }
        next(&text[found.start()..end]);
        position = end;
    }
    if position < text.len() {
        next(&text[position..]);
    }
}

/// The end of a match of spaces, without the last one if a word follows it.
fn before_last_space(text: &str) -> impl Fn(usize, usize) -> usize {
    move |start, end| {
        let found = &text[start..end];
        let last = found.chars().next_back();
        let only_spaces = found.chars().all(char::is_whitespace) && !matches!(last, Some('\r' | '\n'));
        let without_last = end - last.map_or(0, char::len_utf8);
        if only_spaces && end < text.len() && without_last > start { without_last } else { end }
    }
}

fn pattern(source: &str) -> Result<Stage, VocabularyError> {
    compiled(source).map(Stage::Pattern)
}

fn spaces_last(source: &str) -> Result<Stage, VocabularyError> {
    compiled(source).map(Stage::SpacesLast)
}

fn compiled(source: &str) -> Result<Arc<Regex>, VocabularyError> {
    Regex::new(source)
        .map(Arc::new)
        .map_err(|_| VocabularyError::Incomplete("a pre-tokenizer pattern does not compile"))
}

/// The letters that make words together for deepseek-llm: cased scripts, listed by its authors.
const DEEPSEEK_WORDS: &str = concat!(
    r"\s?[",
    r"A-Za-z\u{B5}\u{C0}-\u{D6}\u{D8}-\u{F6}\u{F8}-\u{1BA}\u{1BC}-\u{1BF}\u{1C4}-\u{293}",
    r"\u{295}-\u{2AF}\u{370}-\u{373}\u{376}\u{377}\u{37B}-\u{37D}\u{37F}\u{386}\u{388}-\u{38A}\u{38C}",
    r"\u{38E}-\u{3A1}\u{3A3}-\u{3F5}\u{3F7}-\u{481}\u{48A}-\u{52F}\u{531}-\u{556}\u{10A0}-\u{10C5}",
    r"\u{13A0}-\u{13F5}\u{13F8}-\u{13FD}\u{1C90}-\u{1CBA}\u{1CBD}-\u{1CBF}\u{1D00}-\u{1D2B}",
    r"\u{1D6B}-\u{1D77}\u{1D79}-\u{1D9A}\u{1E00}-\u{1F15}\u{1F18}-\u{1F1D}\u{1F20}-\u{1F45}",
    r"\u{1F48}-\u{1F4D}\u{1F50}-\u{1F57}\u{1F59}\u{1F5B}\u{1F5D}\u{1F5F}-\u{1F7D}\u{1F80}-\u{1FB4}",
    r"\u{1FB6}-\u{1FBC}\u{1FBE}\u{1FC2}-\u{1FC4}\u{1FC6}-\u{1FCC}\u{1FD0}-\u{1FD3}\u{1FD6}-\u{1FDB}",
    r"\u{1FE0}-\u{1FEC}\u{1FF2}-\u{1FF4}\u{1FF6}-\u{1FFC}\u{2102}\u{2107}\u{210A}-\u{2113}\u{2115}",
    r"\u{2119}-\u{211D}\u{2124}\u{2126}\u{2128}\u{212A}-\u{212D}\u{212F}-\u{2134}\u{2139}",
    r"\u{213C}-\u{213F}\u{2145}-\u{2149}\u{214E}\u{2183}\u{2184}\u{2C00}-\u{2C7B}\u{2C7E}-\u{2CE4}",
    r"\u{2CEB}-\u{2CEE}\u{2CF2}\u{2CF3}\u{A640}-\u{A66D}\u{A680}-\u{A69B}\u{A722}-\u{A76F}",
    r"\u{A771}-\u{A787}\u{A78B}-\u{A78E}\u{AB70}-\u{ABBF}\u{FB00}-\u{FB06}\u{FB13}-\u{FB17}",
    r"\u{FF21}-\u{FF3A}\u{FF41}-\u{FF5A}\u{10400}-\u{1044F}\u{104B0}-\u{104D3}\u{104D8}-\u{104FB}",
    r"\u{10C80}-\u{10CB2}\u{10CC0}-\u{10CF2}\u{118A0}-\u{118DF}\u{1E900}-\u{1E943}",
    r"]+",
);

const DEEPSEEK3_WORDS: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##,
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+",
);

const BLOOM_WORDS: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";

/// Walks over one piece of text and hands out words.
struct Scanner<'a> {
    text: &'a str,
    classes: Classes,
    position: usize,
}

impl<'a> Scanner<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, classes: Classes::get(), position: 0 }
    }

    fn at(&self, position: usize) -> Option<char> {
        self.text[position..].chars().next()
    }

    fn class(&self, character: Option<char>) -> u8 {
        character.map_or(0, |character| self.classes.of(character))
    }

    /// Moves from `position` over all characters that `matches` says yes to.
    fn skip(&self, position: usize, mut matches: impl FnMut(char, u8) -> bool) -> usize {
        let mut end = position;
        for character in self.text[position..].chars() {
            if !matches(character, self.classes.of(character)) {
                break;
            }
            end += character.len_utf8();
        }
        end
    }

    fn word(&mut self, end: usize, each: &mut dyn FnMut(&'a str)) {
        each(&self.text[self.position..end]);
        self.position = end;
    }

    /// The end of a contraction (`'s`, `'re` …) that starts here.
    fn contraction(&self, position: usize, any_case: bool) -> Option<usize> {
        let bytes = self.text.as_bytes();
        if bytes.get(position) != Some(&b'\'') {
            return None;
        }
        let letter = |at: usize| {
            let byte = *bytes.get(at)?;
            Some(if any_case { byte.to_ascii_lowercase() } else { byte })
        };
        match (letter(position + 1)?, letter(position + 2)) {
            (b's' | b't' | b'm' | b'd', _) => Some(position + 2),
            (b'r', Some(b'e')) | (b'v', Some(b'e')) | (b'l', Some(b'l')) => Some(position + 3),
            _ => None,
        }
    }

    fn gpt2(&mut self, each: &mut dyn FnMut(&'a str)) {
        while let Some(first) = self.at(self.position) {
            if let Some(end) = self.contraction(self.position, false) {
                self.word(end, each);
                continue;
            }
            let after_space = self.position + usize::from(first == ' ');
            let lead = if first == ' ' { self.at(after_space) } else { Some(first) };
            let class = self.class(lead);
            let end = if lead.is_none() {
                self.text.len()
            } else if class & LETTER != 0 {
                self.skip(after_space, |_, class| class & LETTER != 0)
            } else if class & NUMBER != 0 {
                self.skip(after_space, |_, class| class & NUMBER != 0)
            } else if class & SPACE == 0 {
                self.skip(after_space, |_, class| class & (LETTER | NUMBER | SPACE) == 0)
            } else {
                self.spaces()
            };
            self.word(end, each);
        }
    }

    fn cl100k(&mut self, digits: usize, each: &mut dyn FnMut(&'a str)) {
        while let Some(first) = self.at(self.position) {
            if let Some(end) = self.contraction(self.position, true) {
                self.word(end, each);
                continue;
            }
            let class = self.class(Some(first));
            let next = self.position + first.len_utf8();
            if !matches!(first, '\r' | '\n')
                && class & NUMBER == 0
                && (class & LETTER != 0 || self.class(self.at(next)) & LETTER != 0)
            {
                let end = self.skip(next, |_, class| class & LETTER != 0);
                self.word(end, each);
                continue;
            }
            self.not_letters(first, class, digits, &['\r', '\n'], each);
        }
    }

    fn case_aware(&mut self, digits: usize, contractions: bool, each: &mut dyn FnMut(&'a str)) {
        while let Some(first) = self.at(self.position) {
            let class = self.class(Some(first));
            if let Some(mut end) = self.cased_word(first, class) {
                if contractions {
                    end = self.contraction(end, true).unwrap_or(end);
                }
                self.word(end, each);
                continue;
            }
            self.not_letters(first, class, digits, &['\r', '\n', '/'], each);
        }
    }

    /// One optional character that is no letter, number or line end, then letters: capitals, then
    /// small ones. A letter outside A–Z and a–z counts as both.
    fn cased_word(&self, first: char, class: u8) -> Option<usize> {
        let upper = |character: char, class: u8| class & LETTER != 0 && !character.is_ascii_lowercase();
        let lower = |character: char, class: u8| class & LETTER != 0 && !character.is_ascii_uppercase();
        let start = if class & LETTER != 0 {
            self.position
        } else if class & NUMBER != 0 || matches!(first, '\r' | '\n') {
            return None;
        } else {
            self.position + first.len_utf8()
        };
        if self.class(self.at(start)) & LETTER == 0 {
            return None;
        }
        let capitals = self.skip(start, upper);
        let smalls = self.skip(capitals, lower);
        if smalls > capitals {
            return Some(smalls);
        }
        // No small letter follows. The rule then gives back capitals until one of them can also be
        // read as small; only a letter that is both can.
        let last_of_both = self.text[start..capitals]
            .char_indices()
            .rev()
            .find(|(_, character)| lower(*character, LETTER))
            .map(|(at, _)| start + at);
        Some(match last_of_both {
            Some(at) => self.skip(at, lower),
            None => capitals,
        })
    }

    /// What the newer rules do with anything but words: numbers, punctuation, spaces.
    fn not_letters(&mut self, first: char, class: u8, digits: usize, tail: &[char], each: &mut dyn FnMut(&'a str)) {
        let end = if class & NUMBER != 0 {
            let mut left = digits;
            self.skip(self.position, |_, class| {
                let goes_on = left > 0 && class & NUMBER != 0;
                left = left.saturating_sub(1);
                goes_on
            })
        } else {
            let after_space = self.position + usize::from(first == ' ');
            let lead = if first == ' ' { self.at(after_space) } else { Some(first) };
            if lead.is_some() && self.class(lead) & (LETTER | NUMBER | SPACE) == 0 {
                let end = self.skip(after_space, |_, class| class & (LETTER | NUMBER | SPACE) == 0);
                self.skip(end, |character, _| tail.contains(&character))
            } else {
                self.spaces_and_lines()
            }
        };
        self.word(end, each);
    }

    /// `\s+(?!\S)|\s+`: all spaces, but the last one is left to the word that follows.
    fn spaces(&self) -> usize {
        let end = self.skip(self.position, |_, class| class & SPACE != 0);
        if end == self.text.len() {
            return end;
        }
        let last = self.text[self.position..end].chars().next_back().map_or(0, char::len_utf8);
        if end - last > self.position { end - last } else { end }
    }

    /// `\s*[\r\n]+|\s+(?!\S)|\s+`: up to the last line end, or as [`Self::spaces`].
    fn spaces_and_lines(&self) -> usize {
        let end = self.skip(self.position, |_, class| class & SPACE != 0);
        let run = &self.text[self.position..end];
        match run.rfind(['\r', '\n']) {
            Some(at) => self.position + at + 1,
            None if run.is_empty() => self.position + self.at(self.position).map_or(0, char::len_utf8),
            None => self.spaces(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(pre: &str, text: &str) -> Vec<String> {
        let mut words = Vec::new();
        Splitter::named(pre).expect("known").words(text, &mut |word| words.push(word.to_owned()));
        words
    }

    #[test]
    fn the_words_of_llama3_group_three_digits_and_keep_one_space() {
        assert_eq!(
            words("llama-bpe", "I'LL pay 12345  now\n\n ok"),
            ["I", "'LL", " pay", " ", "123", "45", " ", " now", "\n\n", " ok"]
        );
    }

    #[test]
    fn the_words_of_gpt2_keep_numbers_whole_and_contractions_in_small_letters() {
        assert_eq!(words("gpt-2", "it's 2024 IT'S"), ["it", "'s", " 2024", " IT", "'", "S"]);
    }

    #[test]
    fn the_words_of_gpt4o_end_where_case_changes() {
        assert_eq!(words("gpt-4o", "camelCase HTTPServer don't"), ["camel", "Case", " HTTPServer", " don't"]);
    }

    #[test]
    fn smollm_isolates_each_digit() {
        assert_eq!(words("smollm", "a 12"), ["a", " ", "1", "2"]);
    }
}
