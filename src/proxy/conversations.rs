//! Which conversations are under way, and how far each has come.
//!
//! Kept in memory: the links of [`crate::context::identity`], and what a rollover has left of a
//! conversation. Bounded: the conversation that was quiet longest is forgotten first, and a chat that
//! is forgotten is simply a new one.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::context::identity::{ConversationId, LinkMap, Placement, place};
use crate::context::{ChainKey, Fold, Link, Message};

/// Messages remembered over all conversations; each takes about a hundred bytes.
const MAX_LINKS: usize = 2_000_000;

/// Branches of one conversation that may have been rolled over.
const MAX_FOLDS: usize = 8;

/// A request's place among the conversations.
#[derive(Debug, Clone)]
pub struct Turn {
    pub conversation: ConversationId,
    pub placement: Placement,
    user: String,
    links: Vec<Link>,
}

impl Turn {
    /// The name of a snapshot of the whole history up to this turn.
    pub fn snapshot_id(&self) -> String {
        let last = self.links.last().map(Link::to_hex).unwrap_or_default();
        format!("snapshot-{last:0<32}")
    }
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
    links: LinkMap,
    conversations: HashMap<ConversationId, Conversation>,
}

#[derive(Debug)]
struct Conversation {
    user: String,
    last_used: u64,
    links: Vec<Link>,
    /// What leaves instead of the history up to a link; branches may have folds of their own.
    folds: Vec<(Link, Fold)>,
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
        let placement = place(&links, |link| state.links.get(link));
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
        match place(&links, |link| state.links.get(link)) {
            Placement::New => None,
            placement @ (Placement::Continues { conversation, .. } | Placement::Branch { conversation, .. }) => {
                Some(Turn { conversation, placement, user: user.to_owned(), links })
            }
        }
    }

    /// What the latest rollover left that this history still contains: the number of messages covered,
    /// and the fold.
    pub fn fold(&self, turn: &Turn) -> Option<(usize, Fold)> {
        let state = self.state();
        let folds = &state.conversations.get(&turn.conversation)?.folds;
        let position = |(covered, _): &&(Link, Fold)| turn.links.iter().rposition(|link| link == covered);
        let (position, (_, fold)) =
            folds.iter().filter_map(|fold| Some((position(&fold)?, fold))).max_by_key(|(at, _)| *at)?;
        Some((position + 1, fold.clone()))
    }

    /// Remembers what a rollover left of the first `covered` messages.
    pub fn set_fold(&self, turn: &Turn, covered: usize, fold: Fold) {
        let Some(link) = covered.checked_sub(1).and_then(|last| turn.links.get(last)) else { return };
        if let Some(conversation) = self.state().conversations.get_mut(&turn.conversation) {
            conversation.folds.retain(|(known, _)| known != link);
            if conversation.folds.len() >= MAX_FOLDS {
                conversation.folds.remove(0);
            }
            conversation.folds.push((*link, fold));
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
        conversation.links.extend(state.links.record(turn.conversation, &turn.links, answer));
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
        let fresh = || Conversation { user: user.to_owned(), last_used: clock, links: Vec::new(), folds: Vec::new() };
        self.conversations.entry(id).or_insert_with(fresh).last_used = clock;
    }

    fn forget_oldest(&mut self, max: usize) {
        if self.conversations.len() <= max && self.links.len() <= MAX_LINKS {
            return;
        }
        // A tenth at once, so that the search for the oldest is rare.
        let mut by_age: Vec<_> = self.conversations.iter().map(|(id, known)| (known.last_used, *id)).collect();
        by_age.sort_unstable();
        for (_, id) in by_age.into_iter().take(max.min(self.conversations.len()).div_ceil(10)) {
            for link in self.conversations.remove(&id).into_iter().flat_map(|known| known.links) {
                self.links.forget(&link, id);
            }
        }
    }
}
