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
                "cut_by_ollama": own.gateway.metrics.cut_by_upstream.get() + own.gateway.metrics.overflows.get(),
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

/// What the chat is about: a hundred matters that have little to do with each other, as in a long working day.
const MATTERS: &str = "\
The dredger broke a tooth on something hard near the northern mole.\n\
My grandmother's almond cake collapses whenever I open the oven early.\n\
The choir wants to rehearse in the fish hall because of its echo.\n\
A heron has learnt to open the bait freezer with its beak.\n\
The tax office sent back form nineteen with a coffee stain on it.\n\
Somebody painted a whale on the customs shed during the full moon.\n\
Our compass points three degrees off since the welder was on board.\n\
The library asks for maps older than the railway, on loan.\n\
Two apprentices argue about whether knots should be taught by song.\n\
The ice machine makes a sound like a kettle and then stops.\n\
A film crew would like to sink a rowing boat in the evening light.\n\
The bakery's van is wider than the new gate by a hand.\n\
Frost has cracked the slipway exactly where we repaired it in May.\n\
The lighthouse keeper's cat sits on the radio and changes channels.\n\
An auditor wonders why we bought forty umbrellas in a drought.\n\
The tide table for August was printed with the columns swapped.\n\
A seal sleeps on pontoon B and nobody dares to moor there.\n\
The brass band charges double when it rains, says the contract.\n\
I inherited a sextant and cannot read the vernier scale.\n\
The pension fund asks how many of us are over fifty-five.\n\
Mussels grow on the outflow pipe faster than we can scrape them.\n\
The vicar would bless the lifeboat but only before breakfast.\n\
A container of violins arrived that was declared as oars.\n\
The night bus no longer stops at the quay after the roadworks.\n\
Our website shows the weather of a town in New Zealand.\n\
The cooperage closed, and with it the only supply of oak staves.\n\
A pupil measured the noise of gulls for the science fair.\n\
The crane's rope must be replaced after four thousand lifts.\n\
Somewhere behind the panelling of the office a cricket lives.\n\
The ministry wants a plan for evacuating elderly passengers.\n\
An anonymous donor pays for a bench if it faces the sunset.\n\
The rust remover has eaten through its own plastic canister.\n\
The pilot boat's engine starts only when nobody is watching.\n\
My nephew built a raft of bottles that carries three adults.\n\
The oyster licence expires on the day of the regatta.\n\
The hotel complains of diesel smell in rooms facing east.\n\
A swarm of bees has settled in the mast of a yacht from Genoa.\n\
The fog signal was silent last night although the switch was on.\n\
The museum offers its steam winch for the price of scrap.\n\
Half of the mooring fees are paid in foreign coins.\n\
The school asks for a lesson on why ships float.\n\
A storm petrel with a ring from Iceland was found exhausted.\n\
The sauna club dumps hot stones into the basin, allegedly.\n\
Our first-aid kit contains bandages from before the war.\n\
The electrician refuses to climb the mast without a second person.\n\
The fish auction clock runs backwards since it was oiled.\n\
A poet wants to read aloud at low tide, standing on the mud.\n\
The ferry's gangway squeals so loudly that dogs run away.\n\
The surveyor lost his plumb line in the well of the old fort.\n\
The barometer in the hall is worth more than the building, perhaps.\n\
A letter for a captain who died in 1911 arrived this morning.\n\
The new uniforms shrink, all but the buttons.\n\
Eel grass has returned, and the anglers are divided about it.\n\
The dry dock's gate leaks a bathtub every minute.\n\
The radio amateur next door hears our echo sounder as clicks.\n\
Somebody cut the ribbon of the regatta a week too early.\n\
The refrigerated lorry was parked with its doors open at noon.\n\
A goat came over on the mail boat without any papers.\n\
The insurance covers lightning but not the thunder, we are told.\n\
The buoy tender's cook won a prize for pickled samphire.\n\
My watch stopped at the moment of the solstice, oddly.\n\
The stairs to the signal tower have one step too many.\n\
The fuel pump accepts only cards from a bank that no longer exists.\n\
A dolphin followed the tug, and the tourists now want it daily.\n\
The carpenter's glue smells of vanilla and attracts wasps.\n\
The council debates whether the harbour has a north or a west side.\n\
The weighbridge says that an empty lorry is heavier than a full one.\n\
An intern translated our rules into Latin as an exercise.\n\
The lock's timetable forgets that clocks change in October.\n\
The dog of the customs officer only reacts to cheese.\n\
A plank with carved runes was used as a shelf for years.\n\
The windsock has been stolen for the third time this summer.\n\
The lawyer of the shipyard writes in verse when angry.\n\
The pump of the fountain drew in a jellyfish and gave up.\n\
The children's swimming badge needs deep water and a clean jetty.\n\
The salt shed's roof sings in a wind from the south-west.\n\
A retired diver gives away his helmet, brass, slightly dented.\n\
The census counts people on boats at midnight on Sunday.\n\
The coffee machine in the waiting room dispenses soup.\n\
The old chart shows an island where we anchor every day.\n\
The rubber tyres on the quay wall leave marks on white hulls.\n\
A parcel ticks, but it is only a metronome for the choir.\n\
The beekeeper wants to know when we sound the horn.\n\
The archive smells of mould; the ledgers from 1880 are at risk.\n\
The ropewalk is too short for the hawser that the tug ordered.\n\
The harbour swim was won by a woman of seventy-eight.\n\
The tram company borrows our divers to look for a lost wheel.\n\
Moonlight cruises sell better when there is no moon, says the agent.\n\
The anchor monument points towards the wrong sea.\n\
The painter asks which red is the right one for a port buoy.\n\
A thief returned the lifebelt with an apology pinned to it.\n\
The kelp factory wants to dry its harvest on our railings.\n\
The tug's whistle has the same note as the bakery's alarm.\n\
The diving bell needs a certificate that no office issues.\n\
The students' solar boat ran aground under the only cloud.\n\
The marzipan lighthouse for the jubilee melted in the window.\n\
The gauge says the sea has risen by the width of a thumb.\n\
The night porter writes a novel and forgets the keys.\n\
Swallows nest in the loudspeaker that announces departures.\n\
The cartographer asks how our bay got its second name.";

const THEN: [&str; 5] = [
    "What should be done about it first?",
    "Please suggest a short and friendly reply.",
    "How would you explain that to a newcomer?",
    "Is it worth the trouble, in your opinion?",
    "Put it into one sentence for the noticeboard.",
];

/// A message that nobody has sent before in this chat.
fn user_message(turn: usize) -> String {
    let matters: Vec<&str> = MATTERS.lines().collect();
    let again = match turn / matters.len() {
        0 => String::new(),
        times => format!(" That is the case for the time number {}.", times + 1),
    };
    format!("{} {}{again}", matters[turn % matters.len()], THEN[turn % THEN.len()])
}
