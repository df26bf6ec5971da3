//! What keeping a turn costs: the floor under every answer that waits for its commit.
//!
//!   cargo bench --bench store

#![allow(clippy::expect_used, reason = "a benchmark that cannot be set up has nothing to say")]

use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use loadline::context::Link;
use loadline::store::{BeginTurn, Change, Durability, FinishTurn, NewMessage, Store, TurnStatus};

fn message(link: [u8; 32], role: &str, bytes: usize) -> NewMessage {
    NewMessage {
        link: Link::from_bytes(link),
        role: role.to_owned(),
        text: "crates of tea in the forward hold ".repeat(bytes / 34 + 1),
        thinking: String::new(),
        tool_calls: None,
        tool_name: None,
        tool_call_id: None,
        images: 0,
        raw: None,
    }
}

/// A conversation of one turn, a question of about a kilobyte and a short answer.
fn turn(number: u64) -> (Change, Change) {
    let link = |part: u8| *blake3::hash(&[number.to_le_bytes().as_slice(), &[part]].concat()).as_bytes();
    let id = format!("turn-{number:026}");
    let begin = BeginTurn {
        turn: id.clone(),
        conversation: number as i64,
        user: "local".to_owned(),
        at: number as i64,
        model: "sim".to_owned(),
        dialect: "chat",
        upstream: None,
        system: "[\"be brief\"]".to_owned(),
        after: None,
        messages: vec![message(link(0), "user", 900)],
    };
    let finish = FinishTurn {
        turn: id,
        conversation: number as i64,
        at: number as i64 + 1,
        status: TurnStatus::Complete,
        answer: Some(message(link(1), "assistant", 100)),
        arrived_tokens: 200,
        sent_tokens: 200,
        limit_tokens: 4000,
        reported_tokens: Some(200),
        basis: "exact",
        action: "none",
        receipt: None,
        upstream: None,
        events: Vec::new(),
    };
    (Change::Begin(begin), Change::Finish(finish))
}

fn turns(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("keep a turn");
    for (name, durability) in [("normal", Durability::Normal), ("full", Durability::Full)] {
        for together in [1_u64, 16, 64] {
            let dir = tempfile::tempdir().expect("a directory");
            let store = Store::open(dir.path(), durability).expect("a store");
            let mut number = 1;
            group.throughput(Throughput::Elements(together));
            group.bench_function(BenchmarkId::new(name, format!("{together} at once")), |bencher| {
                bencher.iter_custom(|rounds| {
                    let mut took = Duration::ZERO;
                    for _ in 0..rounds {
                        let changes: Vec<_> = (number..number + together).map(turn).collect();
                        number += together;
                        let started = Instant::now();
                        let acks: Vec<_> = changes
                            .into_iter()
                            .map(|(begin, finish)| {
                                drop(store.submit(begin));
                                store.submit(finish)
                            })
                            .collect();
                        acks.into_iter().for_each(|ack| ack.wait().expect("stored"));
                        took += started.elapsed();
                    }
                    took
                });
            });
        }
    }
    group.finish();
}

/// The least that SQLite can do for a turn: one row of its size in a table without indexes, committed the same way.
fn one_row(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("one row a turn");
    let text = "crates of tea in the forward hold ".repeat(32);
    for (name, synchronous) in [("normal", "NORMAL"), ("full", "FULL")] {
        for together in [1_u64, 16, 64] {
            let dir = tempfile::tempdir().expect("a directory");
            let mut connection = rusqlite::Connection::open(dir.path().join("floor.db")).expect("a database");
            connection
                .execute_batch(&format!(
                    "PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous};
                     CREATE TABLE turns (number INTEGER PRIMARY KEY, text TEXT NOT NULL);"
                ))
                .expect("a table");
            group.throughput(Throughput::Elements(together));
            group.bench_function(BenchmarkId::new(name, format!("{together} at once")), |bencher| {
                bencher.iter(|| {
                    let transaction = connection.transaction().expect("a transaction");
                    for _ in 0..together {
                        let mut insert =
                            transaction.prepare_cached("INSERT INTO turns (text) VALUES (?1)").expect("sql");
                        insert.execute([&text]).expect("a row");
                    }
                    transaction.commit().expect("committed");
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, turns, one_row);
criterion_main!(benches);
