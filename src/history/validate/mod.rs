//! The validator of canonical JSONL session files.
//!
//! It reads a file once, line by line, and names every fault it finds with line,
//! field and code. Memory does not grow with the size of a file except for some
//! tens of bytes a message. It never changes a file, never guesses what a writer
//! meant, and accepts unknown extra fields.

mod block;
mod check;
mod code;
mod content;
mod findings;
mod line;
mod metadata;
mod reading;
mod report;
mod session;
mod stream;
#[cfg(test)]
mod tests;
mod texts;
pub(super) mod timestamp;

use jiff::{SignedDuration, Timestamp};

pub use code::{Code, Level, Severity};
pub use findings::Issue;
pub use report::{human, json};
pub use stream::validate;

use check::Candidate;
use content::Tally;
use findings::Findings;
use reading::Shaped;
use session::Session;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// How a file is validated.
#[derive(Debug, Clone)]
pub struct Options {
    /// The present, for times that lie too far from it.
    pub now: Timestamp,
    /// So many errors and so many warnings are kept; the rest is only counted.
    pub max_issues: usize,
    /// Longer lines are an error and are not looked into.
    pub max_line_bytes: usize,
}

impl Options {
    pub fn at(now: Timestamp) -> Self {
        Self { now, max_issues: 1000, max_line_bytes: 64 << 20 }
    }
}

/// What was found in one file.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Lines that are not blank.
    pub total_lines: usize,
    /// Lines that are JSON.
    pub parsed_lines: usize,
    /// Lines that are JSON objects.
    pub messages: usize,
    /// Messages without an error of their own.
    pub valid_messages: usize,
    /// In the order of their lines.
    pub errors: Vec<Issue>,
    pub warnings: Vec<Issue>,
    /// Found, but beyond the limit of what is kept.
    pub errors_left_out: usize,
    pub warnings_left_out: usize,
    /// The first session id and provider of the file.
    pub session_id: Option<String>,
    pub provider: Option<String>,
    /// The earliest and the latest time, in whatever order they came.
    pub first_timestamp: Option<Timestamp>,
    pub last_timestamp: Option<Timestamp>,
}

impl Report {
    pub fn error_count(&self) -> usize {
        self.errors.len() + self.errors_left_out
    }

    pub fn warning_count(&self) -> usize {
        self.warnings.len() + self.warnings_left_out
    }

    pub fn is_valid(&self) -> bool {
        self.error_count() == 0
    }

    /// Whether the file is good enough; if `strict`, warnings count as errors.
    pub fn passes(&self, strict: bool) -> bool {
        self.is_valid() && (!strict || self.warning_count() == 0)
    }

    /// From the earliest to the latest message.
    pub fn duration(&self) -> Option<SignedDuration> {
        Some(self.last_timestamp?.duration_since(self.first_timestamp?))
    }
}

/// Validates lines that are at hand already.
#[derive(Debug)]
pub struct Validator {
    options: Options,
    line_number: usize,
    report: Report,
    findings: Findings,
    session: Session,
}

impl Validator {
    pub fn new(options: &Options) -> Self {
        Self {
            options: options.clone(),
            line_number: 0,
            report: Report::default(),
            findings: Findings::new(options.max_issues),
            session: Session::default(),
        }
    }

    /// Takes the next physical line, with or without its line end.
    pub fn line(&mut self, bytes: &[u8]) {
        self.begin_line();
        let mut bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        if self.line_number == 1
            && let Some(rest) = bytes.strip_prefix(BYTE_ORDER_MARK)
        {
            self.findings.add(Code::ByteOrderMark, "file starts with a byte order mark");
            bytes = rest;
        }
        bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        if bytes.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r')) {
            return;
        }
        if bytes.len() > self.options.max_line_bytes {
            self.refuse_long_line();
            return;
        }
        self.report.total_lines += 1;
        match read(bytes) {
            Err(message) => self.findings.add(Code::InvalidJson, message),
            Ok(Shaped::Other(kind)) => {
                self.report.parsed_lines += 1;
                self.findings.add(Code::NotAnObject, format_args!("line must be a JSON object, found {kind}"));
            }
            Ok(Shaped::Object(candidate)) => {
                self.report.parsed_lines += 1;
                self.report.messages += 1;
                candidate.check(self.options.now, &mut self.session, &mut self.findings);
                self.report.valid_messages += usize::from(!self.findings.line_failed());
            }
        }
    }

    pub fn finish(mut self) -> Report {
        self.findings.begin_line(0);
        if self.report.total_lines == 0 {
            self.findings.add(Code::EmptyFile, "file holds no messages");
        }
        self.session.finish(&mut self.findings);
        self.findings.sort();
        Report {
            errors: self.findings.errors,
            warnings: self.findings.warnings,
            errors_left_out: self.findings.errors_left_out,
            warnings_left_out: self.findings.warnings_left_out,
            session_id: self.session.session_id,
            provider: self.session.provider,
            first_timestamp: self.session.earliest,
            last_timestamp: self.session.latest,
            ..self.report
        }
    }

    /// Takes a line of which only the length is known: too much.
    fn skipped_long_line(&mut self) {
        self.begin_line();
        self.refuse_long_line();
    }

    fn begin_line(&mut self) {
        self.line_number += 1;
        self.findings.begin_line(self.line_number);
    }

    fn refuse_long_line(&mut self) {
        self.report.total_lines += 1;
        let limit_bytes = self.options.max_line_bytes;
        self.findings.add(Code::LineTooLong, format_args!("line is longer than {limit_bytes} bytes"));
    }
}

/// Reads a line and its metadata, or says why it is not JSON.
fn read(bytes: &[u8]) -> Result<Shaped<Candidate<'_>>, String> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| format!("not valid UTF-8 after byte {} of the line", error.valid_up_to()))?;
    let tally = Tally::default();
    let line = match line::read(text, &tally).map_err(describe)? {
        Shaped::Object(line) => line,
        Shaped::Other(kind) => return Ok(Shaped::Other(kind)),
    };
    let metadata = line.metadata.map(|raw| metadata::read(raw, tally.lengths())).transpose();
    let metadata = metadata.map_err(|error| format!("not valid JSON in providerMetadata: {}", reason(&error)))?;
    Ok(Shaped::Object(Candidate { text, line, metadata, tally }))
}

fn describe(error: serde_json::Error) -> String {
    format!("not valid JSON at column {}: {}", error.column(), reason(&error))
}

/// Without the position: serde_json counts lines within the piece it was given.
fn reason(error: &serde_json::Error) -> String {
    error.to_string().split(" at line ").next().unwrap_or_default().to_owned()
}
