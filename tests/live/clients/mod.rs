//! The libraries that people use, through Loadline and straight to the same real Ollama: README.md here says how.
//!
//! * `run.rs` drives one of them and holds what it saw against what is stored.
//! * `matrix.rs` writes what all of them saw, and compares it with the documentation.
//! * `registry.rs` is where models are pulled from.

mod matrix;
mod registry;
mod run;

pub use run::IMAGE;
use run::{CLIENTS, seen};

use super::server::tell;

/// What one client does: every cell is the same as without Loadline, or there is nothing to compare it with.
async fn works(number: usize) {
    let client = &CLIENTS[number];
    let Some(seen) = seen(number).await else { return };
    let broken: Vec<String> = seen.broken().map(|(feature, what)| format!("{feature}: {what}")).collect();
    assert!(broken.is_empty(), "{} {}:\n{}", client.language, client.name, broken.join("\n"));
    tell(&format!("live: {} {} {} works", client.language, client.name, seen.version));
}

#[tokio::test(flavor = "multi_thread")]
async fn python_ollama_notices_nothing() {
    works(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn python_openai_notices_nothing() {
    works(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn python_anthropic_notices_nothing() {
    works(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn langchain_notices_nothing() {
    works(3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn litellm_notices_nothing() {
    works(4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn javascript_ollama_notices_nothing() {
    works(5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn javascript_openai_notices_nothing() {
    works(6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn vercels_ai_notices_nothing() {
    works(7).await;
}
