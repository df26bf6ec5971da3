//! `loadline validate`: is this canonical JSONL?

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};

use super::data::shown;
use super::{Outcome, stop_signal};
use crate::history::validate::{self, Options, Report};

/// How often watched files are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// Directories below a given one.
const MAX_DEPTH: usize = 64;

/// Files this large show how far they have been read.
const LARGE_BYTES: u64 = 256 << 20;

/// Read to find out whose file it is.
const MAX_LOOK_BYTES: u64 = 64 << 20;

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

/// All that matters of a line when files are chosen.
#[derive(Debug, serde::Deserialize)]
struct Named {
    #[serde(default)]
    provider: Value,
}

/// A file as it was when it was last looked at.
type Seen = BTreeMap<PathBuf, (u64, Option<SystemTime>)>;

/// What became of some files.
#[derive(Debug, Default)]
struct Tally {
    passed: usize,
    failed: Vec<PathBuf>,
    other_provider: usize,
    unreadable: usize,
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
        if tally.unreadable > 0 {
            bail!("{} of {} files could not be read", tally.unreadable, files.len());
        }
        if let (0, Some(provider)) = (checked, &self.provider) {
            bail!("none of {} files is of provider `{provider}`", files.len());
        }
        Ok(if tally.failed.is_empty() { Outcome::Fine } else { Outcome::No })
    }

    fn validate(&self, files: &[PathBuf]) -> Result<Tally> {
        let mut tally = Tally::default();
        let mut reports: Vec<Value> = Vec::new();
        for path in files {
            let report = match self.is_wanted(path).and_then(|wanted| wanted.then(|| validated(path)).transpose()) {
                Ok(Some(report)) => report,
                Ok(None) => {
                    tally.other_provider += 1;
                    continue;
                }
                Err(error) => {
                    tally.unreadable += 1;
                    if self.json {
                        reports.push(json!({ "file": name(path), "valid": false, "error": error.to_string() }));
                    }
                    eprintln!("error: {}: {error}", name(path));
                    continue;
                }
            };
            if report.passes(self.strict) {
                tally.passed += 1;
            } else {
                tally.failed.push(path.clone());
                // Whoever stops reading half-way must not take it for valid.
                super::if_nobody_reads(1);
            }
            if self.json {
                reports.push(validate::json(&report, &name(path), self.strict));
            } else {
                self.tell(path, &report, files.len());
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
            for path in there {
                match self.validate(std::slice::from_ref(&path)) {
                    Ok(tally) => failed.extend(tally.failed),
                    Err(error) => eprintln!("{error:#}"),
                }
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
            let is_dir = fs::metadata(path).is_ok_and(|metadata| metadata.is_dir());
            if is_dir { search(path, 0, &mut files)? } else { files.push(path.clone()) }
        }
        Ok(files)
    }

    /// Whether a file may be the wanted provider's: only one that names others, and never the wanted one, is not.
    fn is_wanted(&self, path: &Path) -> std::io::Result<bool> {
        let Some(wanted) = &self.provider else { return Ok(true) };
        let mut others = false;
        for line in BufReader::new(File::open(path)?).take(MAX_LOOK_BYTES).lines().map_while(Result::ok) {
            let Ok(read) = serde_json::from_str::<Named>(line.trim_start_matches('\u{feff}')) else { continue };
            match read.provider.as_str() {
                Some(named) if named == wanted => return Ok(true),
                Some("") | None => {}
                Some(_) => others = true,
            }
        }
        Ok(!others)
    }

    /// One file is told of at length; of many, only those with findings.
    fn tell(&self, path: &Path, report: &Report, files: usize) {
        let clean = report.error_count() + report.warning_count() == 0;
        if files > 1 && clean && !self.verbose {
            say!("✓ {}: {} messages", name(path), report.messages);
            return;
        }
        if files > 1 || self.watch || !self.paths.contains(&path.to_path_buf()) {
            say!("File: {}", name(path));
        }
        say!("{}", shown(&validate::human(report, self.strict, self.verbose)));
    }

    fn sum_up(&self, files: &[PathBuf], tally: &Tally) {
        if self.json || files.len() < 2 {
            return;
        }
        let skipped = match tally.other_provider {
            0 => String::new(),
            other => format!(", {other} of other providers left out"),
        };
        let files = |count: usize| format!("{count} file{}", if count == 1 { "" } else { "s" });
        say!("{} valid, {} invalid{skipped}", files(tally.passed), files(tally.failed.len()));
        for path in &tally.failed {
            say!("  ✗ {}", name(path));
        }
    }
}

/// A path that a terminal shows on one line.
fn name(path: &Path) -> String {
    shown(&path.display().to_string()).replace('\n', "\u{fffd}")
}

fn names(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| name(path)).collect::<Vec<_>>().join(", ")
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
        } else if path.extension().is_some_and(|extension| extension == "jsonl") && !is_special(&path) {
            files.push(path);
        }
    }
    Ok(())
}

/// Pipes and devices, which could be read for ever. A link that leads nowhere is a file that cannot be read.
fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| !metadata.is_file())
}

fn validated(path: &Path) -> std::io::Result<Report> {
    let options = Options::at(jiff::Timestamp::now());
    if path == Path::new("-") {
        return validate::validate(std::io::stdin().lock(), &options);
    }
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let told = size >= LARGE_BYTES && std::io::stderr().is_terminal();
    let file = Progress { file, read: 0, size: if told { size } else { 0 }, percent: 0 };
    validate::validate(BufReader::with_capacity(BUFFER_BYTES, file), &options)
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
