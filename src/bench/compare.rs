//! What one path does beside another: medians and how far they spread, taken within a cycle and over the whole run.

use hdrhistogram::Histogram;
use serde::Serialize;

use super::figures::{Figures, Slice};

/// The middle of some numbers, and how far they reach.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// None of no numbers.
    pub fn of(numbers: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut numbers: Vec<f64> = numbers.into_iter().collect();
        numbers.sort_by(f64::total_cmp);
        let (min, max) = (*numbers.first()?, *numbers.last()?);
        let (low, high) = (numbers[(numbers.len() - 1) / 2], numbers[numbers.len() / 2]);
        Some(Self { median: f64::midpoint(low, high), min, max })
    }
}

/// What a path does beside `direct` in the same cycle, for all cycles in which both were asked.
pub fn within_cycles<T>(path: &Figures, direct: &Figures, compare: impl Fn(&Slice, &Slice) -> Option<T>) -> Vec<T> {
    let beside = |slice: &Slice| direct.slices.iter().find(|direct| direct.cycle == slice.cycle).cloned();
    path.slices.iter().filter_map(|slice| compare(slice, &beside(slice)?)).collect()
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct Percentiles {
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p99_9: u64,
    pub mean: f64,
    pub max: u64,
    pub count: u64,
}

impl Percentiles {
    /// None of no requests.
    pub fn of(times: &Histogram<u64>) -> Option<Self> {
        let at = |quantile| times.value_at_quantile(quantile);
        (!times.is_empty()).then(|| Self {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            mean: times.mean(),
            max: times.max(),
            count: times.len(),
        })
    }
}

/// What a path adds to `direct`.
#[derive(Debug, Serialize)]
pub struct Added {
    pub first_byte_us: Option<Differences>,
    pub gap_us: Option<Differences>,
    pub total_us: Option<Differences>,
    /// Medians, taken within each cycle.
    pub total_p50_us_by_cycle: Option<Spread>,
    pub first_byte_p50_us_by_cycle: Option<Spread>,
}

impl Added {
    pub fn new(path: &Figures, direct: &Figures) -> Self {
        let by_cycle = |p50: fn(&Slice) -> Option<f64>| {
            Spread::of(within_cycles(path, direct, |slice, direct| Some(p50(slice)? - p50(direct)?)))
        };
        Self {
            first_byte_us: Differences::between(&path.first_byte, &direct.first_byte),
            gap_us: Differences::between(&path.gap, &direct.gap),
            total_us: Differences::between(&path.total, &direct.total),
            total_p50_us_by_cycle: by_cycle(|slice| slice.total_p50_us),
            first_byte_p50_us_by_cycle: by_cycle(|slice| slice.first_byte_p50_us),
        }
    }
}

/// Percentile minus percentile, over the whole run. May be less than nothing, where noise is larger.
#[derive(Debug, Serialize)]
pub struct Differences {
    pub p50: i64,
    pub p90: i64,
    pub p99: i64,
    pub p99_9: i64,
}

impl Differences {
    fn between(path: &Histogram<u64>, direct: &Histogram<u64>) -> Option<Self> {
        let (path, direct) = (Percentiles::of(path)?, Percentiles::of(direct)?);
        let minus = |of: fn(Percentiles) -> u64| of(path) as i64 - of(direct) as i64;
        Some(Self { p50: minus(|p| p.p50), p90: minus(|p| p.p90), p99: minus(|p| p.p99), p99_9: minus(|p| p.p99_9) })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bench::figures::tests::gathered;

    #[test]
    fn the_middle_of_an_even_number_of_figures_lies_between_two_of_them() {
        assert_eq!(Spread::of([4.0, 1.0, 3.0, 2.0]), Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
        assert_eq!(Spread::of([7.0, -1.0, 3.0]), Some(Spread { median: 3.0, min: -1.0, max: 7.0 }));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn paths_are_compared_within_a_cycle_and_only_where_both_were_asked() {
        let (mut direct, mut path) = (Figures::new().unwrap(), Figures::new().unwrap());
        for (cycle, direct_us, path_us) in [(0, 100, 180), (1, 1_000, 1_090), (2, 100, 170)] {
            direct.add(cycle, Duration::ZERO, gathered(&[(1, direct_us)]), [None; 2]);
            path.add(cycle, Duration::ZERO, gathered(&[(1, path_us)]), [None; 2]);
        }
        path.add(3, Duration::ZERO, gathered(&[(1, 9_999)]), [None; 2]);
        let added = within_cycles(&path, &direct, |slice, direct| Some(slice.total_p50_us? - direct.total_p50_us?));
        // Over the whole run the medians lie 80 µs apart as well, but one noisy cycle would not show.
        assert_eq!(Spread::of(added).map(|added| added.median.round()), Some(80.0));
    }

    #[test]
    fn what_is_added_is_the_difference_of_percentiles_and_may_be_less_than_nothing() {
        let (mut direct, mut path) = (Figures::new().unwrap(), Figures::new().unwrap());
        let times = |scale: u64| (1..=1_000).map(|us| (1, us * scale)).collect::<Vec<_>>();
        direct.add(0, Duration::ZERO, gathered(&times(1)), [None; 2]);
        path.add(0, Duration::ZERO, gathered(&times(2)), [None; 2]);
        let percentiles = Percentiles::of(&direct.total).unwrap();
        assert_eq!((percentiles.p50, percentiles.p90, percentiles.p99, percentiles.count), (500, 900, 990, 1_000));
        let more = Differences::between(&path.total, &direct.total).unwrap();
        assert_eq!((more.p50, more.p90, more.p99), (500, 900, 990));
        let less = Differences::between(&direct.total, &path.total).unwrap();
        assert_eq!((less.p50, less.p90), (-500, -900));
        assert!(Percentiles::of(&direct.gap).is_none(), "nothing was streamed");
    }
}
