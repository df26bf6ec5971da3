//! `loadline snapshots`: what rollovers have kept.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::Outcome;
use crate::config::data_dir;
use crate::dialect::Dialect;
use crate::history::{canonical, message, system_prompts};
use crate::store::{ReadOnly, SnapshotRow, open_read_only};

/// Look at the snapshots that rollovers have taken, and go on from one.
///
/// Each rollover first keeps the whole conversation as it was. Works beside a running `loadline serve`.
#[derive(Debug, Args)]
pub(super) struct Snapshots {
    /// Where conversations are kept [default: ~/.local/share/loadline]
    #[arg(long, value_name = "DIR", global = true, env = "LOADLINE_STORE_DATA_DIR")]
    data_dir: Option<PathBuf>,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List them, newest last
    List {
        /// Only those of one conversation
        #[arg(long, value_name = "ID")]
        conversation: Option<i64>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one with its messages
    Show {
        id: String,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Write one as canonical JSONL, one message a line
    Export {
        id: String,
        /// To a file instead of standard output
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Go on from one: print a request that continues it
    ///
    /// A client that cannot be given a whole history sends its new messages only, with the header
    /// `X-Loadline-Restore: ID`; Loadline puts the snapshot in front of them.
    Restore {
        id: String,
        /// What to say next
        #[arg(long, value_name = "TEXT", default_value = "Let us go on where we were.")]
        say: String,
        /// The API that the request is for
        #[arg(long, value_enum, default_value = "chat")]
        dialect: For,
        /// The model to ask [default: the conversation's last one]
        #[arg(long)]
        model: Option<String>,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum For {
    /// Ollama's /api/chat
    Chat,
    /// /v1/chat/completions
    Openai,
    /// /v1/responses
    Responses,
    /// /v1/messages
    Anthropic,
}

impl Snapshots {
    pub(super) fn run(self) -> Result<Outcome> {
        let dir = self.data_dir.unwrap_or_else(|| data_dir(""));
        let store = open_read_only(&dir).with_context(|| format!("nothing is stored in {}", dir.display()))?;
        match self.what {
            What::List { conversation, json } => list(&store, conversation, json)?,
            What::Show { id, json } => show(&store, &find(&store, &id)?, json)?,
            What::Export { id, output } => {
                let lines = export(&store, &find(&store, &id)?)?;
                match output {
                    None => print!("{lines}"),
                    Some(path) => std::fs::write(&path, lines).with_context(|| path.display().to_string())?,
                }
            }
            What::Restore { id, say, dialect, model } => restore(&store, &find(&store, &id)?, &say, dialect, model)?,
        }
        Ok(Outcome::Fine)
    }
}

fn find(store: &ReadOnly, id: &str) -> Result<SnapshotRow> {
    store.snapshot(id)?.ok_or_else(|| anyhow!("there is no snapshot `{id}`; `loadline snapshots list` shows all"))
}

fn when(at_ms: i64) -> String {
    jiff::Timestamp::from_millisecond(at_ms).map(|at| at.strftime("%Y-%m-%d %H:%M:%S").to_string()).unwrap_or_default()
}

fn about(row: &SnapshotRow) -> Value {
    json!({
        "id": row.id, "conversation": row.conversation, "created_at": row.created_at, "reason": row.reason,
        "messages": row.messages, "checkpoints": row.checkpoints, "tokens": row.tokens, "limit_tokens": row.limit_tokens,
    })
}

fn list(store: &ReadOnly, conversation: Option<i64>, json: bool) -> Result<()> {
    let rows = store.snapshots(conversation)?;
    if json {
        say!("{}", Value::from(rows.iter().map(about).collect::<Vec<_>>()));
        return Ok(());
    }
    if rows.is_empty() {
        say!("No snapshots yet: a conversation is kept as one when it outgrows its model's window.");
        return Ok(());
    }
    say!("{:<42} {:>12}  {:<19} {:>8} {:>15}", "snapshot", "conversation", "taken (UTC)", "messages", "tokens");
    for row in rows {
        let tokens = format!("{}/{}", row.tokens, row.limit_tokens);
        let taken = when(row.created_at);
        say!("{:<42} {:>12}  {taken:<19} {:>8} {tokens:>15}", row.id, row.conversation, row.messages);
    }
    Ok(())
}

fn show(store: &ReadOnly, row: &SnapshotRow, json: bool) -> Result<()> {
    let messages = store.path(row.conversation, Some(row.link))?;
    if json {
        let mut shown = about(row);
        shown["system"] = system_prompts(&row.system).into();
        let said = messages.iter().map(|message| {
            json!({ "seq": message.seq, "role": message.role, "content": message.text, "status": message.status, "created_at": message.created_at })
        });
        shown["history"] = said.collect();
        say!("{shown}");
        return Ok(());
    }
    say!(
        "{} of conversation {}, taken {} UTC at {}/{} tokens\n",
        row.id,
        row.conversation,
        when(row.created_at),
        row.tokens,
        row.limit_tokens
    );
    for text in system_prompts(&row.system) {
        say!("system: {text}");
    }
    for message in messages {
        say!("{:>5}  {}  {}: {}", message.seq, when(message.created_at), message.role, message.text);
    }
    Ok(())
}

fn export(store: &ReadOnly, row: &SnapshotRow) -> Result<String> {
    let messages = store.path(row.conversation, Some(row.link))?;
    let model = store.conversation(row.conversation)?.map(|conversation| conversation.model).unwrap_or_default();
    Ok(canonical::lines(&row.id, &model, &system_prompts(&row.system), &messages))
}

fn restore(store: &ReadOnly, row: &SnapshotRow, text: &str, dialect: For, model: Option<String>) -> Result<()> {
    let dialect = match dialect {
        For::Chat => Dialect::Chat,
        For::Openai => Dialect::OpenAiChat,
        For::Responses => Dialect::Responses,
        For::Anthropic => Dialect::Anthropic,
    };
    let known = || store.conversation(row.conversation).ok().flatten().map(|conversation| conversation.model);
    let model = model.or_else(known).unwrap_or_default();
    let said = json!([{ "role": "user", "content": text }]);
    let body = match dialect {
        Dialect::Responses => json!({ "model": model, "input": said }),
        Dialect::Anthropic => json!({ "model": model, "max_tokens": 1024, "messages": said }),
        _ => json!({ "model": model, "messages": said }),
    };
    let messages: Vec<_> = store.path(row.conversation, Some(row.link))?.iter().map(message).collect();
    let body = dialect.with_history(&body.to_string(), &system_prompts(&row.system), &messages)?;
    say!("{body}");
    Ok(())
}
