//! A report for people and for scripts.
//!
//! Both say the same; neither is coloured or printed here.

use std::fmt::Write;

use jiff::SignedDuration;
use serde_json::{Map, Value, json};

use super::findings::{Issue, Shown};
use super::{Report, Severity};

/// The report as text. `verbose` adds level, field and hint to each finding.
pub fn human(report: &Report, strict: bool, verbose: bool) -> String {
    let mut text = String::new();
    // Writing into a String cannot fail.
    let _ = write_human(&mut text, report, strict, verbose);
    text
}

/// The report of one file as the JSON object for scripts.
pub fn json(report: &Report, file: &str, strict: bool) -> Value {
    let mut object = Map::new();
    let mut set = |key: &str, value: Value| object.insert(key.to_owned(), value);
    set("file", json!(file));
    set("valid", json!(report.passes(strict)));
    set("totalLines", json!(report.total_lines));
    set("parsedLines", json!(report.parsed_lines));
    set("validMessages", json!(report.valid_messages));
    set("errors", report.errors.iter().map(issue_json).collect());
    set("warnings", report.warnings.iter().map(issue_json).collect());
    set("sessionId", json!(report.session_id));
    set("provider", json!(report.provider));
    if let Some(duration) = report.duration() {
        set("durationMs", json!(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)));
    }
    if report.errors_left_out > 0 {
        set("errorsLeftOut", json!(report.errors_left_out));
    }
    if report.warnings_left_out > 0 {
        set("warningsLeftOut", json!(report.warnings_left_out));
    }
    Value::Object(object)
}

fn issue_json(issue: &Issue) -> Value {
    let mut object = Map::new();
    let mut set = |key: &str, value: Value| object.insert(key.to_owned(), value);
    set("line", json!(issue.line));
    set("code", json!(issue.code.as_str()));
    set("message", json!(issue.message));
    set("level", json!(issue.code.level().number()));
    if let Some(field) = &issue.field {
        set("field", json!(field));
    }
    set("hint", json!(issue.code.hint()));
    Value::Object(object)
}

fn write_human(text: &mut String, report: &Report, strict: bool, verbose: bool) -> std::fmt::Result {
    let passes = report.passes(strict);
    let status = if passes { "✓ VALID" } else { "✗ INVALID" };
    writeln!(text, "=== Canonical JSONL Validation Report ===\n")?;
    writeln!(text, "Status: {status}")?;
    writeln!(text, "Total Lines: {}", report.total_lines)?;
    writeln!(text, "Parsed Lines: {}", report.parsed_lines)?;
    writeln!(text, "Valid Messages: {}/{}\n", report.valid_messages, report.total_lines)?;
    if passes {
        write_session(text, report)?;
    }
    write_issues(text, Severity::Error, &report.errors, report.errors_left_out, verbose)?;
    write_issues(text, Severity::Warning, &report.warnings, report.warnings_left_out, verbose)?;
    let verdict = match (passes, report.is_valid()) {
        (true, _) => "✓ Validation passed!",
        (false, false) => "✗ Validation failed!",
        (false, true) => "✗ Validation failed! (with --strict, warnings count as errors)",
    };
    writeln!(text, "{verdict}")
}

fn write_session(text: &mut String, report: &Report) -> std::fmt::Result {
    let Some(session_id) = &report.session_id else { return Ok(()) };
    writeln!(text, "Session Info:")?;
    writeln!(text, "  Session ID: {}", Shown(session_id))?;
    if let Some(provider) = &report.provider {
        writeln!(text, "  Provider: {}", Shown(provider))?;
    }
    writeln!(text, "  Messages: {}", report.messages)?;
    if let Some(duration) = report.duration() {
        writeln!(text, "  Duration: {}", in_words(duration))?;
    }
    writeln!(text)
}

fn write_issues(
    text: &mut String,
    severity: Severity,
    issues: &[Issue],
    left_out: usize,
    verbose: bool,
) -> std::fmt::Result {
    let (title, mark) = match severity {
        Severity::Error => ("Errors", "✗"),
        Severity::Warning => ("Warnings", "⚠"),
    };
    let count = issues.len() + left_out;
    if count == 0 {
        return Ok(());
    }
    writeln!(text, "{title} ({count}):")?;
    for issue in issues {
        let code = issue.code.as_str();
        match issue.line {
            0 => writeln!(text, "  {mark} File: [{code}] {}", issue.message)?,
            line => writeln!(text, "  {mark} Line {line}: [{code}] {}", issue.message)?,
        }
        if verbose {
            let level = issue.code.level();
            writeln!(text, "      Level: {} ({})", level.number(), level.as_str())?;
            if let Some(field) = &issue.field {
                writeln!(text, "      Field: {field}")?;
            }
            writeln!(text, "      Hint: {}", issue.code.hint())?;
        }
    }
    if left_out > 0 {
        writeln!(text, "  … and {left_out} more, not listed")?;
    }
    writeln!(text)
}

/// In the largest unit that keeps a session's length readable.
fn in_words(duration: SignedDuration) -> String {
    let counted = |count: i64, unit: &str| format!("{count} {unit}{}", if count == 1 { "" } else { "s" });
    let (seconds, minutes, hours) = (duration.as_secs(), duration.as_mins(), duration.as_hours());
    match hours {
        0 if minutes == 0 => counted(seconds, "second"),
        0 => counted(minutes, "minute"),
        1..48 if minutes % 60 == 0 => counted(hours, "hour"),
        1..48 => format!("{} {}", counted(hours, "hour"), counted(minutes % 60, "minute")),
        _ => counted(hours / 24, "day"),
    }
}
