use super::*;

fn snapshot(id: &str, history: &[&str]) -> NewSnapshot {
    NewSnapshot {
        id: id.to_owned(),
        link: link("local", history),
        system: "[\"be brief\"]".to_owned(),
        messages: history.len() as u32,
        checkpoints: 1,
        tokens: 7_200,
        limit_tokens: 6_963,
        reason: "rollover".to_owned(),
    }
}

fn compaction(history: &[&str]) -> Compaction {
    let checkpoint = NewCheckpoint {
        id: "checkpoint-1".to_owned(),
        covered: link("local", &history[..1]),
        first_message: 1,
        last_message: 1,
        level: 1,
        author: "extract".to_owned(),
        texts: ["long", "shorter", "short"].map(str::to_owned),
    };
    Compaction {
        conversation: 1,
        at: 3_000,
        front: Some((link("local", &history[..1]), "a summary".to_owned())),
        checkpoints: vec![checkpoint],
        snapshot: Some(snapshot("snapshot-1", history)),
        events: vec![event("compacted")],
    }
}

#[test]
fn a_turn_that_a_crash_left_pending_has_failed() {
    let (dir, store) = fresh();
    say(&store, 1, &["hello", "hi"]);
    store.submit(Change::Begin(begin("t2", 1, &["hello", "hi", "and"]))).wait().expect("stored");
    assert_eq!(store.reader().expect("reader").turns(1).expect("turns")[1].status, "pending");
    drop(store);
    let turns = dir.reopen().reader().expect("reader").turns(1).expect("turns");
    assert_eq!(turns.iter().map(|turn| turn.status.as_str()).collect::<Vec<_>>(), ["complete", "failed"]);
    assert_eq!((turns[1].finished_at, turns[1].last_seq), (None, 3));
}

#[test]
fn a_finished_turn_holds_its_numbers_its_receipt_and_its_events() {
    let (_dir, store) = fresh();
    let mut end = finish("t1", &["hello", "hi"]);
    end.receipt = Some(("receipt-1".to_owned(), "{\"kept\":2}".to_owned()));
    end.events = vec![NewEvent { conversation: Some(1), user: Some("local".to_owned()), ..event("turn") }];
    drop(store.submit(Change::Begin(begin("t1", 1, &["hello"]))));
    store.submit(Change::Finish(end)).wait().expect("stored");
    let reader = store.reader().expect("reader");
    let [turn] = &reader.turns(1).expect("turns")[..] else { panic!("one turn") };
    assert_eq!((turn.status.as_str(), turn.last_seq, turn.at, turn.finished_at), ("complete", 2, 1_000, Some(2_000)));
    assert_eq!((turn.arrived_tokens, turn.sent_tokens, turn.reported_tokens), (Some(10), Some(9), Some(9)));
    assert_eq!((turn.system.as_str(), turn.receipt.as_deref()), ("[\"be brief\"]", Some("receipt-1")));
    let receipt = reader.receipt("receipt-1").expect("read").expect("there");
    assert_eq!((receipt.turn.as_str(), receipt.user.as_str()), ("t1", "local"));
    assert_eq!(receipt.body, "{\"kept\":2}");
    let [event] = &reader.events(0, 10).expect("events")[..] else { panic!("one event") };
    assert_eq!((event.kind.as_str(), event.conversation, event.user.as_deref()), ("turn", Some(1), Some("local")));
    assert!(reader.events(event.id, 10).expect("events").is_empty());
}

#[test]
fn a_turn_without_messages_can_be_answered() {
    let (_dir, store) = fresh();
    say(&store, 1, &["once upon a time"]);
    assert_eq!(texts(&store, 1, None), ["once upon a time"]);
}

#[test]
fn a_compaction_is_stored_wholly_or_not_at_all() {
    let (_dir, store) = fresh();
    let history = ["hello", "hi"];
    say(&store, 1, &history);
    let mut adrift = compaction(&history);
    adrift.snapshot = Some(snapshot("snapshot-1", &["never said"]));
    let refused = store.submit(Change::Compaction(adrift)).wait();
    assert!(matches!(refused, Err(StoreError::Rejected(Rejection::UnknownLink(1)))));
    let reader = store.reader().expect("reader");
    let parts = || {
        let fronts = reader.fronts(1).expect("fronts").len();
        let checkpoints = reader.checkpoints(1).expect("checkpoints").len();
        (fronts, checkpoints, reader.snapshots(None).expect("snapshots").len(), reader.last_event_id().expect("id"))
    };
    assert_eq!(parts(), (0, 0, 0, 0));
    store.submit(Change::Compaction(compaction(&history))).wait().expect("stored");
    assert_eq!(parts(), (1, 1, 1, 1));
    let unknown = Compaction { conversation: 9, ..compaction(&history) };
    store.submit(Change::Compaction(unknown)).wait().expect_err("no such conversation");
    assert_eq!(parts(), (1, 1, 1, 1));
}

#[test]
fn a_compaction_made_again_takes_the_new_front_and_keeps_the_snapshot() {
    let (_dir, store) = fresh();
    let history = ["hello", "hi"];
    say(&store, 1, &history);
    store.submit(Change::Compaction(compaction(&history))).wait().expect("stored");
    let mut again = compaction(&history);
    again.at = 4_000;
    again.front = again.front.map(|(covered, _)| (covered, "a better summary".to_owned()));
    again.checkpoints[0].level = 2;
    store.submit(Change::Compaction(again)).wait().expect("stored");
    let reader = store.reader().expect("reader");
    let covered = link("local", &history[..1]);
    assert_eq!(reader.fronts(1).expect("fronts"), [(covered, "a better summary".to_owned(), 4_000)]);
    let checkpoints = reader.checkpoints(1).expect("checkpoints");
    assert_eq!(checkpoints.iter().map(|one| (one.level, one.created_at)).collect::<Vec<_>>(), [(2, 3_000)]);
    let kept = reader.snapshot("snapshot-1").expect("read").expect("there");
    assert_eq!((kept.created_at, kept.user.as_str(), kept.last_seq), (3_000, "local", 2));
    assert_eq!(kept.system, "[\"be brief\"]");
}

#[test]
fn a_snapshot_stays_what_it_was_while_the_conversation_goes_on() {
    let (_dir, store) = fresh();
    let history = ["hello", "hi", "tell me", "of ships"];
    say(&store, 1, &history);
    store.submit(Change::Compaction(compaction(&history))).wait().expect("stored");
    say(&store, 1, &["hello", "hi", "tell me", "of ships", "more", "they float"]);
    say(&store, 1, &["hello", "hi", "no, trains", "they roll"]);
    let [row] = &store.reader().expect("reader").snapshots(Some(1)).expect("snapshots")[..] else { panic!("one") };
    assert_eq!(texts(&store, row.conversation, Some(row.link)), history);
    assert_eq!(store.reader().expect("reader").snapshots(Some(2)).expect("snapshots"), []);
}

#[test]
fn every_text_comes_back_byte_for_byte() {
    let (_dir, store) = fresh();
    let text = "a\0b\n\u{feff}\u{10ffff}\0";
    let mut turn = begin("t1", 1, &[text]);
    turn.messages[0].thinking = "\0".to_owned();
    turn.messages[0].raw = Some(format!("{{\"x\":\"{text}\"}}"));
    store.submit(Change::Begin(turn.clone())).wait().expect("stored");
    let path = store.reader().expect("reader").path(1, None).expect("path");
    assert_eq!((path[0].text.as_str(), path[0].thinking.as_str()), (text, "\0"));
    assert_eq!(path[0].raw, turn.messages[0].raw);
}

#[test]
fn conversations_are_listed_newest_first_and_numbered_on_after_a_restart() {
    let (dir, store) = fresh();
    for _ in 0..5 {
        let id = store.next_conversation().expect("a number");
        say(&store, id, &["hello", "hi"]);
    }
    let reader = store.reader().expect("reader");
    let ids = |user, before, limit| -> Vec<i64> {
        reader.conversations(user, before, limit).expect("list").into_iter().map(|row| row.id).collect()
    };
    assert_eq!(ids(None, None, 3), [5, 4, 3]);
    assert_eq!(ids(Some("local"), Some(3), 3), [2, 1]);
    assert!(ids(Some("mallory"), None, 3).is_empty());
    drop(reader);
    drop(store);
    assert!(dir.reopen().next_conversation().expect("a number") > 5);
}

#[test]
fn what_was_condensed_and_when_a_message_came_can_be_asked() {
    let (_dir, store) = fresh();
    let condensed = |body: &str| Change::Condensed { digest: [7; 32], body: body.to_owned(), at: 1 };
    drop(store.submit(condensed("first")));
    store.submit(condensed("second")).wait().expect("stored");
    say(&store, 1, &["hello", "hi"]);
    let reader = store.reader().expect("reader");
    assert_eq!(reader.condensed(&[7; 32]).expect("read").as_deref(), Some("first"));
    assert_eq!(reader.condensed(&[8; 32]).expect("read"), None);
    let asked = links("local", &["hello", "hi", "never"]);
    assert_eq!(reader.seen_at(1, &asked).expect("read"), [Some(1_000), Some(2_000), None]);
}

#[test]
fn a_cursor_outlives_the_process_and_never_goes_back() {
    let (dir, store) = fresh();
    let set = |store: &Store, value| {
        store.submit(Change::Cursor { name: "webhook:x".to_owned(), value }).wait().expect("stored");
    };
    let cursor = |store: &Store, name: &str| store.reader().expect("reader").cursor(name).expect("read");
    assert_eq!(cursor(&store, "webhook:x"), None);
    set(&store, 7);
    set(&store, 5);
    drop(store);
    let store = dir.reopen();
    assert_eq!((cursor(&store, "webhook:x"), cursor(&store, "webhook:y")), (Some(7), None));
}
