//! What an operator may see: logs, and numbers of what was done.
//!
//! Logs never hold what was said nor any token. Field names are those of receipts everywhere: `conversation`, `turn`,
//! `model`, `window`, `limit_tokens`, `arrived_tokens`, `forwarded_tokens`, `reported_tokens`, `basis`, `action`,
//! `snapshot`; and `route`, `dialect`, `status` of the request.

pub mod metrics;

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;

/// Starts logging to standard error. A second call does nothing.
pub fn start_logging(format: LogFormat, filter: &str) -> Result<(), String> {
    let filter = EnvFilter::try_new(filter).map_err(|error| format!("log.filter: {error}"))?;
    let colours = std::io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr);
    let _already_started = match format {
        LogFormat::Human => builder.compact().try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    Ok(())
}
