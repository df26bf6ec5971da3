//! What was read before and comes again: clients resend the whole history with every turn.
//!
//! A body that begins, byte by byte, like an earlier one of the same user is not read again up to there: it is
//! compared with the earlier one, which is many times faster than reading, and what those bytes mean was kept. Only
//! the rest is parsed and hashed into the chain of identity. Where the two part, at the end of one message, the rest
//! begins: so an edited question and an answer asked for again are short work as well.
//!
//! Kept in memory and bounded; without it everything works the same, only slower.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::context::plan::Kind;
use crate::context::{Link, Message, Role};
use crate::dialect::{Dialect, List, Prompt, Request};
use crate::ollama::count::facts;
use crate::tokenize::template::Facts;

/// Shorter bodies are read faster than remembered.
const WORTH_BYTES: usize = 8 << 10;

/// How much of a body's beginning tells which ones may be meant.
const HEAD_BYTES: usize = 1024;

/// Bytes at the end of what is known that are compared before everything is.
const TAIL_BYTES: usize = 64;

/// Bodies remembered for one beginning, such as an agent's instructions, and beginnings in all.
const MAX_PER_HEAD: usize = 256;
const MAX_HEADS: usize = 512;

/// Bodies that are compared from their start when none goes on where an earlier one ended.
const MAX_COMPARED: usize = 16;

/// Messages beyond what is known that make a body worth remembering beside the one it leaves.
const MUCH_NEW: usize = 8;

/// Bytes that all of them may take together, about.
const MAX_BYTES: usize = 96 << 20;

/// A chain longer than this is made one piece: dropping a very long one would be deep.
const MAX_CHAIN: usize = 64;

/// The bodies that were read last.
#[derive(Debug)]
pub struct Memos {
    /// Nobody can choose a beginning that meets another's.
    key: [u8; 32],
    bodies: Mutex<Bodies>,
}

#[derive(Debug, Default)]
struct Bodies {
    heads: HashMap<[u8; 16], Vec<Body>>,
    order: VecDeque<[u8; 16]>,
    bytes: usize,
}

/// A body, up to the end of its last message, and what it means.
#[derive(Debug, Clone)]
struct Body {
    written: Bytes,
    memo: Arc<Memo>,
}

/// What the messages of a body mean.
#[derive(Debug)]
struct Memo {
    dialect: Dialect,
    user: Arc<str>,
    /// Where the list of messages opens.
    list_at: usize,
    /// What goes before: the same, up to an earlier message.
    parent: Option<Arc<Memo>>,
    depth: usize,
    elements: Vec<Range<usize>>,
    messages: Vec<Said>,
    kinds: Vec<Kind>,
    /// Of all messages of the request, those before the list included.
    links: Arc<[Link]>,
    /// How many messages come before the list.
    before: usize,
    /// How many of the dialect's own messages, from the beginning.
    count: usize,
    /// About how much memory it takes, its parents included.
    bytes: usize,
}

/// A message without its body: plain text is a place in it.
#[derive(Debug)]
struct Said {
    text: Text,
    facts: Facts,
    source: usize,
}

#[derive(Debug)]
enum Text {
    Plain(Plain, Range<usize>),
    Other(Box<Message<'static>>),
}

#[derive(Debug, Clone, Copy)]
enum Plain {
    System,
    User,
    Assistant,
}

/// The beginning of a body that is known.
#[derive(Debug, Clone)]
pub struct Known {
    memo: Arc<Memo>,
    /// How many of the dialect's own messages are known, and how many of Ollama's they make.
    elements: usize,
    messages: usize,
    /// Where the last of them ends.
    end: usize,
}

impl Memos {
    pub fn new(key: [u8; 32]) -> Self {
        Self { key, bodies: Mutex::default() }
    }

    /// The longest known beginning of a body.
    pub fn find(&self, dialect: Dialect, user: &str, body: &str) -> Option<Known> {
        if body.len() < WORTH_BYTES {
            return None;
        }
        let head = self.head(dialect, user, body);
        let body = body.as_bytes();
        let mut candidates: Vec<Body> = {
            let bodies = self.bodies.lock().unwrap_or_else(PoisonError::into_inner);
            let same = |known: &&Body| known.memo.dialect == dialect && *known.memo.user == *user;
            let known = bodies.heads.get(&head)?;
            let goes_on = |known: &&Body| {
                let end = known.written.len();
                end < body.len() && body[..end].ends_with(&known.written[end.saturating_sub(TAIL_BYTES)..])
            };
            let on: Vec<Body> = known.iter().filter(same).filter(goes_on).cloned().collect();
            if on.is_empty() { known.iter().rev().filter(same).take(MAX_COMPARED).cloned().collect() } else { on }
        };
        candidates.sort_by_key(|known| std::cmp::Reverse(known.written.len()));
        let mut best: Option<Known> = None;
        for candidate in candidates {
            let shared = common(&candidate.written, body);
            if shared <= best.as_ref().map_or(WORTH_BYTES, |best| best.end) {
                continue;
            }
            let whole = shared == candidate.written.len();
            best = candidate.memo.up_to(shared).or(best);
            if whole {
                break;
            }
        }
        best.filter(|known| known.end >= WORTH_BYTES)
    }

    /// Forgets everything.
    pub fn clear(&self) {
        let mut bodies = self.bodies.lock().unwrap_or_else(PoisonError::into_inner);
        bodies.heads.clear();
        bodies.bytes = 0;
    }

    /// Forgets everything that a user has sent.
    pub fn forget(&self, user: &str) {
        let mut bodies = self.bodies.lock().unwrap_or_else(PoisonError::into_inner);
        bodies.heads.values_mut().for_each(|known| known.retain(|body| *body.memo.user != *user));
        bodies.bytes = bodies.heads.values().flatten().map(Body::bytes).sum();
    }

    /// Remembers a body that was read, behind the one it continues. `text` is all of it, `links` are those of all its
    /// messages.
    pub fn remember(
        &self,
        dialect: Dialect,
        user: &Arc<str>,
        (body, text): (&Bytes, &str),
        request: &Request<'_>,
        links: &Arc<[Link]>,
        known: Option<Known>,
    ) {
        let (Some(list), Prompt::Chat(messages)) = (&request.list, &request.prompt) else { return };
        let Some(end) = list.elements.last().map(|last| last.end) else { return };
        // OpenAI's tool results are named after the last call with their id, which may be yet to come.
        let unsettled = dialect == Dialect::OpenAiChat && messages.iter().any(|message| message.role == Role::Tool);
        if end < WORTH_BYTES || unsettled || links.len() != messages.len() {
            return;
        }
        let continued = known.as_ref().filter(|known| known.is_whole()).map(|known| Arc::clone(&known.memo));
        let little_new = |known: &Known| list.elements.len() < known.elements + MUCH_NEW;
        if continued.is_none() && known.as_ref().is_some_and(little_new) {
            return;
        }
        let parent = continued.clone().filter(|memo| memo.depth < MAX_CHAIN);
        let (from_element, from_message) =
            parent.as_ref().map_or((0, 0), |memo| (memo.count, memo.links.len() - memo.before));
        let own: Vec<Said> =
            messages.iter().skip(list.before + from_message).map(|message| said(text, message)).collect();
        let bytes = own.iter().map(Said::bytes).sum::<usize>() + links.len() * 32;
        let memo = Memo {
            bytes: bytes + parent.as_ref().map_or(0, |parent| parent.bytes),
            dialect,
            user: Arc::clone(user),
            list_at: list.range.start,
            depth: parent.as_ref().map_or(0, |parent| parent.depth + 1),
            elements: list.elements[from_element..].to_vec(),
            messages: own,
            kinds: request.kinds[from_element..].to_vec(),
            links: Arc::clone(links),
            before: list.before,
            count: list.elements.len(),
            parent,
        };
        let head = self.head(dialect, user, text);
        self.add(head, Body { written: body.slice(..end), memo: Arc::new(memo) }, continued);
    }

    /// Takes a body in, in the place of the one that it continues.
    fn add(&self, head: [u8; 16], body: Body, continued: Option<Arc<Memo>>) {
        let mut guard = self.bodies.lock().unwrap_or_else(PoisonError::into_inner);
        let bodies = &mut *guard;
        if bodies.order.back() != Some(&head) {
            bodies.order.retain(|other| *other != head);
            bodies.order.push_back(head);
        }
        bodies.bytes += body.bytes();
        let known = bodies.heads.entry(head).or_default();
        let mut freed = 0;
        known.retain(|other| {
            let stays = continued.as_ref().is_none_or(|memo| !Arc::ptr_eq(memo, &other.memo));
            freed += if stays { 0 } else { other.bytes() };
            stays
        });
        if known.len() >= MAX_PER_HEAD {
            freed += known.remove(0).bytes();
        }
        known.push(body);
        bodies.bytes = bodies.bytes.saturating_sub(freed);
        // What was not used for longest goes first.
        while bodies.bytes > MAX_BYTES || bodies.order.len() > MAX_HEADS {
            let Some(oldest) = bodies.order.front().copied() else { break };
            let known = bodies.heads.entry(oldest).or_default();
            let (of_many, last) = (bodies.order.len() > MAX_HEADS, known.len() <= 1);
            let gone: Vec<Body> = if of_many || last { std::mem::take(known) } else { vec![known.remove(0)] };
            bodies.bytes = bodies.bytes.saturating_sub(gone.iter().map(Body::bytes).sum());
            if of_many || last {
                bodies.order.pop_front();
                bodies.heads.remove(&oldest);
            }
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
}

/// How many bytes two texts have in common from the start.
fn common(one: &[u8], other: &[u8]) -> usize {
    const BLOCK: usize = 4096;
    let blocks = one.chunks(BLOCK).zip(other.chunks(BLOCK));
    let equal = blocks.take_while(|(one, other)| one == other).count() * BLOCK;
    let equal = equal.min(one.len()).min(other.len());
    equal + one[equal..].iter().zip(&other[equal..]).take_while(|(one, other)| one == other).count()
}

impl Body {
    fn bytes(&self) -> usize {
        self.memo.bytes + self.written.len()
    }
}

impl Memo {
    /// What of it lies within the first bytes of the body; nothing if that is not a single message.
    fn up_to(self: &Arc<Self>, bytes: usize) -> Option<Known> {
        let mut node = self;
        loop {
            let within = node.elements.partition_point(|element| element.end <= bytes);
            let elements = node.count - node.elements.len() + within;
            if within > 0 {
                let end = node.elements[within - 1].end;
                // All of a node's messages, or those of its first elements.
                let own = node.messages.partition_point(|said| said.source < elements);
                let earlier = node.links.len() - node.before - node.messages.len();
                return Some(Known { memo: Arc::clone(self), elements, messages: earlier + own, end });
            }
            node = node.parent.as_ref()?;
        }
    }

    fn each<'m>(&'m self, visit: &mut dyn FnMut(&'m Self)) {
        if let Some(parent) = &self.parent {
            parent.each(visit);
        }
        visit(self);
    }
}

impl Known {
    /// The body without the messages that are known: what is left to read. `None` if nothing follows them
    /// in their list.
    pub fn rest_of(&self, body: &str) -> Option<String> {
        let rest = &body[self.next_at(body)?..];
        let list_at = self.memo.list_at;
        let mut short = String::with_capacity(list_at + 1 + rest.len());
        short.push_str(&body[..=list_at]);
        short.push_str(rest);
        Some(short)
    }

    /// The whole request, from what was read of the rest, which is `short`.
    pub fn complete<'b>(&'b self, body: &'b str, short: &str, rest: Request<'b>) -> Option<Request<'b>> {
        let list = rest.list?;
        let Prompt::Chat(new) = rest.prompt else { return None };
        let list_at = self.memo.list_at;
        // By how much everything after the known messages stands further back in the body.
        let shift = self.next_at(body)? - (list_at + 1);
        let mut messages: Vec<Message<'b>> = Vec::with_capacity(self.messages + new.len());
        let mut facts = Vec::with_capacity(list.before + self.messages);
        let mut kinds = Vec::with_capacity(self.elements + rest.kinds.len());
        let mut elements = Vec::with_capacity(self.elements + list.elements.len());
        let mut new = new.into_iter();
        messages.extend(new.by_ref().take(list.before));
        facts.extend(messages.iter().map(crate::ollama::count::facts));
        self.memo.each(&mut |memo| {
            let (room, places) = (self.messages + list.before - messages.len(), self.elements - kinds.len());
            messages.extend(memo.messages.iter().take(room).map(|said| said.read(body)));
            facts.extend(memo.messages.iter().take(room).map(|said| said.facts));
            kinds.extend_from_slice(&memo.kinds[..places.min(memo.kinds.len())]);
            elements.extend(memo.elements.iter().take(places).cloned());
        });
        messages.extend(new.map(|message| {
            // The same text stands in the body as well, and is kept as a place there.
            let place = match &message.text {
                Cow::Borrowed(text) => place(short, text).filter(|place| place.start > list_at),
                Cow::Owned(_) => None,
            };
            let text = place.map(|place| Cow::Borrowed(&body[place.start + shift..place.end + shift]));
            let source = message.source + self.elements;
            Message { source, text: text.unwrap_or(message.text), ..message }
        }));
        kinds.extend(rest.kinds);
        elements.extend(list.elements.iter().map(|range| range.start + shift..range.end + shift));
        let list = List { range: list_at..list.range.end + shift, elements, before: list.before };
        // What stands before the list stays where it is.
        let moved = |range: Range<usize>| {
            if range.start > list_at { range.start + shift..range.end + shift } else { range }
        };
        let truncate = rest.truncate.map(moved);
        Some(Request { prompt: Prompt::Chat(messages), kinds, list: Some(list), facts, truncate, ..rest })
    }

    /// The links of the known messages, those before the list left out.
    pub fn links(&self) -> &[Link] {
        &self.memo.links[self.memo.before..self.memo.before + self.messages]
    }

    /// Whether this is all that is known of that body.
    fn is_whole(&self) -> bool {
        self.elements == self.memo.count
    }

    /// Where the next message begins, after the comma.
    fn next_at(&self, body: &str) -> Option<usize> {
        let after = &body[self.end..];
        let space = after.len() - after.trim_start().len();
        after[space..].starts_with(',').then_some(self.end + space + 1)
    }
}

impl Said {
    /// About how much memory it takes.
    fn bytes(&self) -> usize {
        let text = match &self.text {
            Text::Plain(..) => 0,
            Text::Other(message) => message.text.len() + message.thinking.len() + 200 + message.tool_calls.len() * 400,
        };
        text + 120
    }

    fn read<'b>(&'b self, body: &'b str) -> Message<'b> {
        match &self.text {
            Text::Plain(role, text) => {
                let role = match role {
                    Plain::System => Role::System,
                    Plain::User => Role::User,
                    Plain::Assistant => Role::Assistant,
                };
                Message::plain(role, &body[text.clone()], self.source)
            }
            Text::Other(message) => message.borrowed(),
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
    let place = match (role, &message.text) {
        (Some(role), Cow::Borrowed(text)) if plain => place(body, text).map(|text| (role, text)),
        _ => None,
    };
    let text = match place {
        Some((role, text)) => Text::Plain(role, text),
        None => Text::Other(Box::new(message.to_owned_message())),
    };
    Said { text, facts: facts(message), source: message.source }
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
                json!({ "model": "m", "messages": messages, "stream": true, "options": { "num_ctx": 99 }, "truncate": true })
                    .to_string()
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

    fn links(count: usize) -> Arc<[Link]> {
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
                    let read = memo.complete(&body, &rest, dialect.parse(&rest).expect("plain")).expect("complete");
                    let (Prompt::Chat(read_messages), Prompt::Chat(all)) = (&read.prompt, &whole.prompt) else {
                        panic!("chats")
                    };
                    assert_eq!(read_messages, all, "{dialect:?}, turn {turn}");
                    assert_eq!(read.kinds, whole.kinds);
                    assert_eq!((read.truncate.is_some(), &read.truncate), (dialect == Dialect::Chat, &whole.truncate));
                    let (read_list, list) = (read.list.expect("a list"), whole.list.clone().expect("a list"));
                    assert_eq!((read_list.range, read_list.elements), (list.range, list.elements));
                    assert_eq!(
                        (read.num_ctx, read.answer_tokens, read.stream),
                        (whole.num_ctx, whole.answer_tokens, whole.stream)
                    );
                    assert!(rest.len() < 2000, "only what is new is read: {}", rest.len());
                }
                let Prompt::Chat(all) = &whole.prompt else { panic!("a chat") };
                let bytes = Bytes::from(body.clone());
                memos.remember(dialect, &user, (&bytes, &body), &whole, &links(all.len()), memo);
                messages.push(json!({ "role": "assistant", "content": format!("answer \u{e9} {turn}") }));
                messages.push(json!({ "role": "user", "content": format!("question\t{turn}") }));
            }
        }
    }

    #[test]
    fn many_conversations_that_begin_alike_are_all_recognised_and_memory_is_bounded() {
        let memos = Memos::new([7; 32]);
        let user: Arc<str> = "local".into();
        let opening = json!({ "role": "system", "content": "rules ".repeat(1000) });
        let of = |number: usize, turns: usize| {
            let said = (0..turns)
                .map(|turn| json!({ "role": "user", "content": format!("{number} {turn} {}", "w ".repeat(500)) }));
            body(Dialect::Chat, &[opening.clone()].into_iter().chain(said).collect::<Vec<_>>())
        };
        let keep = |text: String| {
            let request = Dialect::Chat.parse(&text).expect("plain");
            let known = memos.find(Dialect::Chat, &user, &text);
            let Prompt::Chat(all) = &request.prompt else { panic!("a chat") };
            memos.remember(Dialect::Chat, &user, (&text.clone().into(), &text), &request, &links(all.len()), known);
        };
        (0..200).for_each(|number| keep(of(number, 12)));
        for number in 0..200 {
            let known = memos.find(Dialect::Chat, &user, &of(number, 13)).expect("known");
            assert_eq!(known.elements, 13, "{number}");
        }
        (0..64).for_each(|number| keep(of(number, 2000)));
        let bodies = memos.bodies.lock().expect("not poisoned");
        assert!(bodies.bytes <= MAX_BYTES, "{}", bodies.bytes);
        assert_eq!(bodies.bytes, bodies.heads.values().flatten().map(Body::bytes).sum::<usize>());
    }

    #[test]
    fn one_changed_byte_or_another_user_is_not_recognised_beyond_it() {
        let memos = Memos::new([7; 32]);
        let mut messages = history(Dialect::Chat);
        let first = body(Dialect::Chat, &messages);
        let request = Dialect::Chat.parse(&first).expect("plain");
        let Prompt::Chat(all) = &request.prompt else { panic!("a chat") };
        memos.remember(
            Dialect::Chat,
            &"local".into(),
            (&first.clone().into(), &first),
            &request,
            &links(all.len()),
            None,
        );
        messages.push(json!({ "role": "user", "content": "next" }));
        let next = body(Dialect::Chat, &messages);
        assert!(memos.find(Dialect::Chat, "local", &next).is_some());
        assert!(memos.find(Dialect::Chat, "other", &next).is_none());
        assert!(memos.find(Dialect::OpenAiChat, "local", &next).is_none());
        assert!(memos.find(Dialect::Chat, "local", &next.replacen("message 2:", "message 3:", 1)).is_none());
        // An edited message: everything before it is known, nothing of it and after it is.
        let edited = next.replacen("message 100", "message 1OO", 1);
        let known = memos.find(Dialect::Chat, "local", &edited).expect("the beginning");
        assert_eq!((known.elements, known.messages, known.links().len()), (102, 102, 102));
        let rest = known.rest_of(&edited).expect("the rest");
        let read = known.complete(&edited, &rest, Dialect::Chat.parse(&rest).expect("plain")).expect("complete");
        let whole = Dialect::Chat.parse(&edited).expect("plain");
        assert_eq!(format!("{:?}{:?}", read.prompt, read.kinds), format!("{:?}{:?}", whole.prompt, whole.kinds));
        assert_eq!(read.list.map(|list| list.elements), whole.list.map(|list| list.elements));
        // A text that ends within what is known, in the middle of a message or behind one.
        for bytes in [first.len() / 2, first.len() / 4 * 3] {
            let cut = &first[..first.floor_char_boundary(bytes)];
            assert!(
                memos
                    .find(Dialect::Chat, "local", cut)
                    .is_none_or(|known| known.rest_of(cut).is_none_or(|rest| Dialect::Chat.parse(&rest).is_err()))
            );
        }
    }
}
