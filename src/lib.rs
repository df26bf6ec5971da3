//! Loadline: a reverse proxy in front of Ollama that never lets a prompt sink below its load line.
//!
//! The map, in the order a request walks it:
//!
//! * [`proxy`] accepts a request and reads as one straight line: read → parse → identify → count →
//!   decide → plan → forward → observe → record.
//! * [`dialect`] knows the six APIs: each one's JSON ⇄ [`context::Message`], and how to apply a plan to
//!   its own original JSON. [`json`] and [`framing`] are the bytes below that.
//! * [`ollama`] is the upstream: its client, and what it says about a model (window, vocabulary, template).
//! * [`tokenize`] counts as the upstream will, [`context`] decides. Both are pure, but for reading a model file.
//! * [`checkpoint`] has a model write notes on what is to leave the prompt, in the background.
//! * [`history`] takes conversations from others and writes them for others; [`api`] are the routes for that, and
//!   who may use which route.
//! * [`store`] keeps what must not be lost; [`events`] tells what happens, as it happens, and [`webhooks`] calls
//!   those who want to know; [`config`] is what an operator may say; [`telemetry`] is what an operator may see.
//! * [`dashboard`] is the page that shows it all.
//! * [`sim`] is an Ollama that needs no Ollama; [`bench`] is the load harness; [`commands`] is the command line.

pub mod api;
pub mod bench;
pub mod checkpoint;
pub mod commands;
pub mod config;
pub mod context;
pub mod dashboard;
pub mod dialect;
pub mod events;
pub mod framing;
pub mod history;
pub mod json;
pub mod ollama;
pub mod proxy;
pub mod sim;
pub mod store;
pub mod telemetry;
pub mod tokenize;
pub mod webhooks;
