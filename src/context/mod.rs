//! The core: what a prompt is, how full it is, which conversation it belongs to, and what may leave.
//!
//! Pure: no I/O, no async, no JSON, no clock. Everything here is a function of its arguments, so
//! nothing here can fail for reasons outside the request.

pub mod clean;
pub mod extract;
pub mod front;
pub mod identity;
pub mod ladder;
pub mod message;
pub mod plan;
pub mod recall;

pub use front::{Checkpoint, Front, Level, Rollover};
pub use identity::{ChainKey, Link};
pub use ladder::{Action, Basis, Budget, Decision, Tokens, Usage, Window};
pub use message::{Message, Role, ToolCall};
pub use plan::{Edit, Note, Plan};
