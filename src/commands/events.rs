//! `loadline events`: what has happened, and what happens, in the terminal.
//!
//! Reads the data directory, beside a server or without one; following it goes on over restarts of the server.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use owo_colors::{OwoColorize, Stream::Stdout, Style};

use super::data::{DataDir, shown, when};
use super::{Outcome, stop_signal};
use crate::events::{self, KINDS, is_of};
use crate::store::{EventRow, Reads};

/// How often the store is looked at while following.
const PACE: Duration = Duration::from_millis(300);

/// Events read at once.
const BATCH: u32 = 500;

/// Show what has happened, and with --follow what happens: warnings, checkpoints, compressions, rollovers, refusals.
///
/// Events are numbered and never lost. `--after N` goes on behind a number.
#[derive(Debug, Args)]
pub(super) struct EventsCommand {
    /// Go on until Ctrl-C
    #[arg(long, short)]
    follow: bool,
    /// How many of the latest to begin with
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
    last: u32,
    /// Begin behind this number instead
    #[arg(long, value_name = "NUMBER", conflicts_with = "last")]
    after: Option<i64>,
    /// Only this kind, such as rollover or checkpoint; may repeat
    #[arg(long, value_name = "KIND")]
    kind: Vec<String>,
    /// Only of this conversation
    #[arg(long, value_name = "ID")]
    conversation: Option<i64>,
    /// Only of this user
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    data: DataDir,
}

impl EventsCommand {
    pub(super) async fn run(self) -> Result<Outcome> {
        if let Some(unknown) = self.kind.iter().find(|kind| !KINDS.iter().any(|known| is_of(known, kind))) {
            bail!("there is no kind `{unknown}`; there are checkpoint (all of them), {}", KINDS.join(", "));
        }
        let store = self.data.read()?;
        let (mut after, told) = self.begin(&store)?;
        if !self.follow {
            if told == 0 && !self.json {
                eprintln!("no such events yet; `loadline events --follow` waits for them");
            }
            return Ok(Outcome::Fine);
        }
        if told == 0 && !self.json && std::io::stderr().is_terminal() {
            eprintln!("nothing yet; waiting for events (Ctrl-C ends)");
        }
        let mut stop = std::pin::pin!(stop_signal());
        loop {
            let rows = store.events(after, BATCH)?;
            after = rows.last().map_or(after, |row| row.id);
            self.tell(&rows);
            if rows.len() < BATCH as usize {
                tokio::select! {
                    () = &mut stop => return Ok(Outcome::Fine),
                    () = tokio::time::sleep(PACE) => {}
                }
            }
        }
    }

    /// Tells what was there already. Returns the last number, and how many were told.
    fn begin(&self, store: &Reads) -> Result<(i64, usize)> {
        if let Some(mut after) = self.after {
            let mut told = 0;
            loop {
                let rows = store.events(after, BATCH)?;
                let Some(last) = rows.last() else { return Ok((after, told)) };
                after = last.id;
                told += self.tell(&rows);
            }
        }
        let end = store.last_event_id()?;
        let mut wanted: Vec<EventRow> = Vec::new();
        // From the end backwards, until there are enough.
        let mut before = end;
        while wanted.len() < self.last as usize && before > 0 {
            let from = (before - i64::from(BATCH)).max(0);
            let rows = store.events(from, (before - from) as u32)?;
            let matching = rows.into_iter().filter(|row| row.id <= before && self.wants(row));
            wanted.splice(0..0, matching);
            before = from;
        }
        let too_many = wanted.len().saturating_sub(self.last as usize);
        Ok((end, self.tell(&wanted[too_many..])))
    }

    fn tell(&self, rows: &[EventRow]) -> usize {
        let wanted = rows.iter().filter(|row| self.wants(row));
        wanted.map(|row| if self.json { say!("{}", events::shown(row)) } else { tell(row) }).count()
    }

    fn wants(&self, row: &EventRow) -> bool {
        (self.kind.is_empty() || self.kind.iter().any(|kind| is_of(&row.kind, kind)))
            && self.conversation.is_none_or(|id| row.conversation == Some(id))
            && self.user.as_ref().is_none_or(|user| row.user.as_ref() == Some(user))
    }
}

fn tell(row: &EventRow) {
    let style = match row.kind.as_str() {
        "rollover" | "refused" | "checkpoint.failed" => Style::new().red(),
        "compression" => Style::new().yellow(),
        _ => Style::new(),
    };
    let conversation = row.conversation.map(|id| id.to_string()).unwrap_or_else(|| "-".to_owned());
    say!(
        "{:>6}  {}  {:<19}  {:>5}  {}",
        row.id,
        when(row.at).if_supports_color(Stdout, |text| text.dimmed()),
        row.kind.if_supports_color(Stdout, |text| text.style(style)),
        conversation,
        shown(&events::sentence(&row.kind, &serde_json::from_str(&row.body).unwrap_or_default())),
    );
}
