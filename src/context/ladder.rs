//! The ladder: how full a prompt is, and what follows from it.
//!
//! `limit = floor(window × (1 − reserve))`. A decision is a value with its reason inside; the header,
//! the log, the event and the error text are all made from it, so they cannot disagree.

use std::fmt;

/// A number of tokens.
pub type Tokens = u32;

/// The model's context window, in tokens.
pub type Window = u32;

/// The share of the window that is kept free for the answer unless configuration says otherwise.
pub const DEFAULT_RESERVE: f64 = 0.15;

/// An answer may claim at most this share of the window, however large `num_predict` is.
const MAX_RESERVE: f64 = 0.5;

/// Percent of the limit at which each rung begins.
pub const TOLD_PERCENT: u64 = 70;
pub const CHECKPOINT_PERCENT: u64 = 80;
pub const COMPRESSION_PERCENT: u64 = 95;
pub const ROLLOVER_PERCENT: u64 = 100;

/// How a count came about, and so how far it can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Basis {
    /// The model's own vocabulary over the rendered prompt.
    Exact,
    /// The model's own vocabulary, with an overhead learnt from reported counts, or with images.
    Calibrated,
    /// Another vocabulary, with a safety margin.
    Estimated,
}

impl Basis {
    pub const ALL: [Self; 3] = [Self::Exact, Self::Calibrated, Self::Estimated];

    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Calibrated => "calibrated",
            Self::Estimated => "estimated",
        }
    }
}

/// How much may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    pub window: Window,
    pub limit: Tokens,
}

impl Budget {
    /// The limit in a window. An answer that was promised more room than the reserve gets it, up to
    /// half of the window.
    pub fn new(window: Window, reserve: f64, answer_tokens: Option<u32>) -> Self {
        let window_size = f64::from(window);
        let asked = answer_tokens.map_or(0.0, |tokens| f64::from(tokens) / window_size.max(1.0));
        let reserve = reserve.max(asked.min(MAX_RESERVE));
        // The small addend undoes binary fractions such as 2000 × (1 − 0.15) = 1699.999….
        let limit = (window_size * (1.0 - reserve) + 1e-6).floor();
        Self { window, limit: (limit as u32).max(1) }
    }
}

/// How full a prompt is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub total: Tokens,
    pub limit: Tokens,
}

impl Usage {
    fn reaches(self, percent: u64) -> bool {
        u64::from(self.total) * 100 >= u64::from(self.limit) * percent
    }

    pub fn fits(self) -> bool {
        self.total <= self.limit
    }

    /// Tenths of a percent, rounded.
    fn tenths(self) -> u64 {
        (u64::from(self.total) * 2000 / u64::from(self.limit.max(1))).div_ceil(2)
    }

    /// With one decimal.
    pub fn percent(self) -> f64 {
        self.tenths() as f64 / 10.0
    }
}

/// `72.4%`
impl fmt::Display for Usage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = self.tenths();
        write!(formatter, "{}.{}%", tenths / 10, tenths % 10)
    }
}

/// What the ladder says about a prompt, before anything is done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Below all marks.
    Under(Usage),
    Told(Usage),
    Checkpoint(Usage),
    Compression(Usage),
    Rollover(Usage),
}

impl Decision {
    pub fn of(usage: Usage) -> Self {
        // Exactly at the limit a prompt still fits, but the mark of 100 % is reached.
        if usage.reaches(ROLLOVER_PERCENT) {
            Self::Rollover(usage)
        } else if usage.reaches(COMPRESSION_PERCENT) {
            Self::Compression(usage)
        } else if usage.reaches(CHECKPOINT_PERCENT) {
            Self::Checkpoint(usage)
        } else if usage.reaches(TOLD_PERCENT) {
            Self::Told(usage)
        } else {
            Self::Under(usage)
        }
    }

    pub fn usage(self) -> Usage {
        match self {
            Self::Under(usage)
            | Self::Told(usage)
            | Self::Checkpoint(usage)
            | Self::Compression(usage)
            | Self::Rollover(usage) => usage,
        }
    }

    /// The text of the mark, letter by letter.
    pub fn warning(self) -> Option<String> {
        let Usage { total, limit } = self.usage();
        let at = format!("Context at {} ({total}/{limit} tokens)", self.usage());
        match self {
            Self::Under(_) => None,
            Self::Told(_) => Some(format!("INFO: {at}")),
            Self::Checkpoint(_) => {
                Some(format!("INFO: {at} - Normal compression will be triggered after this message"))
            }
            Self::Compression(_) => Some(format!("WARNING: {at} - Triggering emergency compression")),
            Self::Rollover(_) => Some(format!("CRITICAL: {at} - Triggering emergency rollover")),
        }
    }

    pub fn action(self) -> Action {
        match self {
            Self::Under(_) | Self::Told(_) => Action::None,
            Self::Checkpoint(_) => Action::Checkpoint,
            Self::Compression(_) => Action::Compression,
            Self::Rollover(_) => Action::Rollover,
        }
    }
}

/// What was done, for the header `X-Loadline-Action`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    None,
    Checkpoint,
    Compression,
    Rollover,
    Refused,
}

impl Action {
    pub const ALL: [Self; 5] = [Self::None, Self::Checkpoint, Self::Compression, Self::Rollover, Self::Refused];

    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Checkpoint => "checkpoint",
            Self::Compression => "compression",
            Self::Rollover => "rollover",
            Self::Refused => "refused",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(total: u32, limit: u32) -> Decision {
        Decision::of(Usage { total, limit })
    }

    #[test]
    fn the_limit_is_the_window_less_the_reserve() {
        assert_eq!(Budget::new(8192, DEFAULT_RESERVE, None).limit, 6963);
        assert_eq!(Budget::new(4096, DEFAULT_RESERVE, None).limit, 3481);
        assert_eq!(Budget::new(2000, DEFAULT_RESERVE, None).limit, 1700);
    }

    #[test]
    fn a_longer_answer_raises_the_reserve_up_to_half() {
        assert_eq!(Budget::new(8192, DEFAULT_RESERVE, Some(100)).limit, 6963);
        assert_eq!(Budget::new(8192, DEFAULT_RESERVE, Some(2000)).limit, 6192);
        assert_eq!(Budget::new(8192, DEFAULT_RESERVE, Some(9000)).limit, 4096);
    }

    #[test]
    fn the_four_texts_are_letter_by_letter() {
        let text = |total| decide(total, 6963).warning();
        assert_eq!(text(4000), None);
        assert_eq!(text(5043).as_deref(), Some("INFO: Context at 72.4% (5043/6963 tokens)"));
        assert_eq!(
            text(5640).as_deref(),
            Some("INFO: Context at 81.0% (5640/6963 tokens) - Normal compression will be triggered after this message")
        );
        assert_eq!(
            text(6700).as_deref(),
            Some("WARNING: Context at 96.2% (6700/6963 tokens) - Triggering emergency compression")
        );
        assert_eq!(
            text(7200).as_deref(),
            Some("CRITICAL: Context at 103.4% (7200/6963 tokens) - Triggering emergency rollover")
        );
    }

    #[test]
    fn each_rung_begins_exactly_at_its_mark() {
        let actions: Vec<_> = [6999, 7000, 7999, 8000, 9499, 9500, 9999, 10_000]
            .map(|total| (decide(total, 10_000).warning().is_some(), decide(total, 10_000).action().name()))
            .to_vec();
        assert_eq!(
            actions,
            [
                (false, "none"),
                (true, "none"),
                (true, "none"),
                (true, "checkpoint"),
                (true, "checkpoint"),
                (true, "compression"),
                (true, "compression"),
                (true, "rollover"),
            ]
        );
    }
}
