//! Everything that a run found out, as one value: what JSON, the table and the page all show.
//!
//! Units are in the names. What could not be measured is none, never nought.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::affinity::Affinity;
use super::compare::{Added, Percentiles, Spread, within_cycles};
use super::figures::{Figures, Slice, Turns, per_second};
use super::path::Path;
use super::script::Shape;
use super::units::{added_us, ratio};

/// What the path to Loadline is called, and that to the upstream itself.
pub const LOADLINE: &str = "loadline";
pub const DIRECT: &str = "direct";

#[derive(Debug, Serialize)]
pub struct Report {
    pub run: Run,
    /// Where there are several upstreams.
    pub affinity: Option<Affinity>,
    pub paths: Vec<PathReport>,
}

/// What was done.
#[derive(Debug, Serialize)]
pub struct Run {
    pub command: String,
    pub clients: usize,
    #[serde(flatten)]
    pub shape: Shape,
    /// Time in slices, of all paths.
    pub seconds: f64,
    pub cycles: usize,
    pub warm_up_s: f64,
    pub cut_short: bool,
    /// Of a Loadline of our own.
    pub durability: Option<String>,
    pub loadline_version: String,
    pub upstream: String,
    /// Whether it is a simulator of ours.
    pub simulated: bool,
    pub upstream_version: Option<String>,
    pub machine: Machine,
}

#[derive(Debug, Serialize)]
pub struct Machine {
    pub cpus: usize,
    pub os: String,
}

/// What was found on one path.
#[derive(Debug, Serialize)]
pub struct PathReport {
    pub name: String,
    pub url: String,
    pub requests: u64,
    pub requests_per_s: f64,
    pub request_bytes_mean: f64,
    pub answer_bytes_per_s: f64,
    pub errors: Errors,
    pub rss_bytes: Option<Rss>,
    pub cpu_us_per_request: Option<f64>,
    pub first_byte_us: Option<Percentiles>,
    pub gap_us: Option<Percentiles>,
    pub total_us: Option<Percentiles>,
    /// Beside `direct`, which has none of its own.
    pub added: Option<Added>,
    pub requests_per_s_ratio_by_cycle: Option<Spread>,
    pub by_turn: Vec<ByTurn>,
    pub cycles: Vec<Cycle>,
    #[serde(skip)]
    pub curves: Curves,
}

#[derive(Debug, Serialize)]
pub struct Errors {
    pub total: u64,
    pub by_kind: BTreeMap<String, u64>,
    /// What the last one said.
    pub last: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct Rss {
    pub now: u64,
    pub max: u64,
}

#[derive(Debug, Serialize)]
pub struct ByTurn {
    pub from: u32,
    pub to: Option<u32>,
    pub requests: u64,
    pub total_p50_us: u64,
    pub request_bytes_mean: f64,
    /// The time of each slice, shared out evenly among its requests.
    pub cpu_us_per_request: Option<f64>,
}

#[derive(Debug, Serialize)]
pub struct Cycle {
    pub cycle: usize,
    pub ended_s: f64,
    pub requests: u64,
    pub errors: u64,
    pub requests_per_s: f64,
    pub first_byte_p50_us: Option<f64>,
    pub total_p50_us: Option<f64>,
    pub cpu_us_per_request: Option<f64>,
    pub rss_bytes: Option<u64>,
}

/// Percentiles close enough together to draw a line through: how many nines, and the time in microseconds.
#[derive(Debug, Default)]
pub struct Curves {
    pub first_byte: Vec<(f64, f64)>,
    pub total: Vec<(f64, f64)>,
}

impl Report {
    /// The first path is the one that the others are held against.
    pub fn new(run: Run, paths: &[Path]) -> Self {
        let direct = paths.first().map(|path| &path.figures);
        let paths = paths.iter().enumerate().map(|(place, path)| {
            let beside = direct.filter(|_| place > 0);
            PathReport::new(path, beside)
        });
        Self { run, affinity: None, paths: paths.collect() }
    }

    pub fn path(&self, name: &str) -> Option<&PathReport> {
        self.paths.iter().find(|path| path.name == name)
    }

    /// All of it in one plain sentence.
    pub fn sentence(&self) -> String {
        let told = |path: &PathReport| {
            let (added, kept) = (path.added.as_ref()?, path.requests_per_s_ratio_by_cycle?);
            let (first, total) = (added.first_byte_p50_us_by_cycle?, added.total_p50_us_by_cycle?);
            // Less than nothing is noise, or a prompt that Loadline made shorter.
            let adds = |us: f64| added_us(us).trim_start_matches('+').to_owned();
            let Spread { median, min, max } = kept;
            Some(format!(
                "Loadline adds {} to the first byte and {} to the whole answer; it passes on {} [{}–{}] of the requests a second that asking direct does (medians over the cycles).",
                adds(first.median),
                adds(total.median),
                ratio(median),
                ratio(min),
                ratio(max),
            ))
        };
        let told = self.path(LOADLINE).and_then(told);
        let failed: u64 = self.paths.iter().map(|path| path.errors.total).sum();
        if failed > 0 {
            let told = told.unwrap_or_default();
            return format!("{failed} requests failed, so this compares what is not alike. {told}")
                .trim_end()
                .to_owned();
        }
        told.unwrap_or_else(|| "Loadline and the upstream were not both measured: there is nothing to compare.".into())
    }
}

impl PathReport {
    fn new(path: &Path, direct: Option<&Figures>) -> Self {
        let figures = &path.figures;
        let sum = |of: fn(&Slice) -> u64| figures.slices.iter().map(of).sum::<u64>();
        let requests = figures.requests();
        let resident = || figures.slices.iter().filter_map(|slice| slice.rss_bytes);
        let faster = |slice: &Slice, direct: &Slice| {
            (direct.requests > 0 && slice.requests > 0).then(|| slice.requests_per_s() / direct.requests_per_s())
        };
        Self {
            name: path.name.clone(),
            url: path.target.url.clone(),
            requests,
            requests_per_s: figures.requests_per_s(),
            request_bytes_mean: sum(|slice| slice.request_bytes) as f64 / requests.max(1) as f64,
            answer_bytes_per_s: per_second(sum(|slice| slice.answer_bytes), figures.took()),
            errors: Errors {
                total: figures.failures(),
                by_kind: figures.errors.clone(),
                last: figures.failure.as_ref().map(|failure| failure.said.clone()),
            },
            rss_bytes: resident().next_back().zip(resident().max()).map(|(now, max)| Rss { now, max }),
            cpu_us_per_request: cpu_us_per_request(&figures.slices),
            first_byte_us: Percentiles::of(&figures.first_byte),
            gap_us: Percentiles::of(&figures.gap),
            total_us: Percentiles::of(&figures.total),
            added: direct.map(|direct| Added::new(figures, direct)),
            requests_per_s_ratio_by_cycle: direct.and_then(|direct| Spread::of(within_cycles(figures, direct, faster))),
            by_turn: figures.turns.iter().filter(|turns| !turns.total.is_empty()).map(ByTurn::new).collect(),
            cycles: figures.slices.iter().map(Cycle::new).collect(),
            curves: Curves { first_byte: curve(&figures.first_byte), total: curve(&figures.total) },
        }
    }
}

impl ByTurn {
    fn new(turns: &Turns) -> Self {
        let requests = turns.total.len();
        Self {
            from: turns.from,
            to: turns.to,
            requests,
            total_p50_us: turns.total.value_at_quantile(0.5),
            request_bytes_mean: turns.request_bytes as f64 / requests.max(1) as f64,
            cpu_us_per_request: turns.cpu_us.map(|cpu| cpu / requests.max(1) as f64),
        }
    }
}

impl Cycle {
    fn new(slice: &Slice) -> Self {
        Self {
            cycle: slice.cycle,
            ended_s: slice.ended.as_secs_f64(),
            requests: slice.requests,
            errors: slice.errors,
            requests_per_s: slice.requests_per_s(),
            first_byte_p50_us: slice.first_byte_p50_us,
            total_p50_us: slice.total_p50_us,
            cpu_us_per_request: cpu_us_per_request(std::slice::from_ref(slice)),
            rss_bytes: slice.rss_bytes,
        }
    }
}

/// The system counts in hundredths of a second: less than that is not known.
const LEAST_CPU: Duration = Duration::from_millis(10);

/// Over the slices in which it could be seen.
fn cpu_us_per_request(slices: &[Slice]) -> Option<f64> {
    let seen = slices.iter().filter_map(|slice| Some((slice.cpu?, slice.requests)));
    let (cpu, requests) = seen.reduce(|one, other| (one.0 + other.0, one.1 + other.1))?;
    (requests > 0 && cpu >= LEAST_CPU).then(|| cpu.as_secs_f64() * 1e6 / requests as f64)
}

/// From the fastest to as many nines as there are requests for, four at most.
fn curve(times: &Histogram<u64>) -> Vec<(f64, f64)> {
    if times.is_empty() {
        return Vec::new();
    }
    let most = (times.len() as f64).log10().min(4.0);
    let steps = (most * 20.0).floor() as u32;
    let nines = (0..=steps).map(|step| f64::from(step) / 20.0);
    nines.map(|nines| (nines, times.value_at_quantile(1.0 - 10_f64.powf(-nines)) as f64)).collect()
}
