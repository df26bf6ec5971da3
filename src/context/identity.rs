//! Which conversation is this? Clients resend the whole history and send no id.
//!
//! Each message that is not a system message adds one link to a chain of keyed hashes; a link stands
//! for the whole history up to it. Two histories are the same conversation as far as their links are
//! equal. The key is secret and the user is hashed in first, so nobody can compute or collide with
//! another user's links.
//!
//! What counts as equal: role, content without surrounding space, tool calls. Thinking does not,
//! because most clients do not send it back.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use super::message::{Message, Role};

/// One position in a history: a hash of everything up to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Link([u8; 32]);

impl Link {
    /// A link that was stored.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first half, in hexadecimal: enough to tell histories apart.
    pub fn to_hex(&self) -> String {
        self.0[..16].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The secret that links are made with. It never leaves the process's own data directory.
#[derive(Clone)]
pub struct ChainKey([u8; 32]);

impl ChainKey {
    pub fn new(secret: [u8; 32]) -> Self {
        Self(secret)
    }

    /// The start of every history of one user.
    pub fn start(&self, user: &str) -> Link {
        Link(*blake3::keyed_hash(&self.0, user.as_bytes()).as_bytes())
    }

    /// The link after one more message; a system message adds none.
    pub fn extend(&self, link: Link, message: &Message<'_>) -> Link {
        if message.role == Role::System {
            return link;
        }
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(&link.0);
        field(&mut hasher, message.role.name());
        field(&mut hasher, message.text.trim());
        for call in &message.tool_calls {
            field(&mut hasher, &call.name);
            field(&mut hasher, &call.canonical_arguments);
        }
        Link(*hasher.finalize().as_bytes())
    }

    /// The links of a whole history, one for each message.
    pub fn links(&self, user: &str, messages: &[Message<'_>]) -> Vec<Link> {
        let mut link = self.start(user);
        messages
            .iter()
            .map(|message| {
                link = self.extend(link, message);
                link
            })
            .collect()
    }
}

impl std::fmt::Debug for ChainKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("ChainKey(secret)")
    }
}

/// Lengths go in front, so that no two lists of fields read the same.
fn field(hasher: &mut blake3::Hasher, text: &str) {
    hasher.update(&(text.len() as u64).to_le_bytes());
    hasher.update(text.as_bytes());
}

/// A conversation's number, as clients see it.
pub type ConversationId = i64;

/// What is known about one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    pub conversation: ConversationId,
    /// Whether an answer that came through us is in the history up to here.
    pub answered: bool,
    /// Whether this is where the conversation ended when it was last seen.
    pub tip: bool,
}

/// Where a request's history belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Nothing known, or nothing but an opening that anyone could have sent.
    New,
    /// The history goes on from a conversation's end.
    Continues { conversation: ConversationId, shared: usize },
    /// The history leaves a conversation in its middle: an edit, or an answer asked for again.
    Branch { conversation: ConversationId, shared: usize },
}

/// Finds the longest known prefix. `shared` is its length in messages.
pub fn place(links: &[Link], known: impl Fn(&Link) -> Option<Known>) -> Placement {
    for (index, link) in links.iter().enumerate().rev() {
        let Some(found) = known(link) else { continue };
        // Without an answer of ours in it, an equal opening is a coincidence; a shorter prefix has
        // even less in it, so there is no need to look on.
        if !found.answered {
            return Placement::New;
        }
        let (conversation, shared) = (found.conversation, index + 1);
        return if found.tip {
            Placement::Continues { conversation, shared }
        } else {
            Placement::Branch { conversation, shared }
        };
    }
    Placement::New
}

/// The links that are known, for [`place`].
#[derive(Debug, Default)]
pub struct LinkMap(HashMap<Link, Known, BuildHasherDefault<FirstBytes>>);

/// A link is a keyed hash already: its first bytes are as good as any hash of it.
#[derive(Debug, Default)]
struct FirstBytes(u64);

impl Hasher for FirstBytes {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk::<8>() {
            self.0 = u64::from_le_bytes(*first);
        }
    }

    /// The length of a link says nothing.
    fn write_usize(&mut self, _length: usize) {}
}

impl LinkMap {
    pub fn get(&self, link: &Link) -> Option<Known> {
        self.0.get(link).copied()
    }

    /// Records a finished turn: the request's links, of which the first `shared` are known, then the answer's.
    /// Returns those that are new.
    pub fn record(&mut self, conversation: ConversationId, request: &[Link], shared: usize, answer: Link) -> Vec<Link> {
        let mut new = Vec::new();
        let mut answered = false;
        // The last of those that are known is where the conversation ended, and says whether it was answered.
        for link in request.iter().skip(shared.saturating_sub(1)) {
            let entry = self.0.entry(*link).or_insert_with(|| {
                new.push(*link);
                Known { conversation, answered: false, tip: false }
            });
            answered |= entry.answered;
            entry.answered |= answered;
            entry.tip = false;
        }
        if self.0.insert(answer, Known { conversation, answered: true, tip: true }).is_none() {
            new.push(answer);
        }
        new
    }

    /// Takes a link back from the store; what is known already stays.
    pub fn adopt(&mut self, link: Link, known: Known) {
        let entry = self.0.entry(link).or_insert(known);
        entry.answered |= known.answered;
    }

    /// Forgets a link, unless the same words belong to another conversation by now.
    pub fn forget(&mut self, link: &Link, conversation: ConversationId) {
        if self.get(link).is_some_and(|known| known.conversation == conversation) {
            self.0.remove(link);
        }
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
