//! `loadline sim`: an Ollama that needs no Ollama.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use super::source::read_model_file;
use super::{Outcome, stop_signal};
use crate::sim::{self, Flavour, SimConfig, SimModel};

/// Start a simulated Ollama: real routes, real counts, made-up answers.
///
/// It has one model, with GPT-2's vocabulary or with that of a model file. Prompts are rendered as
/// ChatML, whatever template the file has. Prints `listening on http://ADDR` once it is ready.
///
///   loadline sim --listen 127.0.0.1:0
///   loadline sim --gguf SmolLM2-135M-Instruct.Q4_1.gguf --name smollm2
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct SimCommand {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:11434")]
    listen: SocketAddr,
    /// Which version to behave like, where versions differ
    #[arg(long, value_enum, default_value = "0.33")]
    flavour: FlavourName,
    /// A model file whose vocabulary and trained window to take; its weights are not read
    #[arg(long, value_name = "MODEL.gguf")]
    gguf: Option<PathBuf>,
    /// What the model is called; requests may say `NAME` or `NAME:latest`
    #[arg(long, value_name = "NAME", default_value = "sim")]
    name: String,
    /// Window of requests that do not ask for one
    #[arg(long, value_name = "TOKENS", default_value_t = 4096)]
    window: u32,
    /// Time to read one prompt token that is not in the prefix cache, in microseconds
    #[arg(long, value_name = "US", default_value_t = 0)]
    prefill_us: u64,
    /// Time to write one token of an answer, in microseconds
    #[arg(long, value_name = "US", default_value_t = 0)]
    decode_us: u64,
    /// Length of an answer that the request does not limit, its unseen last token included
    #[arg(long, value_name = "TOKENS", default_value_t = 32)]
    answer_tokens: u32,
    /// Answer everything with the same words at once, unread and uncounted: for measuring what stands in front
    #[arg(long)]
    instant: bool,
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
        let (gguf, name) = (self.gguf, self.name);
        let from_file = gguf.is_some();
        // Building a vocabulary takes long enough to hold up everything else on this thread.
        let mut model = tokio::task::spawn_blocking(move || model(gguf.as_deref(), &name)).await??;
        if !from_file {
            // The model of our own is trained for whatever is asked of it.
            model.trained_window = model.trained_window.max(self.window);
        }
        let config = SimConfig {
            listen: self.listen,
            flavour,
            default_window: self.window,
            prefill_us_per_token: self.prefill_us,
            decode_us_per_token: self.decode_us,
            answer_tokens: self.answer_tokens,
            instant: self.instant,
            models: vec![model],
        };
        let sim = sim::start(config).await.with_context(|| format!("cannot listen on {}", self.listen))?;
        say!("listening on {}", sim.url());
        stop_signal().await;
        sim.stop().await;
        Ok(Outcome::Fine)
    }
}

fn model(gguf: Option<&Path>, name: &str) -> Result<SimModel> {
    let Some(path) = gguf else { return Ok(SimModel::standard()?.renamed(name)) };
    let file = read_model_file(path)?;
    let mut model = SimModel::new(name, file.vocabulary).with_context(|| path.display().to_string())?;
    if let Some(window) = file.trained_window {
        model.trained_window = u32::try_from(window).unwrap_or(u32::MAX);
    }
    Ok(model)
}
