//! Everything of one store in another, both ways.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::history::{block_on, import, imported, token};
use super::*;

/// A store with some of everything.
fn filled(store: &Store) {
    for number in 0..40 {
        let id = store.next_conversation().expect("a number");
        let (first, second) = (format!("question {number}"), format!("another {number} with a \0 in it"));
        say(store, id, &[&first, "answer"]);
        say(store, id, &[&first, "answer", &second, "and its answer"]);
        say(store, id, &[&first, "answer", "an edit", "its answer"]);
        let event = NewEvent { conversation: Some(id), user: Some("local".to_owned()), ..event("warning") };
        store.submit(Change::Event(event)).wait().expect("stored");
    }
    let id = store.next_conversation().expect("a number");
    block_on(
        store.import(vec![import(id, vec![imported(&["hello"], "line 1"), imported(&["hello", "hi"], "line 2")])]),
    )
    .expect("imported");
    block_on(store.delete(3)).expect("deleted");
    store.submit(Change::Cursor { name: "receiver".to_owned(), value: 7 }).wait().expect("stored");
    store.submit(Change::Condensed { digest: [9; 32], body: "short".to_owned(), at: 1 }).wait().expect("stored");
    store.submit(Change::CreateToken(token("first", 1, None))).wait().expect("made");
}

/// What a client or an operator would notice.
fn seen(store: &Store) -> String {
    let reader = store.reader().expect("reader");
    let mut seen = String::new();
    for row in reader.conversations(None, None, 1000).expect("read") {
        seen += &format!("{row:?}");
        for tip in reader.tips(row.id).expect("read") {
            seen += &format!("{:?}", reader.path(row.id, Some(tip.link)).expect("read"));
        }
        seen +=
            &format!("{:?} {:?}", reader.turns(row.id).expect("read"), reader.imported_lines(row.id).expect("read"));
    }
    seen + &format!(
        "{:?} {:?} {:?} {:?}",
        reader.events(0, 10_000).expect("read"),
        reader.tokens().expect("read"),
        reader.cursor("receiver").expect("read"),
        reader.condensed(&[9; 32]).expect("read")
    )
}

#[test]
fn a_copy_and_its_copy_are_the_same_and_go_on_where_the_first_was() {
    let (first, store) = Place::file();
    filled(&store);
    let (there, secret) = (seen(&store), store.secret().expect("a secret"));
    let (next, newest) =
        (store.next_conversation().expect("a number"), store.reader().expect("reader").last_event_id());
    drop(store);
    let (server, opened) = Place::server();
    if server.server.is_none() {
        return;
    }
    drop(opened);
    let copied = copy(&first.home(), &server.home(), |_| ()).expect("copied");
    assert!(copied.tables.iter().all(|(_, rows, written)| rows == written), "{copied:?}");
    // Once more, as a script may that runs before every start: what the target has become since stays.
    let store = server.reopen();
    let newer = store.next_conversation().expect("a number");
    say(&store, newer, &["said since", "answer"]);
    drop(store);
    assert!(copy(&first.home(), &server.home(), |_| ()).expect("nothing to do").before);
    let store = server.reopen();
    assert_eq!(texts(&store, newer, None), ["said since", "answer"]);
    assert!(store.next_conversation().expect("a number") > newer);
    block_on(store.delete(newer)).expect("deleted");
    drop(store);
    let (last, opened) = Place::file();
    drop(opened);
    // A file that was opened has a secret by now or not; nothing else is in it.
    copy(&server.home(), &last.home(), |_| ()).expect("copied back");
    for place in [&server, &last] {
        let store = place.reopen();
        assert!(seen(&store) == there, "{place} differs", place = place.home());
        assert_eq!(store.secret().expect("a secret"), secret);
        assert!(store.next_conversation().expect("a number") >= next);
        // It goes on: recognised, numbered on, and found by search.
        let history = ["question 5", "answer", "another 5 with a \0 in it", "and its answer", "more", "new answer"];
        let found = store.reader().expect("reader").find("local", &links("local", &history)).expect("read");
        let found = found.expect("it is recognised");
        say(&store, found.conversation, &history);
        assert_eq!(texts(&store, found.conversation, None), history);
        store.submit(Change::Event(event("warning"))).wait().expect("stored");
        let after = store.reader().expect("reader").last_event_id().expect("read");
        assert_eq!(after, newest.as_ref().expect("read") + 1);
        store.submit(Change::Index).wait().expect("indexed");
        assert!(
            !store.reader().expect("reader").search(Some("local"), None, "another", 10).expect("searched").is_empty()
        );
    }
}

#[test]
fn a_copy_that_was_broken_off_is_not_served_and_goes_on_where_it_was() {
    let (first, store) = Place::file();
    filled(&store);
    drop(store);
    let (server, opened) = Place::server();
    drop(opened);
    let broken = catch_unwind(AssertUnwindSafe(|| {
        copy(&first.home(), &server.home(), |progress| {
            assert!(!(progress.table == "turns" && progress.done > 0), "broken off");
        })
    }));
    assert!(broken.is_err(), "it was broken off");
    let refused = server.home().open(Durability::Full).map(drop).expect_err("half of it is nothing to serve");
    assert!(matches!(refused, StoreError::HalfCopied { .. }), "{refused}");
    let copied = copy(&first.home(), &server.home(), |_| ()).expect("goes on");
    let of = |table: &str| copied.tables.iter().find(|(name, ..)| *name == table).expect("there");
    assert_eq!(of("messages").2, 0, "what was there is not written again: {copied:?}");
    assert!(of("receipts").1 == 0 && of("events").2 > 0, "{copied:?}");
    assert!(seen(&server.reopen()) == seen(&first.reopen()), "they differ");
}

#[test]
fn a_target_that_holds_something_else_or_is_served_from_is_refused() {
    let (first, store) = Place::file();
    filled(&store);
    let refused = copy(&first.home(), &Home::in_directory(&first.path().join("other")), |_| ()).expect_err("refused");
    assert!(matches!(refused, CopyError::Store(StoreError::InUse { .. })), "{refused}");
    drop(store);
    let (server, other) = Place::server();
    say(&other, 1, &["hello", "hi"]);
    if server.server.is_some() {
        let refused = copy(&first.home(), &server.home(), |_| ()).expect_err("refused");
        assert!(matches!(refused, CopyError::InUse { count: 1, .. }), "{refused}");
    }
    drop(other);
    let refused = copy(&first.home(), &server.home(), |_| ()).expect_err("refused");
    assert!(matches!(refused, CopyError::NotEmpty(_)), "{refused}");
    assert!(matches!(copy(&first.home(), &first.home(), |_| ()), Err(CopyError::Same(..))));
    let mistyped = Home::in_directory(&first.path().join("nothing"));
    copy(&mistyped, &server.home(), |_| ()).expect_err("there is no such source");
    assert!(!mistyped.dir.exists(), "and none is made");
}
