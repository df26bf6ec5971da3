//! What an operator sees: numbers, events, logs, windows, and the page that shows it all.

mod events;
mod logs;
mod metrics;
mod overview;
mod windows;
