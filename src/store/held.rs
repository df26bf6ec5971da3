//! Beginnings of turns that wait a moment for their ends: a short turn is written once then, not twice.
//!
//! A beginning is handed over without waking the writer, which looks now and then as long as turns come at all.
//! Nobody waits for a beginning, and until its turn has ended nobody was told that anything is stored. Whatever
//! else may rest on a beginning has all of them written first.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::change::Change;
use super::writer::Job;

/// How long a beginning may wait.
const WAIT: Duration = Duration::from_millis(20);

/// Bytes of beginnings that may wait.
const MOST_BYTES: usize = 16 << 20;

/// A beginning with more bytes than this does not wait: writing it takes longer than writing twice, and can be done
/// while the upstream is asked.
const LARGE_BYTES: usize = 32 << 10;

/// Whether a change may wait for its turn's end.
pub(super) fn may_wait(change: &Change) -> bool {
    matches!(change, Change::Begin(_)) && change.bytes() <= LARGE_BYTES
}

/// How long the writer goes on looking when none comes.
const LOOKS_ON: Duration = Duration::from_secs(1);

/// Beginnings that were handed over.
#[derive(Debug, Default)]
pub(super) struct Begun(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    jobs: Vec<Job>,
    /// Until when somebody looks.
    looked_at_until: Option<Instant>,
}

impl Begun {
    /// Hands a beginning over. Whether the writer has to be woken for it.
    pub(super) fn add(&self, job: Job) -> bool {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.jobs.push(job);
        let nobody_looks = waiting.looked_at_until.is_none();
        if nobody_looks {
            // Only once: whoever is woken looks on.
            waiting.looked_at_until = Some(Instant::now() + LOOKS_ON);
        }
        nobody_looks
    }

    pub(super) fn take(&self) -> Vec<Job> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).jobs)
    }

    /// After which time to look again; never, if none has come for long.
    pub(super) fn look_after(&self, held: &Held, now: Instant) -> Option<Duration> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.jobs.is_empty() || held.len() > 0 {
            waiting.looked_at_until = Some(now + LOOKS_ON);
        } else if waiting.looked_at_until.is_some_and(|until| until <= now) {
            waiting.looked_at_until = None;
        }
        let due = held.due_at().map(|due| due.saturating_duration_since(now));
        due.or(waiting.looked_at_until.map(|_| WAIT))
    }
}

#[derive(Debug, Default)]
pub(super) struct Held(Vec<(Instant, Job)>);

impl Held {
    /// Turns that have begun a moment ago.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// When the oldest has waited long enough.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.0.first().map(|(since, _)| *since + WAIT)
    }

    /// Everything that waits.
    pub(super) fn all(self) -> Vec<Job> {
        self.0.into_iter().map(|(_, job)| job).collect()
    }

    /// Takes in what has arrived, and gives what is to be committed now, in its order.
    pub(super) fn ready(&mut self, arrived: Vec<Job>, now: Instant) -> Vec<Job> {
        let mut all = std::mem::take(&mut self.0);
        all.extend(arrived.into_iter().map(|job| (now, job)));
        let ended: HashSet<String> = all
            .iter()
            .filter_map(|(_, job)| match &*job.change {
                Change::Finish(finish) => Some(finish.turn.clone()),
                _ => None,
            })
            .collect();
        let others_may = all.iter().all(|(_, job)| rests_on_no_beginning(&job.change));
        let mut bytes = 0;
        let mut ready = Vec::with_capacity(all.len());
        for (since, job) in all {
            let waits = match &*job.change {
                Change::Begin(begin) => {
                    others_may && may_wait(&job.change) && now < since + WAIT && !ended.contains(&begin.turn)
                }
                _ => false,
            };
            bytes += if waits { job.change.bytes() } else { 0 };
            if waits && bytes <= MOST_BYTES {
                self.0.push((since, job));
            } else {
                ready.push(job);
            }
        }
        ready
    }
}

fn rests_on_no_beginning(change: &Change) -> bool {
    match change {
        Change::Begin(_)
        | Change::Finish(_)
        | Change::Event(_)
        | Change::TokenUsed { .. }
        | Change::Cursor { .. }
        | Change::Wake
        | Change::Condensed { .. } => true,
        Change::Compaction(_)
        | Change::ImportBegin(_)
        | Change::ImportSlice(_)
        | Change::ImportEnd(_)
        | Change::Index
        | Change::Hide(_)
        | Change::DeleteSlice(_)
        | Change::CreateToken(_)
        | Change::RevokeToken { .. }
        | Change::ForgetToken(_) => false,
    }
}
