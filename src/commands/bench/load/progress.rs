//! How far it is, on standard error: one line that is written over, or one every few seconds.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use super::Load;
use crate::bench::compare::{Spread, within_cycles};
use crate::bench::path::Path;
use crate::bench::rounds::Ran;
use crate::bench::units::{added_us, rate, whole};

/// How often it is told where it cannot be written over.
const TELL_EVERY: Duration = Duration::from_secs(5);

pub(super) struct Progress {
    terminal: bool,
    quiet: bool,
    /// What there is to do, in the words of the line.
    seconds: f64,
    requests: Option<u64>,
    told: Instant,
}

impl Progress {
    pub(super) fn new(load: &Load) -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self {
            terminal,
            quiet: load.json && !terminal,
            seconds: load.seconds,
            requests: load.requests,
            told: Instant::now(),
        }
    }

    pub(super) fn tell(&mut self, ran: &Ran, paths: &[Path]) {
        if self.quiet {
            return;
        }
        if self.terminal {
            eprint!("\r\x1b[2K{}", self.line(ran, paths));
        } else if self.told.elapsed() >= TELL_EVERY {
            self.told = Instant::now();
            eprintln!("{}", self.line(ran, paths));
        }
    }

    /// Makes room for the report.
    pub(super) fn clear(&self) {
        if self.terminal {
            eprint!("\r\x1b[2K");
        }
    }

    fn line(&self, ran: &Ran, paths: &[Path]) -> String {
        let far = match self.requests {
            Some(all) => {
                let asked = |path: &Path| path.figures.requests() + path.figures.failures();
                let done: u64 = paths.iter().map(asked).sum();
                format!("{} of {}", whole(done as f64), whole((all * paths.len() as u64) as f64))
            }
            None => format!("{:.0} s of {:.0}", ran.measured.as_secs_f64(), self.seconds),
        };
        let rates = paths.iter().map(|path| format!("{} {}/s", path.name, rate(path.figures.requests_per_s())));
        let added = paths.get(..2).and_then(|pair| added(&pair[1], &pair[0]));
        let errors: u64 = paths.iter().map(|path| path.figures.failures()).sum();
        let errors = if errors == 1 { "1 error".to_owned() } else { format!("{} errors", whole(errors as f64)) };
        let parts = std::iter::once(far).chain(rates).chain(added).chain([errors]);
        parts.collect::<Vec<_>>().join(" · ")
    }
}

/// What Loadline adds to the whole answer, so far.
fn added(loadline: &Path, direct: &Path) -> Option<String> {
    let by_cycle = within_cycles(&loadline.figures, &direct.figures, |slice, direct| {
        Some(slice.total_p50_us? - direct.total_p50_us?)
    });
    Some(format!("p50 {}", added_us(Spread::of(by_cycle)?.median)))
}
