//! What was read before and comes again: clients resend the whole history with every turn.
//!
//! A body that begins, byte by byte, like an earlier one of the same user is not read again up to there: a
//! digest of those bytes says that they are the same, and what they mean was kept. Only the rest is parsed
//! and hashed into the chain of identity. The digest is keyed and covers every byte, so nothing can be made
//! to look like something else.
//!
//! Kept in memory and bounded; without it everything works the same, only slower.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crate::context::plan::Kind;
use crate::context::{Link, Message, Role};
use crate::dialect::{Dialect, List, Prompt, Request};

/// Shorter bodies are read faster than remembered.
const WORTH_BYTES: usize = 8 << 10;

/// How much of a body's beginning tells which ones may be meant.
const HEAD_BYTES: usize = 1024;

/// Bytes at the end of what is known that are compared before everything is.
const TAIL_BYTES: usize = 64;

/// Bodies remembered for one beginning, and in all.
const MAX_PER_HEAD: usize = 16;
const MAX_HEADS: usize = 512;

/// Bytes that all of them may take together, about.
const MAX_BYTES: usize = 128 << 20;

/// A chain longer than this is made one piece: dropping a very long one would be deep.
const MAX_CHAIN: usize = 64;

/// The bodies that were read last.
#[derive(Debug)]
pub struct Memos {
    key: [u8; 32],
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    heads: HashMap<[u8; 16], Vec<Arc<Memo>>>,
    order: VecDeque<[u8; 16]>,
    bytes: usize,
}

/// The beginning of a body, up to the end of one of its messages.
#[derive(Debug)]
pub struct Memo {
    dialect: Dialect,
    user: Arc<str>,
    end: usize,
    tail: Vec<u8>,
    digest: [u8; 32],
    /// Where the list of messages opens.
    list_at: usize,
    /// What goes before: the same, up to an earlier message.
    parent: Option<Arc<Memo>>,
    depth: usize,
    elements: Vec<Range<usize>>,
    messages: Vec<Said>,
    kinds: Vec<Kind>,
    /// Of all messages from the beginning.
    links: Arc<[Link]>,
    /// How many of the dialect's own messages, from the beginning.
    count: usize,
    /// About how much memory it takes, its parents included.
    bytes: usize,
}

/// A message without its body: plain text is a place in it.
#[derive(Debug)]
enum Said {
    Plain { role: Plain, text: Range<usize>, source: usize },
    Other(Box<Message<'static>>),
}

#[derive(Debug, Clone, Copy)]
enum Plain {
    System,
    User,
    Assistant,
}

impl Memos {
    pub fn new(key: [u8; 32]) -> Self {
        Self { key, known: Mutex::default() }
    }

    /// The longest known beginning of a body.
    pub fn find(&self, dialect: Dialect, user: &str, body: &str) -> Option<Arc<Memo>> {
        if body.len() < WORTH_BYTES {
            return None;
        }
        let head = self.head(dialect, user, body);
        let candidates: Vec<Arc<Memo>> = {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            let fits = |memo: &&Arc<Memo>| {
                memo.end < body.len()
                    && memo.dialect == dialect
                    && *memo.user == *user
                    && body.as_bytes()[..memo.end].ends_with(&memo.tail)
            };
            known.heads.get(&head)?.iter().filter(fits).cloned().collect()
        };
        let mut candidates = candidates;
        candidates.sort_by_key(|memo| std::cmp::Reverse(memo.end));
        candidates.into_iter().find(|memo| self.digest(&body.as_bytes()[..memo.end]) == memo.digest)
    }

    /// Forgets everything that a user has sent.
    pub fn forget(&self, user: &str) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.heads.values_mut().for_each(|memos| memos.retain(|memo| *memo.user != *user));
        known.bytes = known.heads.values().flatten().map(|memo| memo.bytes).sum();
    }

    /// Remembers a body that was read, behind the one it continues. `links` are those of all its messages.
    pub fn remember(
        &self,
        dialect: Dialect,
        user: &Arc<str>,
        body: &str,
        request: &Request<'_>,
        links: &[Link],
        parent: Option<Arc<Memo>>,
    ) {
        let (Some(list), Prompt::Chat(messages)) = (&request.list, &request.prompt) else { return };
        let Some(end) = list.elements.last().map(|last| last.end) else { return };
        // OpenAI's tool results are named after the last call with their id, which may be yet to come.
        let unsettled = dialect == Dialect::OpenAiChat && messages.iter().any(|message| message.role == Role::Tool);
        if end < WORTH_BYTES || unsettled || links.len() != messages.len() {
            return;
        }
        let parent = parent.filter(|parent| parent.depth < MAX_CHAIN && parent.links.len() <= messages.len());
        let (from_element, from_message) = parent.as_ref().map_or((0, 0), |parent| (parent.count, parent.links.len()));
        let own: Vec<Said> =
            messages.iter().skip(list.before + from_message).map(|message| said(body, message)).collect();
        let bytes = own.iter().map(Said::bytes).sum::<usize>() + links.len() * 32;
        let memo = Memo {
            bytes: bytes + parent.as_ref().map_or(0, |parent| parent.bytes),
            dialect,
            user: Arc::clone(user),
            end,
            tail: body.as_bytes()[end.saturating_sub(TAIL_BYTES)..end].to_vec(),
            digest: self.digest(&body.as_bytes()[..end]),
            list_at: list.range.start,
            depth: parent.as_ref().map_or(0, |parent| parent.depth + 1),
            elements: list.elements[from_element..].to_vec(),
            messages: own,
            kinds: request.kinds[from_element..].to_vec(),
            links: links.iter().skip(list.before).copied().collect(),
            count: list.elements.len(),
            parent,
        };
        let head = self.head(dialect, user, body);
        let mut guard = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = &mut *guard;
        known.order.retain(|other| *other != head);
        known.order.push_back(head);
        known.bytes += memo.bytes;
        let memos = known.heads.entry(head).or_default();
        // What is longer by a turn takes the place of what it continues.
        let replaced = memo.parent.clone();
        let mut freed = 0;
        memos.retain(|other| {
            let continued = replaced.as_ref().is_some_and(|parent| Arc::ptr_eq(parent, other));
            let stays = !continued && other.digest != memo.digest;
            freed += if stays { 0 } else { other.bytes };
            stays
        });
        if memos.len() >= MAX_PER_HEAD {
            freed += memos.remove(0).bytes;
        }
        memos.push(Arc::new(memo));
        known.bytes = known.bytes.saturating_sub(freed);
        // What was not used for longest goes first.
        while known.order.len() > 1 && (known.order.len() > MAX_HEADS || known.bytes > MAX_BYTES) {
            let Some(oldest) = known.order.pop_front() else { break };
            let gone = known.heads.remove(&oldest).unwrap_or_default();
            known.bytes = known.bytes.saturating_sub(gone.iter().map(|memo| memo.bytes).sum());
        }
    }

    fn head(&self, dialect: Dialect, user: &str, body: &str) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(dialect.name().as_bytes());
        hasher.update(&(user.len() as u64).to_le_bytes());
        hasher.update(user.as_bytes());
        hasher.update(&body.as_bytes()[..HEAD_BYTES]);
        let mut head = [0; 16];
        head.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        head
    }

    fn digest(&self, bytes: &[u8]) -> [u8; 32] {
        *blake3::keyed_hash(&self.key, bytes).as_bytes()
    }
}

impl Memo {
    /// The body without the messages that are known: what is left to read. `None` if nothing follows them
    /// in their list.
    pub fn rest_of(&self, body: &str) -> Option<String> {
        let rest = &body[self.next_at(body)?..];
        let mut short = String::with_capacity(self.list_at + 1 + rest.len());
        short.push_str(&body[..=self.list_at]);
        short.push_str(rest);
        Some(short)
    }

    /// The whole request, from what was read of the rest.
    pub fn complete<'b>(&self, body: &'b str, rest: Request<'b>) -> Option<Request<'b>> {
        let list = rest.list?;
        let Prompt::Chat(new) = rest.prompt else { return None };
        // By how much everything after the known messages stands further back in the body.
        let shift = self.next_at(body)? - (self.list_at + 1);
        let mut messages: Vec<Message<'b>> = Vec::with_capacity(self.links.len() + new.len());
        let mut new = new.into_iter();
        messages.extend(new.by_ref().take(list.before));
        self.each(&mut |memo| messages.extend(memo.messages.iter().map(|said| said.read(body))));
        messages.extend(new.map(|message| Message { source: message.source + self.count, ..message }));
        let mut kinds = Vec::with_capacity(self.count + rest.kinds.len());
        let mut elements = Vec::with_capacity(self.count + list.elements.len());
        self.each(&mut |memo| {
            kinds.extend_from_slice(&memo.kinds);
            elements.extend(memo.elements.iter().cloned());
        });
        kinds.extend(rest.kinds);
        elements.extend(list.elements.iter().map(|range| range.start + shift..range.end + shift));
        let list = List { range: self.list_at..list.range.end + shift, elements, before: list.before };
        Some(Request { prompt: Prompt::Chat(messages), kinds, list: Some(list), ..rest })
    }

    /// The links of the known messages, from the beginning.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Where the next message begins, after the comma.
    fn next_at(&self, body: &str) -> Option<usize> {
        let after = &body[self.end..];
        let space = after.len() - after.trim_start().len();
        after[space..].starts_with(',').then_some(self.end + space + 1)
    }

    fn each(&self, visit: &mut dyn FnMut(&Self)) {
        if let Some(parent) = &self.parent {
            parent.each(visit);
        }
        visit(self);
    }
}

impl Said {
    /// About how much memory it takes.
    fn bytes(&self) -> usize {
        let text = match self {
            Self::Plain { .. } => 0,
            Self::Other(message) => message.text.len() + message.thinking.len() + 200 + message.tool_calls.len() * 400,
        };
        text + 80
    }

    fn read<'b>(&self, body: &'b str) -> Message<'b> {
        match self {
            Self::Plain { role, text, source } => {
                let role = match role {
                    Plain::System => Role::System,
                    Plain::User => Role::User,
                    Plain::Assistant => Role::Assistant,
                };
                Message::plain(role, &body[text.clone()], *source)
            }
            Self::Other(message) => Message::clone(message),
        }
    }
}

/// What is kept of a message: its place if it is nothing but unescaped text.
fn said(body: &str, message: &Message<'_>) -> Said {
    let role = match message.role {
        Role::System => Some(Plain::System),
        Role::User => Some(Plain::User),
        Role::Assistant => Some(Plain::Assistant),
        Role::Tool | Role::Other(_) => None,
    };
    let plain = message.thinking.is_empty()
        && message.images == 0
        && message.tool_calls.is_empty()
        && message.tool_name.is_none()
        && message.tool_call_id.is_none();
    match (role, &message.text) {
        (Some(role), Cow::Borrowed(text)) if plain => match place(body, text) {
            Some(text) => Said::Plain { role, text, source: message.source },
            None => Said::Other(Box::new(message.to_owned_message())),
        },
        _ => Said::Other(Box::new(message.to_owned_message())),
    }
}

/// Where a borrowed text stands in the body, if it is borrowed from there.
fn place(body: &str, text: &str) -> Option<Range<usize>> {
    let start = (text.as_ptr() as usize).checked_sub(body.as_ptr() as usize)?;
    let range = start..start.checked_add(text.len())?;
    (body.get(range.clone())? == text).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn body(dialect: Dialect, messages: &[Value]) -> String {
        match dialect {
            Dialect::Anthropic => {
                json!({ "model": "m", "system": "Rules.", "messages": messages, "max_tokens": 9 }).to_string()
            }
            _ => {
                json!({ "model": "m", "messages": messages, "stream": true, "options": { "num_ctx": 99 } }).to_string()
            }
        }
    }

    fn history(dialect: Dialect) -> Vec<Value> {
        let call = match dialect {
            Dialect::Chat => {
                json!({ "role": "assistant", "content": "", "tool_calls": [{ "function": { "name": "f", "arguments": { "a": 1 } } }] })
            }
            Dialect::Anthropic => {
                json!({ "role": "assistant", "content": [{ "type": "tool_use", "id": "1", "name": "f", "input": {} }] })
            }
            _ => json!({ "role": "assistant", "content": "no tools here" }),
        };
        let mut messages = vec![json!({ "role": "user", "content": "first \"quoted\" \n line" }), call];
        messages.extend((0..120).map(|number| {
            let role = if number % 2 == 0 { "user" } else { "assistant" };
            json!({ "role": role, "content": format!("message {number}: {}", "words and more words ".repeat(6)) })
        }));
        messages
    }

    fn links(count: usize) -> Vec<Link> {
        (0..count).map(|number| Link::from_bytes([number as u8; 32])).collect()
    }

    #[test]
    fn a_recognised_body_reads_exactly_as_one_that_is_read_whole_over_many_turns() {
        for dialect in [Dialect::Chat, Dialect::OpenAiChat, Dialect::Anthropic] {
            let memos = Memos::new([7; 32]);
            let user: Arc<str> = "local".into();
            let mut messages = history(dialect);
            for turn in 0..100 {
                let body = body(dialect, &messages);
                let whole = dialect.parse(&body).expect("plain");
                let memo = memos.find(dialect, &user, &body);
                assert_eq!(memo.is_some(), turn > 0, "{dialect:?}, turn {turn}");
                if let Some(memo) = &memo {
                    let rest = memo.rest_of(&body).expect("something follows");
                    let read = memo.complete(&body, dialect.parse(&rest).expect("plain")).expect("complete");
                    let (Prompt::Chat(read_messages), Prompt::Chat(all)) = (&read.prompt, &whole.prompt) else {
                        panic!("chats")
                    };
                    assert_eq!(read_messages, all, "{dialect:?}, turn {turn}");
                    assert_eq!(read.kinds, whole.kinds);
                    let (read_list, list) = (read.list.expect("a list"), whole.list.clone().expect("a list"));
                    assert_eq!((read_list.range, read_list.elements), (list.range, list.elements));
                    assert_eq!(
                        (read.num_ctx, read.answer_tokens, read.stream),
                        (whole.num_ctx, whole.answer_tokens, whole.stream)
                    );
                    assert!(rest.len() < 2000, "only what is new is read: {}", rest.len());
                }
                let Prompt::Chat(all) = &whole.prompt else { panic!("a chat") };
                memos.remember(dialect, &user, &body, &whole, &links(all.len()), memo);
                messages.push(json!({ "role": "assistant", "content": format!("answer \u{e9} {turn}") }));
                messages.push(json!({ "role": "user", "content": format!("question\t{turn}") }));
            }
        }
    }

    #[test]
    fn one_changed_byte_or_another_user_is_not_recognised() {
        let memos = Memos::new([7; 32]);
        let mut messages = history(Dialect::Chat);
        let first = body(Dialect::Chat, &messages);
        let request = Dialect::Chat.parse(&first).expect("plain");
        let Prompt::Chat(all) = &request.prompt else { panic!("a chat") };
        memos.remember(Dialect::Chat, &"local".into(), &first, &request, &links(all.len()), None);
        messages.push(json!({ "role": "user", "content": "next" }));
        let next = body(Dialect::Chat, &messages);
        assert!(memos.find(Dialect::Chat, "local", &next).is_some());
        assert!(memos.find(Dialect::Chat, "other", &next).is_none());
        assert!(memos.find(Dialect::OpenAiChat, "local", &next).is_none());
        assert!(memos.find(Dialect::Chat, "local", &next.replacen("message 50", "message 5O", 1)).is_none());
        assert!(memos.find(Dialect::Chat, "local", &first[..first.len() / 2]).is_none());
    }
}
