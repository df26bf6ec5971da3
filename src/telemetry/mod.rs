//! What an operator may see: logs, and numbers of what was done.
//!
//! Logs never hold what was said nor any token. Field names are those of receipts everywhere: `conversation`, `turn`,
//! `model`, `window`, `limit_tokens`, `arrived_tokens`, `forwarded_tokens`, `reported_tokens`, `basis`, `action`,
//! `snapshot`; and `route`, `dialect`, `status` of the request.

pub mod metrics;
mod otlp;

use std::io::IsTerminal;

use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::config::{LogConfig, LogFormat};
pub use otlp::Traces;

/// Starts logging to standard error, and sending traces if there is somebody to send them to. A second call does
/// nothing. Traces are sent for as long as what is returned lives.
pub fn start_logging(config: &LogConfig) -> Result<Option<Traces>, String> {
    let filter = EnvFilter::try_new(&config.filter).map_err(|error| format!("log.filter: {error}"))?;
    let traces = config.otlp_endpoint.as_deref().map(Traces::to).transpose()?;
    // Spans of ours and nothing else: not what is logged meanwhile, nor what sending them does.
    let ours = filter_fn(|about| about.is_span() && about.target().starts_with("loadline"));
    let sending = traces.as_ref().map(|traces| {
        let layer = tracing_opentelemetry::layer().with_tracer(traces.tracer()).with_location(false);
        layer.with_threads(false).with_tracked_inactivity(false).with_filter(ours)
    });
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer().with_ansi(colours).with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(sending);
    let _already_started = match config.format {
        LogFormat::Human => registry.with(lines.compact().with_filter(filter)).try_init(),
        LogFormat::Json => registry.with(lines.json().with_filter(filter)).try_init(),
    };
    Ok(traces)
}
