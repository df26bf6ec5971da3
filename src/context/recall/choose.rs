//! Which messages come back, within a budget.
//!
//! Neighbours have a share of each other's score, so taking hits in order also takes what stands around the
//! best of them. What is decided here is only what fits, and that quotes hang together: a run of neighbours
//! opens with one line, however long it is, so filling a gap of one is often as cheap as leaving it.

use super::Hit;

/// A message between two that are quoted comes too if it costs no more than this many opening lines: an
/// exchange with a hole in it is hard to read.
const GAP_IN_OPENING_LINES: u64 = 2;

/// When so many hits did not fit into what is left, nothing that matters will: those behind them bear less on it.
const MOST_PASSED_OVER: u32 = 48;

/// Which messages come back, oldest first and each once: the best hits, as many as the budget holds.
///
/// `cost` is the tokens of quoting a message, or nothing where it cannot come back, for example because it
/// still leaves verbatim. `per_block` is the tokens of the line that opens each run of neighbours. A hit too
/// large for what is left is passed over for smaller ones behind it, within reason.
pub fn choose(
    hits: &[Hit],
    len: usize,
    budget: u32,
    per_block: u32,
    cost: impl Fn(usize) -> Option<u32>,
) -> Vec<usize> {
    let mut selection =
        Selection { chosen: vec![false; len], spent: 0, budget: budget.into(), passed_over: 0, per_block, cost };
    for hit in hits {
        if selection.passed_over >= MOST_PASSED_OVER {
            break;
        }
        if !selection.take(hit.index, u64::MAX) {
            continue;
        }
        let gap = u64::from(per_block) * GAP_IN_OPENING_LINES;
        for (between, beyond) in [(-1, -2), (1, 2)] {
            let at = |offset| hit.index.checked_add_signed(offset);
            if let (Some(between), Some(beyond)) = (at(between), at(beyond))
                && selection.has(beyond)
            {
                selection.take(between, gap);
            }
        }
    }
    let chosen = selection.chosen.into_iter().enumerate();
    chosen.filter_map(|(index, chosen)| chosen.then_some(index)).collect()
}

struct Selection<Cost> {
    chosen: Vec<bool>,
    spent: u64,
    budget: u64,
    /// Messages that did not fit.
    passed_over: u32,
    per_block: u32,
    cost: Cost,
}

impl<Cost: Fn(usize) -> Option<u32>> Selection<Cost> {
    fn has(&self, index: usize) -> bool {
        self.chosen.get(index).copied().unwrap_or(false)
    }

    /// Takes a message if it can come back, costs at most `most` itself, and fits.
    fn take(&mut self, index: usize, most: u64) -> bool {
        if index >= self.chosen.len() || self.has(index) {
            return false;
        }
        let Some(cost) = (self.cost)(index).map(u64::from).filter(|cost| *cost <= most) else { return false };
        // It opens a block of its own, joins one, or makes one block of two.
        let (before, after) = (index.checked_sub(1).is_some_and(|before| self.has(before)), self.has(index + 1));
        let line = u64::from(self.per_block);
        let spent = match (before, after) {
            (false, false) => self.spent + cost + line,
            (true, false) | (false, true) => self.spent + cost,
            (true, true) => (self.spent + cost).saturating_sub(line),
        };
        if spent > self.budget {
            self.passed_over += 1;
            return false;
        }
        self.spent = spent;
        self.chosen[index] = true;
        true
    }
}
