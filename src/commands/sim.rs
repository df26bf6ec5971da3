//! `loadline sim`: an Ollama that needs no Ollama.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use super::{Outcome, stop_signal};
use crate::sim::{self, Flavour, SimConfig};

/// Start a simulated Ollama: real routes, real counts, made-up answers.
///
/// Its model is called `sim`. Prints `listening on http://ADDR` once it is ready.
#[derive(Debug, Args)]
pub(super) struct SimCommand {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:11434")]
    listen: SocketAddr,
    /// Which version to behave like, where versions differ
    #[arg(long, value_enum, default_value = "0.33")]
    flavour: FlavourName,
    /// Window of requests that do not ask for one
    #[arg(long, value_name = "TOKENS", default_value_t = 4096)]
    window: u32,
    /// Time to read one prompt token that is not in the prefix cache, in microseconds
    #[arg(long, value_name = "US", default_value_t = 0)]
    prefill_us: u64,
    /// Time to write one token of an answer, in microseconds
    #[arg(long, value_name = "US", default_value_t = 0)]
    decode_us: u64,
    /// Length of an answer that the request does not limit
    #[arg(long, value_name = "TOKENS", default_value_t = 32)]
    answer_tokens: u32,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FlavourName {
    #[value(name = "0.17")]
    V0_17,
    #[value(name = "0.33")]
    V0_33,
}

impl SimCommand {
    pub(super) async fn run(self) -> Result<Outcome> {
        let flavour = match self.flavour {
            FlavourName::V0_17 => Flavour::V0_17,
            FlavourName::V0_33 => Flavour::V0_33,
        };
        let config = SimConfig {
            listen: self.listen,
            flavour,
            default_window: self.window,
            prefill_us_per_token: self.prefill_us,
            decode_us_per_token: self.decode_us,
            answer_tokens: self.answer_tokens,
            models: Vec::new(),
        };
        let sim = sim::start(config).await.with_context(|| format!("cannot listen on {}", self.listen))?;
        println!("listening on {}", sim.url());
        stop_signal().await;
        sim.stop().await;
        Ok(Outcome::Fine)
    }
}
