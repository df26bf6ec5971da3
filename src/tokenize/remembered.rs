//! How many tokens a text has, for texts seen lately.
//!
//! A fixed number of slots in sets of four, each slot one number: the upper bits of the text's hash, and the count in
//! the lower ones. The set is chosen by the hash's lower bits, so two texts are taken for one only if nearly all
//! bits of a randomly seeded hash agree. Within a set the newest comes first and the oldest goes: a text that is
//! looked up again and again is not driven out by one that happens to share its set.
//!
//! Nothing is locked. Writers that meet may lose an entry, never mix two: a slot is written as a whole.

use std::sync::atomic::{AtomicU64, Ordering};

const WAYS: usize = 4;

/// Counts with `BITS` bits each; larger ones are not remembered.
pub(super) struct Remembered<const BITS: u32> {
    slots: Box<[AtomicU64]>,
}

impl<const BITS: u32> Remembered<BITS> {
    const COUNT: u64 = (1 << BITS) - 1;

    /// With room for so many counts, a power of two.
    pub(super) fn new(slots: usize) -> Self {
        Self { slots: (0..slots.next_power_of_two().max(WAYS)).map(|_| AtomicU64::new(0)).collect() }
    }

    pub(super) fn get(&self, hash: u64) -> Option<u32> {
        let tag = hash & !Self::COUNT;
        let entries = self.set(hash).iter().map(|slot| slot.load(Ordering::Relaxed));
        let mut known = entries.filter(|entry| entry & !Self::COUNT == tag && entry & Self::COUNT != 0);
        known.next().map(|entry| (entry & Self::COUNT) as u32)
    }

    /// Nought is not remembered, because an empty slot says that.
    pub(super) fn put(&self, hash: u64, count: u32) {
        if count == 0 || u64::from(count) > Self::COUNT {
            return;
        }
        let mut entry = (hash & !Self::COUNT) | u64::from(count);
        for slot in self.set(hash) {
            entry = slot.swap(entry, Ordering::Relaxed);
            if entry == 0 {
                break;
            }
        }
    }

    fn set(&self, hash: u64) -> &[AtomicU64] {
        let set = hash as usize % (self.slots.len() / WAYS);
        &self.slots[set * WAYS..(set + 1) * WAYS]
    }
}

impl<const BITS: u32> std::fmt::Debug for Remembered<BITS> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Remembered({} slots)", self.slots.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_found_and_four_that_share_a_set_stay() {
        let remembered = Remembered::<16>::new(1 << 8);
        // The same lower bits, so the same set; other upper ones.
        let hashes: Vec<u64> = (1..=5).map(|number: u64| (number << 40) | 7).collect();
        for (count, hash) in (1..).zip(&hashes[..4]) {
            remembered.put(*hash, count);
        }
        assert_eq!(
            hashes.iter().map(|hash| remembered.get(*hash)).collect::<Vec<_>>(),
            [Some(1), Some(2), Some(3), Some(4), None]
        );
        remembered.put(hashes[4], 5);
        assert_eq!(remembered.get(hashes[0]), None, "the oldest goes");
        assert_eq!(remembered.get(hashes[4]), Some(5));
    }

    #[test]
    fn counts_that_have_no_room_are_not_remembered() {
        let remembered = Remembered::<16>::new(1 << 8);
        remembered.put(1 << 40, 0);
        assert_eq!(remembered.get(1 << 40), None);
        remembered.put(1 << 40, 0x1_0000);
        assert_eq!(remembered.get(1 << 40), None);
        remembered.put(1 << 40, 0xFFFF);
        assert_eq!(remembered.get(1 << 40), Some(0xFFFF));
    }
}
