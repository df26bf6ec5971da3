//! The load harness: many clients that chat through several paths to the same model, and what each path cost them.
//!
//! A figure of one path means little on a machine that does other things too, so every run asks the upstream itself
//! beside whatever stands in front of it, in short slices that take turns, and compares within a cycle of slices.
//!
//! * [`script`] says what a client says: seeded conversations that grow, made of [`words`]. Pure.
//! * [`client`] says it on one connection, and times what comes back.
//! * [`path`] is one way to the model: where it is, who talks through it, what was measured.
//! * [`slice`] has all clients of a path talk at once; [`rounds`] decides whose turn it is.
//! * [`process`] looks at what a path's processes use; [`child`] starts those that are our own.
//! * [`figures`] gathers, [`compare`] sets one path beside another, [`report`] is all of it; [`table`] and [`html`], drawn
//!   by [`plot`], show it in [`units`] that people read.

pub mod affinity;
pub mod child;
pub mod client;
pub mod compare;
pub mod figures;
pub mod html;
pub mod path;
mod plot;
pub mod process;
pub mod report;
pub mod rounds;
pub mod script;
pub mod slice;
pub mod table;
pub mod units;
mod words;
