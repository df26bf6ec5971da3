//! `loadline bench prefill`: the same long chat, through Loadline and straight to Ollama.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::{Value, json};

use super::Own;
use crate::commands::Outcome;

/// Have the same long chat through Loadline and then straight with Ollama, and compare what reading cost.
///
/// Once a chat has outgrown its window, Ollama drops its front on every turn and reads all the rest again.
/// Loadline compacts now and then and keeps the front as it is, so only what is new is read. The bench counts
/// the time that Ollama reports for reading prompts (prompt_eval_duration), checkpoints included, and checks
/// on the way that nothing was cut, that every count was as predicted and that every message was stored.
///
/// It then sends histories of several lengths for the first time and measures the time to the first byte:
/// dropping takes Ollama a time that grows with the square of the number of messages.
///
///   loadline bench prefill --model smollm2 --upstream http://127.0.0.1:11434
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Prefill {
    /// The Ollama to measure
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:11434")]
    upstream: String,
    /// The model to chat with
    #[arg(long)]
    model: String,
    /// How many turns the chat has
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=2000))]
    turns: u32,
    /// The window to chat in
    #[arg(long, default_value_t = 2048, value_parser = clap::value_parser!(u32).range(256..=1_048_576))]
    window: u32,
    /// Tokens of each answer
    #[arg(long, default_value_t = 40)]
    answer: u32,
    /// Lengths of the histories that are sent for the first time; 0 for none
    #[arg(long, value_delimiter = ',', default_value = "200,500,1000")]
    histories: Vec<usize>,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// What one chat cost.
#[derive(Debug, Default)]
struct Chat {
    history: Vec<Value>,
    read_ns: u64,
    answered: u32,
    /// Counts that were predicted, and those that came out so.
    predicted: u32,
    as_predicted: u32,
    compactions: u32,
    took: Duration,
}

impl Prefill {
    pub(super) async fn run(self) -> Result<Outcome> {
        let own = Own::start(&self.upstream, &[]).await?;
        let measured = self.measure(&own).await;
        own.end().await;
        let (report, kept) = measured?;
        if self.json {
            say!("{report}")
        } else {
            print(&report)
        }
        Ok(if kept { Outcome::Fine } else { Outcome::No })
    }

    async fn measure(&self, own: &Own) -> Result<(Value, bool)> {
        let client = reqwest::Client::new();
        self.warm_up(&client).await?;
        let through = self.chat(&client, &own.url, "through Loadline").await?;
        // The last checkpoint may still be under way, and it is part of the cost.
        while own.gateway.checkpoints.under_way() > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let background_ns = own.gateway.cost.read_ns.load(std::sync::atomic::Ordering::Relaxed);
        let stored = stored_messages(own)?;
        let direct = self.chat(&client, &self.upstream, "straight").await?;
        let ratio = (through.read_ns + background_ns) as f64 / direct.read_ns.max(1) as f64;
        let mut histories = Vec::new();
        for &messages in self.histories.iter().filter(|messages| **messages > 0) {
            histories.push(self.first_byte(&client, own, messages).await?);
        }
        let seconds = |ns: u64| ns as f64 / 1e9;
        let all_stored = stored == through.history.len() - 1;
        let kept = through.answered == self.turns && through.as_predicted == self.turns && all_stored;
        let report = json!({
            "turns": self.turns, "window": self.window, "model": self.model,
            "through": {
                "read_s": seconds(through.read_ns), "checkpoints_read_s": seconds(background_ns),
                "took_s": through.took.as_secs_f64(), "answered": through.answered,
                "counts_as_predicted": through.as_predicted, "compactions": through.compactions,
                "messages": through.history.len() - 1, "messages_stored": stored,
                "cut_by_ollama": own.gateway.counters.cut_by_upstream.get() + own.gateway.counters.overflows.get(),
            },
            "direct": { "read_s": seconds(direct.read_ns), "took_s": direct.took.as_secs_f64(), "answered": direct.answered },
            "ratio": ratio,
            "first_byte": histories,
        });
        Ok((report, kept))
    }

    /// Loads the model with the window that will be used, so that neither side pays for it.
    async fn warm_up(&self, client: &reqwest::Client) -> Result<()> {
        let messages = [json!({ "role": "user", "content": "hello" })];
        let (answer, _) = ask(client, &self.upstream, &self.body(&messages, false)).await?;
        ensure!(answer["done"] == true, "{} does not answer", self.upstream);
        Ok(())
    }

    fn body(&self, messages: &[Value], stream: bool) -> Value {
        let options = json!({ "num_ctx": self.window, "num_predict": self.answer, "temperature": 0, "seed": 1 });
        json!({ "model": self.model, "stream": stream, "messages": messages, "options": options })
    }

    async fn chat(&self, client: &reqwest::Client, url: &str, name: &str) -> Result<Chat> {
        let mut chat = Chat { history: vec![json!({ "role": "system", "content": SYSTEM })], ..Chat::default() };
        let started = Instant::now();
        for turn in 0..self.turns {
            chat.history.push(json!({ "role": "user", "content": user_message(turn as usize) }));
            let (answer, headers) = ask(client, url, &self.body(&chat.history, false)).await?;
            chat.read_ns += answer["prompt_eval_duration"].as_u64().unwrap_or(0);
            chat.answered += u32::from(answer["done"] == true);
            if let Some(predicted) = predicted(&headers) {
                chat.predicted += 1;
                chat.as_predicted += u32::from(answer["prompt_eval_count"].as_u64() == Some(predicted));
            }
            let action = headers.get("x-loadline-action").and_then(|action| action.to_str().ok()).unwrap_or("none");
            chat.compactions += u32::from(action != "none");
            chat.history.push(answer["message"].clone());
            if !self.json {
                progress(&format!(
                    "{name}: turn {} of {}, {:.0} s read",
                    turn + 1,
                    self.turns,
                    chat.read_ns as f64 / 1e9
                ));
            }
        }
        if !self.json {
            progress("");
        }
        chat.took = started.elapsed();
        Ok(chat)
    }

    /// The time to the first byte of an answer to a history that nobody has seen before.
    async fn first_byte(&self, client: &reqwest::Client, own: &Own, messages: usize) -> Result<Value> {
        let mut times = Vec::new();
        for (name, url) in [("through", &own.url), ("direct", &self.upstream)] {
            if !self.json {
                progress(&format!("{messages} messages at once, {name}"));
            }
            let history: Vec<Value> = (0..messages)
                .map(|number| {
                    let role = if number % 2 == 0 { "user" } else { "assistant" };
                    json!({ "role": role, "content": format!("{name} {}", user_message(number)) })
                })
                .chain([json!({ "role": "user", "content": "And what comes next?" })])
                .collect();
            let started = Instant::now();
            let request = client.post(format!("{url}/api/chat")).body(self.body(&history, true).to_string());
            let mut response = request.send().await?;
            ensure!(response.status().is_success(), "{url} answered {}", response.status());
            response.chunk().await?.context("an answer without a byte")?;
            times.push(started.elapsed().as_secs_f64());
            while response.chunk().await?.is_some() {}
        }
        if !self.json {
            progress("");
        }
        Ok(json!({ "messages": messages, "through_s": times[0], "direct_s": times[1] }))
    }
}

/// How many messages the store has of the chat that was just had.
fn stored_messages(own: &Own) -> Result<usize> {
    let reader = own.gateway.store.reader()?;
    let newest = reader.conversations(None, None, 1)?.into_iter().next().context("nothing was stored")?;
    Ok(reader.path(newest.id, None)?.len())
}

fn predicted(headers: &reqwest::header::HeaderMap) -> Option<u64> {
    headers.get("x-loadline-tokens")?.to_str().ok()?.split_once('/')?.0.parse().ok()
}

async fn ask(client: &reqwest::Client, url: &str, body: &Value) -> Result<(Value, reqwest::header::HeaderMap)> {
    let response = client.post(format!("{url}/api/chat")).body(body.to_string()).send().await;
    let response = response.with_context(|| format!("{url} cannot be reached"))?;
    let (status, headers) = (response.status(), response.headers().clone());
    let text = response.text().await?;
    if !status.is_success() {
        bail!("{url} answered {status}: {text}");
    }
    Ok((serde_json::from_str(&text)?, headers))
}

/// One line that is written over; empty to clear it.
fn progress(text: &str) {
    use std::io::IsTerminal;
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[2K{text}");
    } else if !text.is_empty() && (text.contains("0 of ") || text.contains("at once")) {
        eprintln!("{text}");
    }
}

fn print(report: &Value) {
    let (through, direct) = (&report["through"], &report["direct"]);
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    say!("{} turns with {} in a window of {} tokens", report["turns"], report["model"], report["window"]);
    say!("                     reading prompts   whole chat   answers");
    say!(
        "through Loadline     {:>11.1} s   {:>8.1} s   {:>7}   (of it {:.1} s for checkpoints)",
        number(&through["read_s"]) + number(&through["checkpoints_read_s"]),
        number(&through["took_s"]),
        through["answered"],
        number(&through["checkpoints_read_s"]),
    );
    say!(
        "straight to Ollama   {:>11.1} s   {:>8.1} s   {:>7}",
        number(&direct["read_s"]),
        number(&direct["took_s"]),
        direct["answered"]
    );
    say!("ratio                {:>11.3}", number(&report["ratio"]));
    say!(
        "counts as predicted  {} of {}; cut by Ollama: {}; messages stored: {} of {}; compactions: {}",
        through["counts_as_predicted"],
        report["turns"],
        through["cut_by_ollama"],
        through["messages_stored"],
        through["messages"],
        through["compactions"],
    );
    for history in report["first_byte"].as_array().into_iter().flatten() {
        say!(
            "first byte of a history of {:>4} messages: {:>7.2} s through Loadline, {:>7.2} s straight",
            history["messages"],
            number(&history["through_s"]),
            number(&history["direct_s"]),
        );
    }
}

const SYSTEM: &str = "You are a patient assistant who helps to run a small harbour. Answer briefly.";

const WHO: [&str; 12] = [
    "the harbour master",
    "our cook",
    "the night watch",
    "a fisherman",
    "the customs officer",
    "my sister",
    "the ferry captain",
    "an insurance agent",
    "the new apprentice",
    "the school class",
    "a tourist from Oslo",
    "the crane driver",
];
const WANTS: [&str; 10] = [
    "asks whether berth {n} can be dredged before the autumn storms begin",
    "has written a complaint about the noise of pump {n} during the night shift",
    "wants to know how many crates of herring number {n} can be stacked in the cold store",
    "reports that the lamp on buoy {n} blinks twice as fast as the chart says",
    "needs a timetable for the {n} o'clock ferry that also works on public holidays",
    "proposes to paint warehouse {n} in a colour that can be seen from the sea",
    "lost a parcel with label {n} somewhere between the quay and the post office",
    "would like to rent mooring {n} for a wooden boat that is longer than allowed",
    "found an old contract with clause {n}, and nobody remembers what it was good for",
    "asks for a short speech to open the regatta with {n} boats on Sunday",
];
const THEN: [&str; 7] = [
    "What should I answer, and who has to be told about it first?",
    "Which two facts do we need before we can decide anything here?",
    "Please suggest a polite reply that promises nothing yet.",
    "How would you weigh the cost of it against the trouble it saves?",
    "Is there a simple way to try it out for a week?",
    "Tell me what could go wrong and how likely that is.",
    "Put it into one sentence for the noticeboard.",
];

/// A message that nobody has sent before in this chat, of about fifty tokens.
fn user_message(turn: usize) -> String {
    let wants = WANTS[turn * 7 % WANTS.len()].replace("{n}", &(turn * 13 % 89 + 1).to_string());
    format!("Note {}: {} {wants}. {}", turn + 1, capitalised(WHO[turn * 5 % WHO.len()]), THEN[turn * 3 % THEN.len()])
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}
