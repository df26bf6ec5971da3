//! Histories that come from elsewhere, that are searched, and that go.

use super::*;
use crate::store::{Import, ImportedLine, ImportedMessage, NewToken};

/// Waits for something that only the writer's thread does.
pub(super) fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(work)
}

pub(super) fn imported(history: &[&str], written: &str) -> ImportedLine {
    let message = message(history);
    let after = history.len().checked_sub(2).map(|before| link("local", &history[..=before]));
    let answer = (message.role == "assistant").then_some("complete");
    let messages = vec![ImportedMessage { at: 100 + history.len() as i64, answer, message }];
    ImportedLine { after, messages, written: Some(written.to_owned()) }
}

pub(super) fn import(conversation: i64, lines: Vec<ImportedLine>) -> Import {
    Import {
        conversation,
        user: "local".to_owned(),
        at: 9_000,
        model: "llama".to_owned(),
        turn: format!("import-{conversation}"),
        system: "[\"be kind\"]".to_owned(),
        session: Some("abc".to_owned()),
        provider: Some("elsewhere".to_owned()),
        intake: None,
        lines,
    }
}

#[test]
fn an_import_has_its_times_its_lines_and_goes_on() {
    let (_dir, store) = fresh();
    let lines = vec![
        imported(&["hello"], "line 1"),
        imported(&["hello", "hi"], "line 2"),
        imported(&["hello", "good day"], "line 3"),
    ];
    block_on(store.import(vec![import(1, lines)])).expect("stored");
    assert_eq!(texts(&store, 1, None), ["hello", "good day"]);
    assert_eq!(texts(&store, 1, Some(link("local", &["hello", "hi"]))), ["hello", "hi"]);
    {
        let reader = store.reader().expect("reader");
        let path = reader.path(1, None).expect("path");
        assert_eq!(path.iter().map(|row| row.created_at).collect::<Vec<_>>(), [101, 102]);
        let row = reader.conversation(1).expect("read").expect("there");
        assert_eq!(
            (row.session.as_deref(), row.provider.as_deref(), row.branches),
            (Some("abc"), Some("elsewhere"), 2)
        );
        assert_eq!(row.title, "hello");
        let lines = reader.imported_lines(1).expect("read");
        assert_eq!(lines.iter().map(|line| line.line.as_str()).collect::<Vec<_>>(), ["line 1", "line 2", "line 3"]);
        assert_eq!(lines[2].last_seq, 2);
        assert_eq!(reader.latest_system(1).expect("read").as_deref(), Some("[\"be kind\"]"));
        // Its answers count as ours, so that it is recognised.
        let found = reader.find("local", &links("local", &["hello", "hi", "more"])).expect("read").expect("found");
        assert!(found.tip && found.index == 1);
    }
    say(&store, 1, &["hello", "hi", "more", "answer"]);
    assert_eq!(texts(&store, 1, None), ["hello", "hi", "more", "answer"]);
}

#[test]
fn search_finds_words_of_ones_own_only() {
    let (_dir, store) = fresh();
    say(&store, 1, &["Where is the Café?", "Behind the harbour, says O'Neil; AND \"quoted\" 100% sure"]);
    say(&store, 2, &["今日は船に乗る", "いい考えです"]);
    let mut theirs = begin("t9", 3, &[]);
    theirs.user = "bob".to_owned();
    theirs.messages = vec![message_of("bob", &["my harbour secret"])];
    store.submit(Change::Begin(theirs)).wait().expect("stored");
    store.submit(Change::Index).wait().expect("indexed");
    let reader = store.reader().expect("reader");
    let found = |user: Option<&str>, words: &str| {
        let hits = reader.search(user, None, words, 10).expect("searched");
        hits.iter().map(|hit| (hit.conversation, hit.excerpt.clone())).collect::<Vec<_>>()
    };
    assert_eq!(found(Some("local"), "cafe").len(), 1);
    assert_eq!(found(Some("local"), "harb").len(), 1);
    assert_eq!(found(Some("bob"), "harbour"), [(3, "my \u{2}harbour\u{3} secret".to_owned())]);
    assert_eq!(found(None, "harbour").len(), 2);
    assert_eq!(found(Some("nobody"), "harbour").len(), 0);
    assert_eq!(found(Some("local"), "船に"), [(2, "今日は\u{2}船に\u{3}乗る".to_owned())]);
    assert_eq!(found(Some("local"), "100%").len(), 1);
    assert_eq!(found(Some("local"), "secret").len(), 0);
    for odd in ["", "  ", "\"", "AND", "NEAR(", "*", "a*b", "text:harbour", "%", "_", "\\", "{}", "-x", "^"] {
        reader.search(Some("local"), None, odd, 10).expect("no word is an operator");
    }
    assert_eq!(reader.search(Some("local"), Some(2), "harbour", 10).expect("searched").len(), 0);
}

#[test]
fn the_number_of_a_deleted_conversation_is_not_given_again() {
    let (dir, store) = fresh();
    let id = store.next_conversation().expect("a number");
    say(&store, id, &["hello", "hi"]);
    block_on(store.delete(id)).expect("deleted");
    let again = block_on(store.delete(id)).expect_err("gone");
    assert!(matches!(again, StoreError::Rejected(Rejection::UnknownConversation(gone)) if gone == id));
    drop(store);
    assert!(dir.reopen().next_conversation().expect("a number") > id);
}

pub(super) fn token(name: &str, digest: u8, expires_at: Option<i64>) -> NewToken {
    NewToken {
        name: name.to_owned(),
        user: "alice".to_owned(),
        digest: [digest; 32],
        hint: "ll_abcd".to_owned(),
        scopes: "chat,read".to_owned(),
        at: 1_000,
        expires_at,
    }
}

#[test]
fn tokens_are_made_found_and_revoked_also_beside_a_server() {
    let (dir, store) = fresh();
    store.submit(Change::CreateToken(token("alice", 1, None))).wait().expect("made");
    let twice = store.submit(Change::CreateToken(token("alice", 2, None))).wait().expect_err("refused");
    assert!(matches!(twice, StoreError::Rejected(Rejection::TokenExists(_))));
    dir.home().change_beside(&Change::CreateToken(token("second", 3, Some(2_000)))).expect("made beside");
    let row = store.reader().expect("reader").token(&[1; 32]).expect("read").expect("there");
    assert_eq!((row.user.as_str(), row.scopes.as_str(), row.revoked_at), ("alice", "chat,read", None));
    dir.home().change_beside(&Change::RevokeToken { id: row.id, at: 1_500 }).expect("revoked beside");
    assert_eq!(store.reader().expect("reader").token(&[1; 32]).expect("read").expect("there").revoked_at, Some(1_500));
    let again = dir.home().change_beside(&Change::RevokeToken { id: row.id, at: 1_600 }).expect_err("refused");
    assert!(matches!(again, StoreError::Rejected(Rejection::UnknownToken)));
    // A revoked name and an expired one can be given again.
    store.submit(Change::CreateToken(token("alice", 4, None))).wait().expect("made");
    store.submit(Change::CreateToken(NewToken { at: 3_000, ..token("second", 5, None) })).wait().expect("made");
    assert_eq!(store.reader().expect("reader").tokens().expect("read").len(), 4);
}

#[test]
fn a_long_conversation_goes_slice_by_slice() {
    let (_dir, store) = fresh();
    let texts: Vec<String> = (0..2500).map(|number| format!("word{number}")).collect();
    let history: Vec<&str> = texts.iter().map(String::as_str).collect();
    let lines = (1..=history.len()).map(|length| imported(&history[..length], "line")).collect();
    block_on(store.import(vec![import(1, lines)])).expect("stored");
    assert_eq!(store.reader().expect("reader").conversation(1).expect("read").expect("there").messages, 2500);
    store.submit(Change::Index).wait().expect("indexed");
    assert_eq!(store.reader().expect("reader").search(None, None, "word2499", 10).expect("searched").len(), 1);
    block_on(store.delete(1)).expect("deleted");
    let counts = store.reader().expect("reader").counts().expect("counts");
    assert_eq!((counts.conversations, counts.messages, counts.turns), (0, 0, 0));
    say(&store, 2, &["word7 again", "yes"]);
    store.submit(Change::Index).wait().expect("indexed");
    assert_eq!(store.reader().expect("reader").search(None, None, "word7", 10).expect("searched").len(), 1);
}

#[test]
fn a_clock_that_goes_back_does_not_turn_the_order_round() {
    let (_dir, store) = fresh();
    say(&store, 1, &["hello", "hi"]);
    let mut late = begin("t2", 1, &["hello", "hi", "more"]);
    late.at = 5;
    store.submit(Change::Begin(late)).wait().expect("stored");
    let times: Vec<i64> =
        store.reader().expect("reader").path(1, None).expect("path").iter().map(|row| row.created_at).collect();
    assert_eq!(times, [1_000, 2_000, 2_000]);
}

#[test]
fn what_is_nobodys_is_not_seen() {
    let (_dir, store) = fresh();
    say(&store, 1, &["zebra", "yes"]);
    store.submit(Change::Index).wait().expect("indexed");
    store.submit(Change::Hide(1)).wait().expect("hidden");
    let reader = store.reader().expect("reader");
    assert!(reader.conversation(1).expect("read").is_none() && reader.owner(1).expect("read").is_none());
    assert!(reader.conversations(None, None, 10).expect("read").is_empty());
    assert!(reader.search(None, None, "zebra", 10).expect("searched").is_empty());
    assert!(reader.search(None, Some(1), "zebra", 10).expect("searched").is_empty());
}
