//! Several processes on one server. Each store here is one: they share nothing but the database.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use ::postgres::{Client, NoTls};

use super::history::{block_on, token};
use super::*;
use crate::store::tests::postgres_server::{self, Postgres};

/// What everybody must hear of within this.
const SOON: Duration = Duration::from_secs(2);

/// Two stores on an empty schema; none if there is no server here.
fn two(more: &str) -> Option<(Place, Store, Store, String)> {
    let url = format!("{}{more}", postgres_server::schema()?);
    let place = |_| Place {
        dir: tempfile::tempdir().expect("directory"),
        server: Some(Address::new(&url, None, None).expect("an address")),
    };
    let (first, second) = (place(1), place(2));
    let (one, other) = (first.reopen(), second.reopen());
    Some((first, one, other, url))
}

/// Does something behind everybody's back.
fn by_hand(url: &str, statement: &str) {
    Client::connect(url, NoTls).expect("a connection").batch_execute(statement).expect("done");
}

/// Both at once, many turns that begin at the same message.
fn both_chat(one: &Store, other: &Store, turns: usize) {
    std::thread::scope(|scope| {
        for (name, store) in [("one", one), ("other", other)] {
            scope.spawn(move || {
                for number in 0..turns {
                    let (question, answer) = (format!("{name} {number}"), format!("answer to {name} {number}"));
                    say(store, 1, &["hello", "hi", &question, &answer]);
                }
            });
        }
    });
}

fn all_is_there_once(store: &Store, turns: usize) {
    let reader = store.reader().expect("reader");
    for name in ["one", "other"] {
        for number in 0..turns {
            let (question, answer) = (format!("{name} {number}"), format!("answer to {name} {number}"));
            let history = ["hello", "hi", &question, &answer];
            let path = reader.path(1, Some(link("local", &history))).expect("path");
            assert_eq!(path.iter().map(|row| row.text.as_str()).collect::<Vec<_>>(), history);
            assert_eq!(path.iter().map(|row| row.seq).collect::<Vec<_>>(), [1, 2, 3, 4]);
        }
    }
    let row = reader.conversation(1).expect("read").expect("there");
    assert_eq!(row.messages as usize, 2 + 2 * 2 * turns);
    assert_eq!(reader.turns(1).expect("turns").len(), 1 + 2 * turns);
}

#[test]
fn two_that_write_to_one_conversation_lose_and_double_nothing() {
    let Some((_place, one, other, _)) = two("") else { return };
    say(&one, 1, &["hello", "hi"]);
    both_chat(&one, &other, 40);
    all_is_there_once(&one, 40);
}

#[test]
fn transactions_that_meet_are_done_again_where_the_server_lets_none_overlap() {
    // As engines have it that know no other way.
    let Some((_place, one, other, _)) = two("%20-cdefault_transaction_isolation%3Dserializable") else { return };
    say(&one, 1, &["hello", "hi"]);
    both_chat(&one, &other, 20);
    all_is_there_once(&other, 20);
}

#[test]
fn the_same_history_sent_to_two_is_stored_once() {
    let Some((_place, one, other, _)) = two("") else { return };
    let history = ["hello", "hi", "more", "answer"];
    std::thread::scope(|scope| {
        for store in [&one, &other] {
            scope.spawn(|| say(store, 1, &history));
        }
    });
    assert_eq!(texts(&one, 1, None), history);
    assert_eq!(one.reader().expect("reader").conversation(1).expect("read").expect("there").messages, 4);
}

#[test]
fn a_reader_that_goes_on_after_the_last_event_misses_none_of_anybodys() {
    let Some((_place, one, other, _)) = two("") else { return };
    const EACH: usize = 60;
    let (done, is_done) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        for (store, kind) in [(&one, "warning"), (&other, "refused")] {
            let done = done.clone();
            scope.spawn(move || {
                for number in 0..EACH {
                    // Of several conversations, so that several connections write at once.
                    let event = NewEvent { conversation: Some(number as i64 % 7 + 1), ..event(kind) };
                    drop(store.submit(Change::Event(event)));
                }
                store.submit(Change::Event(event(kind))).wait().expect("stored");
                for lane in 1..=7 {
                    let last = NewEvent { conversation: Some(lane), ..event(kind) };
                    store.submit(Change::Event(last)).wait().expect("stored");
                }
                drop(done);
            });
        }
        drop(done);
        let (mut last, mut seen) = (0, Vec::new());
        loop {
            let over = matches!(is_done.try_recv(), Err(mpsc::TryRecvError::Disconnected));
            for row in one.reader().expect("reader").events(last, 1000).expect("events") {
                last = row.id;
                seen.push(row.id);
            }
            if over {
                break;
            }
        }
        assert_eq!(seen, (1..=2 * (EACH as i64 + 8)).collect::<Vec<_>>());
    });
}

#[test]
fn events_deletions_and_revoked_tokens_reach_the_other_in_time() {
    let Some((_place, one, other, _)) = two("") else { return };
    let (told, heard) = mpsc::channel();
    other.watch_others(move |signal| {
        let _nobody_listens_any_more = told.send(signal);
    });
    let hears = |wanted: Signal| {
        let started = Instant::now();
        while let Some(left) = SOON.checked_sub(started.elapsed()) {
            if heard.recv_timeout(left) == Ok(wanted) {
                return;
            }
        }
        panic!("{wanted:?} was not heard within {SOON:?}");
    };
    say(&one, 1, &["hello", "hi"]);
    one.submit(Change::Event(event("warning"))).wait().expect("stored");
    hears(Signal::Events);
    one.submit(Change::CreateToken(token("first", 1, None))).wait().expect("made");
    let id = one.reader().expect("reader").token(&[1; 32]).expect("read").expect("there").id;
    one.submit(Change::RevokeToken { id, at: 2 }).wait().expect("revoked");
    hears(Signal::Tokens);
    block_on(one.delete(1)).expect("deleted");
    hears(Signal::Gone(1));
}

#[test]
fn what_one_changes_the_other_knows_to_be_old() {
    let Some((_place, one, other, _)) = two("") else { return };
    let knows = |store: &Store| store.standing(1).expect("read").expect("there").1;
    say(&one, 1, &["hello", "hi"]);
    assert!(knows(&one), "who wrote it knows it");
    let version = other.standing(1).expect("read").expect("there").0.version;
    assert!(!knows(&other), "who has not read it does not");
    other.note_version(1, version);
    assert!(knows(&other));
    say(&other, 1, &["hello", "hi", "more", "answer"]);
    assert!(knows(&other) && !knows(&one));
}

#[test]
fn what_only_one_may_do_one_does_until_it_gives_up_or_is_gone() {
    let Some((_place, one, other, url)) = two("") else { return };
    let (minute, name) = (Duration::from_secs(60), "checkpoint 1");
    say(&one, 1, &["hello", "hi"]);
    assert!(one.lease(name, "x", minute).expect("asked"));
    assert!(!other.lease(name, "x", minute).expect("asked"), "somebody has it");
    assert!(one.lease(name, "x", minute).expect("asked"), "who has it may go on");
    let seen = |store: &Store| store.standing(1).expect("read").expect("there").0.checkpoint_ms;
    assert!(seen(&other).is_some_and(|left| left > 0) && seen(&one).is_none(), "others are told of it");
    one.release(name, "x").expect("given back");
    assert!(other.lease(name, "x", minute).expect("asked"));
    by_hand(&url, "UPDATE leases SET until = 1");
    assert!(one.lease(name, "x", minute).expect("asked"), "who has not come back has lost it");
}

#[test]
fn a_turn_of_a_process_that_died_has_failed_and_those_of_the_living_go_on() {
    let Some((_place, one, other, url)) = two("") else { return };
    one.submit(Change::Begin(begin("left", 1, &["hello"]))).wait().expect("stored");
    other.submit(Change::Begin(begin("goes on", 2, &["hello"]))).wait().expect("stored");
    by_hand(&url, "UPDATE turns SET replica = 'nobody' WHERE id = 'left'");
    let status = |conversation| one.reader().expect("reader").turns(conversation).expect("turns")[0].status.clone();
    let started = Instant::now();
    while status(1) != "failed" {
        assert!(started.elapsed() < Duration::from_secs(40), "it is found out");
        std::thread::yield_now();
    }
    assert_eq!(status(2), "pending");
    let end = FinishTurn { conversation: 2, ..finish("goes on", &["hello", "hi"]) };
    other.submit(Change::Finish(end)).wait().expect("stored");
    assert_eq!(status(2), "complete");
}

#[test]
fn a_deleted_conversation_is_not_brought_back_by_a_turn_elsewhere() {
    let Some((_place, one, other, _)) = two("") else { return };
    say(&one, 1, &["hello", "hi"]);
    let going_on = BeginTurn {
        after: Some(link("local", &["hello", "hi"])),
        messages: vec![message(&["hello", "hi", "more"])],
        ..begin("late", 1, &[])
    };
    other.submit(Change::Begin(going_on.clone())).wait().expect("stored");
    block_on(one.delete(1)).expect("deleted");
    let end = finish("late", &["hello", "hi", "more", "answer"]);
    let refused = other.submit(Change::Finish(end)).wait().expect_err("it is gone");
    assert!(matches!(refused, StoreError::Rejected(Rejection::UnknownConversation(1))), "{refused}");
    let again = BeginTurn { turn: "later".to_owned(), ..going_on };
    other.submit(Change::Begin(again)).wait().expect_err("it is gone");
    assert!(one.reader().expect("reader").conversation(1).expect("read").is_none());
}

#[test]
fn numbers_and_the_secret_are_everybodys() {
    let Some((_place, one, other, _)) = two("") else { return };
    assert_eq!(one.secret().expect("a secret"), other.secret().expect("a secret"));
    let mut given: Vec<i64> =
        (0..200).map(|n| if n % 3 == 0 { &one } else { &other }.next_conversation().expect("a number")).collect();
    given.sort_unstable();
    given.dedup();
    assert_eq!(given.len(), 200, "none was given twice");
}

#[test]
fn connections_that_are_cut_cost_nothing_that_was_acknowledged() {
    let Some((_place, one, other, url)) = two("") else { return };
    say(&one, 1, &["hello", "hi"]);
    let (stop, stopped) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE pid <> pg_backend_pid() AND query LIKE '%writers SET batch%'";
            while let Err(mpsc::TryRecvError::Empty) = stopped.try_recv() {
                by_hand(&url, cut);
            }
        });
        both_chat(&one, &other, 25);
        drop(stop);
    });
    all_is_there_once(&one, 25);
}

#[test]
fn a_server_that_crashes_again_and_again_loses_and_doubles_nothing_that_was_acknowledged() {
    let server = match Postgres::start() {
        Ok(server) => server,
        Err(reason) => return postgres_server::skip(&reason),
    };
    let dir = tempfile::tempdir().expect("directory");
    let address = Address::new(&server.schema(), None, None).expect("an address");
    let store = Arc::new(Store::connect(dir.path(), address).expect("store"));
    let (stop, stopped) = mpsc::channel::<()>();
    let chatting = std::thread::spawn({
        let store = Arc::clone(&store);
        move || {
            let (mut acknowledged, mut number) = (Vec::new(), 0);
            while let Err(mpsc::TryRecvError::Empty) = stopped.try_recv() {
                number += 1;
                let question = format!("question {number}");
                let turn = format!("turn {number}");
                drop(store.submit(Change::Begin(begin(&turn, number, &[&question]))));
                let end = FinishTurn { conversation: number, ..finish(&turn, &[&question, "answer"]) };
                if store.submit(Change::Finish(end)).wait().is_ok() {
                    acknowledged.push(number);
                }
            }
            (acknowledged, number)
        }
    });
    for _ in 0..5 {
        let before = store.stats().commits;
        let started = Instant::now();
        while store.stats().commits < before + 20 {
            assert!(started.elapsed() < Duration::from_secs(30), "it is used again");
            std::thread::yield_now();
        }
        server.crash();
        server.revive();
    }
    drop(stop);
    let (acknowledged, all) = chatting.join().expect("chats");
    assert!(acknowledged.len() >= 100, "{}", acknowledged.len());
    let reader = store.reader().expect("reader");
    for number in 1..=all {
        let texts: Vec<String> =
            reader.path(number, None).expect("path").into_iter().map(|message| message.text).collect();
        if acknowledged.contains(&number) {
            assert_eq!(texts, [format!("question {number}"), "answer".to_owned()]);
            assert_eq!(reader.turns(number).expect("turns").len(), 1);
        } else {
            assert!(texts.len() <= 2, "what nobody was promised may be there, once");
        }
    }
}

#[test]
fn many_that_start_at_once_make_the_tables_once() {
    let Some(url) = postgres_server::schema() else { return };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let dir = tempfile::tempdir().expect("directory");
                let address = Address::new(&url, None, None).expect("an address");
                drop(Store::connect(dir.path(), address).expect("store"));
            });
        }
    });
}

#[test]
fn a_schema_that_is_newer_or_somebody_elses_is_refused_and_left_alone() {
    let Some(url) = postgres_server::schema() else { return };
    let connect = || {
        let dir = tempfile::tempdir().expect("directory");
        Store::connect(dir.path(), Address::new(&url, None, None).expect("an address")).map(drop)
    };
    by_hand(&url, "CREATE TABLE users (name TEXT)");
    assert!(matches!(connect(), Err(StoreError::ServerNotOurs { .. })));
    by_hand(&url, "DROP TABLE users");
    connect().expect("an empty one is taken");
    by_hand(&url, "INSERT INTO loadline_migrations (number, at) VALUES (99, 0)");
    assert!(matches!(connect(), Err(StoreError::Newer { found: 99, .. })));
}

#[test]
fn a_server_that_is_not_there_is_said_to_be_away() {
    let dir = tempfile::tempdir().expect("directory");
    let address = Address::new("postgres://u:hush@127.0.0.1:1/d", None, None).expect("an address");
    let error = Store::connect(dir.path(), address).map(drop).expect_err("nobody is there");
    assert!(matches!(error, StoreError::Away { .. }), "{error:?}");
    assert!(!error.to_string().contains("hush"));
}
