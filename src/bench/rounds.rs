//! Whose turn it is: paths are asked in short slices, one after the other, in an order that rotates.
//!
//! Machines get slower and faster by themselves. Slices that take turns see the same weather, and an order that
//! rotates gives no path the place after the slowest one every time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::client::Failure;
use super::path::Path;
use super::process::usage;
use super::script::{Shape, Stage};
use super::slice::{self, Until};

/// Fewer cycles would say nothing about how far figures spread.
const FEWEST_CYCLES: u32 = 3;

/// A number of requests is asked for in so many cycles, if it is not smaller itself.
const CYCLES_OF_REQUESTS: u64 = 10;

/// How long the run is, without warming up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// All paths together.
    Time(Duration),
    /// Each path.
    Requests(u64),
}

#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub length: Length,
    /// How long a slice is, if there is time for enough of them.
    pub round: Duration,
    /// All paths together.
    pub warm_up: Duration,
    pub clients: usize,
}

/// How far a run has come.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ran {
    pub cycles: usize,
    /// Time in slices, of all paths.
    pub measured: Duration,
    pub cut_short: bool,
}

/// A path that did not answer once.
#[derive(Debug, thiserror::Error)]
#[error("{name} does not answer at {url}: {failure}")]
pub struct Silent {
    pub name: String,
    pub url: String,
    pub failure: Failure,
}

impl Plan {
    /// What the slice of one path in a cycle is; none if the run is over.
    fn slice(&self, ran: &Ran, paths: usize) -> Option<Until> {
        match self.length {
            Length::Time(length) => {
                let slices = FEWEST_CYCLES * paths as u32;
                let round = self.round.min(length / slices.max(1));
                // A cycle that would mostly be beyond the end is left out. Requests may be longer than a slice.
                let over = ran.measured + round * paths as u32 / 2 > length;
                (!over || ran.cycles < FEWEST_CYCLES as usize).then_some(Until::Elapsed(round))
            }
            Length::Requests(requests) => {
                let cycles = CYCLES_OF_REQUESTS.min(requests);
                let (before, cycle) = (ran.cycles as u64, ran.cycles as u64 + 1);
                let share = (requests * cycle).checked_div(cycles)? - (requests * before).checked_div(cycles)?;
                (before < cycles).then_some(Until::Requests(share))
            }
        }
    }
}

/// The places of the paths in a cycle: each is first, second, … in turn.
pub fn order(cycle: usize, paths: usize) -> impl Iterator<Item = usize> {
    (0..paths).map(move |place| (place + cycle) % paths)
}

/// Warms up, then measures until the plan is done or somebody wants it to stop. `tell` hears of every slice.
pub async fn run(
    plan: &Plan,
    shape: &Arc<Shape>,
    paths: &mut [Path],
    stop: &CancellationToken,
    mut tell: impl FnMut(&Ran, &[Path]),
) -> Result<Ran, Silent> {
    warm_up(plan, shape, paths, stop).await?;
    for path in paths.iter_mut() {
        path.prepare(shape, Stage::Measured, plan.clients);
    }
    let mut ran = Ran::default();
    let begun = Instant::now();
    while let Some(until) = plan.slice(&ran, paths.len()) {
        for place in order(ran.cycles, paths.len()) {
            if stop.is_cancelled() {
                return Ok(Ran { cut_short: true, ..ran });
            }
            let path = &mut paths[place];
            let before = usage(&path.processes);
            let gathered = slice::run(&mut path.clients, until.clone(), stop).await;
            let used = [before, usage(&path.processes)];
            ran.measured += gathered.took;
            path.figures.add(ran.cycles, begun.elapsed(), gathered, used);
            tell(&ran, paths);
        }
        ran.cycles += 1;
    }
    Ok(Ran { cut_short: stop.is_cancelled(), ..ran })
}

/// Opens all connections and has models loaded and code paths warm. Each client asks once at least, so a path that
/// is not there is noticed before anything is measured.
async fn warm_up(plan: &Plan, shape: &Arc<Shape>, paths: &mut [Path], stop: &CancellationToken) -> Result<(), Silent> {
    let each = plan.warm_up / (paths.len() as u32).max(1);
    for path in paths {
        path.prepare(shape, Stage::WarmUp, plan.clients);
        let gathered = slice::run(&mut path.clients, Until::Elapsed(each), stop).await;
        if let (true, Some(failure)) = (gathered.samples.is_empty(), gathered.failure) {
            return Err(Silent { name: path.name.clone(), url: path.target.url.clone(), failure });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(length: Length) -> Plan {
        Plan { length, round: Duration::from_millis(500), warm_up: Duration::ZERO, clients: 1 }
    }

    /// The slices of a run whose paths all take just as long as they are asked for.
    fn slices(length: Length, paths: usize) -> Vec<Until> {
        let (plan, mut ran, mut slices) = (plan(length), Ran::default(), Vec::new());
        while let Some(until) = plan.slice(&ran, paths) {
            if let Until::Elapsed(length) = until {
                ran.measured += length * paths as u32;
            }
            ran.cycles += 1;
            slices.push(until);
        }
        slices
    }

    #[test]
    fn the_order_rotates_by_one_each_cycle() {
        let orders: Vec<Vec<usize>> = (0..4).map(|cycle| order(cycle, 3).collect()).collect();
        assert_eq!(orders, [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]);
    }

    #[test]
    fn requests_are_shared_out_over_ten_cycles_and_none_is_lost() {
        for (requests, cycles) in [(1_003, 10), (40, 10), (7, 7), (1, 1), (0, 0)] {
            let slices = slices(Length::Requests(requests), 2);
            assert_eq!(slices.len(), cycles);
            let asked: u64 =
                slices.iter().map(|until| if let Until::Requests(share) = until { *share } else { 0 }).sum();
            assert_eq!(asked, requests);
        }
    }

    #[test]
    fn a_time_is_that_of_all_paths_together() {
        let slices = slices(Length::Time(Duration::from_secs(20)), 2);
        assert_eq!(slices.len(), 20);
        assert!(matches!(slices[0], Until::Elapsed(round) if round == Duration::from_millis(500)));
    }

    #[test]
    fn a_short_run_has_three_cycles_of_shorter_slices() {
        let slices = slices(Length::Time(Duration::from_millis(900)), 3);
        assert_eq!(slices.len(), 3);
        assert!(matches!(slices[0], Until::Elapsed(round) if round == Duration::from_millis(100)));
    }

    #[test]
    fn slow_answers_do_not_make_a_run_longer_than_it_must_be() {
        let plan = plan(Length::Time(Duration::from_secs(20)));
        let after = |cycles, seconds| Ran { cycles, measured: Duration::from_secs(seconds), cut_short: false };
        assert!(plan.slice(&after(2, 90), 2).is_some(), "three cycles there are at least");
        assert!(plan.slice(&after(3, 90), 2).is_none());
        assert!(plan.slice(&after(3, 10), 2).is_some());
    }
}
