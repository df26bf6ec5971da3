//! An Ollama that needs no Ollama: the upstream of our tests, of the demo and of the benchmarks.
//!
//! It answers on the routes that a chat client uses, with the shapes, headers and error texts that were
//! recorded from two real versions. Prompts are really rendered, really counted with a real vocabulary,
//! and really truncated as Ollama truncates; only the words of the answer are made up. What a prompt
//! costs follows a prefix cache, so that a stable front is as cheap here as it is there.
//!
//! It refuses to be a model: the same prompt always gets the same words, and they mean nothing. It also
//! expires nothing by itself and serves every request at once, where Ollama would queue.

mod answer;
mod catalogue;
mod chatml;
mod dialect;
mod exchange;
mod faults;
mod go_json;
mod go_syntax;
mod instant;
mod ledger;
mod model;
mod prompt;
mod refusal;
mod request;
mod respond;
mod routes;
mod runner;
mod server;
mod show;
mod tools;
pub mod vocabulary;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use faults::{Fault, Faults};
pub use ledger::{Seen, Stats};
pub use model::SimModel;

use runner::World;

/// What kind of Ollama to be, and how fast.
#[derive(Debug, Clone)]
pub struct SimConfig {
    /// Port 0 takes any free one; [`Sim::addr`] tells which.
    pub listen: SocketAddr,
    pub flavour: Flavour,
    /// The window of a model whose Modelfile and whose request name none.
    pub default_window: u32,
    /// Time to evaluate one prompt token that is not in the prefix cache; 0 is free.
    pub prefill_us_per_token: u64,
    /// Time to generate one token; 0 is free.
    pub decode_us_per_token: u64,
    /// How long an answer is when the request does not cut it, the unseen token that ends it included.
    pub answer_tokens: u32,
    /// Answer everything with the same words at once, unread and uncounted.
    pub instant: bool,
    /// Empty means one model, [`SimModel::standard`].
    pub models: Vec<SimModel>,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            flavour: Flavour::V0_33,
            default_window: 4096,
            prefill_us_per_token: 0,
            decode_us_per_token: 0,
            answer_tokens: 32,
            instant: false,
            models: Vec::new(),
        }
    }
}

/// Which recorded version to imitate where the two differ: error shapes, cutting, stream details.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Flavour {
    V0_17,
    #[default]
    V0_33,
}

/// A running simulated Ollama. Dropping it stops it.
#[derive(Debug)]
pub struct Sim {
    addr: SocketAddr,
    world: Arc<World>,
    stop: CancellationToken,
    accepting: Option<JoinHandle<()>>,
}

/// Binds the address and serves until the [`Sim`] is stopped or dropped.
pub async fn start(mut config: SimConfig) -> std::io::Result<Sim> {
    if config.models.is_empty() {
        // Building a vocabulary takes long enough to hold up everything else on this thread.
        let standard = tokio::task::spawn_blocking(SimModel::standard).await.map_err(std::io::Error::other)?;
        config.models.push(standard.map_err(std::io::Error::other)?);
    }
    let listener = TcpListener::bind(config.listen).await?;
    let addr = listener.local_addr()?;
    let world = Arc::new(World::new(config));
    let stop = CancellationToken::new();
    let accepting = tokio::spawn(server::accept(listener, Arc::clone(&world), stop.clone()));
    Ok(Sim { addr, world, stop, accepting: Some(accepting) })
}

impl Sim {
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The base address, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// What shall go wrong with the next requests.
    pub fn faults(&self) -> &Faults {
        &self.world.faults
    }

    /// The requests seen so far, oldest first. Old ones are forgotten beyond 10,000 or 256 MiB of bodies.
    pub fn log(&self) -> Vec<Seen> {
        self.world.ledger.seen()
    }

    pub fn stats(&self) -> Stats {
        self.world.ledger.stats()
    }

    /// Stops listening, tears every open connection, and returns when the port is free again.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if let Some(accepting) = self.accepting.take()
            && let Err(error) = accepting.await
        {
            tracing::warn!(%error, "the simulator did not stop in order");
        }
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
