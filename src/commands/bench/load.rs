//! `loadline bench load`: what standing in between costs, under load.
//!
//! The flags, and the order of things. What is measured and how is in `crate::bench`.

mod describe;
mod progress;
mod setup;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use self::progress::Progress;
use self::setup::Stand;
use crate::bench::html::page;
use crate::bench::report::{DIRECT, LOADLINE, Report};
use crate::bench::rounds::{self, Length, Plan};
use crate::bench::script::{Routes, Shape, Streams};
use crate::bench::table::table;
use crate::commands::Outcome;

/// Chat with many clients at once, straight and through Loadline, and compare what it cost them.
///
/// Both ways are asked in short slices that take turns, with the same seeded conversations, so
/// that both see the same machine: read the ratios and what is added, taken within each cycle,
/// rather than single figures. A client asks again as soon as it has been answered. Nothing else
/// is needed: without --upstream a simulator answers.
///
///   loadline bench load
///   loadline bench load --upstream http://127.0.0.1:11434 --model llama3.2 --seconds 300
///   loadline bench load --upstream http://127.0.0.1:11434 --model llama3.2 \
///     --against nginx=http://127.0.0.1:8080 --html load.html
///
/// Memory and CPU are those of the processes that listen on a URL's port, on this machine and
/// on Linux. Ctrl-C ends it early and tells what there is until then. The exit code is 1 if a
/// request failed, straight or through Loadline.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Load {
    /// How long to measure, all ways together; warming up comes before
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0, value_parser = some_seconds)]
    seconds: f64,
    /// Ask each way so many times, instead of for some time
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    requests: Option<u64>,
    /// Clients, each with a connection of its own
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=4096))]
    clients: u16,
    /// Seconds to warm up, all ways together; every client asks once at least
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = seconds)]
    warm_up: f64,
    /// The Ollama to measure [default: a simulator, as a process of its own]. Several with commas between: `direct` is
    /// the first, Loadline uses all, and a second Loadline shows what it brings that conversations go back to theirs
    #[arg(long, value_name = "URL", requires = "model")]
    upstream: Option<String>,
    /// The same with so many simulators; give them --prefill-us, or reading costs nothing
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "upstream", value_parser = clap::value_parser!(u8).range(1..=64))]
    upstreams: u8,
    /// The model to chat with [default: sim]
    #[arg(long, value_name = "NAME", requires = "upstream")]
    model: Option<String>,
    /// A Loadline that runs already, in front of that upstream [default: one as a process of its own]
    #[arg(long, value_name = "URL", requires = "upstream")]
    through: Option<String>,
    /// Another proxy in front of that upstream, to compare; may repeat. Without NAME= it is called by its address
    #[arg(long, value_name = "NAME=URL", requires = "upstream")]
    against: Vec<String>,
    /// Which API to use; both: every other client
    #[arg(long, value_enum, default_value = "both")]
    route: Routes,
    /// Whether answers are streamed; both: every other turn
    #[arg(long, value_enum, default_value = "both")]
    stream: Streams,
    /// Turns of a conversation, half to one and a half of it. Up to 200 a conversation ends early rather than fill
    /// its window; beyond, it has exactly so many turns and may outgrow it
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    turns: u32,
    /// Median size of a message
    #[arg(long, value_name = "BYTES", default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    message: u32,
    /// What a conversation begins with, sent as its history; give it a window that it fits, about a token in 3 bytes
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=32_000_000))]
    history: u32,
    /// Each request is a conversation that nobody has seen before, its history included
    #[arg(long, conflicts_with = "turns")]
    fresh: bool,
    /// Tokens of an answer, at most
    #[arg(long, value_name = "TOKENS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    answer: u32,
    /// The window: num_ctx on Ollama's own route, and what the simulator has for the others
    #[arg(long, value_name = "TOKENS", default_value_t = 32_768, value_parser = clap::value_parser!(u32).range(256..=16_777_216))]
    window: u32,
    /// Microseconds the simulator takes to write a token
    #[arg(long, value_name = "US", default_value_t = 0, conflicts_with = "upstream")]
    decode_us: u64,
    /// Microseconds the simulator takes to read a token
    #[arg(long, value_name = "US", default_value_t = 0, conflicts_with = "upstream")]
    prefill_us: u64,
    /// Our own simulator answers at once without reading the prompt: for measuring proxies rather than it
    #[arg(long, conflicts_with = "upstream")]
    instant: bool,
    /// What our own Loadline does before a turn counts as stored
    #[arg(long, value_enum, default_value = "full", conflicts_with = "through")]
    durability: Durability,
    /// Where our own Loadline keeps what is said: an empty PostgreSQL, postgres://user@host/database
    /// [default: a directory that goes afterwards]
    #[arg(long, value_name = "URL", conflicts_with = "through")]
    store: Option<String>,
    /// How long one way is asked before it is another's turn, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    round_ms: u64,
    /// Another seed, other conversations
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// One JSON object on standard output, instead of the table
    #[arg(long)]
    json: bool,
    /// Also write a page with plots, whole in one file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Durability {
    Normal,
    Full,
}

impl Durability {
    fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Full => "full",
        }
    }
}

/// More than no time.
fn some_seconds(text: &str) -> Result<f64, String> {
    seconds(text).and_then(|seconds| if seconds > 0.0 { Ok(seconds) } else { Err("more than 0".to_owned()) })
}

/// A time that somebody might want to wait for.
fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.0..=86_400.0).contains(seconds));
    seconds.ok_or_else(|| "a number of seconds, a day at most".to_owned())
}

impl Load {
    pub(super) async fn run(self) -> Result<Outcome> {
        if let Some(file) = &self.html {
            // Better now than after all that time.
            let mut options = std::fs::OpenOptions::new();
            options.write(true).create(true).truncate(false);
            options.open(file).with_context(|| file.display().to_string())?;
        }
        let stop = when_asked_to_stop()?;
        let mut stand = tokio::select! {
            stand = Stand::start(&self) => stand?,
            () = stop.cancelled() => return Ok(Outcome::No),
        };
        let shape = Arc::new(self.shape());
        let mut progress = Progress::new(&self);
        let measured =
            rounds::run(&self.plan(), &shape, &mut stand.paths, &stop, |ran, paths| progress.tell(ran, paths)).await;
        progress.clear();
        let ran = measured?;
        ensure!(
            stand.paths.iter().any(|path| path.figures.requests() > 0),
            "it was stopped before anything was measured"
        );
        let mut report = Report::new(self.describe(&shape, &stand, &ran), &stand.paths);
        report.affinity = stand.affinity(&report).await;
        // Ours end before anything is told: a reader that goes away half-way ends this process.
        drop(stand);
        self.show(&report)?;
        let failed = |name| report.path(name).is_none_or(|path| path.errors.total > 0);
        Ok(if failed(DIRECT) || failed(LOADLINE) { Outcome::No } else { Outcome::Fine })
    }

    fn shape(&self) -> Shape {
        Shape {
            seed: self.seed,
            model: self.model().to_owned(),
            routes: self.route,
            streams: self.stream,
            turns: self.turns,
            message_bytes: self.message as usize,
            history_bytes: self.history as usize,
            fresh: self.fresh,
            answer_tokens: self.answer,
            window_tokens: self.window,
        }
    }

    fn model(&self) -> &str {
        self.model.as_deref().unwrap_or("sim")
    }

    fn plan(&self) -> Plan {
        let time = Length::Time(Duration::from_secs_f64(self.seconds));
        Plan {
            length: self.requests.map_or(time, Length::Requests),
            round: Duration::from_millis(self.round_ms),
            warm_up: Duration::from_secs_f64(self.warm_up),
            clients: self.clients.into(),
        }
    }

    fn show(&self, report: &Report) -> Result<()> {
        if self.json {
            say!("{}", serde_json::to_string(report)?);
        } else {
            say!("{}", table(report));
        }
        if let Some(file) = &self.html {
            std::fs::write(file, page(report)).with_context(|| file.display().to_string())?;
        }
        Ok(())
    }
}

/// Cancelled by the first Ctrl-C, or whatever else asks a program to end. Ours are ended in order then, so there is no
/// second one that does not wait: whatever is under way is given up after some seconds.
fn when_asked_to_stop() -> Result<CancellationToken> {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let [mut interrupt, mut terminate, mut hangup] = {
        let [one, two, three] = kinds.map(signal);
        [one?, two?, three?]
    };
    let stop = CancellationToken::new();
    let asked = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
        asked.cancel();
    });
    Ok(stop)
}
