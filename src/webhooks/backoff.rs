//! When a call that has failed is made again: later and later, and never all at the same moment.

use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;

/// The pause after the first failure is at most the shortest; it doubles with each, up to the longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    pub shortest: Duration,
    pub longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { shortest: Duration::from_secs(1), longest: Duration::from_secs(300) }
    }
}

impl Backoff {
    /// How long to wait after this many failures. `random` takes any part of the pause, so that many who failed
    /// together do not come back together. What the receiver asked for is respected, up to the longest.
    pub fn pause(&self, failures: u32, random: u64, asked: Option<Duration>) -> Duration {
        let part = random as f64 / u64::MAX as f64;
        self.at_most(failures).mul_f64(part).max(asked.unwrap_or_default().min(self.longest))
    }

    fn at_most(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        self.shortest.saturating_mul(1 << doublings).min(self.longest)
    }
}

/// What a `Retry-After` asks for: seconds, or a date. What is neither asks for nothing.
pub(super) fn asked(retry_after: &str, now: Timestamp) -> Option<Duration> {
    let text = retry_after.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(Duration::try_from(at.duration_since(now)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_pause_is_never_longer_than_its_step_nor_than_the_longest(failures: u32, random: u64, asked in 0_u64..10_000) {
            let backoff = Backoff::default();
            let step = 2_f64.powi(failures.saturating_sub(1).min(20) as i32);
            let pause = backoff.pause(failures, random, None);
            prop_assert!(pause <= backoff.longest && pause.as_secs_f64() <= step, "{pause:?}");
            let asked = Duration::from_secs(asked);
            let pause = backoff.pause(failures, random, Some(asked));
            prop_assert!(pause <= backoff.longest && pause >= asked.min(backoff.longest), "{pause:?}");
        }
    }

    #[test]
    fn pauses_double_from_a_second_to_five_minutes() {
        let longest = |failures| Backoff::default().pause(failures, u64::MAX, None).as_secs();
        assert_eq!([1, 2, 3, 8, 9, 10, 1000].map(longest), [1, 2, 4, 128, 256, 300, 300]);
        assert_eq!(Backoff::default().pause(12, 0, None), Duration::ZERO);
    }

    #[test]
    fn a_receiver_may_ask_for_seconds_or_for_a_date() {
        let now: Timestamp = "2026-11-16T14:00:00Z".parse().expect("a time");
        let seconds = |text| asked(text, now).map(|asked| asked.as_secs());
        assert_eq!(seconds("120"), Some(120));
        assert_eq!(seconds("Mon, 16 Nov 2026 14:01:30 GMT"), Some(90));
        assert_eq!(seconds("Mon, 16 Nov 2026 13:00:00 GMT"), Some(0), "a date that has passed asks for no pause");
        for nonsense in ["", "soon", "-5", "1e9", "99999999999999999999"] {
            assert_eq!(seconds(nonsense), None, "{nonsense}");
        }
    }
}
