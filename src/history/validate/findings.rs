//! Collects what the checks find, up to a limit, and counts the rest.
//!
//! Texts are only made for findings that are kept, so a file of nothing but
//! faults costs little more than a good one. Strings from the file are shortened
//! and their control characters shown as escapes before they enter a text.

use std::fmt;

use super::code::{Code, Severity};

const QUOTED_CHARACTERS: usize = 80;

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// The physical line, from 1; 0 stands for the whole file.
    pub line: usize,
    pub code: Code,
    pub message: String,
    /// Where in the line, for instance `message.content[2].tool_use_id`.
    pub field: Option<String>,
}

#[derive(Debug)]
pub(super) struct Findings {
    pub(super) errors: Vec<Issue>,
    pub(super) warnings: Vec<Issue>,
    pub(super) errors_left_out: usize,
    pub(super) warnings_left_out: usize,
    max_issues: usize,
    line: usize,
    line_failed: bool,
}

impl Findings {
    pub(super) fn new(max_issues: usize) -> Self {
        Self {
            errors: Vec::new(),
            warnings: Vec::new(),
            errors_left_out: 0,
            warnings_left_out: 0,
            max_issues,
            line: 0,
            line_failed: false,
        }
    }

    /// What is added from here on belongs to this line.
    pub(super) fn begin_line(&mut self, line: usize) {
        self.line = line;
        self.line_failed = false;
    }

    pub(super) fn line(&self) -> usize {
        self.line
    }

    /// Whether the present line has an error of its own.
    pub(super) fn line_failed(&self) -> bool {
        self.line_failed
    }

    pub(super) fn add(&mut self, code: Code, message: impl fmt::Display) {
        self.keep(self.line, code, None::<&str>, message);
    }

    pub(super) fn add_in(&mut self, code: Code, field: impl fmt::Display, message: impl fmt::Display) {
        self.keep(self.line, code, Some(field), message);
    }

    /// A finding on a line that has gone by; it does not fail the present one.
    pub(super) fn add_on(&mut self, line: usize, code: Code, field: impl fmt::Display, message: impl fmt::Display) {
        self.keep(line, code, Some(field), message);
    }

    /// Puts what was found late in its place.
    pub(super) fn sort(&mut self) {
        self.errors.sort_by_key(|issue| issue.line);
        self.warnings.sort_by_key(|issue| issue.line);
    }

    fn keep(&mut self, line: usize, code: Code, field: Option<impl fmt::Display>, message: impl fmt::Display) {
        let (kept, left_out) = match code.severity() {
            Severity::Error => {
                self.line_failed |= line == self.line;
                (&mut self.errors, &mut self.errors_left_out)
            }
            Severity::Warning => (&mut self.warnings, &mut self.warnings_left_out),
        };
        if kept.len() < self.max_issues {
            let field = field.map(|field| field.to_string());
            kept.push(Issue { line, code, message: message.to_string(), field });
        } else {
            *left_out += 1;
        }
    }
}

/// A string of the file as it may be shown: short, and without control characters.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown<'a>(pub(super) &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut characters = self.0.chars();
        for character in characters.by_ref().take(QUOTED_CHARACTERS) {
            if matches!(character, '\'' | '"' | '\\') {
                write!(f, "{character}")?;
            } else {
                write!(f, "{}", character.escape_debug())?;
            }
        }
        if characters.next().is_some() { f.write_str("…") } else { Ok(()) }
    }
}
