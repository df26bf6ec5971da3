//! What goes wrong, on demand: a script of faults that the next requests run into.
//!
//! A fault is used up by one request to a route that generates; `/api/show`, `/api/tags` and the like
//! never take one. Without a script nothing ever goes wrong here by itself.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// One thing that goes wrong with one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Answers this at once; the body goes out as it is, called JSON.
    Status { code: u16, body: String },
    /// Closes the connection without a byte of an answer.
    CloseBeforeHeaders,
    /// Says nothing until the client goes away.
    SilentBeforeHeaders,
    /// A clean end of the body after so many pieces of the answer, without its final part.
    EndAfterChunks(u32),
    /// The same, but half of the next piece still comes.
    EndWithinChunk(u32),
    /// Tears the connection after so many pieces of the answer.
    ResetAfterChunks(u32),
    /// What Ollama writes when generation fails after so many pieces: an error line on native routes.
    ErrorLineAfterChunks(u32),
    /// Tells a prompt count that is off by this much.
    WrongCount(i64),
    /// Status 200 and a body that is no JSON.
    Garbage,
    /// Nothing goes wrong with this one: what follows is for a later request.
    Nothing,
}

/// The faults still to come, first one first.
#[derive(Debug, Default)]
pub struct Faults {
    script: Mutex<VecDeque<Fault>>,
}

impl Faults {
    pub fn push(&self, fault: Fault) {
        self.script.lock().unwrap_or_else(PoisonError::into_inner).push_back(fault);
    }

    /// How many have not been met yet.
    pub fn pending(&self) -> usize {
        self.script.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(super) fn take_unless(&self, spared: bool) -> Option<Fault> {
        if spared {
            return None;
        }
        let next = self.script.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        next.filter(|fault| *fault != Fault::Nothing)
    }
}
