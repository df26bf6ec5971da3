//! Numbers, not promises: how many changes a second reach the disk.

use std::time::Instant;

use super::*;

#[allow(clippy::print_stderr)]
fn measure(changes: u32, submitters: u32) {
    let (_dir, store) = fresh();
    let started = Instant::now();
    std::thread::scope(|scope| {
        for submitter in 0..submitters {
            let store = &store;
            scope.spawn(move || {
                for number in 0..changes / submitters {
                    let turn = format!("{submitter}-{number}");
                    let change = Change::Begin(begin(&turn, i64::from(submitter) + 1, &["hello", "hi", &turn]));
                    store.submit(change).wait().expect("stored");
                }
            });
        }
    });
    let stats = store.stats();
    let rate = f64::from(changes) / started.elapsed().as_secs_f64();
    eprintln!("{submitters} submitters: {rate:.0} changes/s, {} commits for {changes} changes", stats.commits);
}

#[test]
fn one_submitter_and_many_are_measured() {
    measure(128, 1);
    measure(2048, 64);
}
