//! `loadline validate`: is this canonical JSONL?

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::Value;

use super::data::shown;
use super::{Outcome, stop_signal};
use crate::history::validate::{self, Options, Report};

/// How often watched files are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// Directories below a given one.
const MAX_DEPTH: usize = 64;

/// Files this large show how far they have been read.
const LARGE_BYTES: u64 = 256 << 20;

/// Read at once.
const BUFFER_BYTES: usize = 256 << 10;

/// Validate canonical JSONL session files.
///
/// Four levels: the schema of each line, its meaning, the session as a whole (tool calls and their results, order of
/// times, parents), and the quality of what is stored. Errors make a file invalid; warnings do with --strict. Files
/// are read as a stream, whatever their size. Exit codes: 0 all valid, 1 some are not, 2 could not be read.
#[derive(Debug, Args)]
pub(super) struct Validate {
    /// Files, or directories to search for .jsonl files; - is standard input
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Treat warnings as errors
    #[arg(long)]
    strict: bool,
    /// Print a JSON array, one object a file
    #[arg(long)]
    json: bool,
    /// Say of each finding which level and field it is about, and how to mend it
    #[arg(long)]
    verbose: bool,
    /// Go on watching, and validate again what changes
    #[arg(long)]
    watch: bool,
    /// Only files of this provider
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
}

/// A file as it was when it was last looked at.
type Seen = BTreeMap<PathBuf, (u64, Option<SystemTime>)>;

/// What became of some files.
#[derive(Debug, Default)]
struct Tally {
    passed: usize,
    failed: Vec<PathBuf>,
    other_provider: usize,
}

impl Validate {
    pub(super) async fn run(self) -> Result<Outcome> {
        let files = self.files()?;
        if files.is_empty() && !self.watch {
            bail!("there are no .jsonl files in {}", names(&self.paths));
        }
        let tally = self.validate(&files)?;
        if self.watch {
            return self.follow(tally).await;
        }
        self.sum_up(&files, &tally);
        let checked = tally.passed + tally.failed.len();
        if let (0, Some(provider)) = (checked, &self.provider) {
            bail!("none of {} files is of provider `{provider}`", files.len());
        }
        Ok(if tally.failed.is_empty() { Outcome::Fine } else { Outcome::No })
    }

    fn validate(&self, files: &[PathBuf]) -> Result<Tally> {
        let mut tally = Tally::default();
        let mut reports: Vec<Value> = Vec::new();
        for path in files {
            if self.provider.is_some() && !self.is_wanted(path)? {
                tally.other_provider += 1;
                continue;
            }
            let report = validated(path)?;
            if report.passes(self.strict) {
                tally.passed += 1;
            } else {
                tally.failed.push(path.clone());
            }
            if self.json {
                reports.push(validate::json(&report, &path.display().to_string(), self.strict));
            } else {
                if files.len() > 1 || self.watch {
                    say!("File: {}", path.display());
                }
                say!("{}", shown(&validate::human(&report, self.strict, self.verbose)));
            }
        }
        if self.json {
            say!("{:#}", Value::from(reports));
        }
        Ok(tally)
    }

    /// Looks at the files again and again until it is told to stop.
    async fn follow(&self, first: Tally) -> Result<Outcome> {
        let mut failed: Vec<PathBuf> = first.failed;
        let mut seen = self.look()?;
        eprintln!("watching {}; Ctrl-C ends", names(&self.paths));
        let mut stop = std::pin::pin!(stop_signal());
        loop {
            tokio::select! {
                () = &mut stop => break,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            let now = self.look()?;
            let changed: Vec<PathBuf> = now
                .iter()
                .filter(|(path, state)| seen.get(*path) != Some(state))
                .map(|(path, _)| path.clone())
                .collect();
            failed.retain(|path| now.contains_key(path) && !changed.contains(path));
            seen = now;
            // A file may go between looking and reading; the next look notices.
            let there: Vec<PathBuf> = changed.into_iter().filter(|path| path.exists()).collect();
            if !there.is_empty() {
                failed.extend(self.validate(&there)?.failed);
            }
        }
        Ok(if failed.is_empty() { Outcome::Fine } else { Outcome::No })
    }

    fn look(&self) -> Result<Seen> {
        let mut seen = Seen::new();
        for path in self.files().unwrap_or_default() {
            if let Ok(metadata) = fs::metadata(&path) {
                seen.insert(path, (metadata.len(), metadata.modified().ok()));
            }
        }
        Ok(seen)
    }

    fn files(&self) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for path in &self.paths {
            if path == Path::new("-") {
                if self.watch || self.provider.is_some() {
                    bail!("standard input can be read only once: give a file");
                }
                files.push(path.clone());
                continue;
            }
            let metadata = fs::metadata(path).with_context(|| path.display().to_string())?;
            if metadata.is_dir() { search(path, 0, &mut files)? } else { files.push(path.clone()) }
        }
        Ok(files)
    }

    /// Whether the first line that names a provider names the wanted one.
    fn is_wanted(&self, path: &Path) -> Result<bool> {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        let first = BufReader::new(file).take(1 << 20).lines().map_while(Result::ok);
        let provider = first.filter_map(|line| {
            let read: Value = serde_json::from_str(&line).ok()?;
            read["provider"].as_str().map(str::to_owned)
        });
        Ok(provider.take(1).next() == self.provider)
    }

    fn sum_up(&self, files: &[PathBuf], tally: &Tally) {
        if self.json || files.len() < 2 {
            return;
        }
        let skipped = match tally.other_provider {
            0 => String::new(),
            other => format!(", {other} of other providers left out"),
        };
        say!("{} files valid, {} invalid{skipped}", tally.passed, tally.failed.len());
        for path in &tally.failed {
            say!("  ✗ {}", path.display());
        }
    }
}

fn names(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// All `.jsonl` files below a directory, in the order of their names. Links to directories are not followed.
fn search(dir: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<()> {
    let mut entries: Vec<_> =
        fs::read_dir(dir).and_then(Iterator::collect).with_context(|| dir.display().to_string())?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, kind) = (entry.path(), entry.file_type().with_context(|| entry.path().display().to_string())?);
        if kind.is_dir() && depth < MAX_DEPTH {
            search(&path, depth + 1, files)?;
        } else if !kind.is_dir() && path.extension().is_some_and(|extension| extension == "jsonl") {
            files.push(path);
        }
    }
    Ok(())
}

fn validated(path: &Path) -> Result<Report> {
    let options = Options::at(jiff::Timestamp::now());
    if path == Path::new("-") {
        return validate::validate(std::io::stdin().lock(), &options).context("standard input");
    }
    let read = || {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        let told = size >= LARGE_BYTES && std::io::stderr().is_terminal();
        let file = Progress { file, read: 0, size: if told { size } else { 0 }, percent: 0 };
        validate::validate(BufReader::with_capacity(BUFFER_BYTES, file), &options)
    };
    read().with_context(|| path.display().to_string())
}

/// A file that says how far it has been read.
struct Progress {
    file: File,
    read: u64,
    /// 0: nobody is told.
    size: u64,
    percent: u64,
}

impl Read for Progress {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = self.file.read(buffer)?;
        self.read += length as u64;
        let percent = (self.read * 100).checked_div(self.size).unwrap_or(0);
        if percent > self.percent {
            self.percent = percent;
            eprint!("\r{percent:>3} % read{}", if percent >= 100 { "\n" } else { "" });
        }
        Ok(length)
    }
}
