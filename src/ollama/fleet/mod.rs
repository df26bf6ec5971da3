//! The upstreams, one or several: who takes a request, and who waits.
//!
//! A request needs a [`Seat`] at an upstream that is there and has its model. A conversation goes back to where it was
//! (`affinity`), everything else to where there is the least to do (`choose`). When all are full it waits in a queue
//! with a bound, and beyond that it is told to come back. An upstream that cannot be reached gets nothing until it
//! answers again; a client that goes away is nobody's fault. With one upstream nothing is asked and nothing is chosen.

mod affinity;
mod choose;
mod member;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use prometheus::{IntCounter, IntCounterVec};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Models;
use super::models::{Model, ModelError, full_name};
use crate::context::identity::ConversationId;
use affinity::Affinity;
pub use choose::Why;
use choose::{Choice, choose};
pub use member::Member;

/// How often upstreams are looked at, and how old the list of their models may become.
const LOOK_EVERY: Duration = Duration::from_secs(2);
const LIST_EVERY: Duration = Duration::from_secs(10);

/// How often somebody who waits looks without being woken.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A list that was just made is not made again for a name that nobody knows.
const LISTED_JUST_NOW: Duration = Duration::from_secs(1);

/// Upstreams that are tried for one request, one after the other.
pub const MOST_TRIED: usize = 3;

/// How requests are shared out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sharing {
    /// Requests that one upstream gets at a time; 0: as many as there are.
    pub most_each: usize,
    /// Requests that may wait when all upstreams have that many, and for how long.
    pub queue: usize,
    pub queue_timeout: Duration,
    /// Whether a conversation goes back to where it was, and how long it waits for that when there is no room.
    pub affinity: bool,
    pub affinity_wait: Duration,
}

/// What is counted.
#[derive(Debug, Clone)]
pub struct Counters {
    /// By why an upstream was taken.
    pub choices: IntCounterVec,
    pub failovers: IntCounter,
    pub shed: IntCounter,
}

#[derive(Debug)]
pub struct Fleet(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    members: Vec<Arc<Member>>,
    sharing: Sharing,
    affinity: Affinity,
    counters: Counters,
    /// Requests that wait.
    waiting: AtomicUsize,
    freed: Notify,
    turn: AtomicUsize,
    watched: AtomicBool,
}

/// A place at an upstream, until it is dropped.
#[derive(Debug)]
pub struct Seat {
    pub member: Arc<Member>,
    number: usize,
    fleet: Arc<Inner>,
}

impl Seat {
    /// Which upstream it is at.
    pub fn number(&self) -> usize {
        self.number
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.member.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.fleet.freed.notify_waiters();
    }
}

/// Why there is no seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoSeat {
    #[error("all upstreams are busy and {0} requests wait already (upstream.queue): try again in a moment")]
    QueueFull(usize),
    #[error("all upstreams were busy for {0} s (upstream.queue_timeout_s): try again in a moment")]
    TooLong(u64),
    #[error("all upstreams are being drained: nothing new is taken")]
    Draining,
}

/// Somebody who waits is counted.
struct Waiting<'f>(&'f AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Fleet {
    /// There must be one at least.
    pub fn new(members: Vec<Models>, sharing: Sharing, counters: Counters) -> Self {
        Self(Arc::new(Inner {
            members: members.into_iter().map(|models| Arc::new(Member::new(models))).collect(),
            sharing,
            affinity: Affinity::default(),
            counters,
            waiting: AtomicUsize::new(0),
            freed: Notify::new(),
            turn: AtomicUsize::new(0),
            watched: AtomicBool::new(false),
        }))
    }

    pub fn members(&self) -> &[Arc<Member>] {
        &self.0.members
    }

    /// Whether there is only one, so that nothing has to be chosen.
    pub fn is_one(&self) -> bool {
        self.0.members.len() == 1
    }

    /// One that is there, for what any of them can answer: the first, as long as it is.
    pub fn any(&self) -> &Arc<Member> {
        let good = |member: &&Arc<Member>| member.is_up() && !member.is_draining();
        self.0.members.iter().find(good).unwrap_or(&self.0.members[0])
    }

    pub fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::Relaxed)
    }

    /// Where a conversation was, as somebody else remembers it.
    pub fn remember(&self, conversation: ConversationId, name: &str) {
        if self.is_one() {
            return;
        }
        if let Some(number) = self.0.members.iter().position(|member| member.name() == name) {
            self.0.affinity.set(conversation, number);
        }
    }

    /// The facts of a model, from an upstream that has it.
    pub async fn model(&self, name: &str) -> Result<Arc<Model>, ModelError> {
        let mut avoided = Vec::new();
        loop {
            let Some(number) = self.somebody_with(name, &avoided).await else {
                return self.any().models.get(name).await;
            };
            let member = &self.0.members[number];
            match member.models.get(name).await {
                Err(ModelError::Upstream(error)) if avoided.len() + 1 < self.0.members.len().min(MOST_TRIED) => {
                    member.is_away(&error.to_string());
                    avoided.push(number);
                }
                other => return other,
            }
        }
    }

    /// Somebody who has a model, for questions that need no seat.
    pub async fn member_with(&self, name: &str) -> &Arc<Member> {
        let number = self.somebody_with(name, &[]).await;
        number.map_or_else(|| self.any(), |number| &self.0.members[number])
    }

    async fn somebody_with(&self, name: &str, avoided: &[usize]) -> Option<usize> {
        if self.is_one() {
            return Some(0);
        }
        self.watch();
        let full = full_name(name);
        self.know_lists(&full).await;
        let turn = self.0.turn.load(Ordering::Relaxed);
        let candidates: Vec<_> =
            self.candidates(&full, avoided).into_iter().map(|one| choose::Candidate { full: false, ..one }).collect();
        match choose(&candidates, None, false, turn) {
            Choice::Take(number, _) => Some(number),
            Choice::Wait | Choice::Nobody => None,
        }
    }

    /// A seat for a request, when there is one. Waits its turn within bounds.
    pub async fn seat(
        &self,
        model: &str,
        conversation: Option<ConversationId>,
        avoided: &[usize],
    ) -> Result<Seat, NoSeat> {
        let inner = &self.0;
        let full = full_name(model);
        if !self.is_one() {
            self.watch();
            self.know_lists(&full).await;
        }
        let affine = conversation.filter(|_| inner.sharing.affinity).and_then(|id| inner.affinity.get(id));
        let started = Instant::now();
        let mut waiting: Option<Waiting<'_>> = None;
        loop {
            // Before looking, so that nothing that is freed meanwhile is missed.
            let mut freed = std::pin::pin!(inner.freed.notified());
            freed.as_mut().enable();
            let patient = started.elapsed() < inner.sharing.affinity_wait;
            let turn = inner.turn.fetch_add(1, Ordering::Relaxed);
            match choose(&self.candidates(&full, avoided), affine, patient, turn) {
                Choice::Nobody => return Err(NoSeat::Draining),
                Choice::Take(number, why) => {
                    if let Some(seat) = self.take(number) {
                        self.taken(conversation, number, why);
                        return Ok(seat);
                    }
                    // Somebody else was faster.
                    continue;
                }
                Choice::Wait => {}
            }
            if waiting.is_none() {
                let before = inner.waiting.fetch_add(1, Ordering::Relaxed);
                waiting = Some(Waiting(&inner.waiting));
                if before >= inner.sharing.queue {
                    // Rather elsewhere than nowhere.
                    if let Choice::Take(number, why) = choose(&self.candidates(&full, avoided), affine, false, turn)
                        && let Some(seat) = self.take(number)
                    {
                        self.taken(conversation, number, why);
                        return Ok(seat);
                    }
                    inner.counters.shed.inc();
                    return Err(NoSeat::QueueFull(before));
                }
            }
            let Some(left) = inner.sharing.queue_timeout.checked_sub(started.elapsed()) else {
                inner.counters.shed.inc();
                return Err(NoSeat::TooLong(inner.sharing.queue_timeout.as_secs()));
            };
            // Patience may end before anything is freed.
            let patience = inner.sharing.affinity_wait.checked_sub(started.elapsed()).filter(|_| affine.is_some());
            // Nobody relies on being woken: one may have come back, or be used again.
            let at_most = patience.map_or(left, |patience| patience.min(left)).min(LOOK_AGAIN);
            let _freed_or_not = tokio::time::timeout(at_most, freed).await;
        }
    }

    fn taken(&self, conversation: Option<ConversationId>, number: usize, why: Why) {
        if self.is_one() {
            return;
        }
        self.0.counters.choices.with_label_values(&[why.name()]).inc();
        if let Some(conversation) = conversation {
            self.0.affinity.set(conversation, number);
        }
    }

    /// Takes a seat, unless the last one has just gone.
    fn take(&self, number: usize) -> Option<Seat> {
        let member = Arc::clone(&self.0.members[number]);
        let most = self.0.sharing.most_each;
        let room = |in_flight: usize| (most == 0 || in_flight < most).then_some(in_flight + 1);
        member.in_flight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
        Some(Seat { member, number, fleet: Arc::clone(&self.0) })
    }

    /// An upstream could not be reached for a request, which goes to another.
    pub fn failed_over(&self) {
        self.0.counters.failovers.inc();
    }

    fn candidates(&self, model: &str, avoided: &[usize]) -> Vec<choose::Candidate> {
        let most = self.0.sharing.most_each;
        let members = self.0.members.iter().enumerate();
        members.map(|(number, member)| member.candidate(model, most, avoided.contains(&number))).collect()
    }

    /// Makes sure that it is known who has a model, as far as that can be told.
    async fn know_lists(&self, model: &str) {
        let nobody = self.candidates(model, &[]).iter().all(|one| one.has_model != Some(true));
        let stale = |member: &&Arc<Member>| {
            let age = member.listed_for();
            member.is_up() && (age.is_none() || nobody && age.is_some_and(|age| age > LISTED_JUST_NOW))
        };
        let asked = self.0.members.iter().filter(stale).map(|member| member.list());
        futures_util::future::join_all(asked).await;
    }

    /// Has the upstreams looked at from now on, as long as anybody has the fleet.
    pub fn watch(&self) {
        if !self.0.watched.swap(true, Ordering::Relaxed) {
            tokio::spawn(watched(Arc::downgrade(&self.0)));
        }
    }
}

async fn watched(fleet: Weak<Inner>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(fleet) = fleet.upgrade() else { return };
        let look = |member: Arc<Member>| async move {
            let came_back = !member.is_up();
            let there = member.seen().await.is_up();
            if there && (came_back || member.listed_for().is_none_or(|age| age >= LIST_EVERY)) {
                member.list().await;
            }
        };
        let before = fleet.members.iter().filter(|member| member.is_up()).count();
        futures_util::future::join_all(fleet.members.iter().cloned().map(look)).await;
        if fleet.members.iter().filter(|member| member.is_up()).count() > before {
            // There is room again.
            fleet.freed.notify_waiters();
        }
    }
}
