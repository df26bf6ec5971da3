//! What the store promises: on real files, and the same on a real server.

#[path = "../../../tests/postgres.rs"]
mod postgres_server;

#[allow(clippy::duplicate_mod, reason = "the same claims, made of both")]
mod on_file;
#[allow(clippy::duplicate_mod, reason = "the same claims, made of both")]
mod on_server;

use std::path::Path;
use std::sync::{Mutex, mpsc};

use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::context::Link;

type Look = Box<dyn FnOnce(&Connection) + Send>;

/// Something that the writer does once, when it has taken the first change of its next commit.
#[derive(Default)]
pub(super) struct Hook(Mutex<Option<Look>>);

impl Hook {
    pub(super) fn run(&self, connection: &Connection) {
        let look = self.0.lock().expect("hook").take();
        if let Some(look) = look {
            look(connection);
        }
    }

    fn set(&self, look: impl FnOnce(&Connection) + Send + 'static) {
        *self.0.lock().expect("hook") = Some(Box::new(look));
    }
}

impl std::fmt::Debug for Hook {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Hook")
    }
}

/// Keeps the next commit from beginning until the sender is dropped.
fn hold(store: &Store) -> mpsc::Sender<()> {
    let (gate, held) = mpsc::channel::<()>();
    store.health.hook.set(move |_| {
        let _ = held.recv();
    });
    gate
}

/// Where a store of a test is.
struct Place {
    dir: TempDir,
    server: Option<Address>,
}

impl Place {
    fn file() -> (Self, Store) {
        Self { dir: tempfile::tempdir().expect("directory"), server: None }.opened()
    }

    /// Where there is no server, a file stands in, and it is said that it does.
    fn server() -> (Self, Store) {
        let server = postgres_server::schema().map(|url| Address::new(&url, None, None).expect("an address"));
        Self { dir: tempfile::tempdir().expect("directory"), server }.opened()
    }

    fn opened(self) -> (Self, Store) {
        let store = self.reopen();
        (self, store)
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn home(&self) -> Home {
        Home { dir: self.path().to_owned(), server: self.server.clone() }
    }

    fn reopen(&self) -> Store {
        self.home().open(Durability::Full).expect("store")
    }
}

fn reopen(dir: &Path) -> Store {
    Store::open(dir, Durability::Full).expect("store")
}

/// The link of a history, as the real chain makes it: a hash of everything up to it.
fn link(user: &str, texts: &[&str]) -> Link {
    let mut hash = *blake3::hash(user.as_bytes()).as_bytes();
    for text in texts {
        hash = *blake3::keyed_hash(&hash, text.as_bytes()).as_bytes();
    }
    Link::from_bytes(hash)
}

fn links(user: &str, texts: &[&str]) -> Vec<Link> {
    (1..=texts.len()).map(|length| link(user, &texts[..length])).collect()
}

/// The last message of a history of `local`; users and assistants take turns.
fn message(history: &[&str]) -> NewMessage {
    message_of("local", history)
}

fn message_of(user: &str, history: &[&str]) -> NewMessage {
    let role = if history.len() % 2 == 1 { "user" } else { "assistant" };
    NewMessage {
        link: link(user, history),
        role: role.to_owned(),
        text: history.last().copied().unwrap_or_default().to_owned(),
        thinking: String::new(),
        tool_calls: None,
        tool_name: None,
        tool_call_id: None,
        images: 0,
        raw: None,
    }
}

/// A turn that sends the whole history.
fn begin(turn: &str, conversation: i64, history: &[&str]) -> BeginTurn {
    BeginTurn {
        turn: turn.to_owned(),
        conversation,
        user: "local".to_owned(),
        at: 1_000,
        model: "llama".to_owned(),
        dialect: "chat",
        upstream: None,
        system: "[\"be brief\"]".to_owned(),
        after: None,
        messages: (1..=history.len()).map(|length| message(&history[..length])).collect(),
    }
}

/// The end of that turn; the answer is the last of the history.
fn finish(turn: &str, history: &[&str]) -> FinishTurn {
    FinishTurn {
        turn: turn.to_owned(),
        conversation: 1,
        at: 2_000,
        status: TurnStatus::Complete,
        answer: Some(message(history)),
        arrived_tokens: 10,
        sent_tokens: 9,
        limit_tokens: 100,
        reported_tokens: Some(9),
        basis: "exact",
        action: "none",
        receipt: None,
        upstream: None,
        events: Vec::new(),
    }
}

/// A whole turn: the client sends all but the last message, which is our answer.
fn say(store: &Store, conversation: i64, history: &[&str]) {
    let turn = uuid::Uuid::now_v7().to_string();
    let request = &history[..history.len() - 1];
    drop(store.submit(Change::Begin(begin(&turn, conversation, request))));
    let finish = FinishTurn { conversation, ..finish(&turn, history) };
    store.submit(Change::Finish(finish)).wait().expect("stored");
}

fn texts(store: &Store, conversation: i64, to: Option<Link>) -> Vec<String> {
    let path = store.reader().expect("reader").path(conversation, to).expect("path");
    assert!(path.iter().enumerate().all(|(index, message)| message.seq as usize == index + 1));
    path.into_iter().map(|message| message.text).collect()
}

fn event(kind: &'static str) -> NewEvent {
    NewEvent { at: 5, kind, conversation: None, user: None, body: "{}".to_owned() }
}
