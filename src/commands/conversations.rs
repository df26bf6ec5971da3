//! `loadline conversations`: what was said, kept, found again, handed on and let go.

use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};
use serde_json::Value;

use super::Outcome;
use super::data::{DataDir, Writing, shown, when};
use super::history::{PresetName, read};
use super::source::DEFAULT_UPSTREAM;
use super::token::check_name;
use crate::api::auth::LOCAL_USER;
use crate::api::handoff::said_of;
use crate::api::views::{about, about_branch, hit, in_full, load, marked, title};
use crate::config::Config;
use crate::context::{ChainKey, Link};
use crate::events::now_ms;
use crate::history::arrival;
use crate::history::export;
use crate::history::handoff::{self, Means, Wanted};
use crate::history::import::Owner;
use crate::history::{attachments, system_prompts};
use crate::ollama::{Models, Upstream};
use crate::store::{Change, ConversationRow, MessageRow, ReadOnly, Store};

/// Look at the conversations that went through Loadline, take some out, bring some in.
///
/// Works beside a running `loadline serve` and without one.
#[derive(Debug, Args)]
pub(super) struct Conversations {
    #[command(flatten)]
    data: DataDir,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List them, newest first
    List {
        /// Only those of one user
        #[arg(long)]
        user: Option<String>,
        /// How many
        #[arg(long, default_value_t = 50, value_name = "N")]
        limit: u32,
        /// Only those before this one, for the next page
        #[arg(long, value_name = "ID")]
        after: Option<i64>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one with its messages
    Show {
        /// The conversation's number
        id: i64,
        /// The branch that ends in this message, by its number (`show` tells) [default: the one used last]
        #[arg(long, value_name = "MESSAGE")]
        to: Option<i64>,
        /// As JSON, with how full the window was turn by turn
        #[arg(long)]
        json: bool,
    },
    /// Find messages that have all the words; the last word may be a beginning. Exit code 1: nothing found
    Search {
        /// What to look for
        #[arg(required = true, value_name = "WORD")]
        words: Vec<String>,
        /// Only what one user said and was told
        #[arg(long)]
        user: Option<String>,
        /// Only in one conversation
        #[arg(long, value_name = "ID")]
        conversation: Option<i64>,
        /// How many
        #[arg(long, default_value_t = 20, value_name = "N")]
        limit: u32,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Write one as canonical JSONL, one message a line
    Export {
        /// The conversation's number
        id: i64,
        /// The branch that ends in this message, by its number (`show` tells) [default: the one used last]
        #[arg(long, value_name = "MESSAGE")]
        to: Option<i64>,
        /// To a file instead of standard output
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Bring in a conversation from elsewhere: canonical JSONL, or a JSON list of messages
    ///
    /// Every message is kept whole. A list is checked first, by the rules of the preset; what the preset makes of it
    /// is kept beside it. Exit code 1: it cannot be taken.
    Import {
        /// The file; - is standard input
        file: PathBuf,
        /// How a list of messages is checked
        #[arg(long, value_enum, default_value = "requirements-first")]
        preset: PresetName,
        /// Whose conversation it becomes
        #[arg(long, default_value = LOCAL_USER)]
        user: String,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Delete conversations for good: messages, snapshots, receipts, checkpoints, and their place in the search
    Delete {
        /// Numbers of conversations
        #[arg(required = true, value_name = "ID")]
        ids: Vec<i64>,
        /// Without asking
        #[arg(long)]
        yes: bool,
    },
    /// Write one as a section of a prompt, for handing it to another agent
    Handoff {
        /// The conversation's number
        id: i64,
        /// What matters most
        #[arg(long, value_enum, default_value = "requirements-first")]
        preset: PresetName,
        /// The room there is, in tokens of the conversation's model
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        tokens: Option<u32>,
        /// Only the passages that bear on this task
        #[arg(long, value_name = "TASK")]
        thread: Option<String>,
        /// Have the conversation's model shorten what the preset would cut
        #[arg(long)]
        compress: bool,
        /// The model to count and shorten with [default: the conversation's]
        #[arg(long)]
        model: Option<String>,
        /// The Ollama that has the model, for counting and shortening
        #[arg(long, value_name = "URL", env = "LOADLINE_UPSTREAM_URL", default_value = DEFAULT_UPSTREAM)]
        upstream: String,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

impl Conversations {
    pub(super) async fn run(self) -> Result<Outcome> {
        let data = &self.data;
        match self.what {
            What::List { user, limit, after, json } => list(&data.read()?, user.as_deref(), limit, after, json)?,
            What::Show { id, to, json } => show(&data.read()?, id, to, json)?,
            What::Search { words, user, conversation, limit, json } => {
                // What was said a moment ago can be found, too. A copy that may not be written is searched as it is.
                let store = data.read()?;
                let _best_effort = data.change_beside(Change::Index).await;
                let hits = store.search(user.as_deref(), conversation, &words.join(" "), limit)?;
                return Ok(found(&hits, json));
            }
            What::Export { id, to, output } => {
                let store = data.read()?;
                let end = branch(&store, id, to)?;
                write_out(output.as_deref(), &export::conversation(&store, &find(&store, id)?, end)?)?;
            }
            What::Import { file, preset, user, json } => return import(data, &file, preset, &user, json).await,
            What::Delete { ids, yes } => return delete(data, &ids, yes).await,
            What::Handoff { id, preset, tokens, thread, compress, model, upstream, json } => {
                let wanted = Wanted { preset: preset.into(), tokens, thread, compress, model };
                return hand_over(&data.read()?, id, data.config()?, &upstream, &wanted, json).await;
            }
        }
        Ok(Outcome::Fine)
    }
}

/// To a file, or to standard output.
pub(super) fn write_out(output: Option<&Path>, text: &str) -> Result<()> {
    match output {
        Some(path) => std::fs::write(path, text).with_context(|| path.display().to_string()),
        None => Ok(std::io::stdout().lock().write_all(text.as_bytes())?),
    }
}

fn find(store: &ReadOnly, id: i64) -> Result<ConversationRow> {
    store.conversation(id)?.ok_or_else(|| anyhow!("there is no conversation {id}; see `loadline conversations list`"))
}

fn list(store: &ReadOnly, user: Option<&str>, limit: u32, after: Option<i64>, json: bool) -> Result<()> {
    let rows = store.conversations(user, after, limit)?;
    if json {
        let with_user = |row: &ConversationRow| {
            let mut shown = about(row);
            shown["user"] = row.user.as_str().into();
            shown
        };
        say!("{}", Value::from(rows.iter().map(with_user).collect::<Vec<_>>()));
        return Ok(());
    }
    if rows.is_empty() {
        say!("No conversations.");
        return Ok(());
    }
    let users = width(rows.iter().map(|row| row.user.as_str()), "user");
    let models = width(rows.iter().map(|row| row.model.as_str()), "model");
    say!(
        "{:>6}  {:<users$}  {:<19}  {:>8}  {:<models$}  begins with",
        "id",
        "user",
        "begun (UTC)",
        "messages",
        "model"
    );
    for row in rows {
        let (begun, begins) = (when(row.created_at), title(&row.title));
        let (user, model) = (&row.user, shown(&row.model));
        say!("{:>6}  {user:<users$}  {begun:<19}  {:>8}  {model:<models$}  {begins}", row.id, row.messages);
    }
    Ok(())
}

/// The end of the branch that was asked for.
fn branch(store: &ReadOnly, id: i64, to: Option<i64>) -> Result<Option<Link>> {
    let Some(message) = to else { return Ok(None) };
    let link = store.link(id, message)?;
    Ok(Some(link.ok_or_else(|| anyhow!("conversation {id} has no message {message}; `show {id}` lists its branches"))?))
}

fn show(store: &ReadOnly, id: i64, to: Option<i64>, json: bool) -> Result<()> {
    let row = find(store, id)?;
    let said = store.path(id, branch(store, id, to)?)?;
    let tips = store.tips(id)?;
    let system = system_prompts(&store.latest_system(id)?.unwrap_or_default());
    if json {
        let mut shown = about(&row);
        shown["user"] = row.user.into();
        shown["system"] = system.into();
        shown["branches"] = tips.iter().map(about_branch).collect();
        shown["load"] = store.turns(id)?.iter().filter_map(load).collect();
        shown["history"] = said.iter().map(|message| in_full(id, message)).collect();
        say!("{shown}");
        return Ok(());
    }
    say!("conversation {id} of {}, with {}, {} messages", row.user, shown(&row.model), row.messages);
    if let Some(turn) = store.latest_turn(id)?.as_ref().and_then(load) {
        let usage = turn["usage"].as_str().unwrap_or_default();
        say!("last turn: {} of {} tokens ({usage})", turn["arrived_tokens"], turn["limit_tokens"]);
    }
    for tip in tips.iter().filter(|_| tips.len() > 1) {
        say!("branch --to {}: {} messages, ends with “{}”", tip.id, tip.seq, title(&tip.text));
    }
    for text in system {
        say!("\nsystem: {}", shown(&text));
    }
    say_messages(&said);
    Ok(())
}

/// Messages for people, each under a line that says who, when and which.
pub(super) fn say_messages(said: &[MessageRow]) {
    for message in said {
        let unfinished = if message.status == "complete" { "" } else { ", unfinished" };
        let at = when(message.created_at);
        say!("\n{:>5}  {at}  {} (message {}{unfinished})", message.seq, message.role, message.id);
        say!("{}", shown(&message.text));
        if let Some(calls) = &message.tool_calls {
            say!("[calls {}]", shown(calls));
        }
        for attachment in attachments(message).iter().filter_map(Value::as_array).flatten() {
            say!("[attached {}]", shown(&attachment.to_string()));
        }
    }
}

/// The width of a column: that of its longest entry, within reason.
pub(super) fn width<'a>(entries: impl Iterator<Item = &'a str>, heading: &str) -> usize {
    entries.map(|entry| entry.chars().count()).max().unwrap_or(0).clamp(heading.len(), 40)
}

fn found(hits: &[crate::store::Hit], json: bool) -> Outcome {
    if json {
        say!("{}", Value::from(hits.iter().map(hit).collect::<Vec<_>>()));
    } else {
        if !hits.is_empty() {
            say!("{:>12}  {:>8}  {:<19}  {:<9}  found", "conversation", "message", "at (UTC)", "role");
        }
        for hit in hits {
            let marked = shown(&marked(hit).replace('\n', " "));
            let at = when(hit.created_at);
            say!("{:>12}  {:>8}  {at:<19}  {:<9}  {marked}", hit.conversation, hit.message, hit.role);
        }
    }
    if hits.is_empty() {
        eprintln!("nothing found");
        return Outcome::No;
    }
    Outcome::Fine
}

async fn import(data: &DataDir, file: &Path, preset: PresetName, user: &str, json: bool) -> Result<Outcome> {
    check_name("user", user)?;
    let body = read(file)?;
    let preset = crate::history::intake::Preset::from(preset);
    let (fine, said) = match data.write()? {
        Writing::Server(address) => {
            let path = format!("/api/conversations?preset={}", preset.name());
            let call = data.call(&address, user, |client, address| client.post(format!("{address}{path}")).body(body));
            let (status, text) = call.await?;
            let said: Value = serde_json::from_str(&text).context("the server's answer")?;
            (status == 201, said)
        }
        Writing::Own(store) => match arrival::read(&body, preset, &data.config()?.history, jiff::Timestamp::now()) {
            Err(refused) => (false, refused.said()),
            Ok(arrived) => (true, take_in(&store, &arrived, user).await?),
        },
    };
    if json {
        say!("{said}");
    } else {
        tell(&file.display().to_string(), &said, fine);
    }
    Ok(if fine { Outcome::Fine } else { Outcome::No })
}

async fn take_in(store: &Store, arrived: &arrival::Arrival, user: &str) -> Result<Value> {
    let key = ChainKey::new(store.secret()?);
    let owner = Owner { key: &key, user, conversation: 0, now_ms: now_ms() };
    let (imports, said) = arrived.imports(&owner, || store.next_conversation())?;
    store.import(imports).await?;
    Ok(said)
}

fn tell(name: &str, said: &Value, fine: bool) {
    let issues = |kind: &str| said[kind].as_array().cloned().unwrap_or_default();
    let (errors, warnings) = (issues("errors"), issues("warnings"));
    for (mark, issue) in errors.iter().map(|issue| ('✗', issue)).chain(warnings.iter().map(|issue| ('⚠', issue))) {
        let code = issue["code"].as_str().map(|code| format!("[{code}] ")).unwrap_or_default();
        let place = issue["line"]
            .as_u64()
            .map_or_else(|| issue["field"].as_str().unwrap_or_default().to_owned(), |line| format!("line {line}"));
        eprintln!("  {mark} {}: {code}{}", shown(&place), shown(issue["message"].as_str().unwrap_or_default()));
    }
    if !fine {
        eprintln!("{name} cannot be taken in: {}", shown(said["error"].as_str().unwrap_or_default()));
        return;
    }
    for one in said["conversations"].as_array().into_iter().flatten() {
        say!("conversation {} has {} messages from {name}, each kept whole", one["id"], one["messages"]);
    }
}

async fn delete(data: &DataDir, ids: &[i64], yes: bool) -> Result<Outcome> {
    let rows = {
        let store = data.read()?;
        ids.iter().map(|id| find(&store, *id)).collect::<Result<Vec<_>>>()?
    };
    for row in &rows {
        eprintln!("conversation {} of {}: “{}”, {} messages", row.id, row.user, title(&row.title), row.messages);
    }
    if !yes && !confirmed(rows.len())? {
        eprintln!("nothing was deleted");
        return Ok(Outcome::No);
    }
    let writing = data.write()?;
    for row in &rows {
        match &writing {
            Writing::Own(store) => store.delete(row.id).await?,
            Writing::Server(address) => {
                let path = format!("/api/conversations/{}", row.id);
                let call = data.call(address, &row.user, |client, address| client.delete(format!("{address}{path}")));
                let (status, text) = call.await?;
                if status != 204 {
                    bail!("the loadline at {address} answers {status}: {text}");
                }
            }
        }
        eprintln!("conversation {} is deleted", row.id);
    }
    Ok(Outcome::Fine)
}

fn confirmed(count: usize) -> Result<bool> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        bail!("nobody can be asked here: say --yes to delete");
    }
    eprint!("Delete {} for good? [y/N] ", if count == 1 { "it" } else { "all of them" });
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

async fn hand_over(
    store: &ReadOnly,
    id: i64,
    config: Config,
    upstream: &str,
    wanted: &Wanted,
    json: bool,
) -> Result<Outcome> {
    let row = find(store, id)?;
    let said = store.path(id, None)?;
    let upstream = Upstream::new(upstream, config.connect_timeout, config.first_byte_timeout)?;
    let models = Models::new(upstream, std::sync::Arc::new(config.windows));
    let means = Means {
        models: &models,
        limits: &config.history,
        reserve: config.reserve,
        patience: config.checkpoint.timeout,
    };
    let handed = handoff::made(&means, &row.model, &said, wanted).await?;
    if json {
        say!("{:#}", said_of(&row, wanted, handed.as_ref()));
        return Ok(if handed.is_some() { Outcome::Fine } else { Outcome::No });
    }
    let Some(handed) = handed else {
        eprintln!(
            "conversation {id} has nothing to hand over{}",
            if wanted.thread.is_some() { " on that" } else { "" }
        );
        return Ok(Outcome::No);
    };
    say!("{}", shown(&handed.section));
    let condensed = if wanted.compress { format!(", {} condensed", handed.condensed) } else { String::new() };
    eprintln!("{} tokens ({}), {} messages left out{condensed}", handed.tokens, handed.basis, handed.left_out);
    Ok(Outcome::Fine)
}
