//! Which conversations are under way, and how far each has come.
//!
//! Memory holds those that were used last: the links of [`crate::context::identity`], and the fronts that
//! compaction has made. Everything is in the store as well; a conversation that was forgotten here is
//! found there, with a handful of look-ups, when it goes on.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::recall::Archive;
use crate::context::identity::{ConversationId, Known, LinkMap, Placement, place};
use crate::context::{ChainKey, Front, Link, Message, Note, Tokens};

/// Messages remembered over all conversations; each takes about a hundred bytes.
const MAX_LINKS: usize = 2_000_000;

/// Fronts of one conversation: each compaction makes one, and branches go back to earlier ones.
const MAX_FRONTS: usize = 32;

/// Bytes of all fronts in memory, about. With their notes at three levels they are what is large about a conversation.
const MAX_FRONT_BYTES: usize = 64 << 20;

/// Fronts that are tried before a history is sent as it came.
const MAX_TRIED: usize = 4;

/// Deleted conversations that are remembered as such: as long as anybody may be working on one.
const MAX_BURIED: usize = 1024;

/// Conversations whose archive is kept ready for recall.
const MAX_ARCHIVES: usize = 32;

/// A request's place among the conversations.
#[derive(Debug, Clone)]
pub struct Turn {
    pub conversation: ConversationId,
    pub placement: Placement,
    pub user: Arc<str>,
    pub links: Arc<[Link]>,
}

impl Turn {
    /// The name of a snapshot of the whole history up to this turn.
    pub fn snapshot_id(&self) -> String {
        let last = self.links.last().map(Link::to_hex).unwrap_or_default();
        format!("snapshot-{last:0<32}")
    }

    /// How many of the request's messages are known already.
    pub fn shared(&self) -> usize {
        match self.placement {
            Placement::New => 0,
            Placement::Continues { shared, .. } | Placement::Branch { shared, .. } => shared,
        }
    }
}

/// A front, and how many of the request's messages it covers.
#[derive(Debug, Clone)]
pub struct Covering {
    pub front: Arc<Front>,
    pub covered: usize,
    pub link: Link,
}

/// What was recalled for a turn. The steps of one turn get the same, so that its front stays the same.
#[derive(Debug, Clone)]
pub struct Recalled {
    pub note: Note,
    /// Which of the request's messages are quoted, and which bytes of each.
    pub passages: Vec<(usize, Vec<Range<usize>>)>,
}

impl Recalled {
    /// Which of the request's messages are quoted.
    pub fn messages(&self) -> Vec<usize> {
        self.passages.iter().map(|(message, _)| *message).collect()
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
    clock: u64,
    links: LinkMap,
    conversations: HashMap<ConversationId, Conversation>,
    /// Of all conversations.
    front_bytes: usize,
    /// Conversations that were deleted lately.
    buried: VecDeque<ConversationId>,
    /// Archives ready for recall, by the link they go up to; with the time of the last use.
    archives: HashMap<Link, (u64, Arc<Archive>)>,
}

#[derive(Debug)]
struct Conversation {
    user: Arc<str>,
    last_used: u64,
    links: Vec<Link>,
    /// What leaves instead of the history up to a link; branches may have fronts of their own.
    fronts: Vec<(Link, Arc<Front>)>,
    /// What the newest turn recalled: the user's message and the front it was for.
    recalled: Option<(Link, Link, Option<Recalled>)>,
}

/// A conversation as the store knows it, for taking it back into memory.
#[derive(Debug)]
pub struct Stored {
    pub conversation: ConversationId,
    /// How many of the links are stored.
    pub shared: usize,
    pub answered: bool,
    pub tip: bool,
    pub fronts: Vec<(Link, Front)>,
    /// Who answered it last.
    pub upstream: Option<String>,
}

impl Conversations {
    pub fn new(key: ChainKey, max: usize) -> Self {
        Self { key, max, state: Mutex::default() }
    }

    /// The links of a history.
    pub fn links(&self, user: &str, messages: &[Message<'_>]) -> Arc<[Link]> {
        self.key.links(user, messages).into()
    }

    /// The same where the links of some messages are known: those after the first `before`.
    pub fn links_after(&self, user: &str, messages: &[Message<'_>], before: usize, known: &[Link]) -> Arc<[Link]> {
        let mut links = self.key.links(user, &messages[..before.min(messages.len())]);
        links.extend_from_slice(known);
        let mut link = links.last().copied().unwrap_or_else(|| self.key.start(user));
        for message in messages.iter().skip(links.len()) {
            link = self.key.extend(link, message);
            links.push(link);
        }
        links.into()
    }

    /// The link after an answer.
    pub fn answer_link(&self, turn: &Turn, answer: &Message<'_>) -> Link {
        let last = turn.links.last().copied().unwrap_or_else(|| self.key.start(&turn.user));
        self.key.extend(last, answer)
    }

    /// Where a history belongs, as far as memory goes.
    pub fn find(&self, links: &[Link]) -> Placement {
        let state = self.state();
        place(links, |link| state.links.get(link))
    }

    /// Takes a conversation back from the store.
    pub fn adopt(&self, user: &str, links: &[Link], stored: Stored) {
        let mut guard = self.state();
        let state = &mut *guard;
        let id = stored.conversation;
        if state.buried.contains(&id) {
            return;
        }
        state.touch(id, user);
        for (number, link) in links.iter().take(stored.shared).enumerate() {
            let last = number + 1 == stored.shared;
            let known = Known { conversation: id, answered: stored.answered && last, tip: stored.tip && last };
            state.links.adopt(*link, known);
        }
        if let Some(conversation) = state.conversations.get_mut(&id) {
            conversation.links.extend(&links[..stored.shared.min(links.len())]);
            if conversation.fronts.is_empty() {
                let skipped = stored.fronts.len().saturating_sub(MAX_FRONTS);
                let fronts = stored.fronts.into_iter().skip(skipped);
                conversation.fronts = fronts.map(|(link, front)| (link, Arc::new(front))).collect();
                state.front_bytes += conversation.front_bytes();
            }
        }
    }

    /// Begins a turn in a conversation.
    pub fn enter(&self, user: &str, links: Arc<[Link]>, placement: Placement, conversation: ConversationId) -> Turn {
        let mut state = self.state();
        state.touch(conversation, user);
        state.forget_oldest(self.max);
        let user = state.conversations.get(&conversation).map_or_else(|| user.into(), |known| Arc::clone(&known.user));
        Turn { conversation, placement, user, links }
    }

    /// Whether memory has a conversation, and whose it is.
    pub fn owner(&self, conversation: ConversationId) -> Option<Arc<str>> {
        self.state().conversations.get(&conversation).map(|known| Arc::clone(&known.user))
    }

    /// The fronts that this history may be sent behind under a limit, the one that covers most first.
    pub fn fronts(&self, turn: &Turn, limit: Tokens) -> Vec<Covering> {
        let state = self.state();
        let Some(conversation) = state.conversations.get(&turn.conversation) else { return Vec::new() };
        // What was made for a much smaller limit leaves out more than this one needs.
        let made_for = |front: &Front| limit <= front.limit.saturating_add(front.limit / 4);
        let mut known: foldhash::HashMap<&Link, &Arc<Front>> = conversation
            .fronts
            .iter()
            .filter(|(_, front)| made_for(front))
            .map(|(link, front)| (link, front))
            .collect();
        let mut found = Vec::new();
        for (at, link) in turn.links.iter().enumerate().rev() {
            if known.is_empty() || found.len() == MAX_TRIED {
                break;
            }
            if let Some(front) = known.remove(link) {
                found.push(Covering { front: Arc::clone(front), covered: at + 1, link: *link });
            }
        }
        found
    }

    /// Remembers the front that stands for the history up to `covered`.
    pub fn set_front(&self, conversation: ConversationId, covered: Link, front: Arc<Front>) {
        let mut guard = self.state();
        let state = &mut *guard;
        let Some(conversation) = state.conversations.get_mut(&conversation) else { return };
        let before = conversation.front_bytes();
        conversation.fronts.retain(|(known, _)| *known != covered);
        if conversation.fronts.len() >= MAX_FRONTS {
            conversation.fronts.remove(0);
        }
        conversation.fronts.push((covered, front));
        state.front_bytes = (state.front_bytes + conversation.front_bytes()).saturating_sub(before);
    }

    /// What this turn has recalled already, behind the front that ends at `covered`. The inner `None` is
    /// a turn that needs nothing.
    pub fn recalled(&self, turn: &Turn, newest: Link, covered: Link) -> Option<Option<Recalled>> {
        let state = self.state();
        let (message, front, recalled) = state.conversations.get(&turn.conversation)?.recalled.as_ref()?;
        (*message == newest && *front == covered).then(|| recalled.clone())
    }

    pub fn set_recalled(&self, turn: &Turn, newest: Link, covered: Link, recalled: Option<Recalled>) {
        if let Some(conversation) = self.state().conversations.get_mut(&turn.conversation) {
            conversation.recalled = Some((newest, covered, recalled));
        }
    }

    /// The archive up to a link, if it is ready.
    pub fn archive(&self, covered: &Link) -> Option<Arc<Archive>> {
        let mut state = self.state();
        state.clock += 1;
        let clock = state.clock;
        let (used, archive) = state.archives.get_mut(covered)?;
        *used = clock;
        Some(Arc::clone(archive))
    }

    pub fn set_archive(&self, covered: Link, archive: Arc<Archive>) {
        let mut state = self.state();
        let clock = state.clock;
        if state.archives.len() >= MAX_ARCHIVES
            && let Some(oldest) = state.archives.iter().min_by_key(|(_, (used, _))| *used).map(|(link, _)| *link)
        {
            state.archives.remove(&oldest);
        }
        state.archives.insert(covered, (clock, archive));
    }

    /// The secret that links are made with.
    pub fn key(&self) -> &ChainKey {
        &self.key
    }

    /// Forgets a conversation, which is in the store as it is now. What is ready for recall is still right.
    pub fn put_away(&self, id: ConversationId) {
        self.state().remove(id);
    }

    /// Forgets a conversation and everything that was ready for it.
    pub fn forget(&self, id: ConversationId) {
        self.state().forget(id);
    }

    /// Forgets a conversation that is being deleted, for good: whoever still works on it does not bring it back.
    pub fn bury(&self, id: ConversationId) {
        let mut state = self.state();
        state.forget(id);
        if state.buried.len() >= MAX_BURIED {
            state.buried.pop_front();
        }
        state.buried.push_back(id);
    }

    /// It could not be deleted after all.
    pub fn unbury(&self, id: ConversationId) {
        self.state().buried.retain(|buried| *buried != id);
    }

    pub fn is_buried(&self, id: ConversationId) -> bool {
        self.state().buried.contains(&id)
    }

    /// Remembers a finished turn, so that the next one is recognised.
    pub fn record(&self, turn: &Turn, answer: Link) {
        let mut guard = self.state();
        let state = &mut *guard;
        state.clock += 1;
        // One that was forgotten meanwhile is found in the store, with its fronts.
        let Some(conversation) = state.conversations.get_mut(&turn.conversation) else { return };
        conversation.last_used = state.clock;
        conversation.links.extend(state.links.record(turn.conversation, &turn.links, turn.shared(), answer));
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

impl Conversation {
    fn front_bytes(&self) -> usize {
        self.fronts.iter().map(|(_, front)| front.bytes()).sum()
    }
}

impl State {
    fn forget(&mut self, id: ConversationId) {
        self.remove(id);
        // Whose they are is not known; they are made again when they are needed.
        self.archives.clear();
    }

    fn remove(&mut self, id: ConversationId) {
        let Some(conversation) = self.conversations.remove(&id) else { return };
        self.front_bytes = self.front_bytes.saturating_sub(conversation.front_bytes());
        for link in conversation.links {
            self.links.forget(&link, id);
        }
    }

    fn touch(&mut self, id: ConversationId, user: &str) {
        self.clock += 1;
        if self.buried.contains(&id) {
            return;
        }
        let clock = self.clock;
        let fresh = || Conversation {
            user: user.into(),
            last_used: clock,
            links: Vec::new(),
            fronts: Vec::new(),
            recalled: None,
        };
        self.conversations.entry(id).or_insert_with(fresh).last_used = clock;
    }

    fn forget_oldest(&mut self, max: usize) {
        let over = self.conversations.len() > max || self.links.len() > MAX_LINKS;
        if !over && self.front_bytes <= MAX_FRONT_BYTES {
            return;
        }
        // A tenth at once, so that the search for the oldest is rare; the one that was used last stays.
        let mut by_age: Vec<_> = self.conversations.iter().map(|(id, known)| (known.last_used, *id)).collect();
        by_age.sort_unstable();
        by_age.pop();
        for (_, id) in by_age.into_iter().take(max.min(self.conversations.len()).div_ceil(10)) {
            self.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::front::Rollover;

    #[test]
    fn fronts_take_no_more_than_their_share_of_memory_and_the_oldest_go_first() {
        let conversations = Conversations::new(ChainKey::new([7; 32]), 10_000);
        let large = || Front {
            rollover: Some(Rollover { snapshot: String::new(), note: "n".repeat(2 << 20), last: 1 }),
            ..Front::default()
        };
        for id in 1..=100 {
            let link = Link::from_bytes([id as u8; 32]);
            let turn = conversations.enter("local", Arc::from([link]), Placement::New, id);
            conversations.set_front(id, link, Arc::new(large()));
            conversations.record(&turn, Link::from_bytes([id as u8 + 100; 32]));
        }
        let state = conversations.state();
        assert!(state.front_bytes <= MAX_FRONT_BYTES + (4 << 20), "{}", state.front_bytes);
        let counted: usize = state.conversations.values().map(Conversation::front_bytes).sum();
        assert_eq!(state.front_bytes, counted);
        assert!(!state.conversations.contains_key(&1) && state.conversations[&100].fronts.len() == 1);
        drop(state);
        let (gone, there) = (Link::from_bytes([101; 32]), Link::from_bytes([200; 32]));
        assert_eq!(conversations.find(&[gone]), Placement::New, "it is looked up in the store");
        assert_ne!(conversations.find(&[there]), Placement::New);
        conversations.forget(100);
        assert_eq!(conversations.find(&[there]), Placement::New);
    }

    #[test]
    fn a_conversation_that_was_forgotten_meanwhile_is_not_known_without_its_fronts() {
        let conversations = Conversations::new(ChainKey::new([7; 32]), 10_000);
        let (link, answer) = (Link::from_bytes([1; 32]), Link::from_bytes([2; 32]));
        let turn = conversations.enter("local", Arc::from([link]), Placement::New, 1);
        conversations.forget(1);
        conversations.record(&turn, answer);
        assert_eq!(conversations.find(&[link, answer]), Placement::New);
    }
}
