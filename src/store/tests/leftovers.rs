//! What deleting and importing leave behind in a file.

use std::path::Path;

use rusqlite::Connection;

use super::history::{block_on, import, imported};
use super::*;

#[test]
fn what_is_deleted_is_nowhere_in_the_files() {
    let (dir, store) = fresh();
    say(&store, 1, &["the codeword is xylophonist", "I shall remember xylophonist"]);
    say(&store, 2, &["something else", "stays here"]);
    let mut end = begin("t5", 1, &["the codeword is xylophonist", "I shall remember xylophonist", "xylophonist again"]);
    end.system = "[\"guard the xylophonist\"]".to_owned();
    store.submit(Change::Begin(end)).wait().expect("stored");
    let event = NewEvent { conversation: Some(1), body: "{\"x\":\"xylophonist\"}".to_owned(), ..event("warning") };
    store.submit(Change::Event(event)).wait().expect("stored");
    store.submit(Change::Index).wait().expect("indexed");
    say(
        &store,
        1,
        &[
            "the codeword is xylophonist",
            "I shall remember xylophonist",
            "xylophonist again",
            "not indexed xylophonist",
        ],
    );
    block_on(store.delete(1)).expect("deleted");
    store.submit(Change::Index).wait().expect("indexed");
    {
        let reader = store.reader().expect("reader");
        assert!(reader.conversation(1).expect("read").is_none());
        assert!(reader.search(None, None, "xylophonist", 10).expect("searched").is_empty());
        assert_eq!(reader.search(None, None, "something", 10).expect("searched").len(), 1);
        assert_eq!(texts(&store, 2, None), ["something else", "stays here"]);
    }
    drop(store);
    for entry in std::fs::read_dir(dir.path()).expect("directory") {
        let path = entry.expect("entry").path();
        let bytes = std::fs::read(&path).expect("readable");
        assert!(memchr::memmem::find(&bytes, b"xylophonist").is_none(), "{}", path.display());
    }
    let connection = Connection::open(dir.path().join("loadline.db")).expect("database");
    let fine: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("checked");
    assert_eq!(fine, "ok");
}

#[test]
fn an_import_that_a_crash_cut_short_is_gone_at_the_next_start() {
    let (dir, store) = fresh();
    let half = import(3, Vec::new());
    store.submit(Change::ImportBegin(Box::new(half))).wait().expect("begun");
    let slice = ImportedSlice { conversation: 3, first: 0, lines: vec![imported(&["half of it"], "line 1")] };
    store.submit(Change::ImportSlice(slice)).wait().expect("stored");
    let listed =
        |store: &Store| store.reader().expect("reader").conversations(Some("local"), None, 10).expect("read").len();
    assert_eq!(listed(&store), 0, "nobody sees half of it");
    drop(store);
    let store = dir.reopen();
    store.submit(Change::Index).wait().expect("the writer has begun");
    let reader = store.reader().expect("reader");
    assert!(reader.conversation(3).expect("read").is_none());
    assert!(reader.search(None, None, "half", 10).expect("searched").is_empty());
    assert_eq!(store.next_conversation().expect("a number"), 4);
}

#[test]
fn whoever_chats_while_a_long_conversation_goes_is_found_and_can_be_deleted() {
    let (dir, store) = fresh();
    let texts: Vec<String> = (0..2500).map(|number| format!("word{number}")).collect();
    let history: Vec<&str> = texts.iter().map(String::as_str).collect();
    let lines = (1..=history.len()).map(|length| imported(&history[..length], "line")).collect();
    block_on(store.import(vec![import(1, lines)])).expect("stored");
    store.submit(Change::Index).wait().expect("indexed");
    store.submit(Change::Hide(1)).wait().expect("hidden");
    let mut others = 2;
    while store.submit(Change::DeleteSlice(1)).wait().is_ok() {
        // The newest messages went first, so this is given their numbers.
        say(&store, others, &[&format!("zebra{others}end"), "yes"]);
        others += 1;
        store.submit(Change::Index).wait().expect("indexed");
    }
    assert!(others > 4, "it took several slices");
    for other in 2..others {
        let found =
            store.reader().expect("reader").search(None, None, &format!("zebra{other}end"), 10).expect("searched");
        assert_eq!(found.len(), 1, "{other}");
    }
    let check = |dir: &Path| {
        let connection = Connection::open(dir.join("loadline.db")).expect("database");
        connection
            .execute("INSERT INTO messages_text (messages_text, rank) VALUES ('integrity-check', 1)", [])
            .expect("the index is as the messages are");
    };
    check(dir.path());
    for other in 2..others {
        block_on(store.delete(other)).expect("deleted");
    }
    check(dir.path());
    assert_eq!(store.reader().expect("reader").counts().expect("counts").messages, 0);
}
