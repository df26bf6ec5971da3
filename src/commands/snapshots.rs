//! `loadline snapshots`: what rollovers have kept.

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::Outcome;
use super::conversations::{say_messages, write_out};
use super::data::{DataDir, shown, when};
use crate::api::views::{about_snapshot as about, in_full};
use crate::dialect::Dialect;
use crate::history::{export, message, system_prompts};
use crate::store::{ReadOnly, SnapshotRow};

/// Look at the snapshots that rollovers have taken, and go on from one.
///
/// Each rollover first keeps the whole conversation as it was. Works beside a running `loadline serve`.
#[derive(Debug, Args)]
pub(super) struct Snapshots {
    #[command(flatten)]
    data: DataDir,
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
        /// The snapshot, as `list` names it
        id: String,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Write one as canonical JSONL, one message a line
    Export {
        /// The snapshot, as `list` names it
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
        /// The snapshot, as `list` names it
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
        let store = self.data.read()?;
        match self.what {
            What::List { conversation, json } => list(&store, conversation, json)?,
            What::Show { id, json } => show(&store, &find(&store, &id)?, json)?,
            What::Export { id, output } => {
                write_out(output.as_deref(), &export::snapshot(&store, &find(&store, &id)?)?)?;
            }
            What::Restore { id, say, dialect, model } => restore(&store, &find(&store, &id)?, &say, dialect, model)?,
        }
        Ok(Outcome::Fine)
    }
}

fn find(store: &ReadOnly, id: &str) -> Result<SnapshotRow> {
    store.snapshot(id)?.ok_or_else(|| anyhow!("there is no snapshot `{id}`; `loadline snapshots list` shows all"))
}

fn list(store: &ReadOnly, conversation: Option<i64>, json: bool) -> Result<()> {
    let rows = store.snapshots(conversation)?;
    if json {
        say!("{}", Value::from(rows.iter().map(about).collect::<Vec<_>>()));
        return Ok(());
    }
    if rows.is_empty() {
        say!("No snapshots: a conversation is kept as one when it outgrows its model's window.");
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
        let mut said = about(row);
        said["system"] = system_prompts(&row.system).into();
        said["history"] = messages.iter().map(|message| in_full(row.conversation, message)).collect();
        say!("{said}");
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
        say!("system: {}", shown(&text));
    }
    say_messages(&messages);
    Ok(())
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
