//! Byte-level byte-pair encoding with the model's own list of merges.
//!
//! A word starts as its bytes; the adjacent pair with the best rank is merged (the leftmost of
//! equals), until no pair has a rank. Worst case: a word of n bytes costs O(n log n), by a heap; short
//! words, which are nearly all, use a plain scan that is faster for them.
//!
//! Symbols are numbers: a token's id, or a number past the last id for a text that only exists on the
//! way to another merge.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::{HashMap, HashMapExt};

use super::split::Splitter;
use super::vocabulary::{TokenType, Vocabulary, VocabularyError, bytes_of_mapped, mapped_character};

/// Words up to this many bytes are merged by a scan; the heap only pays off beyond.
const SCAN_LIMIT: usize = 48;

#[derive(Debug)]
pub(super) struct Bpe {
    splitter: Splitter,
    symbols: HashMap<Box<[u8]>, u32>,
    byte_symbols: [u32; 256],
    /// (left, right) → (rank, merged).
    pairs: HashMap<(u32, u32), (u32, u32)>,
    /// Symbols from here on are no tokens; the value is what the server writes instead of them.
    first_unreal: u32,
    unreal_lengths: Vec<u32>,
    cache: WordCache,
}

impl Bpe {
    pub(super) fn new(vocabulary: &Vocabulary) -> Result<Self, VocabularyError> {
        let splitter = Splitter::named(&vocabulary.pre)?;
        let mut interner = Interner::new(vocabulary);
        let byte_symbols = std::array::from_fn(|byte| interner.symbol(&[byte as u8]));
        let mut pairs = HashMap::with_capacity(vocabulary.merges.len());
        for (rank, merge) in vocabulary.merges.iter().enumerate() {
            let Some((left, right)) = split_merge(merge) else { continue };
            let (Some(left), Some(right)) = (bytes_of_mapped(left), bytes_of_mapped(right)) else { continue };
            let merged = interner.symbol(&[left.as_slice(), right.as_slice()].concat());
            let pair = (interner.symbol(&left), interner.symbol(&right));
            pairs.entry(pair).or_insert((rank as u32, merged));
        }
        Ok(Self {
            splitter,
            symbols: interner.symbols,
            byte_symbols,
            pairs,
            first_unreal: vocabulary.tokens.len() as u32,
            unreal_lengths: interner.unreal_lengths,
            cache: WordCache::new(),
        })
    }

    pub(super) fn count(&self, text: &str) -> u32 {
        let mut tokens = 0;
        let mut merging = Merging::default();
        self.splitter.words(text, &mut |word| {
            tokens += self.cache.get_or(word.as_bytes(), || {
                self.merge(word.as_bytes(), &mut merging);
                merging.symbols.iter().map(|&symbol| self.length(symbol)).sum()
            });
        });
        tokens
    }

    pub(super) fn encode(&self, text: &str, ids: &mut Vec<u32>) {
        let mut merging = Merging::default();
        self.splitter.words(text, &mut |word| {
            self.merge(word.as_bytes(), &mut merging);
            // A text that is no token has no id to give; it is counted by `length` only.
            ids.extend(merging.symbols.iter().filter(|&&symbol| symbol < self.first_unreal));
        });
    }

    /// How many tokens a final symbol stands for: one, unless it is no token at all.
    fn length(&self, symbol: u32) -> u32 {
        match symbol.checked_sub(self.first_unreal) {
            None => 1,
            Some(unreal) => self.unreal_lengths[unreal as usize],
        }
    }

    fn merge(&self, word: &[u8], merging: &mut Merging) {
        merging.symbols.clear();
        if self.splitter.whole_words_first
            && let Some(&symbol) = self.symbols.get(word)
            && symbol < self.first_unreal
        {
            merging.symbols.push(symbol);
            return;
        }
        merging.symbols.extend(word.iter().map(|&byte| self.byte_symbols[byte as usize]));
        if word.len() <= SCAN_LIMIT {
            self.merge_by_scan(merging);
        } else {
            self.merge_by_heap(merging);
        }
    }

    fn rank(&self, left: u32, right: u32) -> (u32, u32) {
        self.pairs.get(&(left, right)).copied().unwrap_or((u32::MAX, 0))
    }

    fn merge_by_scan(&self, merging: &mut Merging) {
        let Merging { symbols, ranks, .. } = merging;
        ranks.clear();
        ranks.extend(symbols.windows(2).map(|pair| self.rank(pair[0], pair[1])));
        while let Some((at, &(rank, merged))) = ranks.iter().enumerate().min_by_key(|(at, (rank, _))| (*rank, *at)) {
            if rank == u32::MAX {
                break;
            }
            symbols[at] = merged;
            symbols.remove(at + 1);
            ranks.remove(at);
            if at > 0 {
                ranks[at - 1] = self.rank(symbols[at - 1], merged);
            }
            if at < ranks.len() {
                ranks[at] = self.rank(merged, symbols[at + 1]);
            }
        }
    }

    fn merge_by_heap(&self, merging: &mut Merging) {
        const NONE: u32 = u32::MAX;
        let symbols = &mut merging.symbols;
        let count = symbols.len() as u32;
        let mut next: Vec<u32> = (1..=count).map(|at| if at == count { NONE } else { at }).collect();
        let mut previous: Vec<u32> = (0..count).map(|at| at.wrapping_sub(1)).collect();
        let mut heap = BinaryHeap::with_capacity(symbols.len());
        let candidate = |symbols: &[u32], left: u32, right: u32| {
            let pair = (symbols[left as usize], symbols[right as usize]);
            let (rank, merged) = self.rank(pair.0, pair.1);
            (rank != u32::MAX).then_some(Reverse((rank, left, right, pair, merged)))
        };
        for left in 0..count.saturating_sub(1) {
            heap.extend(candidate(symbols, left, left + 1));
        }
        let gone = u32::MAX;
        while let Some(Reverse((_, left, right, pair, merged))) = heap.pop() {
            // Outdated: one of the two has been merged into something else meanwhile.
            if next[left as usize] != right || (symbols[left as usize], symbols[right as usize]) != pair {
                continue;
            }
            symbols[left as usize] = merged;
            symbols[right as usize] = gone;
            let after = next[right as usize];
            next[left as usize] = after;
            next[right as usize] = NONE;
            if after != NONE {
                previous[after as usize] = left;
                heap.extend(candidate(symbols, left, after));
            }
            if previous[left as usize] != NONE {
                heap.extend(candidate(symbols, previous[left as usize], left));
            }
        }
        symbols.retain(|&symbol| symbol != gone);
    }
}

/// Working space of one merge, reused from word to word.
#[derive(Default)]
struct Merging {
    symbols: Vec<u32>,
    ranks: Vec<(u32, u32)>,
}

/// Gives each distinct text one number.
struct Interner<'a> {
    vocabulary: &'a Vocabulary,
    symbols: HashMap<Box<[u8]>, u32>,
    unreal_lengths: Vec<u32>,
}

impl<'a> Interner<'a> {
    fn new(vocabulary: &'a Vocabulary) -> Self {
        let mut symbols: HashMap<Box<[u8]>, u32> = HashMap::with_capacity(vocabulary.tokens.len());
        for (id, text) in vocabulary.tokens.iter().enumerate() {
            // Control tokens are cut out of the text before it gets here.
            if matches!(vocabulary.token_type(id), TokenType::Control) {
                continue;
            }
            if let Some(bytes) = bytes_of_mapped(text) {
                symbols.insert(bytes.into_boxed_slice(), id as u32);
            }
        }
        Self { vocabulary, symbols, unreal_lengths: Vec::new() }
    }

    fn symbol(&mut self, bytes: &[u8]) -> u32 {
        if let Some(&symbol) = self.symbols.get(bytes) {
            return symbol;
        }
        let symbol = (self.vocabulary.tokens.len() + self.unreal_lengths.len()) as u32;
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

/// How many tokens a word has, for words seen lately: one slot a word, the newest wins.
///
/// A slot holds 48 bits of the word's hash and 16 bits of count. The slot's index is the rest of the
/// hash, so two words are taken for one only if all 64 bits of a randomly seeded hash agree.
struct WordCache {
    slots: Box<[AtomicU64]>,
    seed: foldhash::fast::RandomState,
}

const SLOTS: usize = 1 << 16;

impl WordCache {
    fn new() -> Self {
        Self { slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(), seed: foldhash::fast::RandomState::default() }
    }

    fn get_or(&self, word: &[u8], count: impl FnOnce() -> u32) -> u32 {
        let hash = self.seed.hash_one(word);
        let slot = &self.slots[hash as usize % SLOTS];
        let tag = hash & !0xFFFF;
        let entry = slot.load(Ordering::Relaxed);
        if entry & !0xFFFF == tag && entry & 0xFFFF != 0 {
            return (entry & 0xFFFF) as u32;
        }
        let tokens = count();
        if (1..=0xFFFF).contains(&tokens) {
            slot.store(tag | u64::from(tokens), Ordering::Relaxed);
        }
        tokens
    }
}

impl std::fmt::Debug for WordCache {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "WordCache({SLOTS} slots)")
    }
}
