//! One client's run: a Loadline of its own before the shared Ollama, the driver as a process, and what became of
//! each feature, as the client and as the store saw it.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use loadline::sim::SimConfig;
use loadline::store::TurnRow;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::registry;
use crate::live::scripted::Cast;
use crate::live::server::{cache, ollama, required, tell};
use crate::stage::{MODEL, Stage, words};

/// A library, and the language that it is written in.
#[derive(Debug)]
pub struct Client {
    pub name: &'static str,
    pub language: &'static str,
}

const fn client(language: &'static str, name: &'static str) -> Client {
    Client { name, language }
}

pub const CLIENTS: [Client; 8] = [
    client("Python", "ollama"),
    client("Python", "openai"),
    client("Python", "anthropic"),
    client("Python", "langchain-ollama"),
    client("Python", "litellm"),
    client("JavaScript", "ollama"),
    client("JavaScript", "openai"),
    client("JavaScript", "ai"),
];

/// The rows of the matrix, in order.
pub const FEATURES: [&str; 15] = [
    "chat",
    "streaming",
    "tools",
    "structured",
    "thinking",
    "images",
    "embeddings",
    "list",
    "show",
    "pull",
    "unknown model",
    "bad request",
    "refused",
    "cancel",
    "ladder",
];

/// What became of one feature.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// The client saw what it sees without Loadline.
    Same,
    /// It works, and there is nothing to compare it with.
    Works,
    /// The library has no such thing.
    Absent(String),
    /// It fails without Loadline as well, in the same words.
    AsWithout(String),
    Differs(String),
    Fails(String),
}

/// A whole column of the matrix.
#[derive(Debug)]
pub struct Seen {
    pub version: String,
    pub cells: BTreeMap<&'static str, Cell>,
}

impl Seen {
    /// What must not be.
    pub fn broken(&self) -> impl Iterator<Item = (&str, &str)> {
        self.cells.iter().filter_map(|(feature, cell)| match cell {
            Cell::Differs(what) | Cell::Fails(what) => Some((*feature, what.as_str())),
            Cell::Same | Cell::Works | Cell::Absent(_) | Cell::AsWithout(_) => None,
        })
    }
}

/// Each client is driven once, whoever asks first.
static SEEN: [OnceCell<Option<Seen>>; CLIENTS.len()] = [const { OnceCell::const_new() }; CLIENTS.len()];

/// One after the other: they share a server and two cores, and some have time limits of their own.
static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// What this client saw, or `None` after saying what is missing.
pub async fn seen(number: usize) -> Option<&'static Seen> {
    let drive = async {
        let client = &CLIENTS[number];
        let test = format!("live::clients, {} {}", client.language, client.name);
        let ollama = ollama(&test)?;
        let Some(program) = program(client) else {
            assert!(!required("clients"), "LOADLINE_REQUIRE names clients, but {test} is not installed");
            tell(&format!("skipped {test}: it is not installed (scripts/real-clients prepares it)"));
            return None;
        };
        let _alone = ONE_AT_A_TIME.lock().await;
        let cast = tokio::task::spawn_blocking(|| Cast::on(ollama)).await.expect("models are made");
        Some(run(client, program, &ollama.url, cast.names).await)
    };
    SEEN[number].get_or_init(|| drive).await.as_ref()
}

/// What runs the driver.
fn program(client: &Client) -> Option<Command> {
    let drivers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/live/clients");
    let installed = cache().join("clients");
    let (runner, needed, driver): (PathBuf, PathBuf, PathBuf) = match client.language {
        "Python" => {
            let python = installed.join("python/bin/python");
            (python.clone(), python, drivers.join("python/drive.py"))
        }
        _ => ("node".into(), installed.join("js/node_modules"), drivers.join("js/drive.mjs")),
    };
    let mut command = Command::new(runner);
    command.arg(driver).arg(client.name).env("LOADLINE_CLIENTS_JS", installed.join("js"));
    // What a machine is set up with must not lead a library elsewhere.
    for name in ["OLLAMA_HOST", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "HTTP_PROXY", "http_proxy", "ALL_PROXY"] {
        command.env_remove(name);
    }
    needed.exists().then_some(command)
}

/// A picture of 56 by 56 points.
pub const IMAGE: &str = "iVBORw0KGgoAAAANSUhEUgAAADgAAAA4CAIAAAAn5KxJAAAARElEQVR42u3OQQkAAAgEsAthOtMZ1YcphMECLNXzQkRFRUVFRUVFRUVFRUVFRUVFRUVFRUVFRUVFRUVFRUVFRUVFRc8CgqDsNQAkN+4AAAAASUVORK5CYII=";

/// Words in each turn of the long conversation, a little under two tokens each: enough for a checkpoint, then for a
/// compression, then for a rollover, in a window of 2,048 tokens.
const LADDER: [usize; 12] = [150, 150, 150, 150, 90, 100, 100, 322, 100, 100, 400, 60];

async fn run(client: &Client, program: Command, direct: &str, mut models: Value) -> Seen {
    let config = SimConfig { models: vec![MODEL.clone()], ..SimConfig::default() };
    let sim = loadline::sim::start(config).await.expect("a free port");
    // Checkpoints may take long on a busy machine, and this is not about how long.
    let stage = Stage::before(sim, direct, &[("LOADLINE_CHECKPOINT_WAIT_S", "300")]).await;
    let registry = registry::start().await;
    let slug = format!("{}-{}", client.language.to_lowercase(), client.name);
    models["pull"] = json!(format!("{registry}/library/pulled-{slug}:latest"));
    let ladder: Vec<String> =
        LADDER.iter().enumerate().map(|(turn, count)| words(&format!("turn {turn} of {slug}"), *count)).collect();
    let job = json!({
        "through": stage.url, "direct": direct, "models": models, "image": IMAGE,
        "ladder": ladder, "giant": words(&format!("giant of {slug}"), 3000),
    });
    let output = tokio::task::spawn_blocking(move || driven(program, &job)).await.expect("the driver runs");
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{slug}: {}\n{complaints}", output.status);
    let told = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<Value> = told
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{slug}: {error}: {line}\n{complaints}")))
        .collect();
    let version =
        lines.iter().find_map(|line| line["version"].as_str()).expect("the driver says its version").to_owned();
    let mut cells: BTreeMap<&'static str, Cell> =
        FEATURES.map(|feature| (feature, cell(feature, &lines, &models))).into();
    for (feature, wrong) in against_the_store(&stage, &models).await {
        if cells[feature] == Cell::Works {
            wrong.into_iter().for_each(|wrong| drop(cells.insert(feature, Cell::Fails(wrong))));
        }
    }
    Seen { version, cells }
}

/// Gives a driver its job and waits for its end. No feature may take longer than two minutes, so it does end.
fn driven(mut program: Command, job: &Value) -> Output {
    let mut child =
        program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the driver starts");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(job.to_string().as_bytes()).expect("the driver reads its job");
    drop(stdin);
    child.wait_with_output().expect("the driver ends")
}

/// Makes a cell of the lines about a feature.
fn cell(feature: &str, lines: &[Value], models: &Value) -> Cell {
    let about = |at: &str| lines.iter().find(|line| line["feature"] == feature && line["at"] == at);
    if let Some(reason) = lines.iter().find(|line| line["feature"] == feature).and_then(|line| line["absent"].as_str())
    {
        return Cell::Absent(reason.to_owned());
    }
    let error = |line: &Value| line["error"].as_str().unwrap_or_default().to_owned();
    let saw = |line: &Value| if feature == "list" { ours(&line["saw"], models) } else { line["saw"].clone() };
    let Some(through) = about("through") else { return Cell::Fails("the driver said nothing of it".to_owned()) };
    let works = through["ok"] == true;
    match about("direct") {
        None if works => Cell::Works,
        Some(direct) if works && direct["ok"] == true && saw(direct) == saw(through) => Cell::Same,
        Some(direct) if !works && direct["ok"] == false && error(direct) == error(through) => {
            Cell::AsWithout(error(direct))
        }
        Some(direct) if works => {
            Cell::Differs(format!("without {} {}, with {}", saw(direct), error(direct), saw(through)))
        }
        None | Some(_) => Cell::Fails(error(through)),
    }
}

/// Other tests make and delete models meanwhile: only those of the job are looked at.
fn ours(saw: &Value, models: &Value) -> Value {
    let names: Vec<&str> = models
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(role, _)| *role != "pull")
        .filter_map(|(_, name)| name.as_str())
        .collect();
    let mut all = Vec::new();
    texts(saw, &mut all);
    // As texts of their own; libraries may add the tag, or whose model it is.
    let bare = |text: &str| text.trim_start_matches("ollama/").trim_end_matches(":latest").to_owned();
    let all: Vec<String> = all.into_iter().map(bare).collect();
    let listed = |name: &str| all.iter().filter(|seen| *seen == name).count();
    let counts: Vec<(&str, usize)> = names.into_iter().map(|name| (name, listed(name))).collect();
    assert!(counts.iter().all(|(_, times)| *times == 1), "every model is listed once: {saw}");
    json!(counts)
}

/// Every text in a value.
fn texts<'v>(value: &'v Value, into: &mut Vec<&'v str>) {
    match value {
        Value::String(text) => into.push(text),
        Value::Array(items) => items.iter().for_each(|item| texts(item, into)),
        Value::Object(fields) => fields.values().for_each(|field| texts(field, into)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// What has to be in the store when a client has done what it did.
async fn against_the_store(stage: &Stage, models: &Value) -> [(&'static str, Option<String>); 3] {
    stage.settled().await;
    let turns = || {
        let reader = stage.gateway.store.reader().expect("readable");
        (1..).map_while(|number| reader.turn(number).expect("readable")).collect::<Vec<_>>()
    };
    let with = |role: &str| turns().into_iter().filter(|(_, turn)| turn.model == models[role]).collect::<Vec<_>>();
    let cancelled = async {
        while !with("endless").iter().any(|(_, turn)| turn.status == "cancelled") {
            tokio::task::yield_now().await;
        }
    };
    let cancelled = tokio::time::timeout(Duration::from_secs(30), cancelled).await.is_ok();
    let small = with("small");
    let refused = small.iter().any(|(_, turn)| turn.status == "refused");
    let longest = small.iter().map(|(id, _)| small.iter().filter(|(other, _)| other == id).count()).max();
    let ladder: Vec<&TurnRow> = small
        .iter()
        .filter(|(id, _)| Some(small.iter().filter(|(other, _)| other == id).count()) == longest)
        .map(|(_, turn)| turn)
        .collect();
    let metrics = &stage.gateway.metrics;
    let wrong = metrics.exact_mismatches() + metrics.overflows.get() + metrics.cut_by_upstream.get();
    [
        ("cancel", (!cancelled).then(|| "the turn is not stored as cancelled".to_owned())),
        ("refused", (!refused).then(|| "the turn is not stored as refused".to_owned())),
        ("ladder", climbed(&ladder).or_else(|| (wrong > 0).then(|| format!("{wrong} counts were not as predicted")))),
    ]
}

/// What is wrong with a conversation that should have been driven up the whole ladder.
fn climbed(turns: &[&TurnRow]) -> Option<String> {
    let told: Vec<String> = turns
        .iter()
        .map(|turn| {
            let numbers = [turn.arrived_tokens, turn.sent_tokens, turn.limit_tokens].map(Option::unwrap_or_default);
            format!("{} {} {numbers:?}", turn.status, turn.action.as_deref().unwrap_or_default())
        })
        .collect();
    let did = |action: &str| turns.iter().any(|turn| turn.action.as_deref() == Some(action));
    let fits =
        turns.iter().all(|turn| turn.sent_tokens.zip(turn.limit_tokens).is_some_and(|(sent, limit)| sent <= limit));
    // Some streams report no count, plain answers do.
    let counted =
        turns.iter().filter(|turn| turn.reported_tokens.is_some_and(|reported| Some(reported) == turn.sent_tokens));
    let exact = turns.iter().all(|turn| turn.basis.as_deref() == Some("exact")) && counted.count() * 2 > turns.len();
    let complete = turns.len() == LADDER.len() && turns.iter().all(|turn| turn.status == "complete");
    let whole = complete && fits && exact && ["none", "checkpoint", "compression", "rollover"].into_iter().all(did);
    (!whole).then(|| format!("its turns are stored as\n{}", told.join("\n")))
}
