//! A connection that writes, on a thread of its own.
//!
//! It takes everything that waits and commits it together. There are a few of them, so that one conversation's way to
//! the server and back is not another's; all changes of a conversation go through the same one, in their order.
//!
//! A transaction that met another's is done again from the start. So is one whose connection was lost, for a while:
//! each has a number, which it writes into a row of its own before anything else. If that number is there already, the
//! commit that nobody confirmed has happened. Nothing is lost by that, and nothing happens twice.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::address::Address;
use super::replica::Replica;
use super::session::Session;
use super::waiting;
use crate::store::StoreError;
use crate::store::apply::apply;
use crate::store::batch::together;
use crate::store::change::Change;
use crate::store::error::{Failure, Rejection};
use crate::store::health::Health;
use crate::store::held::{Begun, Held};
use crate::store::sql::{Sql, values};
use crate::store::writer::{Job, MAX_WAITING};

/// How long what is to be stored waits for a server that is away, before whoever waits is told that it is not stored.
const PATIENCE: Duration = Duration::from_secs(5);

const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Transactions that meet others' are done again this often.
const MOST_CONFLICTS: u32 = 20;

/// Changes of one transaction: what is locked together is to be let go of soon.
const BATCH: usize = 256;

#[derive(Debug)]
pub(in crate::store) struct Writer {
    pub(in crate::store) replica: Arc<Replica>,
    pub(in crate::store) lane: usize,
    pub(in crate::store) queue: Receiver<Job>,
    pub(in crate::store) begun: Arc<Begun>,
    pub(in crate::store) health: Arc<Health>,
}

/// The writer at work.
struct Work {
    writer: Writer,
    /// The name of its row.
    id: String,
    /// The number of the last transaction.
    batch: i64,
    session: Option<Session>,
    /// What became of each change of the transaction whose commit was asked for last.
    asked: Option<Outcomes>,
}

type Outcomes = Vec<Result<(), Rejection>>;

impl Writer {
    /// Writes until nobody can submit any more.
    pub(in crate::store) fn run(self) {
        let id = format!("{}-{}", self.replica.id, self.lane);
        let mut work = Work { writer: self, id, batch: 0, session: None, asked: None };
        let mut held = Held::default();
        loop {
            // Beginnings come without a word, so somebody has to look.
            let look_at = work.writer.begun.look_after(&held, Instant::now());
            let next = match look_at {
                None => work.writer.queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(timeout) => work.writer.queue.recv_timeout(timeout),
            };
            match next {
                Ok(first) => work.take(Some(first), &mut held),
                Err(RecvTimeoutError::Timeout) => work.take(None, &mut held),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let last = held.ready(work.writer.begun.take(), Instant::now());
        work.commit(last.into_iter().chain(held.all()).collect());
    }
}

impl Work {
    fn take(&mut self, first: Option<Job>, held: &mut Held) {
        let mut batch: Vec<Job> = first.into_iter().collect();
        batch.extend(self.writer.queue.try_iter().take(MAX_WAITING - 1));
        let begun = self.writer.begun.take();
        let mut batch = held.ready(begun.into_iter().chain(batch).collect(), Instant::now());
        let words = batch.extract_if(.., |job| matches!(*job.change, Change::Wake)).count();
        (0..words).for_each(|_| self.writer.health.taken(0));
        while !batch.is_empty() {
            let rest = if batch.len() > BATCH { batch.split_off(BATCH) } else { Vec::new() };
            self.commit(std::mem::replace(&mut batch, rest));
        }
    }

    /// Commits a batch and tells everyone.
    fn commit(&mut self, batch: Vec<Job>) {
        if batch.is_empty() {
            return;
        }
        let started = Instant::now();
        let (changes, waiting): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|job| (job.change, (job.then, job.done))).unzip();
        let bytes = changes.iter().map(|change| change.bytes()).sum();
        let outcome = self.transact(&changes);
        if let Err(error) = &outcome {
            tracing::error!(%error, changes = changes.len(), "nothing of this could be stored");
            // It may be the connection.
            self.session = None;
        }
        self.writer.health.committed(changes.len(), bytes, started.elapsed(), outcome.is_ok());
        let outcomes = match outcome {
            Ok(outcomes) => outcomes.into_iter().map(|one| one.map_err(StoreError::from)).collect(),
            Err(error) => vec![Err(error); changes.len()],
        };
        for ((then, done), outcome) in waiting.into_iter().zip(outcomes) {
            if let Some(then) = then {
                then(&outcome);
            }
            // Whoever asked may have gone.
            let _ = done.send(outcome);
        }
    }

    /// What became of each change; an error if nothing was stored.
    fn transact(&mut self, changes: &[Box<Change>]) -> Result<Outcomes, StoreError> {
        self.batch += 1;
        self.asked = None;
        let (started, mut pause, mut conflicts) = (Instant::now(), Duration::ZERO, 0);
        loop {
            let failure = match self.attempt(changes) {
                Ok(outcomes) => return Ok(outcomes),
                Err(failure) => failure,
            };
            let again = if failure.is_lost() {
                self.session = None;
                started.elapsed() + pause < PATIENCE
            } else {
                conflicts += 1;
                failure.is_conflict() && conflicts <= MOST_CONFLICTS
            };
            if !again {
                return Err(failure.on(&self.writer.replica.address));
            }
            tracing::debug!(lane = self.writer.lane, "a transaction is done again");
            thread::sleep(pause);
            pause = (pause * 2).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        }
    }

    /// One try. What is under way is rolled back if it fails.
    fn attempt(&mut self, changes: &[Box<Change>]) -> Result<Outcomes, Failure> {
        self.connect()?;
        let Some(session) = &self.session else { return Err(Failure::Odd("there is no connection")) };
        match transaction(session, &self.id, self.batch, changes, &mut self.asked) {
            Ok(outcomes) => {
                self.writer.replica.committed(&session.take_told());
                Ok(outcomes)
            }
            Err(failure) => {
                if !failure.is_lost() {
                    session.rollback()?;
                }
                Err(failure)
            }
        }
    }

    fn connect(&mut self) -> Result<(), Failure> {
        if self.session.is_some() {
            return Ok(());
        }
        let replica = &self.writer.replica;
        let session = replica.address.connect()?;
        session.writes_for(&replica.id, replica.channel.as_deref());
        let known = "INSERT INTO writers (id, replica, batch) VALUES (?1, ?2, ?3) ON CONFLICT (id) DO NOTHING";
        // If a commit may have happened its row must be there; else somebody took this process for dead.
        let missing = session.execute(known, values![&self.id, &replica.id, self.batch - 1])? == 1;
        self.session = Some(session);
        if missing && self.asked.is_some() {
            return Err(Failure::Odd("it cannot be told whether the last transaction was committed"));
        }
        Ok(())
    }
}

/// Makes one change on a connection of its own, for commands.
pub(in crate::store) fn change_once(address: &Address, change: &Change) -> Result<(), StoreError> {
    address.check()?;
    waiting(|| {
        let session = address.connect().map_err(|failure| failure.on(address))?;
        let change_it = || {
            session.writes_for("", Some(&session.channel()?));
            session.begin()?;
            apply(Sql::Postgres(&session), change)?;
            tell(&session, change);
            session.flush()?;
            session.commit()
        };
        let mut tries = 0;
        loop {
            tries += 1;
            match change_it() {
                Err(failure) if Failure::is_conflict(&failure) && tries < MOST_CONFLICTS => {
                    session.rollback().map_err(|failure| failure.on(address))?;
                    thread::sleep(SHORTEST_PAUSE);
                }
                done => return done.map_err(|failure: Failure| failure.on(address)),
            }
        }
    })
}

fn transaction(
    session: &Session,
    writer: &str,
    batch: i64,
    changes: &[Box<Change>],
    asked: &mut Option<Outcomes>,
) -> Result<Outcomes, Failure> {
    let sql = Sql::Postgres(session);
    if !session.begin_numbered(writer, batch)? {
        session.rollback()?;
        // The commit that nobody confirmed has happened.
        return asked.take().ok_or(Failure::Odd("a transaction's number was taken"));
    }
    let outcomes = match together(sql, changes) {
        Ok(()) => changes.iter().map(|_| Ok(())).collect(),
        Err(failure) if failure.is_of_the_change() => {
            session.rollback()?;
            if !session.begin_numbered(writer, batch)? {
                return Err(Failure::Odd("a transaction's number was taken"));
            }
            apart(session, changes)?
        }
        Err(failure) => return Err(failure),
    };
    for (change, outcome) in changes.iter().zip(&outcomes) {
        if outcome.is_ok() {
            tell(session, change);
        }
    }
    session.flush()?;
    *asked = Some(outcomes.clone());
    session.commit()?;
    Ok(outcomes)
}

/// What others must hear of.
fn tell(session: &Session, change: &Change) {
    match change {
        Change::RevokeToken { .. } | Change::ForgetToken(_) => session.tokens_changed(),
        Change::Hide(conversation) => session.gone(*conversation),
        Change::Begin(_)
        | Change::Finish(_)
        | Change::Compaction(_)
        | Change::Event(_)
        | Change::ImportBegin(_)
        | Change::ImportSlice(_)
        | Change::ImportEnd(_)
        | Change::Index
        | Change::DeleteSlice(_)
        | Change::CreateToken(_)
        | Change::TokenUsed { .. }
        | Change::Condensed { .. }
        | Change::Cursor { .. }
        | Change::Wake => {}
    }
}

/// Each by itself, so that one that does not fit fails alone.
fn apart(session: &Session, changes: &[Box<Change>]) -> Result<Outcomes, Failure> {
    let mut outcomes = Vec::with_capacity(changes.len());
    for change in changes {
        match session.alone(|| apply(Sql::Postgres(session), change)) {
            Ok(()) => outcomes.push(Ok(())),
            Err(Failure::Rejected(rejection)) => outcomes.push(Err(rejection)),
            Err(failure) if failure.is_of_the_change() => outcomes.push(Err(Rejection::DoesNotFit(failure.in_short()))),
            Err(failure) => return Err(failure),
        }
    }
    Ok(outcomes)
}
