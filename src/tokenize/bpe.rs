//! Byte-level byte-pair encoding with the model's own list of merges.
//!
//! A word starts as its bytes; the adjacent pair with the best rank is merged (the leftmost of
//! equals), until no pair has a rank. Worst case: a word of n bytes costs O(n log n), by a heap; short
//! words, which are nearly all, use a plain scan that is faster for them.
//!
//! Symbols are the numbers of [`super::tables`].

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::BuildHasher;

use foldhash::{HashMap, HashMapExt};

use super::remembered::Remembered;
use super::split::Splitter;
use super::tables::{Tables, texts_of_tokens};
use super::vocabulary::VocabularyError;

/// Words up to this many bytes are merged by a scan; the heap only pays off beyond.
const SCAN_LIMIT: usize = 48;

/// Words whose counts are remembered.
const WORDS: usize = 1 << 16;

#[derive(Debug)]
pub(super) struct Bpe {
    splitter: Splitter,
    /// Where words that are tokens are taken as such, all that are.
    whole_words: HashMap<Box<[u8]>, u32>,
    byte_symbols: Vec<u32>,
    /// (left, right) → (rank, merged).
    pairs: HashMap<(u32, u32), (u32, u32)>,
    /// Symbols from here on are no tokens; the value is what the server writes instead of them.
    first_unreal: u32,
    unreal_lengths: Vec<u32>,
    /// Counts of words seen lately.
    words: Remembered<16>,
    seed: foldhash::fast::RandomState,
}

impl Bpe {
    pub(super) fn new(tables: &Tables) -> Result<Self, VocabularyError> {
        let Tables { vocabulary, merges, byte_symbols, unreal_lengths } = tables;
        let splitter = Splitter::named(&vocabulary.pre)?;
        let whole_words = if splitter.whole_words_first { texts_of_tokens(vocabulary) } else { HashMap::new() };
        let mut pairs = HashMap::with_capacity(merges.len());
        for (rank, &(left, right, merged)) in (0..).zip(merges) {
            // Of equal pairs the first counts.
            pairs.entry((left, right)).or_insert((rank, merged));
        }
        Ok(Self {
            splitter,
            whole_words,
            byte_symbols: byte_symbols.clone(),
            pairs,
            first_unreal: vocabulary.tokens.len() as u32,
            unreal_lengths: unreal_lengths.clone(),
            words: Remembered::new(WORDS),
            seed: foldhash::fast::RandomState::default(),
        })
    }

    pub(super) fn count(&self, text: &str) -> u32 {
        let mut tokens = 0;
        let mut merging = Merging::default();
        self.splitter.words(text, &mut |word| {
            let hash = self.seed.hash_one(word.as_bytes());
            tokens += self.words.get(hash).unwrap_or_else(|| {
                self.merge(word.as_bytes(), &mut merging);
                let count = merging.symbols.iter().map(|&symbol| self.length(symbol)).sum();
                self.words.put(hash, count);
                count
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
            && let Some(&symbol) = self.whole_words.get(word)
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
