//! The way through, with real HTTP and a simulated Ollama.

mod conversation;
mod ladder;
mod overflow;
mod relay;
mod stream;
