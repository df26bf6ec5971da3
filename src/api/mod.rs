//! The routes for people and programs that read histories: who may, and what they get.
//!
//! * [`auth`] and [`token`] say who is asking, for every route of the proxy.

pub mod auth;
pub mod token;
