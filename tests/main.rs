//! All integration tests, in one binary. Where to add what:
//!
//! * `flow/` — one file a rung of the ladder, or a property of the way through: real HTTP, simulated Ollama.
//! * `history/` — the history API and its commands: who may read, what comes in, what goes out.
//! * `watch/` — what an operator sees: numbers, events, logs, windows, the page.
//! * `dialects.rs` — the six APIs: what is understood, what is kept, what an edit looks like.
//! * `inputs.rs` — bad bodies, bad paths, bad headers: one table, one row each.
//! * `identity.rs` — properties of the hash chain.
//! * `plans.rs` — properties of plans.
//! * `cli.rs` — the commands, as processes.
//! * `load.rs` — the load harness, as a process: that its figures are whole.
//! * `deploy.rs` — what ships for operators: dashboard, alerts, container, unit.
//! * `top.rs` — the dashboard in a terminal, as a process.
//! * `doctor.rs` — what `loadline doctor` sees, and the way it says to mend it.
//! * `replicas/` — several Loadlines on one PostgreSQL (`postgres.rs` starts one); skipped by name where there is none,
//!   required in CI. `LOADLINE_TEST_STORE=postgres` has every stage of the other tests keep its things on one as well.
//! * `browser/` — the dashboard in a real Chromium; skipped by name where there is none, required in CI.
//! * `live/` — against a real Ollama; skipped by name where there is none, required in CI.
#![allow(unreachable_pub, reason = "nothing uses a test binary from outside")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod browser;
mod cli;
mod deploy;
mod dialects;
mod doctor;
mod flow;
mod history;
mod identity;
mod inputs;
mod live;
mod load;
mod plans;
mod postgres;
mod replicas;
mod stage;
mod top;
mod watch;
