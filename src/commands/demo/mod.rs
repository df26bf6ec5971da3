//! `loadline demo`: the whole thing against the simulator, as a walk up the ladder.
//!
//! Every turn is sent twice: through Loadline, and straight to a second, equal Ollama, so that one sees
//! what would have happened without. The promises are checked as the walk goes; with `--exit` a broken
//! one is the exit code. Without it the dashboard stays open, on this chat and some others.

mod fleet;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use owo_colors::{OwoColorize, Stream::Stdout, Style};
use serde_json::{Value, json};

use super::{Outcome, stop_signal};
use crate::api::first_token;
use crate::config::{Config, Flags};
use crate::proxy::Gateway;
use crate::proxy::server::Server;
use crate::sim::{self, Sim, SimConfig};

/// A small window, so that the walk is short.
const WINDOW: u32 = 1024;

/// What reading one token costs on a small GPU-less machine, in microseconds, scaled down for patience.
const PREFILL_US: u64 = 120;

const SYSTEM: &str =
    "You are the ship's quartermaster. Rule: the cargo manifest is never changed without the captain's word.";

/// What the captain has to say, over and over in other words.
const TOPICS: [&str; 8] = [
    "We took on forty crates of tea and twelve barrels of tar in the morning; enter them under the forward hold, and note that two crates were wet.",
    "The cook asks for more salt and flour before the long leg south. Reckon what eighty days need for thirty-one hands.",
    "There is a leak near the rudder post. The carpenter wants planks, oakum and pitch from the stores, and six hands for a day.",
    "The harbour master charges by displacement. Tell me what the new cargo does to our draught and how far the load line is from the water.",
    "Write down what the agent in Lisbon still owes us, with interest of four per cent since the third of March.",
    "If we meet the convoy at the cape, which goods may be traded for water, and in which order should the hold be emptied?",
    "The night watch reports ice. Move the heavy casks amidships and tell me how the trim changes.",
    "Two hands are sick. Rearrange the watches so that nobody stands more than eight hours.",
];

/// On which turn a list is pasted, and how long it is: the first jump goes past 95 %, the second past 100 %.
const PASTED: [(u32, u32); 2] = [(13, 10), (16, 34)];

/// Watch a chat climb the ladder, against a simulated Ollama. Nothing else needs to be installed.
#[derive(Debug, Args)]
pub(super) struct Demo {
    /// End after the walk; the exit code is not 0 if a promise was broken
    #[arg(long)]
    exit: bool,
    /// How many turns to walk
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=200))]
    turns: u32,
    /// Where snapshots are kept [default: a temporary directory that is removed at the end]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

impl Demo {
    pub(super) async fn run(self) -> Result<Outcome> {
        let stage = Stage::set(self.data_dir.clone()).await?;
        say!("{}", "Loadline: a chat in a small window, turn by turn".if_supports_color(Stdout, |text| text.bold()));
        say!(
            "A window of {WINDOW} tokens, 15 % of it kept for the answer. Left: through Loadline. Right: the same chat straight to Ollama.\n"
        );
        say!("turn   load                           before   sent  action       read in │ direct: read in   dropped");
        let mut walk = Walk::default();
        let client = reqwest::Client::new();
        for turn in 1..=self.turns {
            walk.turn(turn, &client, &stage).await?;
        }
        walk.check_the_end(&stage, self.turns);
        walk.summary(&stage);
        if !walk.broken.is_empty() {
            for promise in &walk.broken {
                eprintln!("broken: {promise}");
            }
            stage.end().await;
            return Ok(Outcome::No);
        }
        if !self.exit {
            fleet::sail(&client, &stage).await?;
            say!("\n{}", "Now look at it".if_supports_color(Stdout, |text| text.bold()));
            say!("  Dashboard   http://{}/loadline/", stage.proxy);
            match stage.token.as_str() {
                "" => say!("  Token       one that you have, or `loadline token create NAME --data-dir …` makes one"),
                token => say!("  Token       {token}"),
            }
            say!("\nIt runs until Ctrl-C, with one chat going on. Try it yourself, the model is called `sim`:");
            say!(
                "  curl -i http://{}/api/chat -d '{{\"model\":\"sim\",\"stream\":false,\"messages\":[{{\"role\":\"user\",\"content\":\"Ahoy\"}}]}}'",
                stage.proxy
            );
            tokio::select! {
                () = stop_signal() => {}
                () = async { fleet::keep_talking(&client, &stage).await; std::future::pending().await } => {}
            }
        }
        let data_dir = stage.data_dir.clone();
        stage.end().await;
        if self.data_dir.is_none() {
            // What the demo wrote was the demo's; --data-dir keeps it.
            let _best_effort = std::fs::remove_dir_all(data_dir);
        }
        Ok(Outcome::Fine)
    }
}

/// Two equal simulated Ollamas, one of them behind Loadline.
struct Stage {
    behind: Sim,
    direct: Sim,
    proxy: SocketAddr,
    gateway: Arc<Gateway>,
    data_dir: PathBuf,
    /// For the dashboard.
    token: String,
    stop: tokio_util::sync::CancellationToken,
    serving: tokio::task::JoinHandle<()>,
}

impl Stage {
    async fn set(data_dir: Option<PathBuf>) -> Result<Self> {
        let model = tokio::task::spawn_blocking(sim::SimModel::standard).await??;
        let config = || SimConfig {
            default_window: WINDOW,
            prefill_us_per_token: PREFILL_US,
            answer_tokens: 40,
            models: vec![model.clone()],
            ..SimConfig::default()
        };
        let (behind, direct) = (sim::start(config()).await?, sim::start(config()).await?);
        let data_dir = data_dir
            .unwrap_or_else(|| std::env::temp_dir().join(format!("loadline-demo-{}", uuid::Uuid::new_v4().simple())));
        let flags = Flags {
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            upstream: Some(behind.url()),
            data_dir: Some(data_dir.clone()),
            observe: false,
        };
        let gateway = Arc::new(Gateway::new(Config::load(None, [], flags)?)?);
        let token_file = first_token::ensure(&gateway.store, &data_dir).await?;
        let token = token_file.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
        let server = Server::bind(Arc::clone(&gateway)).await.context("the demo needs a free port")?;
        let proxy = server.addr();
        let stop = tokio_util::sync::CancellationToken::new();
        let serving = tokio::spawn(server.run(stop.clone().cancelled_owned()));
        Ok(Self { behind, direct, proxy, gateway, data_dir, token: token.trim().to_owned(), stop, serving })
    }

    async fn end(self) {
        self.stop.cancel();
        let _ended = tokio::time::timeout(Duration::from_secs(5), self.serving).await;
        self.behind.stop().await;
        self.direct.stop().await;
    }
}

/// The chat so far, and what it cost.
#[derive(Default)]
struct Walk {
    history: Vec<Value>,
    direct_history: Vec<Value>,
    read_ns: u64,
    direct_read_ns: u64,
    rollovers: Vec<String>,
    dropped_silently: u32,
    broken: Vec<String>,
}

/// One answer, as a client sees it.
struct Answered {
    headers: reqwest::header::HeaderMap,
    body: Value,
    took: Duration,
}

impl Answered {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
    }

    fn number(&self, name: &str) -> u64 {
        self.body[name].as_u64().unwrap_or(0)
    }
}

impl Walk {
    async fn turn(&mut self, turn: u32, client: &reqwest::Client, stage: &Stage) -> Result<()> {
        let text = what_the_captain_says(turn);
        for history in [&mut self.history, &mut self.direct_history] {
            if history.is_empty() {
                history.push(json!({ "role": "system", "content": SYSTEM }));
            }
            history.push(json!({ "role": "user", "content": text }));
        }
        let through = ask(client, &format!("http://{}", stage.proxy), &self.history).await?;
        let direct = ask(client, &stage.direct.url(), &self.direct_history).await?;
        self.history.push(through.body["message"].clone());
        self.direct_history.push(direct.body["message"].clone());
        self.read_ns += through.number("prompt_eval_duration");
        self.direct_read_ns += direct.number("prompt_eval_duration");
        let truncations = stage.direct.stats().truncations as u32;
        let cut_now = truncations > self.dropped_silently;
        self.dropped_silently = truncations;
        self.check_turn(turn, &through, stage);
        print_turn(turn, &through, &direct, cut_now);
        Ok(())
    }

    /// The promises, as far as one turn shows them.
    fn check_turn(&mut self, turn: u32, answer: &Answered, stage: &Stage) {
        let mut promise = |kept: bool, what: &str| {
            if !kept {
                self.broken.push(format!("turn {turn}: {what}"));
            }
        };
        let (sent, limit) = tokens(answer);
        promise(sent <= limit, &format!("{sent} tokens were forwarded, over the line of {limit}"));
        promise(answer.number("prompt_eval_count") == sent, "the reported count is not the predicted one");
        promise(answer.header("x-loadline-basis") == "exact", "the count was not exact");
        promise(answer.body["done"] == true, "the answer has no end");
        promise(stage.behind.stats().truncations == 0, "Ollama has truncated a prompt behind Loadline");
        let snapshot = answer.header("x-loadline-snapshot").to_owned();
        if answer.header("x-loadline-action") == "rollover" {
            let kept = messages_in(&stage.gateway, &snapshot);
            // All but the system prompt and the answer that has just been added.
            promise(kept == Some(self.history.len() - 2), "the snapshot does not hold the whole conversation");
            self.rollovers.push(snapshot);
        }
    }

    fn check_the_end(&mut self, stage: &Stage, turns: u32) {
        let expected_rollovers = turns >= 16;
        if expected_rollovers && self.rollovers.is_empty() {
            self.broken.push("the chat outgrew the window but was never rolled over".to_owned());
        }
        if stage.gateway.metrics.exact_mismatches() > 0 {
            self.broken.push("a count that claimed to be exact was not".to_owned());
        }
    }

    fn summary(&self, stage: &Stage) {
        let seconds = |ns: u64| Duration::from_nanos(ns).as_secs_f64();
        say!("");
        say!(
            "Through Loadline  {:>6.2} s spent reading prompts, {} rollover(s), nothing cut, every count as predicted.",
            seconds(self.read_ns),
            self.rollovers.len()
        );
        say!(
            "Straight          {:>6.2} s spent reading prompts, {} prompt(s) cut without a word.",
            seconds(self.direct_read_ns),
            self.dropped_silently
        );
        for snapshot in &self.rollovers {
            say!("Kept in full      loadline snapshots show {snapshot} --data-dir {}", stage.data_dir.display());
        }
        say!("(Without --data-dir, what the demo has written is removed when it ends.)");
    }
}

/// A day's business; now and then the captain pastes a whole list, and the load jumps.
fn what_the_captain_says(turn: u32) -> String {
    let topic = TOPICS[(turn as usize - 1) % TOPICS.len()];
    let pasted = PASTED.iter().find(|(on, _)| *on == turn).map_or(0, |(_, lines)| *lines);
    let list: String =
        (1..=pasted).map(|line| format!("\nLot {}: {} casks, marked {turn}-{line}", line * 7, line * 3 + 2)).collect();
    format!("Day {turn}. {topic}{list}")
}

async fn ask(client: &reqwest::Client, url: &str, history: &[Value]) -> Result<Answered> {
    let body = json!({ "model": "sim", "stream": false, "messages": history });
    let started = Instant::now();
    let response = client.post(format!("{url}/api/chat")).body(body.to_string()).send().await?;
    let (status, headers) = (response.status(), response.headers().clone());
    let text = response.text().await?;
    if !status.is_success() {
        bail!("{url} answered {status}: {text}");
    }
    Ok(Answered { headers, body: serde_json::from_str(&text)?, took: started.elapsed() })
}

fn tokens(answer: &Answered) -> (u64, u64) {
    let (sent, limit) = answer.header("x-loadline-tokens").split_once('/').unwrap_or(("", ""));
    (sent.parse().unwrap_or(u64::MAX), limit.parse().unwrap_or(0))
}

fn messages_in(gateway: &Gateway, snapshot: &str) -> Option<usize> {
    let reader = gateway.store.reader().ok()?;
    let row = reader.snapshot(snapshot).ok()??;
    Some(reader.path(row.conversation, Some(row.link)).ok()?.len())
}

fn print_turn(turn: u32, through: &Answered, direct: &Answered, cut_now: bool) {
    let (sent, limit) = tokens(through);
    let usage = through.header("x-loadline-usage");
    let percent: f64 = usage.trim_end_matches('%').parse().unwrap_or(0.0);
    let action = through.header("x-loadline-action");
    let arrived = (percent * limit as f64 / 100.0).round();
    let style = match percent {
        p if p >= 95.0 => Style::new().red(),
        p if p >= 70.0 => Style::new().yellow(),
        _ => Style::new().green(),
    };
    let read = |answer: &Answered| format!("{:>5.0} ms", answer.number("prompt_eval_duration") as f64 / 1e6);
    let cut = if cut_now { "the front, silently" } else { "-" };
    say!(
        "{turn:>4}   {} {usage:>7}   {arrived:>6}  {sent:>5}  {action:<11} {} │ {:>15}   {}",
        gauge(percent).if_supports_color(Stdout, |text| text.style(style)),
        read(through),
        read(direct),
        cut.if_supports_color(Stdout, |text| text.style(if cut_now { Style::new().red() } else { Style::new() })),
    );
    for warning in through.headers.get_all("x-loadline-warning") {
        say!("       {}", warning.to_str().unwrap_or("").if_supports_color(Stdout, |text| text.dimmed()));
    }
    tracing::debug!(turn, took_ms = through.took.as_millis() as u64, "demo turn");
}

/// Twenty cells up to 100 %, with the marks at 70, 80 and 95.
fn gauge(percent: f64) -> String {
    const CELLS: usize = 20;
    let full = ((percent / 100.0) * CELLS as f64).round().clamp(0.0, CELLS as f64) as usize;
    (0..CELLS)
        .map(|cell| match cell {
            cell if cell < full => '█',
            14 | 16 | 19 => '╎',
            _ => '·',
        })
        .collect()
}
