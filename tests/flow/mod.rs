//! The way through, with real HTTP and a simulated Ollama.

mod agent;
mod checkpoint;
mod conversation;
mod fleet;
mod killed;
mod ladder;
mod overflow;
mod properties;
mod recall;
mod relay;
mod shelf;
mod snapshot;
mod storage;
mod stream;
mod webhooks;

pub use ladder::filled_to;
