//! What it brings that a conversation goes back to the upstream that has read it, where there are several.
//!
//! Two Loadlines before the same upstreams are asked in turns, one that sends conversations back and one that does not.
//! How often each did is what they count themselves (`loadline_upstream_choices_total`).

use serde::Serialize;

use super::report::{LOADLINE, PathReport, Report};

/// What the path to the Loadline is called that does not send conversations back.
pub const WITHOUT: &str = "no-affinity";

/// Requests of one Loadline by why their upstream was taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Choices {
    pub affine: u64,
    pub new: u64,
    pub moved: u64,
}

impl Choices {
    /// Reads them off a page of metrics.
    pub fn read(page: &str) -> Self {
        let of = |choice: &str| {
            let name = format!("loadline_upstream_choices_total{{choice=\"{choice}\"}} ");
            let line = page.lines().find_map(|line| line.strip_prefix(name.as_str()));
            line.and_then(|number| number.parse().ok()).unwrap_or(0)
        };
        Self { affine: of("affine"), new: of("new"), moved: of("moved") }
    }

    /// Those since an earlier look.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            affine: self.affine.saturating_sub(earlier.affine),
            new: self.new.saturating_sub(earlier.new),
            moved: self.moved.saturating_sub(earlier.moved),
        }
    }

    /// Of the turns of conversations that had been somewhere, the share that went back there.
    fn hit_rate(self) -> Option<f64> {
        let had = self.affine + self.moved;
        (had > 0).then(|| self.affine as f64 / had as f64)
    }
}

#[derive(Debug, Serialize)]
pub struct Affinity {
    pub upstreams: usize,
    pub choices: Choices,
    /// Of the turns of conversations that had been somewhere, the share that went back there.
    pub hit_rate: Option<f64>,
    /// Where conversations are not sent back, as measured in the same run.
    pub first_byte_p50_us: Option<u64>,
    pub first_byte_p50_us_without: Option<u64>,
    pub total_p50_us: Option<u64>,
    pub total_p50_us_without: Option<u64>,
    /// With, over without: less than 1 is what it saves.
    pub first_byte_p50_ratio: Option<f64>,
    pub total_p50_ratio: Option<f64>,
    pub requests_per_s_ratio: Option<f64>,
}

impl Affinity {
    pub fn of(report: &Report, upstreams: usize, choices: Choices) -> Option<Self> {
        let (with, without) = (report.path(LOADLINE)?, report.path(WITHOUT)?);
        let first = |path: &PathReport| path.first_byte_us.as_ref().map(|times| times.p50);
        let total = |path: &PathReport| path.total_us.as_ref().map(|times| times.p50);
        let ratio =
            |of: Option<u64>, to: Option<u64>| of.zip(to.filter(|to| *to > 0)).map(|(of, to)| of as f64 / to as f64);
        Some(Self {
            upstreams,
            choices,
            hit_rate: choices.hit_rate(),
            first_byte_p50_us: first(with),
            first_byte_p50_us_without: first(without),
            total_p50_us: total(with),
            total_p50_us_without: total(without),
            first_byte_p50_ratio: ratio(first(with), first(without)),
            total_p50_ratio: ratio(total(with), total(without)),
            requests_per_s_ratio: (without.requests_per_s > 0.0).then(|| with.requests_per_s / without.requests_per_s),
        })
    }

    /// In words.
    pub fn sentence(&self) -> String {
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let times = |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        format!(
            "{} upstreams: {} of the turns went back to the one that had read them ({} did, {} had to move, {} were new).\n\
             Beside the same without affinity: first byte p50 × {}, total p50 × {}, requests/s × {}.",
            self.upstreams,
            self.hit_rate.map_or_else(|| "-".to_owned(), percent),
            self.choices.affine,
            self.choices.moved,
            self.choices.new,
            times(self.first_byte_p50_ratio),
            times(self.total_p50_ratio),
            times(self.requests_per_s_ratio),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_off_a_page_and_counted_since_the_last_look() {
        let page = "# HELP x y\nloadline_upstream_choices_total{choice=\"affine\"} 30\n\
                    loadline_upstream_choices_total{choice=\"moved\"} 10\nloadline_upstream_choices_total{choice=\"new\"} 5\n";
        let now = Choices::read(page);
        assert_eq!(now, Choices { affine: 30, new: 5, moved: 10 });
        let since = now.since(Choices { affine: 15, new: 5, moved: 5 });
        assert_eq!((since, since.hit_rate()), (Choices { affine: 15, new: 0, moved: 5 }, Some(0.75)));
        assert_eq!(Choices::default().hit_rate(), None);
    }
}
