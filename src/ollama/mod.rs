//! The upstream: how it is reached, and what it says about its models.
//!
//! [`client`] carries bytes. [`models`] asks `/api/show` and `/api/ps` and keeps the answers, [`shelf`] beyond the process;
//! [`render`] asks for renderings; [`count`] turns a request into a number with all of that;
//! [`overflow`] reads the errors that come when a number was wrong after all. [`ask`] puts questions of our own;
//! [`probe`] looks whether it is there at all. [`fleet`] chooses among several.

pub mod ask;
pub mod client;
mod connection;
pub mod count;
pub mod fleet;
pub mod models;
pub mod overflow;
pub mod probe;
mod render;
mod shelf;
mod show;

pub use client::{Upstream, UpstreamError};
pub use count::Count;
pub use fleet::Fleet;
pub use models::{Model, Models};
pub use probe::Probe;
pub use shelf::Shelf;
