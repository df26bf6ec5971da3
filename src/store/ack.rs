//! The promise that a change is on disk.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::StoreError;

/// Resolves when the change is on disk, or is known not to be. Dropping it changes nothing.
#[derive(Debug)]
#[must_use = "a change that nobody waits for may fail unseen; say so with `drop`"]
pub struct Ack(State);

#[derive(Debug)]
enum State {
    Waiting(oneshot::Receiver<Result<(), StoreError>>),
    Refused(StoreError),
}

impl Ack {
    pub(super) fn waiting(done: oneshot::Receiver<Result<(), StoreError>>) -> Self {
        Self(State::Waiting(done))
    }

    pub(super) fn refused(error: StoreError) -> Self {
        Self(State::Refused(error))
    }

    /// Blocks the thread; for commands, which have no runtime. Inside of one it panics, as Tokio says.
    pub fn wait(self) -> Result<(), StoreError> {
        match self.0 {
            State::Waiting(done) => done.blocking_recv().unwrap_or(Err(StoreError::Stopped)),
            State::Refused(error) => Err(error),
        }
    }
}

impl Future for Ack {
    type Output = Result<(), StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            State::Waiting(done) => {
                Pin::new(done).poll(context).map(|outcome| outcome.unwrap_or(Err(StoreError::Stopped)))
            }
            State::Refused(error) => Poll::Ready(Err(error.clone())),
        }
    }
}
