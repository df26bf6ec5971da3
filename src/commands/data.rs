//! The data directory, as commands use it: to look, beside a server or without one, and to change, through the
//! server where one is running.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;

use super::serve::variables;

use crate::api::token::Token;
use crate::config::{Config, Flags};
use crate::events::now_ms;
use crate::store::{Change, Home, NewToken, ReadOnly, Store, StoreError, serving_at};

/// A token for one call is good for this long.
const CALL_MS: i64 = 60_000;

/// What a server may take for one call: a large import waits for the disk.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Debug, Args)]
pub(super) struct DataDir {
    /// Where everything is kept [default: ~/.local/share/loadline]
    #[arg(long, value_name = "DIR", global = true, help_heading = "Where", env = "LOADLINE_STORE_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// Configuration file of the server: says where everything is kept, and the limits
    #[arg(long, value_name = "FILE", global = true, help_heading = "Where", env = "LOADLINE_CONFIG")]
    config: Option<PathBuf>,
}

/// Who changes things.
pub(super) enum Writing {
    /// We do: no server is running.
    Own(Box<Store>),
    /// The server does, at this address.
    Server(String),
}

impl DataDir {
    /// The configuration as a server would have it.
    pub(super) fn config(&self) -> Result<Config> {
        Ok(Config::load(self.config_file(), variables(), self.flags())?)
    }

    pub(super) fn config_file(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    pub(super) fn flags(&self) -> Flags {
        Flags { data_dir: self.data_dir.clone(), ..Flags::default() }
    }

    fn path(&self) -> Result<PathBuf> {
        Ok(self.config()?.data_dir)
    }

    /// Where everything is kept.
    pub(super) fn home(&self) -> Result<Home> {
        Ok(self.config()?.home())
    }

    pub(super) fn read(&self) -> Result<ReadOnly> {
        let home = self.home()?;
        match home.open_read_only() {
            Err(StoreError::File { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                bail!(
                    "nothing is stored in {home}: `loadline serve` has not run there yet, or keeps everything on a \
                     PostgreSQL (then say --config FILE, or LOADLINE_STORE_URL)"
                )
            }
            other => Ok(other?),
        }
    }

    /// Opens the directory for writing, or finds the server that has it.
    pub(super) fn write(&self) -> Result<Writing> {
        let home = self.home()?;
        let dir = &home.dir;
        match home.open_for_command() {
            Ok(store) => Ok(Writing::Own(Box::new(store))),
            Err(StoreError::InUse { .. }) => {
                let address = serving_at(dir)
                    .ok_or_else(|| anyhow!("another loadline has {} open; try again in a moment", dir.display()))?;
                Ok(Writing::Server(address))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a change that needs no server to know of it, beside one if there is one.
    pub(super) async fn change_beside(&self, change: Change) -> Result<()> {
        match self.write()? {
            Writing::Own(store) => Ok(store.submit(change).await?),
            Writing::Server(_) => Ok(self.home()?.change_beside(&change)?),
        }
    }

    /// The address of the server that has the directory open.
    pub(super) fn serving(&self) -> Result<String> {
        let dir = self.path()?;
        serving_at(&dir).ok_or_else(|| {
            anyhow!(
                "no loadline serves from {}: start one with `loadline serve`, or name one with --url",
                dir.display()
            )
        })
    }

    /// A token for a user, good until it is dropped and for no longer than `valid_ms`.
    pub(super) fn pass(&self, user: &str, scopes: &str, valid_ms: i64) -> Result<Pass> {
        Pass::new(self.home()?, user, scopes, valid_ms)
    }

    /// Calls the server on behalf of a user, with a token for this call only.
    pub(super) async fn call(
        &self,
        address: &str,
        user: &str,
        request: impl FnOnce(reqwest::Client, &str) -> reqwest::RequestBuilder,
    ) -> Result<(u16, String)> {
        let pass = self.pass(user, "chat,read", CALL_MS)?;
        let client = reqwest::Client::builder()
            .timeout(CALL_TIMEOUT)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        let request = request(client, address).bearer_auth(pass.reveal());
        let answer = request.send().await.with_context(|| format!("the loadline at {address} does not answer"))?;
        let status = answer.status().as_u16();
        let text = answer.text().await.with_context(|| format!("the answer of the loadline at {address}"))?;
        if status >= 500 || status == 401 || status == 403 {
            bail!("the loadline at {address} answers {status}: {text}");
        }
        Ok((status, text))
    }
}

/// A token that ends with what it was made for.
pub(super) struct Pass {
    home: Home,
    token: Token,
}

impl Pass {
    fn new(home: Home, user: &str, scopes: &str, valid_ms: i64) -> Result<Self> {
        let token = Token::new()?;
        let new = NewToken {
            name: format!("command-{}", uuid::Uuid::now_v7().simple()),
            user: user.to_owned(),
            digest: token.digest(),
            hint: token.hint(),
            scopes: scopes.to_owned(),
            at: now_ms(),
            expires_at: Some(now_ms() + valid_ms),
        };
        home.change_beside(&Change::CreateToken(new))?;
        Ok(Self { home, token })
    }

    pub(super) fn reveal(&self) -> &str {
        self.token.reveal()
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        // Best effort: it expires by itself.
        let row = self.home.open_read_only().and_then(|store| store.token(&self.token.digest()));
        if let Ok(Some(row)) = row {
            let _ = self.home.change_beside(&Change::ForgetToken(row.id));
        }
    }
}

/// A time for people, in UTC.
pub(super) fn when(at_ms: i64) -> String {
    jiff::Timestamp::from_millisecond(at_ms).map(|at| at.strftime("%Y-%m-%d %H:%M:%S").to_string()).unwrap_or_default()
}

/// A text that a terminal shows as it is, and does not obey.
pub(super) fn shown(text: &str) -> String {
    let obeyed = |char: char| char.is_control() && !matches!(char, '\n' | '\t');
    // These turn around what stands beside them.
    let turning =
        |char: char| matches!(char, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().filter(|char| !turning(*char)).map(|char| if obeyed(char) { '\u{fffd}' } else { char }).collect()
}
