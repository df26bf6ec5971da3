//! A connection for questions that is replaced when it is lost: a server that restarts, or hands over to another, is
//! waited for a moment, because a question can be put again.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::address::Address;
use super::session::Session;
use super::waiting;
use crate::store::StoreError;
use crate::store::error::Failure;

/// How long a question waits for a server that is away.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

const LONGEST_PAUSE: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(in crate::store) struct Keeper {
    address: Arc<Address>,
    session: Option<Session>,
}

impl Keeper {
    pub(in crate::store) fn new(address: Arc<Address>) -> Self {
        Self { address, session: None }
    }

    /// Puts a question, and again if the connection was lost or somebody was in the way.
    pub(in crate::store) fn ask<T: Send>(
        &mut self,
        question: impl Fn(&Session) -> Result<T, Failure> + Send + Sync,
    ) -> Result<T, StoreError> {
        self.ask_since(Instant::now(), question)
    }

    /// The same for somebody who has waited since then.
    pub(in crate::store) fn ask_since<T: Send>(
        &mut self,
        started: Instant,
        question: impl Fn(&Session) -> Result<T, Failure> + Send + Sync,
    ) -> Result<T, StoreError> {
        waiting(|| {
            let mut pause = Duration::ZERO;
            loop {
                let failure = match self.session().and_then(&question) {
                    Ok(answer) => return Ok(answer),
                    Err(failure) => failure,
                };
                if failure.is_lost() {
                    self.session = None;
                } else if !failure.is_conflict() {
                    return Err(failure.on(&self.address));
                }
                if started.elapsed() + pause > PATIENCE {
                    return Err(failure.on(&self.address));
                }
                thread::sleep(pause);
                pause = (pause * 2).clamp(Duration::from_millis(20), LONGEST_PAUSE);
            }
        })
    }

    fn session(&mut self) -> Result<&Session, Failure> {
        if self.session.is_none() {
            self.session = Some(self.address.connect()?);
        }
        self.session.as_ref().ok_or(Failure::Odd("there is no connection"))
    }
}
