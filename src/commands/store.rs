//! `loadline store`: the store as a whole.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use clap::{Args, Subcommand};
use serde_json::json;

use super::Outcome;
use super::data::DataDir;
use crate::store::{Home, Progress, copy, copy_home};

/// Progress is told this often.
const TOLD_EVERY: Duration = Duration::from_millis(200);

/// And this often where nobody looks at a terminal.
const NOTED_EVERY: Duration = Duration::from_secs(10);

/// Move everything to another store.
#[derive(Debug, Args)]
pub(super) struct StoreCommand {
    #[command(flatten)]
    data: DataDir,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Copy everything from one store into another, and compare both
    ///
    /// A store is a data directory (SQLite), the address of a PostgreSQL (postgres://user@host/database), or `-` for
    /// the one that the configuration names. A password can be given in PGPASSWORD instead of in an address. Nobody may serve from either meanwhile. The target must be empty, or
    /// a copy that was broken off: then it goes on where it was. Conversations, snapshots, receipts, events, tokens and the
    /// secret that conversations are recognised with are all copied, with their numbers, so that clients notice nothing.
    Copy {
        /// Where everything is
        from: String,
        /// Where it is to go
        to: String,
        /// Print what was copied as JSON
        #[arg(long)]
        json: bool,
    },
}

impl StoreCommand {
    pub(super) async fn run(self) -> Result<Outcome> {
        let What::Copy { from, to, json } = &self.what;
        let (from, to) = (self.home(from)?, self.home(to)?);
        let (source, target) = (from.to_string(), to.to_string());
        let started = Instant::now();
        let mut teller = Teller::default();
        let copied = tokio::task::spawn_blocking(move || copy(&from, &to, |progress| teller.tell(progress))).await??;
        clear();
        if copied.before {
            if *json {
                say!("{}", json!({ "from": source, "to": target, "copied_before": true }));
            } else {
                say!("{target} was copied from {source} before, to its end: nothing was done");
            }
            return Ok(Outcome::Fine);
        }
        let rows: u64 = copied.tables.iter().map(|(_, rows, _)| rows).sum();
        if *json {
            let tables = copied
                .tables
                .iter()
                .map(|(name, rows, written)| json!({ "table": name, "rows": rows, "written": written }));
            let tables: Vec<_> = tables.collect();
            let told = json!({ "from": source, "to": target, "copied_before": false, "rows": rows, "same": true, "tables": tables,
                "seconds": started.elapsed().as_secs_f64() });
            say!("{told}");
            return Ok(Outcome::Fine);
        }
        for (name, rows, written) in &copied.tables {
            say!("{name:<15} {rows:>10} rows, {written} of them written now");
        }
        say!("{rows} rows are the same in {source} and {target} ({:.1} s)", started.elapsed().as_secs_f64());
        Ok(Outcome::Fine)
    }

    fn home(&self, written: &str) -> Result<Home> {
        if written == "-" {
            return self.data.home();
        }
        copy_home(written, None, None).map_err(|error| anyhow!("an address of PostgreSQL {error}"))
    }
}

/// Says how far it has come, where somebody looks, and now and then where nobody does.
#[derive(Debug, Default)]
struct Teller {
    last: Option<Instant>,
}

impl Teller {
    fn tell(&mut self, Progress { what, table, done, of }: Progress) {
        let terminal = std::io::stderr().is_terminal();
        let every = if terminal { TOLD_EVERY } else { NOTED_EVERY };
        if self.last.get_or_insert_with(Instant::now).elapsed() < every {
            return;
        }
        self.last = Some(Instant::now());
        let percent = (done * 100).checked_div(of).unwrap_or(100);
        if terminal {
            eprint!("\r\x1b[2K{what} {table}: {done} of {of} ({percent} %)");
        } else {
            eprintln!("{what} {table}: {done} of {of} ({percent} %)");
        }
    }
}

fn clear() {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[2K");
    }
}
