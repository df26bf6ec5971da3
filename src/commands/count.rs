//! `loadline count`: how many tokens a text has.

use std::io::{self, BufRead, Read, Write};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;

use super::Outcome;
use super::source::{Source, tokenizer_of_file, tokenizer_of_upstream};
use crate::tokenize::{Generation, Tokenizer};

/// Count the tokens of a text as Ollama counts them.
///
/// The text is taken as an already rendered prompt: special tokens are read as such, and BOS is added
/// where the vocabulary asks for it. It is read from standard input unless it is given.
///
///   loadline count --gguf model.gguf "Hello there"
///   loadline count --model llama3.2 < prompt.txt
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct CountCommand {
    /// The text; read from standard input if it is not given
    text: Option<String>,
    #[command(flatten)]
    source: Source,
    /// The model's name, when an upstream is asked
    #[arg(long, value_name = "NAME", conflicts_with = "gguf")]
    model: Option<String>,
    /// Each line of standard input is a JSON string; one number a line comes out
    #[arg(long, conflicts_with = "text")]
    lines: bool,
    /// Count as Ollama 0.17 does; later versions read a few more texts as control tokens
    #[arg(long)]
    earlier: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl CountCommand {
    pub(super) async fn run(self) -> Result<Outcome> {
        let tokenizer = match (&self.source.gguf, &self.model) {
            (Some(path), _) => Arc::new(tokenizer_of_file(path)?),
            (None, Some(model)) => tokenizer_of_upstream(self.source.upstream_url(), model).await?,
            (None, None) => bail!("say which model: --gguf MODEL.gguf, or --model NAME of a running Ollama"),
        };
        let generation = if self.earlier { Generation::Earlier } else { Generation::Later };
        if self.lines {
            return count_lines(&tokenizer, generation, self.json);
        }
        let text = match self.text {
            Some(text) => text,
            None => {
                let mut bytes = Vec::new();
                io::stdin().lock().read_to_end(&mut bytes)?;
                String::from_utf8(bytes).context("standard input is not UTF-8")?
            }
        };
        let tokens = tokenizer.count_prompt(&text, generation).tokens;
        if self.json {
            say!("{}", serde_json::json!({ "tokens": tokens }))
        } else {
            say!("{tokens}")
        }
        Ok(Outcome::Fine)
    }
}

fn count_lines(tokenizer: &Tokenizer, generation: Generation, json: bool) -> Result<Outcome> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    for (number, line) in io::stdin().lock().lines().enumerate() {
        let line = line.with_context(|| format!("line {}", number + 1))?;
        if line.trim().is_empty() {
            continue;
        }
        let text: String = serde_json::from_str(&line)
            .with_context(|| format!("line {} is not a JSON string (a text in double quotes)", number + 1))?;
        let tokens = tokenizer.count_prompt(&text, generation).tokens;
        if json { writeln!(out, "{}", serde_json::json!({ "tokens": tokens }))? } else { writeln!(out, "{tokens}")? }
    }
    out.flush()?;
    Ok(Outcome::Fine)
}
