//! What was measured on one path: histograms of the whole run, and one line for each of its slices.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::{CreationError, Histogram};

use super::client::{Failure, LONGEST};
use super::compare::Spread;
use super::process::Usage;
use super::slice::{Gathered, Sample};

/// Where a bucket of turns ends; the last one has no end.
const TURN_ENDS: [u32; 10] = [2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000];

/// Everything about one path.
#[derive(Debug)]
pub struct Figures {
    pub first_byte: Histogram<u64>,
    pub gap: Histogram<u64>,
    pub total: Histogram<u64>,
    pub turns: Vec<Turns>,
    pub slices: Vec<Slice>,
    pub errors: BTreeMap<String, u64>,
    /// The last thing that went wrong.
    pub failure: Option<Failure>,
}

/// Requests with a turn number in one range.
#[derive(Debug)]
pub struct Turns {
    pub from: u32,
    pub to: Option<u32>,
    pub total: Histogram<u64>,
    pub request_bytes: u64,
    /// Time of the path's processes. A slice's time belongs to its requests in equal parts, as nobody can tell them
    /// apart; in a slice where all chats are about as long, that is their own.
    pub cpu_us: Option<f64>,
}

/// One slice of the run on this path.
#[derive(Debug, Clone, Default)]
pub struct Slice {
    pub cycle: usize,
    /// When it ended, since measuring began.
    pub ended: Duration,
    pub took: Duration,
    pub requests: u64,
    pub errors: u64,
    pub request_bytes: u64,
    pub answer_bytes: u64,
    pub first_byte_p50_us: Option<f64>,
    pub total_p50_us: Option<f64>,
    pub cpu: Option<Duration>,
    pub rss_bytes: Option<u64>,
}

impl Slice {
    pub fn requests_per_s(&self) -> f64 {
        per_second(self.requests, self.took)
    }
}

impl Figures {
    pub fn new() -> Result<Self, CreationError> {
        let begins = std::iter::once(1).chain(TURN_ENDS.map(|end| end + 1));
        let ends = TURN_ENDS.into_iter().map(Some).chain([None]);
        let bucket = |(from, to)| Ok(Turns { from, to, total: histogram()?, request_bytes: 0, cpu_us: None });
        Ok(Self {
            first_byte: histogram()?,
            gap: histogram()?,
            total: histogram()?,
            turns: begins.zip(ends).map(bucket).collect::<Result<_, CreationError>>()?,
            slices: Vec::new(),
            errors: BTreeMap::new(),
            failure: None,
        })
    }

    /// Takes in a slice. `used` is what the path's processes used before it and after it.
    pub fn add(&mut self, cycle: usize, ended: Duration, gathered: Gathered, used: [Option<Usage>; 2]) {
        let cpu = match used {
            [Some(before), Some(after)] => Some(after.cpu.saturating_sub(before.cpu)),
            _ => None,
        };
        let requests = gathered.samples.len() as u64;
        let cpu_us_each = cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / requests.max(1) as f64);
        let first_bytes = first_bytes(&gathered.samples);
        for first_byte in &first_bytes {
            self.first_byte.saturating_record(micros(*first_byte));
        }
        for sample in &gathered.samples {
            self.total.saturating_record(micros(sample.total));
            let place = TURN_ENDS.partition_point(|end| *end < sample.turn);
            if let Some(bucket) = self.turns.get_mut(place) {
                bucket.total.saturating_record(micros(sample.total));
                bucket.request_bytes += sample.request_bytes as u64;
                bucket.cpu_us = cpu_us_each.map(|each| bucket.cpu_us.unwrap_or(0.0) + each);
            }
        }
        for gap in &gathered.gaps {
            self.gap.saturating_record(micros(*gap));
        }
        self.slices.push(Slice {
            cycle,
            ended,
            took: gathered.took,
            requests,
            errors: gathered.failures(),
            request_bytes: gathered.samples.iter().map(|sample| sample.request_bytes as u64).sum(),
            answer_bytes: gathered.samples.iter().map(|sample| sample.answer_bytes as u64).sum(),
            first_byte_p50_us: median_us(first_bytes.into_iter()),
            total_p50_us: median_us(gathered.samples.iter().map(|sample| sample.total)),
            cpu,
            rss_bytes: used[1].map(|after| after.rss_bytes),
        });
        for (kind, count) in gathered.errors {
            *self.errors.entry(kind).or_default() += count;
        }
        self.failure = gathered.failure.or(self.failure.take());
    }

    pub fn requests(&self) -> u64 {
        self.total.len()
    }

    pub fn failures(&self) -> u64 {
        self.errors.values().sum()
    }

    /// The time of its slices alone.
    pub fn took(&self) -> Duration {
        self.slices.iter().map(|slice| slice.took).sum()
    }

    pub fn requests_per_s(&self) -> f64 {
        per_second(self.requests(), self.took())
    }
}

/// Of streamed answers, where there are any: the first byte of an answer in one piece comes with all of it, and the
/// two together would have a median between them that nobody has ever waited.
fn first_bytes(samples: &[Sample]) -> Vec<Duration> {
    let any_streamed = samples.iter().any(|sample| sample.streamed);
    samples.iter().filter(|sample| sample.streamed == any_streamed).map(|sample| sample.first_byte).collect()
}

pub fn per_second(count: u64, took: Duration) -> f64 {
    if took.is_zero() { 0.0 } else { count as f64 / took.as_secs_f64() }
}

fn histogram() -> Result<Histogram<u64>, CreationError> {
    Histogram::new_with_bounds(1, LONGEST.as_micros() as u64, 3)
}

fn micros(time: Duration) -> u64 {
    (time.as_nanos() as u64).div_ceil(1000).max(1)
}

fn median_us(times: impl Iterator<Item = Duration>) -> Option<f64> {
    Spread::of(times.map(|time| time.as_secs_f64() * 1e6)).map(|spread| spread.median)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::bench) fn gathered(turns: &[(u32, u64)]) -> Gathered {
        let sample = |&(turn, us): &(u32, u64)| Sample {
            turn,
            request_bytes: 100,
            answer_bytes: 10,
            streamed: false,
            first_byte: Duration::from_micros(us / 2),
            total: Duration::from_micros(us),
        };
        let samples = turns.iter().map(sample).collect();
        Gathered { samples, took: Duration::from_millis(500), ..Gathered::default() }
    }

    #[test]
    fn every_turn_number_has_one_bucket() {
        let mut figures = Figures::new().unwrap();
        let numbers = [1, 2, 3, 5, 6, 2_000, 2_001, 90_000];
        figures.add(0, Duration::ZERO, gathered(&numbers.map(|number| (number, 50))), [None; 2]);
        let counts: Vec<(u32, Option<u32>, u64)> = figures
            .turns
            .iter()
            .filter(|bucket| !bucket.total.is_empty())
            .map(|bucket| (bucket.from, bucket.to, bucket.total.len()))
            .collect();
        assert_eq!(
            counts,
            [(1, Some(2), 2), (3, Some(5), 2), (6, Some(10), 1), (1001, Some(2000), 1), (2001, None, 2)]
        );
    }

    #[test]
    fn the_first_byte_is_that_of_streamed_answers_where_there_are_any() {
        let mut figures = Figures::new().unwrap();
        let mut mixed = gathered(&[(1, 100), (1, 90_000), (1, 90_000)]);
        mixed.samples[0].streamed = true;
        figures.add(0, Duration::ZERO, mixed, [None; 2]);
        assert_eq!((figures.first_byte.len(), figures.first_byte.max()), (1, 50));
        assert_eq!(figures.slices[0].first_byte_p50_us, Some(50.0));
        figures.add(1, Duration::ZERO, gathered(&[(1, 90_000)]), [None; 2]);
        assert_eq!(figures.first_byte.len(), 2);
    }

    #[test]
    fn a_slices_cpu_is_shared_out_among_its_requests() {
        let mut figures = Figures::new().unwrap();
        let used = |ms| Some(Usage { cpu: Duration::from_millis(ms), rss_bytes: 4096 });
        figures.add(0, Duration::ZERO, gathered(&[(1, 50), (1, 50), (1, 50), (4, 50)]), [used(10), used(50)]);
        assert_eq!(figures.turns[0].cpu_us, Some(30_000.0));
        assert_eq!(figures.turns[1].cpu_us, Some(10_000.0));
        assert_eq!(figures.slices[0].cpu, Some(Duration::from_millis(40)));
    }
}
