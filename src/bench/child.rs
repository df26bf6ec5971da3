//! Processes of our own: the simulator and the Loadline that are measured when no others are named.
//!
//! Processes rather than tasks, so that each has its own memory and its own time to be looked at, and the clients
//! share neither with what they measure. They end with the guard, whatever happens.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

/// Building a vocabulary without optimisation on a busy machine takes seconds.
const START: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    #[error("`loadline {0}` cannot be started: {1}")]
    NotStarted(String, std::io::Error),
    #[error("`loadline {0}` ended before it listened; what it said is above")]
    Ended(String),
    #[error("`loadline {0}` did not listen within {seconds} s", seconds = START.as_secs())]
    TooSlow(String),
}

/// A process that ends when this is dropped.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    /// Kept open: a process that cannot print ends.
    _stdout: Option<BufReader<ChildStdout>>,
    pub url: String,
}

impl Child {
    /// Starts this same program with other arguments, and waits until it listens. `settings` are all the
    /// `LOADLINE_*` variables it gets.
    pub async fn start(arguments: &[&str], settings: &[(&str, &str)]) -> Result<Self, ChildError> {
        let name = arguments.first().copied().unwrap_or_default().to_owned();
        let mut process = spawn(arguments, settings).map_err(|error| ChildError::NotStarted(name.clone(), error))?;
        let stdout = process.stdout.take();
        let mut child = Self { process, _stdout: None, url: String::new() };
        // Reading waits. If it waits too long the child is ended, and with it the reading.
        let reading = tokio::task::spawn_blocking(move || {
            let mut lines = BufReader::new(stdout?);
            let mut line = String::new();
            lines.read_line(&mut line).ok()?;
            Some((line.trim().strip_prefix("listening on ")?.to_owned(), lines))
        });
        let read = tokio::time::timeout(START, reading).await.map_err(|_| ChildError::TooSlow(name.clone()))?;
        let (url, lines) = read.ok().flatten().ok_or(ChildError::Ended(name))?;
        (child.url, child._stdout) = (url, Some(lines));
        Ok(child)
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It has nothing to save: what it stored goes with its directory.
        let _gone_already = self.process.kill();
        let _reaped = self.process.wait();
    }
}

fn spawn(arguments: &[&str], settings: &[(&str, &str)]) -> std::io::Result<std::process::Child> {
    let mut command = Command::new(std::env::current_exe()?);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LOADLINE_")) {
        command.env_remove(name);
    }
    command.args(arguments).envs(settings.iter().copied()).stdin(Stdio::null()).stdout(Stdio::piped());
    // A Ctrl-C is for us: what was measured so far is still told, and these end after their last answer.
    command.process_group(0).spawn()
}

/// A directory that goes when this is dropped.
#[derive(Debug)]
pub struct Directory(pub PathBuf);

impl Directory {
    pub fn new() -> Self {
        Self(std::env::temp_dir().join(format!("loadline-bench-{}", uuid::Uuid::new_v4().simple())))
    }
}

impl Default for Directory {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _best_effort = std::fs::remove_dir_all(&self.0);
    }
}
