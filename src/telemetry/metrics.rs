//! The numbers of `/metrics`, by their names.
//!
//! Every label has few values, all of them ours: nothing that a client or a model says becomes one. What can be
//! nought is there from the start, so that a rate can be taken of the first one that happens.

use std::time::Duration;

use prometheus::{
    Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry, TextEncoder,
};

use crate::context::{Action, Basis, Tokens, Usage};
use crate::ollama::fleet::{Counters, Why};
use crate::store::{Committed, TurnStatus};

/// Seconds, from what memory does to what a large model on a small machine takes.
const SECONDS: [f64; 16] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0, 600.0];

/// Seconds of a disk.
const COMMIT_SECONDS: [f64; 10] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5];

/// Shares of the limit, with the marks of the ladder among them.
const SHARES: [f64; 12] = [0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 0.95, 1.0, 1.25, 2.0, 5.0];

/// Tokens, on both sides of nought.
const ERRORS: [f64; 13] = [-256.0, -64.0, -16.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 16.0, 64.0, 256.0];

/// What makes a prompt shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compacting {
    Checkpoint,
    Compression,
    Rollover,
}

impl Compacting {
    const ALL: [Self; 3] = [Self::Checkpoint, Self::Compression, Self::Rollover];

    fn name(self) -> &'static str {
        match self {
            Self::Checkpoint => "checkpoint",
            Self::Compression => "compression",
            Self::Rollover => "rollover",
        }
    }
}

/// What went wrong with the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpstreamTrouble {
    Unreachable,
    Timeout,
    /// It closed the connection, or what it said could not be read.
    Broken,
    /// It answered with a status of 500 or above.
    Status,
}

impl UpstreamTrouble {
    const ALL: [Self; 4] = [Self::Unreachable, Self::Timeout, Self::Broken, Self::Status];

    fn name(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::Broken => "broken",
            Self::Status => "status",
        }
    }
}

/// What one request did.
#[derive(Debug, Clone, Copy)]
pub struct Handled {
    pub route: &'static str,
    pub dialect: &'static str,
    pub action: &'static str,
    pub status: u16,
}

/// What was counted of one turn.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    /// History that a compaction has kept out of this prompt.
    pub saved: Tokens,
    pub recalled: Tokens,
    /// See [`Metrics::new`] for what counts as avoided.
    pub prefill_avoided: Tokens,
}

/// What is looked up only when somebody asks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Now {
    pub upstream_up: bool,
    pub upstreams_up: usize,
    pub upstreams_down: usize,
    /// Requests that wait for one of them.
    pub upstream_queue: usize,
    pub checkpoints_under_way: usize,
    pub store_healthy: bool,
    pub queue_changes: usize,
    pub queue_bytes: usize,
    pub size_bytes: u64,
    pub free_bytes: u64,
    pub conversations: u64,
    pub conversations_in_memory: usize,
    pub webhook_lag_events: u64,
}

#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    request_seconds: HistogramVec,
    pub in_flight: IntGauge,
    turns: IntCounterVec,
    pub tokens_arrived: IntCounter,
    pub tokens_forwarded: IntCounter,
    pub tokens_saved: IntCounter,
    pub tokens_recalled: IntCounter,
    pub prefill_avoided: IntCounter,
    usage: Histogram,
    count_error: HistogramVec,
    compared: IntCounterVec,
    mismatches: IntCounterVec,
    compactions: IntCounterVec,
    compaction_failures: IntCounterVec,
    compaction_seconds: HistogramVec,
    checkpoint_wait: Histogram,
    first_byte: HistogramVec,
    upstream_seconds: HistogramVec,
    upstream_errors: IntCounterVec,
    /// Times the upstream said that a prompt did not fit after all.
    pub overflows: IntCounter,
    /// Prompts that the upstream has cut: in observe mode, or because its window was not what it seemed.
    pub cut_by_upstream: IntCounter,
    /// Frames of answers that could not be read.
    pub unreadable: IntCounter,
    pub events: IntCounterVec,
    pub event_streams: IntGauge,
    pub webhook_deliveries: IntCounterVec,
    /// Who takes a request, where there are several.
    pub fleet: Counters,
    pub commits: Commits,
    gauges: Gauges,
}

/// What the store's writer counts.
#[derive(Debug, Clone)]
pub struct Commits {
    seconds: Histogram,
    changes: IntCounter,
    failed: IntCounter,
}

impl Commits {
    pub fn note(&self, committed: Committed) {
        self.seconds.observe(committed.took.as_secs_f64());
        if committed.well {
            self.changes.inc_by(committed.changes as u64);
        } else {
            self.failed.inc();
        }
    }
}

#[derive(Debug)]
struct Gauges {
    upstream_up: IntGauge,
    upstreams_up: IntGauge,
    upstreams_down: IntGauge,
    upstream_queue: IntGauge,
    checkpoints_under_way: IntGauge,
    store_healthy: IntGauge,
    queue_changes: IntGauge,
    queue_bytes: IntGauge,
    size_bytes: IntGauge,
    free_bytes: IntGauge,
    conversations: IntGauge,
    conversations_in_memory: IntGauge,
    webhook_lag_events: IntGauge,
}

/// Makes metrics and registers them.
struct Maker<'r>(&'r Registry);

impl Maker<'_> {
    fn kept<T: prometheus::core::Collector + Clone + 'static>(
        &self,
        made: prometheus::Result<T>,
    ) -> prometheus::Result<T> {
        let made = made?;
        self.0.register(Box::new(made.clone()))?;
        Ok(made)
    }

    fn counter(&self, name: &str, help: &str) -> prometheus::Result<IntCounter> {
        self.kept(IntCounter::new(format!("loadline_{name}"), help))
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntCounterVec> {
        self.kept(IntCounterVec::new(Opts::new(format!("loadline_{name}"), help), labels))
    }

    fn gauge(&self, name: &str, help: &str) -> prometheus::Result<IntGauge> {
        self.kept(IntGauge::new(format!("loadline_{name}"), help))
    }

    fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> prometheus::Result<Histogram> {
        let options = HistogramOpts::new(format!("loadline_{name}"), help).buckets(buckets.to_vec());
        self.kept(Histogram::with_opts(options))
    }

    fn histograms(&self, name: &str, help: &str, label: &str, buckets: &[f64]) -> prometheus::Result<HistogramVec> {
        let options = HistogramOpts::new(format!("loadline_{name}"), help).buckets(buckets.to_vec());
        self.kept(HistogramVec::new(options, &[label]))
    }

    fn gauges(&self) -> prometheus::Result<Gauges> {
        Ok(Gauges {
            upstream_up: self.gauge("upstream_up", "Whether an upstream answered when it was last asked.")?,
            upstreams_up: self.gauge("upstreams_up", "Upstreams that answered when they were last asked.")?,
            upstreams_down: self.gauge("upstreams_down", "Upstreams that did not.")?,
            upstream_queue: self
                .gauge("upstream_queue_requests", "Requests that wait for an upstream to have room.")?,
            checkpoints_under_way: self
                .gauge("checkpoints_under_way", "Checkpoints being written or waiting to be.")?,
            store_healthy: self.gauge("store_healthy", "Whether the last commit went well and the writer is there.")?,
            queue_changes: self.gauge("store_queue_changes", "Changes that wait to be stored.")?,
            queue_bytes: self.gauge("store_queue_bytes", "Bytes of the changes that wait to be stored.")?,
            size_bytes: self.gauge("store_size_bytes", "Size of the database and its log.")?,
            free_bytes: self.gauge("store_free_bytes", "Space left on the disk of the database.")?,
            conversations: self.gauge("conversations", "Conversations that are stored.")?,
            conversations_in_memory: self.gauge("conversations_in_memory", "Conversations that are remembered.")?,
            webhook_lag_events: self
                .gauge("webhook_lag_events", "Events that the slowest receiver of webhooks has not got yet.")?,
        })
    }
}

impl Metrics {
    pub fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let make = Maker(&registry);
        let version = Opts::new("loadline_build_info", "The version that is running.")
            .const_label("version", env!("CARGO_PKG_VERSION"));
        make.kept(IntGauge::with_opts(version))?.set(1);
        let started = make.kept(Gauge::new("loadline_start_time_seconds", "When it was started, as Unix time."))?;
        started.set(jiff::Timestamp::now().as_millisecond() as f64 / 1000.0);
        let metrics = Self {
            requests: make.counters(
                "requests_total",
                "Requests that were answered, by route, dialect, what was done to the prompt, and status.",
                &["route", "dialect", "action", "status"],
            )?,
            request_seconds: make.histograms(
                "request_duration_seconds",
                "From the request to the last byte of its answer.",
                "route",
                &SECONDS,
            )?,
            in_flight: make.gauge("requests_in_flight", "Requests for the upstream whose answer is not over.")?,
            turns: make.counters(
                "turns_total",
                "Turns of conversations, by what was done and how they ended.",
                &["action", "ending"],
            )?,
            tokens_arrived: make.counter("tokens_arrived_total", "Tokens of prompts that were answered, as they arrived at the gate.")?,
            tokens_forwarded: make.counter("tokens_forwarded_total", "Tokens of prompts that were answered, as they left the gate.")?,
            tokens_saved: make.counter(
                "tokens_saved_total",
                "Tokens of history that a compaction kept out of a prompt, counted for each prompt.",
            )?,
            tokens_recalled: make
                .counter("tokens_recalled_total", "Tokens of passages that were put back into prompts.")?,
            prefill_avoided: make.counter(
                "prefill_tokens_avoided_total",
                "Forwarded tokens behind an unchanged front, estimated and at most, in turns where the upstream alone would have cut the prompt and read it all again.",
            )?,
            usage: make.histogram(
                "context_usage_ratio",
                "What arrived, as a share of what may be forwarded.",
                &SHARES,
            )?,
            count_error: make.histograms(
                "count_error_tokens",
                "Predicted tokens minus those that the upstream reported.",
                "basis",
                &ERRORS,
            )?,
            compared: make
                .counters("counts_compared_total", "Counts that the upstream's report was held against.", &["basis"])?,
            mismatches: make.counters("count_mismatches_total", "Those that were not the same.", &["basis"])?,
            compactions: make.counters("compactions_total", "Compactions that became part of a conversation.", &["kind"])?,
            compaction_failures: make.counters(
                "compaction_failures_total",
                "Compactions that failed; a checkpoint that a model fails to write is made without it.",
                &["kind"],
            )?,
            compaction_seconds: make.histograms(
                "compaction_duration_seconds",
                "What a compaction took; of a checkpoint, with waiting for the model.",
                "kind",
                &SECONDS,
            )?,
            checkpoint_wait: make.histogram(
                "checkpoint_wait_seconds",
                "How long requests waited for a checkpoint of their conversation.",
                &SECONDS,
            )?,
            first_byte: make.histograms(
                "upstream_first_byte_seconds",
                "From sending a prompt to the head of the answer.",
                "dialect",
                &SECONDS,
            )?,
            upstream_seconds: make.histograms(
                "upstream_duration_seconds",
                "From sending a prompt to the end of the answer.",
                "dialect",
                &SECONDS,
            )?,
            upstream_errors: make.counters("upstream_errors_total", "What went wrong with the upstream.", &["reason"])?,
            overflows: make.counter(
                "upstream_overflows_total",
                "Prompts that the upstream said did not fit after all; they were fitted again.",
            )?,
            cut_by_upstream: make.counter(
                "upstream_cut_total",
                "Prompts that the upstream has cut, in observe mode or because its window was not what it seemed.",
            )?,
            unreadable: make.counter("upstream_unreadable_frames_total", "Frames of answers that could not be read.")?,
            events: make.counters("events_total", "Events that were published.", &["kind"])?,
            event_streams: make.gauge("event_streams", "Event streams that are open.")?,
            fleet: Counters {
                choices: make.counters(
                    "upstream_choices_total",
                    "Requests by why their upstream was taken, where there are several: the conversation was there, it is new, or it had to move.",
                    &["choice"],
                )?,
                failovers: make.counter(
                    "upstream_failovers_total",
                    "Requests that went to another upstream because the first could not be reached.",
                )?,
                shed: make.counter("upstream_shed_total", "Requests that were told to come back because all upstreams were busy.")?,
            },
            webhook_deliveries: make.counters(
                "webhook_deliveries_total",
                "Events delivered by webhooks, calls that were made again, and events that were given up.",
                &["outcome"],
            )?,
            commits: Commits {
                seconds: make.histogram(
                    "store_commit_duration_seconds",
                    "What commits took, with their syncs.",
                    &COMMIT_SECONDS,
                )?,
                changes: make.counter("store_changes_total", "Changes that were committed.")?,
                failed: make.counter("store_failed_commits_total", "Commits that failed: nothing of them is stored.")?,
            },
            gauges: make.gauges()?,
            registry,
        };
        metrics.begin_at_nought();
        Ok(metrics)
    }

    /// What may be asked for before it happens.
    fn begin_at_nought(&self) {
        for action in Action::ALL {
            TurnStatus::ALL.into_iter().for_each(|ending| add(&self.turns, &[action.name(), ending.name()], 0));
        }
        for kind in Compacting::ALL.map(Compacting::name) {
            add(&self.compactions, &[kind], 0);
            add(&self.compaction_failures, &[kind], 0);
            let _made = self.compaction_seconds.get_metric_with_label_values(&[kind]);
        }
        for basis in Basis::ALL.map(Basis::name) {
            add(&self.compared, &[basis], 0);
            add(&self.mismatches, &[basis], 0);
            let _made = self.count_error.get_metric_with_label_values(&[basis]);
        }
        UpstreamTrouble::ALL.into_iter().for_each(|trouble| add(&self.upstream_errors, &[trouble.name()], 0));
        for outcome in ["delivered", "retried", "dropped"] {
            add(&self.webhook_deliveries, &[outcome], 0);
        }
        for why in Why::ALL {
            add(&self.fleet.choices, &[why.name()], 0);
        }
        for kind in crate::events::KINDS {
            add(&self.events, &[kind], 0);
        }
    }

    /// What has no end of its own took no time.
    pub fn handled(&self, handled: Handled, took: Option<Duration>) {
        let mut digits = [0; 3];
        add(&self.requests, &[handled.route, handled.dialect, handled.action, status(handled.status, &mut digits)], 1);
        if let Some(took) = took {
            observe(&self.request_seconds, handled.route, took.as_secs_f64());
        }
    }

    pub fn turn(&self, action: Action, ending: TurnStatus) {
        add(&self.turns, &[action.name(), ending.name()], 1);
    }

    pub fn prompt(&self, arrived: Usage, forwarded: Tokens, tally: Tally) {
        self.tokens_arrived.inc_by(arrived.total.into());
        self.tokens_forwarded.inc_by(forwarded.into());
        self.tokens_saved.inc_by(tally.saved.into());
        self.tokens_recalled.inc_by(tally.recalled.into());
        self.prefill_avoided.inc_by(tally.prefill_avoided.into());
        self.arrived(arrived);
    }

    /// Also of what was refused.
    pub fn arrived(&self, usage: Usage) {
        self.usage.observe(f64::from(usage.total) / f64::from(usage.limit.max(1)));
    }

    /// How many turns an action was taken in.
    pub fn of_action(&self, action: Action) -> u64 {
        let of = |ending: TurnStatus| value(&self.turns, &[action.name(), ending.name()]);
        TurnStatus::ALL.into_iter().map(of).sum()
    }

    pub fn count_compared(&self, basis: Basis, predicted: Tokens, reported: Tokens) {
        add(&self.compared, &[basis.name()], 1);
        observe(&self.count_error, basis.name(), f64::from(predicted) - f64::from(reported));
        if predicted != reported {
            add(&self.mismatches, &[basis.name()], 1);
        }
    }

    pub fn compared(&self) -> u64 {
        Basis::ALL.into_iter().map(|basis| value(&self.compared, &[basis.name()])).sum()
    }

    pub fn exact_mismatches(&self) -> u64 {
        value(&self.mismatches, &[Basis::Exact.name()])
    }

    /// A compaction is over.
    pub fn compacted(&self, kind: Compacting, took: Duration) {
        add(&self.compactions, &[kind.name()], 1);
        observe(&self.compaction_seconds, kind.name(), took.as_secs_f64());
    }

    pub fn compaction_failed(&self, kind: Compacting) {
        add(&self.compaction_failures, &[kind.name()], 1);
    }

    pub fn waited_for_checkpoint(&self, took: Duration) {
        self.checkpoint_wait.observe(took.as_secs_f64());
    }

    pub fn first_byte(&self, dialect: &'static str, took: Duration) {
        observe(&self.first_byte, dialect, took.as_secs_f64());
    }

    pub fn upstream_took(&self, dialect: &'static str, took: Duration) {
        observe(&self.upstream_seconds, dialect, took.as_secs_f64());
    }

    pub fn upstream_trouble(&self, trouble: UpstreamTrouble) {
        add(&self.upstream_errors, &[trouble.name()], 1);
    }

    /// Everything, as Prometheus reads it.
    pub fn text(&self, now: Now) -> Result<String, prometheus::Error> {
        let gauges = &self.gauges;
        for (gauge, number) in [
            (&gauges.upstream_up, u64::from(now.upstream_up)),
            (&gauges.upstreams_up, now.upstreams_up as u64),
            (&gauges.upstreams_down, now.upstreams_down as u64),
            (&gauges.upstream_queue, now.upstream_queue as u64),
            (&gauges.checkpoints_under_way, now.checkpoints_under_way as u64),
            (&gauges.store_healthy, u64::from(now.store_healthy)),
            (&gauges.queue_changes, now.queue_changes as u64),
            (&gauges.queue_bytes, now.queue_bytes as u64),
            (&gauges.size_bytes, now.size_bytes),
            (&gauges.free_bytes, now.free_bytes),
            (&gauges.conversations, now.conversations),
            (&gauges.conversations_in_memory, now.conversations_in_memory as u64),
            (&gauges.webhook_lag_events, now.webhook_lag_events),
        ] {
            gauge.set(i64::try_from(number).unwrap_or(i64::MAX));
        }
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}

/// Labels are of our own making, so there is always a metric for them.
fn add(counters: &IntCounterVec, labels: &[&str], amount: u64) {
    if let Ok(counter) = counters.get_metric_with_label_values(labels) {
        counter.inc_by(amount);
    }
}

fn value(counters: &IntCounterVec, labels: &[&str]) -> u64 {
    counters.get_metric_with_label_values(labels).map_or(0, |counter| counter.get())
}

fn observe(histograms: &HistogramVec, label: &str, value: f64) {
    if let Ok(histogram) = histograms.get_metric_with_label_values(&[label]) {
        histogram.observe(value);
    }
}

/// A status as text, without allocating. What is no status of HTTP is one label; nought is a client that has gone
/// before it got one.
fn status(status: u16, digits: &mut [u8; 3]) -> &str {
    if status == 0 {
        return "gone";
    }
    if !(100..600).contains(&status) {
        return "other";
    }
    *digits = [status / 100, status / 10 % 10, status % 10].map(|digit| b'0' + digit as u8);
    std::str::from_utf8(digits).unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_written_as_it_is() {
        assert_eq!(status(200, &mut [0; 3]), "200");
        assert_eq!(status(599, &mut [0; 3]), "599");
        assert_eq!(status(999, &mut [0; 3]), "other");
        assert_eq!(status(0, &mut [0; 3]), "gone");
    }

    #[test]
    fn what_never_happened_is_nought_and_there() {
        let text = Metrics::new().expect("metrics").text(Now::default()).expect("text");
        for line in [
            "loadline_count_mismatches_total{basis=\"exact\"} 0",
            "loadline_compactions_total{kind=\"rollover\"} 0",
            "loadline_turns_total{action=\"refused\",ending=\"refused\"} 0",
            "loadline_upstream_errors_total{reason=\"unreachable\"} 0",
            "loadline_events_total{kind=\"rollover\"} 0",
        ] {
            assert!(text.lines().any(|written| written == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn an_exact_count_that_is_off_by_one_is_a_mismatch_and_has_its_bucket() {
        let metrics = Metrics::new().expect("metrics");
        metrics.count_compared(Basis::Exact, 100, 100);
        metrics.count_compared(Basis::Exact, 99, 100);
        metrics.count_compared(Basis::Estimated, 120, 100);
        assert_eq!((metrics.compared(), metrics.exact_mismatches()), (3, 1));
        let text = metrics.text(Now::default()).expect("text");
        assert!(text.contains("loadline_count_error_tokens_bucket{basis=\"exact\",le=\"-1\"} 1"), "{text}");
        assert!(text.contains("loadline_count_error_tokens_bucket{basis=\"exact\",le=\"0\"} 2"), "{text}");
    }
}
