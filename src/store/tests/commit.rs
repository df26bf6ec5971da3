use super::*;
use rusqlite::ffi;

fn database_error(extended_code: i32) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(extended_code), None)
}

#[tokio::test]
async fn what_waits_is_committed_together() {
    let (_dir, store) = fresh();
    let before = store.stats().commits;
    let gate = hold(&store);
    let acks: Vec<_> = (0..64).map(|_| store.submit(Change::Event(event("note")))).collect();
    assert_eq!(store.stats().waiting, 64);
    drop(gate);
    for ack in acks {
        ack.await.expect("stored");
    }
    let stats = store.stats();
    assert_eq!((stats.commits - before, stats.changes, stats.waiting, stats.waiting_bytes), (1, 64, 0, 0));
    assert_eq!(store.reader().expect("reader").last_event_id().expect("number"), 64);
}

#[test]
fn a_change_that_does_not_fit_fails_alone() {
    let (_dir, store) = fresh();
    let gate = hold(&store);
    let first = store.submit(Change::Begin(begin("t1", 1, &["hello"])));
    let unknown = store.submit(Change::Finish(finish("nobody", &["hello", "hi"])));
    let mut foreign = begin("t2", 1, &["mine"]);
    foreign.user = "mallory".to_owned();
    let foreign = store.submit(Change::Begin(foreign));
    let mut adrift = begin("t3", 1, &["hello"]);
    adrift.after = Some(link("local", &["never said"]));
    let adrift = store.submit(Change::Begin(adrift));
    let twice = store.submit(Change::Begin(begin("t1", 1, &["another"])));
    let last = store.submit(Change::Finish(finish("t1", &["hello", "hi"])));
    let again = store.submit(Change::Finish(finish("t1", &["hello", "hi"])));
    drop(gate);
    first.wait().expect("stored");
    last.wait().expect("stored");
    let rejected = |ack: Ack| match ack.wait() {
        Err(StoreError::Rejected(rejection)) => rejection,
        other => panic!("{other:?}"),
    };
    assert_eq!(rejected(unknown), Rejection::UnknownTurn("nobody".to_owned()));
    assert_eq!(rejected(foreign), Rejection::ForeignConversation(1));
    assert_eq!(rejected(adrift), Rejection::UnknownLink(1));
    assert_eq!(rejected(again), Rejection::FinishedTurn("t1".to_owned()));
    twice.wait().expect_err("the same turn cannot begin twice");
    assert!(store.healthy());
    assert_eq!(texts(&store, 1, None), ["hello", "hi"]);
    let counts = store.reader().expect("reader").counts().expect("counts");
    assert_eq!(counts, Counts { users: 1, conversations: 1, messages: 2, turns: 1 });
}

#[test]
fn a_turn_written_at_once_is_stored_like_one_written_in_two_parts() {
    let rows = |apart: bool| {
        let (dir, store) = fresh();
        let mut last = finish("t2", &["hello", "hi", "more", "yes"]);
        last.receipt = Some(("r1".to_owned(), "{}".to_owned()));
        last.events = vec![event("warning")];
        let turns = [(begin("t1", 1, &["hello"]), finish("t1", &["hello", "hi"])), (second_turn(), last)];
        for (begin, finish) in turns {
            let gate = hold(&store);
            let begun = store.submit(Change::Begin(begin));
            if apart {
                // Something that may rest on it has it written before its end is known.
                drop(store.submit(Change::Index));
                drop(gate);
                begun.wait().expect("stored");
                store.submit(Change::Finish(finish)).wait().expect("stored");
            } else {
                let ended = store.submit(Change::Finish(finish));
                drop(gate);
                begun.wait().expect("stored");
                ended.wait().expect("stored");
            }
        }
        let commits = store.stats().commits;
        drop(store);
        let database = Connection::open(dir.path().join("loadline.db")).expect("database");
        let dump = |sql: &str| -> Vec<String> {
            let mut statement = database.prepare(sql).expect("sql");
            let columns = statement.column_count();
            let row = |row: &rusqlite::Row<'_>| {
                let value = |at| row.get::<_, rusqlite::types::Value>(at).map(|value| format!("{value:?}"));
                (0..columns).map(value).collect::<Result<Vec<_>, _>>().map(|values| values.join("|"))
            };
            statement.query_map([], row).expect("rows").collect::<Result<_, _>>().expect("rows")
        };
        let all = ["turns", "messages", "conversations", "branches", "receipts", "events", "users"];
        let all: Vec<_> = all.iter().map(|table| (*table, dump(&format!("SELECT * FROM {table}")))).collect();
        (commits, all)
    };
    let ((two_parts, apart), (at_once, together)) = (rows(true), rows(false));
    assert_eq!(together, apart);
    assert_eq!((two_parts, at_once), (4, 2));
    assert!(apart.iter().all(|(table, rows)| !rows.is_empty() || *table == "events"), "{apart:?}");
}

fn second_turn() -> BeginTurn {
    let mut begin = begin("t2", 1, &["hello", "hi", "more"]);
    begin.after = Some(link("local", &["hello", "hi"]));
    begin.messages.drain(..2);
    begin
}

#[test]
fn a_beginning_waits_for_its_end_but_not_for_ever() {
    let (_dir, store) = fresh();
    store.submit(Change::Begin(begin("t1", 1, &["hello"]))).wait().expect("stored without an end");
    assert_eq!(store.stats().commits, 1);
    store.submit(Change::Finish(finish("t1", &["hello", "hi"]))).wait().expect("stored");
    assert_eq!(texts(&store, 1, None), ["hello", "hi"]);
}

#[test]
fn a_beginning_that_waits_is_stored_when_the_store_ends() {
    let (dir, store) = fresh();
    drop(store.submit(Change::Begin(begin("t1", 1, &["hello"]))));
    drop(store);
    assert_eq!(texts(&reopen(dir.path()), 1, None), ["hello"]);
}

#[test]
fn what_rests_on_a_beginning_finds_it_written() {
    let (_dir, store) = fresh();
    let gate = hold(&store);
    let begun = store.submit(Change::Begin(begin("t1", 1, &["hello"])));
    let snapshot = NewSnapshot {
        id: "s1".to_owned(),
        link: link("local", &["hello"]),
        system: "[]".to_owned(),
        messages: 1,
        checkpoints: 0,
        tokens: 1,
        limit_tokens: 1,
        reason: "rollover".to_owned(),
    };
    let compaction = Compaction {
        conversation: 1,
        at: 1,
        front: None,
        checkpoints: Vec::new(),
        snapshot: Some(snapshot),
        events: Vec::new(),
    };
    let compacted = store.submit(Change::Compaction(compaction));
    drop(gate);
    begun.wait().expect("stored");
    compacted.wait().expect("stored behind it");
}

#[test]
fn a_full_queue_refuses_at_once() {
    let (_dir, store) = fresh();
    let gate = hold(&store);
    let acks: Vec<_> = (0..MAX_WAITING + 2).map(|_| store.submit(Change::Event(event("note")))).collect();
    drop(gate);
    let outcomes: Vec<_> = acks.into_iter().map(Ack::wait).collect();
    let refused = outcomes.iter().filter(|outcome| matches!(outcome, Err(StoreError::QueueFull))).count();
    // The writer may have taken the first one out of the queue already.
    assert!((1..=2).contains(&refused), "{refused}");
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count() + refused, outcomes.len());
    let stats = store.stats();
    assert_eq!((stats.waiting, stats.waiting_bytes), (0, 0));
}

#[test]
fn bytes_that_wait_are_bounded_and_a_large_change_may_wait_alone() {
    let health = Health::default();
    assert!(health.admit(100, 10));
    assert!(!health.admit(1, 10));
    health.taken(100);
    assert!(health.admit(6, 10) && health.admit(4, 10) && !health.admit(1, 10));
    assert_eq!((health.stats().waiting, health.stats().waiting_bytes), (2, 10));
}

#[test]
fn a_full_disk_fails_the_whole_commit_and_mends_itself() {
    let (_dir, store) = fresh();
    say(&store, 1, &["hello", "hi"]);
    let limit = |pages: i64| {
        let (gate, held) = mpsc::channel::<()>();
        store.health.hook.set(move |connection| {
            connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(())).expect("limit");
            let _ = held.recv();
        });
        gate
    };
    let gate = limit(1);
    let long = "x".repeat(1 << 20);
    let neighbour = store.submit(Change::Event(event("small")));
    let full = store.submit(Change::Begin(begin("t2", 2, &[&long])));
    let end = store.submit(Change::Finish(finish("t2", &[&long, "hi"])));
    drop(gate);
    neighbour.wait().expect_err("not stored either");
    end.wait().expect_err("nor this");
    let full = full.wait().expect_err("no room");
    let StoreError::Database { source, .. } = &full else { panic!("{full}") };
    assert_eq!(source.sqlite_error_code(), Some(rusqlite::ErrorCode::DiskFull));
    assert!(!store.healthy());
    let reader = store.reader().expect("reader");
    assert_eq!((reader.conversation(2).expect("read"), reader.last_event_id().expect("number")), (None, 0));
    drop(limit(1 << 30));
    store.submit(Change::Begin(begin("t2", 2, &[&long]))).wait().expect("room again");
    assert!(store.healthy());
    assert_eq!(texts(&store, 2, None), [long]);
}

#[test]
fn a_database_that_somebody_else_locks_is_waited_for_and_not_forever() {
    let (dir, store) = fresh();
    let other = Connection::open(dir.path().join("loadline.db")).expect("database");
    other.execute_batch("BEGIN IMMEDIATE").expect("locked");
    store.health.hook.set(|connection| connection.busy_timeout(std::time::Duration::ZERO).expect("timeout"));
    store.submit(Change::Event(event("note"))).wait().expect_err("locked");
    assert!(!store.healthy());
    other.execute_batch("ROLLBACK").expect("unlocked");
    store.submit(Change::Event(event("note"))).wait().expect("stored");
    assert!(store.healthy());
}

#[test]
fn a_failed_sync_ends_all_trust() {
    for code in [ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_IOERR_DIR_FSYNC] {
        assert!(error::is_failed_sync(&database_error(code)));
    }
    assert!(!error::is_failed_sync(&database_error(ffi::SQLITE_IOERR_WRITE)));
    assert!(!error::is_failed_sync(&database_error(ffi::SQLITE_FULL)));
    let (dir, store) = fresh();
    store.submit(Change::Event(event("note"))).wait().expect("stored");
    let gate = hold(&store);
    let waiting = store.submit(Change::Event(event("note")));
    store.health.distrust();
    drop(gate);
    assert!(matches!(waiting.wait(), Err(StoreError::Untrusted { .. })));
    assert!(matches!(store.submit(Change::Event(event("note"))).wait(), Err(StoreError::Untrusted { .. })));
    assert!(!store.healthy());
    assert_eq!(store.reader().expect("reader").last_event_id().expect("number"), 1);
    drop(store);
    let log = std::fs::metadata(dir.path().join("loadline.db-wal")).expect("log").len();
    assert!(log > 0, "what is on disk stays as it is, even at the end");
}

#[test]
fn a_commit_waits_for_the_disk_as_it_was_asked_to() {
    for (durability, expected) in [(Durability::Full, 2), (Durability::Normal, 1)] {
        let dir = tempfile::tempdir().expect("directory");
        let store = Store::open(dir.path(), durability).expect("store");
        let (found, says) = mpsc::channel();
        store.health.hook.set(move |connection| {
            let read = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).expect("number");
            found.send((read("synchronous"), read("foreign_keys"))).expect("told");
        });
        store.submit(Change::Event(event("note"))).wait().expect("stored");
        assert_eq!(says.recv().expect("told"), (expected, 1));
    }
}

#[test]
fn a_change_that_nobody_waits_for_is_stored_before_the_store_is_gone() {
    let (dir, store) = fresh();
    let gate = hold(&store);
    for _ in 0..100 {
        drop(store.submit(Change::Event(event("note"))));
    }
    drop(gate);
    drop(store);
    assert!(!dir.path().join("loadline.db-wal").exists(), "the log was written back");
    assert_eq!(open_read_only(dir.path()).expect("store").last_event_id().expect("number"), 100);
}

#[test]
fn a_long_log_is_written_back_while_serving() {
    let (dir, store) = fresh();
    let size = || std::fs::metadata(dir.path().join("loadline.db")).expect("there").len();
    let before = size();
    for number in 0..20 {
        let body = number.to_string().repeat(1 << 20);
        store.submit(Change::Condensed { digest: [number; 32], body, at: 0 }).wait().expect("stored");
    }
    // It is written back beside, sixteen of them at a time.
    let started = std::time::Instant::now();
    while size() < before + (15 << 20) {
        assert!(started.elapsed() < std::time::Duration::from_secs(60), "{}", size());
        std::thread::yield_now();
    }
}

#[test]
fn the_log_begins_anew_however_much_is_written() {
    let (dir, store) = fresh();
    for number in 0..64 {
        let body = "xy".repeat(2 << 20);
        store.submit(Change::Condensed { digest: [number; 32], body, at: 0 }).wait().expect("stored");
    }
    let log = std::fs::metadata(dir.path().join("loadline.db-wal")).expect("there").len();
    let written = std::fs::metadata(dir.path().join("loadline.db")).expect("there").len();
    assert!(log < 160 << 20 && written > 100 << 20, "{log} {written}");
}

#[test]
fn the_store_can_be_shared_and_a_reader_held_across_an_await() {
    fn shared<T: Send + Sync>() {}
    shared::<Store>();
    shared::<Reader<'_>>();
    shared::<ReadOnly>();
    shared::<Ack>();
}

#[test]
fn readers_are_bounded_and_reused() {
    let (_dir, store) = fresh();
    for _ in 0..100 {
        store.reader().expect("reader").counts().expect("counts");
    }
    let eight: Vec<_> = (0..8).map(|_| store.reader().expect("reader")).collect();
    std::thread::scope(|scope| {
        let ninth = scope.spawn(|| store.reader().map(|reader| reader.counts()));
        drop(eight);
        ninth.join().expect("thread").expect("reader").expect("counts");
    });
}
