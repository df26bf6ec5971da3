//! What the intake has to say about a history: warnings that go along with it, or the one error that refuses it.
//!
//! Fields are named as callers know them, `conversation_history[3].role`; that number counts from the first message
//! that was looked at. [`Warning::index`] counts from the first message that was given.

use serde::Serialize;
use serde_json::{Map, Value};

use super::preset::Preset;
use super::python_text::clipped;

const HISTORY_FIELD: &str = "conversation_history";
/// A refused message may have any number of keys; the report names no more than these.
const MAX_REPORTED_KEYS: usize = 64;

/// Something the intake put right by itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Warning {
    pub field: String,
    pub message: String,
    pub severity: Severity,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    /// Position in the history as it was given; `None` if the history as a whole is meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Medium,
}

/// Why a history was refused.
#[derive(Debug, Clone, PartialEq, Serialize, thiserror::Error)]
#[error("{}", self.shown())]
pub struct Fatal {
    pub field: String,
    pub message: String,
    /// What was found instead: the name of a type, a list of keys, a length.
    pub value: Value,
    /// `type_error`, `missing_field` or `invalid_value`.
    pub error_type: &'static str,
    /// What had been put right before.
    pub warnings: Vec<Warning>,
    /// Whose rules were broken. The presets word their errors differently.
    pub preset: Preset,
}

impl Fatal {
    fn shown(&self) -> String {
        match self.preset {
            Preset::ReasoningFirst => format!("{}: {}", self.field, self.message),
            Preset::RequirementsFirst => self.message.clone(),
        }
    }
}

/// Which part of a message a finding is about.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    Whole,
    Role,
    Content,
    Timestamp,
}

/// Collects findings while a history is looked at.
#[derive(Debug)]
pub(super) struct Findings {
    preset: Preset,
    /// How many messages before the first one looked at were left out.
    skipped: usize,
    warnings: Vec<Warning>,
}

impl Findings {
    pub(super) fn new(preset: Preset, skipped: usize) -> Self {
        Self { preset, skipped, warnings: Vec::new() }
    }

    pub(super) fn warn(&mut self, message: String, suggestion: Option<&str>) {
        let suggestion = suggestion.map(str::to_owned);
        let field = HISTORY_FIELD.to_owned();
        self.warnings.push(Warning { field, message, severity: Severity::Medium, suggestion, index: None });
    }

    pub(super) fn warn_at(&mut self, position: usize, part: Part, message: String) {
        let index = Some(self.skipped + position);
        let field = field(position, part);
        self.warnings.push(Warning { field, message, severity: Severity::Medium, suggestion: None, index });
    }

    pub(super) fn fatal(&mut self, message: &str, value: impl Into<Value>, error_type: &'static str) -> Box<Fatal> {
        self.refuse(HISTORY_FIELD.to_owned(), message.to_owned(), value.into(), error_type)
    }

    pub(super) fn fatal_at(
        &mut self,
        position: usize,
        part: Part,
        message: String,
        value: impl Into<Value>,
        error_type: &'static str,
    ) -> Box<Fatal> {
        self.refuse(field(position, part), message, value.into(), error_type)
    }

    pub(super) fn into_warnings(self) -> Vec<Warning> {
        self.warnings
    }

    fn refuse(&mut self, field: String, message: String, value: Value, error_type: &'static str) -> Box<Fatal> {
        let warnings = std::mem::take(&mut self.warnings);
        Box::new(Fatal { field, message, value, error_type, warnings, preset: self.preset })
    }
}

/// The keys of a message that lacks one, for the report.
pub(super) fn reported_keys(message: &Map<String, Value>) -> Value {
    message.keys().take(MAX_REPORTED_KEYS).map(|key| Value::from(clipped(key))).collect()
}

fn field(position: usize, part: Part) -> String {
    match part {
        Part::Whole => format!("{HISTORY_FIELD}[{position}]"),
        Part::Role => format!("{HISTORY_FIELD}[{position}].role"),
        Part::Content => format!("{HISTORY_FIELD}[{position}].content"),
        Part::Timestamp => format!("{HISTORY_FIELD}[{position}].timestamp"),
    }
}
