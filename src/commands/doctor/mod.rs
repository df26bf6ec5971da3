//! `loadline doctor`: is the upstream there, which windows, which tokenizers, what would bite, and how to mend it.
//!
//! One file a group of checks. Each gathers facts and has them judged by functions that only see facts, so that a
//! judgement is a test away. It only looks: it changes nothing, and loads no model unless that was asked for.

mod configuration;
mod finding;
mod machine;
mod models;
mod place;
mod server;
mod store;
mod tokens;
mod upstream;
mod window;

use std::collections::HashSet;
use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use owo_colors::{OwoColorize, Stream::Stdout, Style};
use tokio::time::Instant;

use super::Outcome;
use super::data::DataDir;
use crate::config::Config;
use crate::events::now_ms;
use crate::store::serving_at;
use finding::{Check, Group, Report, Status};
use models::Examiner;
use store::Past;
use upstream::There;

/// What everything together may take, but for a store that is slow to answer at the very end.
const WHOLE_TIME: Duration = Duration::from_secs(25);

/// The same when models may be loaded.
const WITH_LOADING: Duration = Duration::from_secs(600);

/// A directory that has not told everything by then is on a disk that hangs.
const STORE_TIME: Duration = Duration::from_secs(15);

/// Look at the configuration, the upstream, its models and the store: what is wrong, and how to mend it.
///
/// Looks with the configuration that `loadline serve` would have, environment included, and changes nothing.
/// Exits with 0 if nothing is wrong (warnings are allowed), with 1 if something is, with 2 if it could not look.
///
///   loadline doctor
///   loadline doctor --upstream http://127.0.0.1:11434 --model llama3.2
///   loadline doctor --json | jq '.checks[] | select(.status == "fail")'
///
/// No model is loaded for it: how a model's template is counted is tried only where the model is loaded already,
/// with the window that it is loaded with; --load tries it everywhere.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Doctor {
    #[command(flatten)]
    data: DataDir,
    /// The Ollama to look at [default: as configured, or http://127.0.0.1:11434]
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
    /// A model to look at; may repeat [default: all, at most 20, loaded ones first]
    #[arg(long, value_name = "NAME")]
    model: Vec<String>,
    /// Let Ollama load models to see how they are counted; this can take minutes
    #[arg(long)]
    load: bool,
    /// As JSON: {"ok", "checks": [{"group", "name", "status", "seen", "mend"}]}
    #[arg(long)]
    json: bool,
}

impl Doctor {
    pub(super) async fn run(self) -> Result<Outcome> {
        let (config, reads) = configuration::read(&self.data, self.upstream.as_deref())?;
        let report = self.look(&config, reads).await;
        tell("");
        let outcome = if report.is_well() { Outcome::Fine } else { Outcome::No };
        super::if_nobody_reads(u8::from(outcome == Outcome::No));
        if self.json {
            say!("{:#}", report.json());
        } else {
            print(&report);
        }
        Ok(outcome)
    }

    async fn look(&self, config: &Config, reads: Check) -> Report {
        let deadline = Instant::now() + if self.load { WITH_LOADING } else { WHOLE_TIME };
        let announced = serving_at(&config.data_dir);
        let announced = announced.as_deref();
        tell("looking at the configuration, the store and the upstream …");
        let ((mut configured, running, (upstream, there)), (stored, past)) = tokio::join!(
            async {
                let configured = configuration::look(config, announced).await;
                let running = server::look(announced, &config.upstream_url, config.mode).await;
                (configured, running, upstream::look(config, announced).await)
            },
            stored(config)
        );
        configured.insert(0, reads);
        let mut report = Report(vec![
            Group::new("configuration", configured),
            Group::new("server", running),
            Group::new("upstream", upstream),
        ]);
        for (number, url) in (2..).zip(config.upstream_urls.iter().skip(1)) {
            let other = Config { upstream_url: url.clone(), ..config.clone() };
            report.0.push(Group::new(format!("upstream {number}"), upstream::look(&other, announced).await.0));
        }
        if let Some(there) = &there {
            report.0.extend(self.models(config, there, &past, deadline).await);
        }
        let clock = there.as_ref().and_then(|there| there.clock);
        let mut machine = machine::clock(now_ms(), past.newest_turn_at, clock);
        machine.push(machine::open_files());
        report.0.extend([Group::new("store", stored), Group::new("machine", machine)]);
        report
    }

    async fn models(&self, config: &Config, there: &There, past: &Past, deadline: Instant) -> Vec<Group> {
        let load_within = self.load.then_some(WITH_LOADING);
        let Some(examiner) = Examiner::new(config, there, &past.limits, load_within) else { return Vec::new() };
        let (names, left_out) = models::chosen(&self.model, there);
        let mut groups = Vec::new();
        for (number, name) in (1..).zip(&names) {
            tell(&format!("looking at model {number} of {} …", names.len()));
            let looked = tokio::time::timeout_at(deadline, examiner.look(name)).await;
            let out_of_time = Check::skip("window", "no time was left; `loadline doctor --model` looks at it alone");
            groups.push(looked.unwrap_or_else(|_| Group::new(models::title(name), vec![out_of_time])));
        }
        if left_out > 0 {
            let seen = format!("{left_out} more models were not looked at; --model NAME looks at one");
            groups.push(Group::new("other models", vec![Check::skip("window", seen)]));
        }
        groups
    }
}

/// The store, looked at on a thread of its own: a disk that hangs must not keep this process.
async fn stored(config: &Config) -> (Vec<Check>, Past) {
    let (home, auth_required) = (config.home(), config.auth_required);
    let (done, looked) = tokio::sync::oneshot::channel();
    let started = std::thread::Builder::new().spawn(move || {
        let _nobody_waits = done.send(store::look(&home, auth_required));
    });
    let looked = match started {
        Ok(_) => tokio::time::timeout(STORE_TIME, looked).await.ok().and_then(Result::ok),
        Err(_) => None,
    };
    looked.unwrap_or_else(|| {
        let seen = format!("{} does not answer", config.home());
        let mend = "look at that disk (`df`, `dmesg`); set store.data_dir (LOADLINE_STORE_DATA_DIR) to a local one if it is a network's";
        (vec![Check::fail("directory", seen, mend)], Past::default())
    })
}

/// One line that is written over, where somebody watches; empty to clear it.
fn tell(text: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[2K{text}");
    }
}

fn print(report: &Report) {
    let width = report.0.iter().flat_map(|group| &group.checks).map(|check| check.name.len()).max().unwrap_or(0);
    let mut said = HashSet::new();
    for group in &report.0 {
        // What is the same for many models is said once.
        let model = group.title.strip_prefix(models::TITLE);
        say!("{}", group.title.if_supports_color(Stdout, |title| title.bold()));
        for check in &group.checks {
            let (mark, style) = match check.status {
                Status::Ok => ("✓", Style::new().green()),
                Status::Warn => ("!", Style::new().yellow()),
                Status::Fail => ("✗", Style::new().red()),
                Status::Skip => ("–", Style::new().dimmed()),
            };
            let mark = format!("{mark} {:<4}", check.status.name());
            let mark = mark.if_supports_color(Stdout, |mark| mark.style(style));
            say!("  {mark}  {:<width$}  {}", check.name, indented(&check.seen, width));
            if let Some(mend) = &check.mend {
                let general = model.map(|model| mend.replace(model, "…"));
                let again = general.is_some_and(|general| !said.insert(general));
                let mend = if again { "as above" } else { mend };
                say!("  {:<6}  {:<width$}  → {}", "", "", indented(mend, width));
            }
        }
        say!("");
    }
    say!("{}", summary(report));
}

/// Later lines of a text begin below the first.
fn indented(text: &str, width: usize) -> String {
    text.trim().replace('\n', &format!("\n{}", " ".repeat(width + 12)))
}

fn summary(report: &Report) -> String {
    let [ok, warn, fail, skip] =
        [Status::Ok, Status::Warn, Status::Fail, Status::Skip].map(|status| report.count(status));
    let verdict = match (fail, warn) {
        (0, 0) => "Nothing is wrong.",
        (0, _) => "Nothing is wrong, but something may bite.",
        _ => "Something is wrong.",
    };
    format!("{verdict} {fail} to mend, {warn} to watch, {ok} fine, {skip} not looked at.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_says_the_worst_first() {
        let report = |checks| Report(vec![Group::new("a", checks)]);
        assert_eq!(
            summary(&report(vec![Check::ok("x", "")])),
            "Nothing is wrong. 0 to mend, 0 to watch, 1 fine, 0 not looked at."
        );
        let ill = report(vec![Check::fail("x", "", "m"), Check::warn("y", "", "m"), Check::skip("z", "")]);
        assert_eq!(summary(&ill), "Something is wrong. 1 to mend, 1 to watch, 0 fine, 1 not looked at.");
    }

    #[test]
    fn further_lines_stay_below_the_first() {
        assert_eq!(indented("a\nb\n", 2), format!("a\n{}b", " ".repeat(14)));
    }
}
