//! One slice of a run: all clients of one path at once, each asking again as soon as it was answered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::client::{Client, Failure};

/// Who is asked to stop may finish what is under way, for so long.
const GRACE: Duration = Duration::from_secs(5);

/// A client that was refused does not ask again at once: a closed port says so ten thousand times a second.
const AFTER_A_FAILURE: Duration = Duration::from_millis(10);

/// One request that was answered in full.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    pub turn: u32,
    pub request_bytes: usize,
    pub answer_bytes: usize,
    pub streamed: bool,
    pub first_byte: Duration,
    pub total: Duration,
}

/// What the clients of a slice have seen.
#[derive(Debug, Default)]
pub struct Gathered {
    pub samples: Vec<Sample>,
    /// Between the pieces of streamed answers.
    pub gaps: Vec<Duration>,
    pub errors: BTreeMap<String, u64>,
    /// The last thing that went wrong.
    pub failure: Option<Failure>,
    pub took: Duration,
}

impl Gathered {
    pub fn failed(&mut self, failure: Failure) {
        *self.errors.entry(failure.kind.clone()).or_default() += 1;
        self.failure = Some(failure);
    }

    pub fn failures(&self) -> u64 {
        self.errors.values().sum()
    }

    fn add(&mut self, other: Self) {
        self.samples.extend(other.samples);
        self.gaps.extend(other.gaps);
        for (kind, count) in other.errors {
            *self.errors.entry(kind).or_default() += count;
        }
        self.failure = other.failure.or(self.failure.take());
    }
}

/// How long a slice goes on. What is under way at its end is finished and counted.
#[derive(Debug, Clone)]
pub enum Until {
    /// Every client asks once at least.
    Elapsed(Duration),
    /// So many requests by all clients together, failed ones included.
    Requests(u64),
}

/// Has all clients talk. They are given back, but for those that had to be given up.
pub async fn run(clients: &mut Vec<Client>, until: Until, stop: &CancellationToken) -> Gathered {
    let left = Arc::new(AtomicU64::new(match until {
        Until::Elapsed(_) => u64::MAX,
        Until::Requests(requests) => requests,
    }));
    let begun = Instant::now();
    let end = match until {
        Until::Elapsed(length) => Some(begun + length),
        Until::Requests(_) => None,
    };
    let mut talking = JoinSet::new();
    for (place, mut client) in clients.drain(..).enumerate() {
        let (left, stop) = (Arc::clone(&left), stop.clone());
        talking.spawn(async move {
            let gathered = talk(&mut client, &left, end, &stop).await;
            (place, client, gathered)
        });
    }
    let mut gathered = Gathered::default();
    let mut back = Vec::new();
    let given_up = async {
        stop.cancelled().await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::pin!(given_up);
    loop {
        tokio::select! {
            ended = talking.join_next() => match ended {
                Some(Ok((place, client, seen))) => {
                    gathered.add(seen);
                    back.push((place, client));
                }
                // Our own fault, and still a request that nobody saw answered.
                Some(Err(lost)) => gathered.failed(Failure { kind: "harness".to_owned(), said: lost.to_string() }),
                None => break,
            },
            () = &mut given_up, if !talking.is_empty() => {
                talking.shutdown().await;
                break;
            }
        }
    }
    gathered.took = begun.elapsed();
    back.sort_by_key(|(place, _)| *place);
    clients.extend(back.into_iter().map(|(_, client)| client));
    gathered
}

async fn talk(client: &mut Client, left: &AtomicU64, end: Option<Instant>, stop: &CancellationToken) -> Gathered {
    let mut gathered = Gathered::default();
    let one_less = |left: u64| left.checked_sub(1);
    while !stop.is_cancelled() && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
        if !client.take_turn(&mut gathered).await {
            tokio::time::sleep(AFTER_A_FAILURE).await;
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            break;
        }
    }
    gathered
}
