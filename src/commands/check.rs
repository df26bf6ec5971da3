//! `loadline check`: would this request fit, and what would be done about it?

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;

use super::Outcome;
use super::source::{Source, read_model_file};
use crate::api::auth::LOCAL_USER;
use crate::config::{Config, Flags};
use crate::dialect::Dialect;
use crate::proxy::Gateway;
use crate::proxy::check_request;
use crate::sim::{self, SimConfig, SimModel};

/// Check a request file without having it answered.
///
/// With an upstream, Ollama is asked to render the prompt, so the model is loaded, with the request's own
/// num_ctx; no answer is generated.
///
/// Prints what the gate would say: {valid, prompt, totalTokens, ollamaLimit, warnings, emergencyAction}.
/// Exits with 1 if the request could not be made to fit.
///
///   loadline check request.json --upstream http://127.0.0.1:11434
///   loadline check request.json --gguf model.gguf --window 8192
///
/// With --gguf nothing is asked of anyone: the model's own vocabulary counts, but how Ollama would lay
/// out its template can only be guessed, so such counts are at best `calibrated`.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Check {
    /// A request body, as a client would send it; `-` reads standard input
    file: PathBuf,
    #[command(flatten)]
    source: Source,
    /// The path the request would be sent to
    #[arg(long, default_value = "/api/chat", value_name = "PATH")]
    path: String,
    /// With --gguf: the window, where the request does not say [default: 4096, at most what the model was trained for]
    #[arg(long, value_name = "TOKENS")]
    window: Option<u32>,
}

impl Check {
    pub(super) async fn run(self) -> Result<Outcome> {
        if self.window.is_some() && self.source.gguf.is_none() {
            bail!("--window goes with --gguf: an upstream has windows of its own");
        }
        let dialect = Dialect::of_path(&self.path).ok_or_else(|| {
            let known: Vec<_> = Dialect::ALL.iter().map(|dialect| dialect.path()).collect();
            anyhow!("`{}` is not a gated path (those are {})", self.path, known.join(", "))
        })?;
        let body = if self.file.as_os_str() == "-" {
            std::io::read_to_string(std::io::stdin().lock()).context("standard input")?.into_bytes()
        } else {
            std::fs::read(&self.file).with_context(|| self.file.display().to_string())?
        };
        let data = ScratchDir::new()?;
        let (upstream, offline) = match &self.source.gguf {
            None => (self.source.upstream_url().to_owned(), None),
            Some(path) => {
                let model = read_model_file(path)?;
                let named = model_name(&body)?;
                let trained = model.trained_window.map_or(u32::MAX, |window| window.min(u64::from(u32::MAX)) as u32);
                let mut sim_model =
                    SimModel::new(&named, model.vocabulary).with_context(|| path.display().to_string())?;
                sim_model.trained_window = trained;
                // A template that knows tools lays out system messages differently, too.
                sim_model.tools = offers_tools(&body);
                let default_window = self.window.unwrap_or(4096).min(trained);
                let sim =
                    sim::start(SimConfig { default_window, models: vec![sim_model], ..SimConfig::default() }).await?;
                (sim.url(), Some(sim))
            }
        };
        let flags = Flags { upstream: Some(upstream), data_dir: Some(data.0.clone()), ..Flags::default() };
        let gateway = Arc::new(Gateway::new(Config::load(None, [], flags)?)?);
        let answer = check_request(&gateway, &LOCAL_USER.into(), dialect, &body).await;
        let mut answer = answer.map_err(|refusal| anyhow!(refusal.message))?;
        if let Some(sim) = offline {
            if answer["basis"] == "exact" {
                answer["basis"] = "calibrated".into();
            }
            sim.stop().await;
        }
        say!("{answer:#}");
        Ok(if answer["valid"] == true { Outcome::Fine } else { Outcome::No })
    }
}

/// The model that the request names, so that the simulated Ollama has it.
fn model_name(body: &[u8]) -> Result<String> {
    let request: serde_json::Value = serde_json::from_slice(body).context("the request is not JSON")?;
    match request.get("model").and_then(serde_json::Value::as_str) {
        Some(name) if !name.is_empty() => Ok(name.to_owned()),
        _ => bail!("the request names no model"),
    }
}

fn offers_tools(body: &[u8]) -> bool {
    let request: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    request["tools"].as_array().is_some_and(|tools| !tools.is_empty())
}

/// A directory that is gone afterwards: a dry run leaves nothing behind.
struct ScratchDir(PathBuf);

impl ScratchDir {
    fn new() -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("loadline-check-{}", uuid::Uuid::new_v4().simple()));
        std::fs::create_dir(&dir).with_context(|| dir.display().to_string())?;
        Ok(Self(dir))
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        let _best_effort = std::fs::remove_dir_all(&self.0);
    }
}
