//! Where a command's model comes from: a model file on disk, or a running Ollama.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::Args;

use crate::config::Windows;
use crate::ollama::{Models, Upstream};
use crate::tokenize::Tokenizer;
use crate::tokenize::gguf::{self, ModelFile};

/// An upstream that is asked by hand is given up on sooner than one that serves.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);

pub(super) const DEFAULT_UPSTREAM: &str = "http://127.0.0.1:11434";

#[derive(Debug, Args)]
pub(super) struct Source {
    /// A model file to count with, offline
    #[arg(long, value_name = "MODEL.gguf")]
    pub(super) gguf: Option<PathBuf>,
    /// A running Ollama to ask for the model [default: http://127.0.0.1:11434]
    #[arg(long, value_name = "URL", env = "LOADLINE_UPSTREAM_URL")]
    pub(super) upstream: Option<String>,
}

impl Source {
    pub(super) fn upstream_url(&self) -> &str {
        self.upstream.as_deref().unwrap_or(DEFAULT_UPSTREAM)
    }
}

pub(super) fn read_model_file(path: &Path) -> Result<ModelFile> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    gguf::read(BufReader::with_capacity(1 << 20, file)).with_context(|| path.display().to_string())
}

/// The vocabulary of a model file, ready to count.
pub(super) fn tokenizer_of_file(path: &Path) -> Result<Tokenizer> {
    let model = read_model_file(path)?;
    Tokenizer::new(model.vocabulary).with_context(|| path.display().to_string())
}

/// The vocabulary of a model of a running Ollama.
pub(super) async fn tokenizer_of_upstream(url: &str, model: &str) -> Result<Arc<Tokenizer>> {
    let upstream = Upstream::new(url, CONNECT_TIMEOUT, ANSWER_TIMEOUT)?;
    let models = Models::new(upstream, std::sync::Arc::new(Windows::default()));
    let facts = models.get(model).await.with_context(|| format!("model `{model}` at {url}"))?;
    facts.tokenizer.clone().map_err(|reason| anyhow!("model `{model}` at {url}: {reason}"))
}
