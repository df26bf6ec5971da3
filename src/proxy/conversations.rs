//! Which conversations are under way, and how far each has come.
//!
//! Kept in memory: the links of [`crate::context::identity`], and what a rollover has left of a
//! conversation. Bounded: the conversation that was quiet longest is forgotten first, and a chat that
//! is forgotten is simply a new one.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::context::identity::{ConversationId, Known, Placement, place};
use crate::context::{ChainKey, Fold, Link, Message};

/// A request's place among the conversations.
#[derive(Debug, Clone)]
pub struct Turn {
    pub conversation: ConversationId,
    pub placement: Placement,
    user: String,
    links: Vec<Link>,
}

/// All conversations of all users.
#[derive(Debug)]
pub struct Conversations {
    key: ChainKey,
    max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next_id: ConversationId,
    clock: u64,
    links: HashMap<Link, Known>,
    conversations: HashMap<ConversationId, Conversation>,
}

#[derive(Debug)]
struct Conversation {
    user: String,
    last_used: u64,
    links: Vec<Link>,
    /// What leaves instead of the history up to the link.
    fold: Option<(Link, Fold)>,
}

impl Conversations {
    pub fn new(key: ChainKey, max: usize) -> Self {
        Self { key, max, state: Mutex::default() }
    }

    /// Finds the conversation that a history belongs to, or begins one. `named` is what the client says
    /// it is; it counts only if it is that user's.
    pub fn place(&self, user: &str, messages: &[Message<'_>], named: Option<ConversationId>) -> Turn {
        let links = self.key.links(user, messages);
        let mut state = self.state();
        let placement = place(&links, |link| state.links.get(link).copied());
        let owned = |id: &ConversationId| state.conversations.get(id).is_some_and(|known| known.user == user);
        let conversation = match (named.filter(owned), placement) {
            (Some(named), _) => named,
            (None, Placement::Continues { conversation, .. } | Placement::Branch { conversation, .. }) => conversation,
            (None, Placement::New) => {
                state.next_id += 1;
                state.next_id
            }
        };
        state.touch(conversation, user);
        state.forget_oldest(self.max);
        Turn { conversation, placement, user: user.to_owned(), links }
    }

    /// Whether a conversation is there and belongs to that user.
    pub fn owns(&self, user: &str, conversation: ConversationId) -> bool {
        self.state().conversations.get(&conversation).is_some_and(|known| known.user == user)
    }

    /// The same without leaving a trace, for dry runs.
    pub fn look(&self, user: &str, messages: &[Message<'_>]) -> Option<Turn> {
        let links = self.key.links(user, messages);
        let state = self.state();
        match place(&links, |link| state.links.get(link).copied()) {
            Placement::New => None,
            placement @ (Placement::Continues { conversation, .. } | Placement::Branch { conversation, .. }) => {
                Some(Turn { conversation, placement, user: user.to_owned(), links })
            }
        }
    }

    /// What an earlier rollover left, if this history still contains what it covers: the number of
    /// messages covered, and the fold.
    pub fn fold(&self, turn: &Turn) -> Option<(usize, Fold)> {
        let state = self.state();
        let (covered, fold) = state.conversations.get(&turn.conversation)?.fold.as_ref()?;
        let position = turn.links.iter().rposition(|link| link == covered)?;
        Some((position + 1, fold.clone()))
    }

    /// Remembers what a rollover left of the first `covered` messages.
    pub fn set_fold(&self, turn: &Turn, covered: usize, fold: Fold) {
        let Some(link) = covered.checked_sub(1).and_then(|last| turn.links.get(last)) else { return };
        if let Some(conversation) = self.state().conversations.get_mut(&turn.conversation) {
            conversation.fold = Some((*link, fold));
        }
    }

    /// Remembers a finished turn, so that the next one is recognised.
    pub fn record(&self, turn: &Turn, answer: &Message<'_>) {
        let last = turn.links.last().copied().unwrap_or_else(|| self.key.start(&turn.user));
        let answer = self.key.extend(last, answer);
        let mut guard = self.state();
        let state = &mut *guard;
        state.touch(turn.conversation, &turn.user);
        let Some(conversation) = state.conversations.get_mut(&turn.conversation) else { return };
        let mut answered = false;
        for link in &turn.links {
            let known = state.links.entry(*link).or_insert_with(|| {
                conversation.links.push(*link);
                Known { conversation: turn.conversation, answered: false, tip: false }
            });
            answered |= known.answered;
            known.answered |= answered;
            known.tip = false;
        }
        conversation.links.push(answer);
        state.links.insert(answer, Known { conversation: turn.conversation, answered: true, tip: true });
    }

    pub fn len(&self) -> usize {
        self.state().conversations.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn touch(&mut self, id: ConversationId, user: &str) {
        self.clock += 1;
        let clock = self.clock;
        let fresh = || Conversation { user: user.to_owned(), last_used: clock, links: Vec::new(), fold: None };
        self.conversations.entry(id).or_insert_with(fresh).last_used = clock;
    }

    fn forget_oldest(&mut self, max: usize) {
        if self.conversations.len() <= max {
            return;
        }
        // A tenth at once, so that the search for the oldest is rare.
        let mut by_age: Vec<_> = self.conversations.iter().map(|(id, known)| (known.last_used, *id)).collect();
        by_age.sort_unstable();
        for (_, id) in by_age.into_iter().take(max.div_ceil(10)) {
            for link in self.conversations.remove(&id).into_iter().flat_map(|known| known.links) {
                self.links.remove(&link);
            }
        }
    }
}
