//! `loadline bench recall`: how much of what a question needs is in the prompt that leaves.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Own;
use crate::api::auth::LOCAL_USER;
use crate::commands::Outcome;
use crate::commands::source::read_model_file;
use crate::context::Tokens;
use crate::dialect::Dialect;
use crate::ollama::count::rough_size;
use crate::ollama::models::Model;
use crate::proxy::fit::{Fit, dry_run};
use crate::sim::{self, SimConfig, SimModel};

/// Measure recall: for questions about long conversations, the share of the messages that hold the answer
/// which are in the prompt that would be forwarded.
///
/// DATASET has one conversation a line:
///   {"messages":[{"id","role","content","timestamp"?}],"questions":[{"question","evidence":[ids]}]}
///
/// Each question is asked at the end of its conversation, as a client would that sends all of it at once.
/// Beside it stands what plain truncation would keep: the newest messages that fit the same limit.
///
///   loadline bench recall benches/recall/*.jsonl --window 2048 --window 4096
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Recall {
    /// Files of conversations
    #[arg(required = true, value_name = "DATASET")]
    datasets: Vec<PathBuf>,
    /// Windows to measure; may repeat [default: 2048, 4096, 8192]
    #[arg(long, value_name = "TOKENS")]
    window: Vec<u32>,
    /// The share of the limit that recalled passages may take
    #[arg(long, value_name = "SHARE", default_value_t = 0.25)]
    recall_share: f64,
    /// Count with the vocabulary of a model file [default: a built-in one]
    #[arg(long, value_name = "MODEL.gguf")]
    gguf: Option<PathBuf>,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Deserialize)]
struct Conversation {
    messages: Vec<Said>,
    questions: Vec<Question>,
}

#[derive(Debug, Deserialize)]
struct Said {
    id: Value,
    role: String,
    content: String,
}

#[derive(Debug, Deserialize)]
struct Question {
    question: String,
    evidence: Vec<Value>,
}

/// What was found over all questions.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    limit: Tokens,
    questions: usize,
    evidence: usize,
    kept: usize,
    truncation: usize,
    /// Tokens of what was recalled, over all questions.
    recalled_tokens: u64,
}

impl Recall {
    pub(super) async fn run(self) -> Result<Outcome> {
        let mut conversations = Vec::new();
        for dataset in &self.datasets {
            conversations.extend(read(dataset)?);
        }
        let model = match &self.gguf {
            Some(path) => SimModel::new("sim", read_model_file(path)?.vocabulary)?,
            None => tokio::task::spawn_blocking(SimModel::standard).await??,
        };
        let sim = sim::start(SimConfig { models: vec![model], ..SimConfig::default() }).await?;
        let share = ("LOADLINE_RECALL_SHARE", self.recall_share.to_string());
        let own = Own::start(&sim.url(), &[share]).await?;
        let measured = self.measure(&own, &conversations).await;
        own.end().await;
        sim.stop().await;
        let windows = measured?;
        let row = |(window, tally): &(u32, Tally)| {
            let share = |part: usize| part as f64 / tally.evidence.max(1) as f64;
            json!({
                "window": window, "limit": tally.limit, "questions": tally.questions, "evidence": tally.evidence,
                "kept": share(tally.kept), "truncation": share(tally.truncation),
                "recalled_tokens": tally.recalled_tokens / tally.questions.max(1) as u64,
            })
        };
        let rows: Vec<Value> = windows.iter().map(row).collect();
        if self.json {
            say!("{}", json!({ "windows": rows }));
            return Ok(Outcome::Fine);
        }
        say!("evidence that is in the forwarded prompt, recall.share = {}", self.recall_share);
        say!("  window   limit  questions  evidence     kept  truncation  recalled tokens a question");
        for row in rows {
            let percent = |name: &str| format!("{:.1} %", row[name].as_f64().unwrap_or(0.0) * 100.0);
            say!(
                "{:>8} {:>7} {:>10} {:>9} {:>8} {:>11} {:>16}",
                row["window"].to_string(),
                row["limit"].to_string(),
                row["questions"].to_string(),
                row["evidence"].to_string(),
                percent("kept"),
                percent("truncation"),
                row["recalled_tokens"].to_string(),
            );
        }
        Ok(Outcome::Fine)
    }

    async fn measure(&self, own: &Own, conversations: &[Conversation]) -> Result<Vec<(u32, Tally)>> {
        let model = own.gateway.fleet.model("sim").await?;
        let windows = if self.window.is_empty() { vec![2048, 4096, 8192] } else { self.window.clone() };
        let mut tallies = Vec::new();
        for window in windows {
            let mut tally = Tally::default();
            for conversation in conversations {
                let sizes: Vec<Tokens> =
                    conversation.messages.iter().map(|said| rough_size(&model, &said.content)).collect();
                for question in &conversation.questions {
                    ask(own, &model, conversation, question, &sizes, window, &mut tally).await?;
                }
            }
            tallies.push((window, tally));
        }
        Ok(tallies)
    }
}

fn read(path: &Path) -> Result<Vec<Conversation>> {
    let file = std::fs::File::open(path).with_context(|| path.display().to_string())?;
    let mut conversations = Vec::new();
    for (number, line) in BufReader::new(file).lines().enumerate() {
        let line = line.with_context(|| path.display().to_string())?;
        if line.trim().is_empty() {
            continue;
        }
        let conversation = serde_json::from_str(&line);
        conversations.push(conversation.with_context(|| format!("{}: line {}", path.display(), number + 1))?);
    }
    if conversations.is_empty() {
        bail!("{} has no conversations", path.display());
    }
    Ok(conversations)
}

/// Asks one question at the end of its conversation, and looks what of its evidence would leave.
async fn ask(
    own: &Own,
    model: &Model,
    conversation: &Conversation,
    question: &Question,
    sizes: &[Tokens],
    window: u32,
    tally: &mut Tally,
) -> Result<()> {
    let places: HashMap<String, usize> =
        conversation.messages.iter().enumerate().map(|(place, said)| (said.id.to_string(), place)).collect();
    let evidence: Vec<usize> = question.evidence.iter().filter_map(|id| places.get(&id.to_string()).copied()).collect();
    let messages: Vec<Value> = conversation
        .messages
        .iter()
        .map(|said| json!({ "role": said.role, "content": said.content }))
        .chain([json!({ "role": "user", "content": question.question })])
        .collect();
    let body = json!({ "model": "sim", "messages": messages, "options": { "num_ctx": window } }).to_string();
    let request = Dialect::Chat.parse(&body)?;
    let fit = dry_run(&own.gateway, &LOCAL_USER.into(), model, Dialect::Chat, &body, &request, None).await;
    let fit = fit.map_err(|refusal| anyhow::anyhow!(refusal.message))?;
    let mut leaves = vec![false; messages.len()];
    let limit = match fit {
        Fit::Fits(fitted) => {
            fitted.plan.kept().for_each(|place| leaves[place] = true);
            for (place, ranges) in fitted.recalled.iter().flat_map(|recalled| &recalled.passages) {
                // Half a message is not the evidence.
                let whole = 0..conversation.messages[*place].content.len();
                leaves[*place] |= matches!(ranges.as_slice(), [range] if *range == whole);
            }
            let recalled = fitted.recalled.as_ref().map_or(0, |recalled| rough_size(model, &recalled.note.text));
            tally.recalled_tokens += u64::from(recalled);
            fitted.report.sent.limit
        }
        Fit::TooLarge(too_large) => too_large.report.sent.limit,
    };
    tally.limit = limit;
    tally.questions += 1;
    tally.evidence += evidence.len();
    tally.kept += evidence.iter().filter(|&&place| leaves[place]).count();
    let first = truncated_from(sizes, rough_size(model, &question.question), limit);
    tally.truncation += evidence.iter().filter(|&&place| place >= first).count();
    Ok(())
}

/// What a template adds to a message, about.
const PER_MESSAGE: Tokens = 5;

/// The first message that plain truncation keeps: the newest that fit.
fn truncated_from(sizes: &[Tokens], question: Tokens, limit: Tokens) -> usize {
    let mut left = limit.saturating_sub(question + 2 * PER_MESSAGE);
    let mut first = sizes.len();
    for (place, size) in sizes.iter().enumerate().rev() {
        match left.checked_sub(size + PER_MESSAGE) {
            Some(rest) => (left, first) = (rest, place),
            None => break,
        }
    }
    first
}
