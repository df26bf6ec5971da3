//! `loadline history`: lists of messages, checked before they are handed to anybody.

use std::io::Read;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::Outcome;
use super::data::shown;
use super::serve::variables;
use crate::config::{Config, Flags};
use crate::history::intake::{self, Checked, Fatal, Preset};

/// Check a list of messages that is to be handed to somebody, or imported.
///
/// For JSON lists of {role, content, timestamp}; `loadline validate` is for session files in canonical JSONL.
#[derive(Debug, Args)]
pub(super) struct HistoryCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Check a file, mend what can be mended, and say what was done
    ///
    /// The file holds a JSON list of {"role", "content", "timestamp"}, or an object with such a list under
    /// `conversation_history` or `messages`. Exit code 1: it cannot be taken.
    Check {
        /// The file; - is standard input
        file: PathBuf,
        /// What matters most [default: what the file names, or requirements-first]
        #[arg(long, value_enum)]
        preset: Option<PresetName>,
        /// Print the section of a prompt that it becomes
        #[arg(long)]
        section: bool,
        /// Configuration file with limits of your own
        #[arg(long, value_name = "FILE", env = "LOADLINE_CONFIG")]
        config: Option<PathBuf>,
        /// As JSON: the history, warnings and errors
        #[arg(long, conflicts_with = "section")]
        json: bool,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum PresetName {
    /// What the user asked for is kept, answers are shortened to 150 characters
    RequirementsFirst,
    /// Answers are kept, questions are shortened to 150 characters
    ReasoningFirst,
}

impl From<PresetName> for Preset {
    fn from(name: PresetName) -> Self {
        match name {
            PresetName::RequirementsFirst => Self::RequirementsFirst,
            PresetName::ReasoningFirst => Self::ReasoningFirst,
        }
    }
}

impl HistoryCommand {
    pub(super) fn run(self) -> Result<Outcome> {
        let What::Check { file, preset, section, config, json } = self.what;
        let limits = Config::load(config.as_deref(), variables(), Flags::default())?.history;
        let name = file.display().to_string();
        let value: Value = serde_json::from_slice(without_mark(&read(&file)?)).with_context(|| {
            format!("{name} is not one JSON value (canonical JSONL is checked by `loadline validate`)")
        })?;
        let preset = match (preset, value.get("preset").and_then(Value::as_str)) {
            (Some(preset), _) => preset.into(),
            (None, Some(named)) => named.parse().with_context(|| format!("preset `{named}`"))?,
            (None, None) => Preset::default(),
        };
        let history = ["conversation_history", "messages"].into_iter().find_map(|key| value.get(key)).unwrap_or(&value);
        let now = jiff::tz::TimeZone::UTC.to_datetime(jiff::Timestamp::now());
        let checked = intake::check(history, preset, &limits, now);
        let fine = checked.is_ok();
        match (&checked, json) {
            (_, true) => say!("{:#}", as_json(preset, &checked)),
            (Ok(checked), false) if section => {
                say!("{}", checked.history.as_ref().map(intake::section).unwrap_or_default());
            }
            (_, false) => for_people(&name, &checked),
        }
        Ok(if fine { Outcome::Fine } else { Outcome::No })
    }
}

/// Some editors put a byte order mark in front.
fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

/// A file, or standard input.
pub(super) fn read(file: &std::path::Path) -> Result<Vec<u8>> {
    if file == std::path::Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).context("standard input")?;
        return Ok(bytes);
    }
    std::fs::read(file).with_context(|| file.display().to_string())
}

fn as_json(preset: Preset, checked: &Result<Checked, Box<Fatal>>) -> Value {
    let (history, warnings, errors) = match checked {
        Ok(checked) => (json!(checked.history), json!(checked.warnings), json!([])),
        Err(fatal) => {
            let error = json!({
                "field": fatal.field, "message": fatal.message, "error_type": fatal.error_type, "value": fatal.value,
            });
            (Value::Null, json!(fatal.warnings), json!([error]))
        }
    };
    json!({
        "valid": checked.is_ok(), "preset": preset.name(), "conversation_history": history, "warnings": warnings,
        "errors": errors,
    })
}

fn for_people(name: &str, checked: &Result<Checked, Box<Fatal>>) {
    let warnings = match checked {
        Ok(checked) => &checked.warnings,
        Err(fatal) => &fatal.warnings,
    };
    for warning in warnings {
        say!("  ⚠ {}: {}", shown(&warning.field), shown(&warning.message));
    }
    match checked {
        Err(fatal) => say!("  ✗ {}\n✗ {name} cannot be taken in", shown(&fatal.to_string())),
        Ok(Checked { history: None, .. }) => say!("✓ {name}: nothing to hand over"),
        Ok(Checked { history: Some(history), .. }) => {
            say!("✓ {name}: {} messages, {} truncated", history.total_messages, history.truncated_count);
        }
    }
}
