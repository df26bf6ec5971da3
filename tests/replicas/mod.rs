//! Several Loadlines on one PostgreSQL: any of them may serve any turn, and any of them may die.
//!
//! All of these are skipped by name where there is no PostgreSQL, and required in CI.

mod killed;
mod outage;
mod shared;
