//! Where each conversation was answered last: that upstream has read it, and reads only what is new.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::context::identity::ConversationId;

/// Conversations that are remembered; those that were used longest ago go first.
const MOST: usize = 100_000;

#[derive(Debug, Default)]
pub(super) struct Affinity(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    clock: u64,
    /// The upstream's number, and when it was used.
    places: HashMap<ConversationId, (usize, u64)>,
}

impl Affinity {
    pub(super) fn get(&self, conversation: ConversationId) -> Option<usize> {
        self.state().places.get(&conversation).map(|(number, _)| *number)
    }

    pub(super) fn set(&self, conversation: ConversationId, number: usize) {
        let mut state = self.state();
        state.clock += 1;
        let clock = state.clock;
        state.places.insert(conversation, (number, clock));
        if state.places.len() > MOST {
            let mut used: Vec<u64> = state.places.values().map(|(_, used)| *used).collect();
            let tenth = used.len() / 10;
            let (_, oldest, _) = used.select_nth_unstable(tenth);
            let oldest = *oldest;
            state.places.retain(|_, (_, used)| *used > oldest);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten_first_and_never_all() {
        let affinity = Affinity::default();
        for conversation in 0..=MOST as i64 {
            affinity.set(conversation, 1);
        }
        assert_eq!((affinity.get(0), affinity.get(MOST as i64)), (None, Some(1)));
        assert!(affinity.state().places.len() >= MOST * 8 / 10);
    }
}
