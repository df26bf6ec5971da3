//! The report for a terminal.

use std::fmt::Write;

use super::compare::{Differences, Percentiles, Spread};
use super::report::{PathReport, Report, Rss, Run};
use super::script::{Routes, Streams};
use super::units::{added_us, bytes, rate, ratio, time_us, whole};

/// What is not known.
pub const UNKNOWN: &str = "-";

/// The whole table, without a line break at its end.
pub fn table(report: &Report) -> String {
    let mut text = about(&report.run).join("\n");
    text.push_str("\n\n");
    let longest = report.paths.iter().map(|path| path.name.chars().count()).max().unwrap_or(0);
    // Room for ` added`.
    let width = longest.max(8) + 7;
    let _infallible = writeln!(
        text,
        "{:width$}{:>11}  {:<19}{:>8}{:>10}{:>10}{:>13}",
        "path", "requests/s", "× direct", "errors", "RSS", "at most", "CPU/request"
    );
    for path in &report.paths {
        let [now, most] = rss(path);
        let _infallible = writeln!(
            text,
            "{:width$}{:>11}  {:<19}{:>8}{now:>10}{most:>10}{:>13}",
            path.name,
            rate(path.requests_per_s),
            times_direct(path.requests_per_s_ratio_by_cycle),
            whole(path.errors.total as f64),
            cpu(path),
        );
    }
    text.push_str(
        "× direct: within each cycle of slices, the median and [the range].\n\
         RSS and CPU of direct are the upstream's own; what the others use comes on top of it.\n",
    );
    for (name, rows) in latencies(report) {
        let _infallible = writeln!(text, "\n{name:width$}{:>11}{:>11}{:>11}{:>11}", "p50", "p90", "p99", "p99.9");
        if name == "gap"
            && let Some(counts) = gaps_a_request(report)
        {
            let _infallible = writeln!(text, "pieces that are there at once may come as one; gaps a request: {counts}");
        }
        for (row, cells) in rows {
            let _infallible = write!(text, "{row:width$}");
            for cell in cells {
                let _infallible = write!(text, "{cell:>11}");
            }
            text.push('\n');
        }
    }
    if let Some(affinity) = &report.affinity {
        let _infallible = writeln!(text, "\n{}", affinity.sentence());
    }
    for path in report.paths.iter().filter(|path| path.errors.total > 0) {
        let kinds: Vec<String> = path.errors.by_kind.iter().map(|(kind, count)| format!("{count} × {kind}")).collect();
        let _infallible = writeln!(
            text,
            "\nerrors of {}: {}; the last: {}",
            path.name,
            kinds.join(", "),
            path.errors.last.as_deref().unwrap_or(UNKNOWN)
        );
    }
    let _infallible = write!(text, "\n{}", report.sentence());
    text
}

/// What was measured, in a few lines.
pub fn about(run: &Run) -> Vec<String> {
    let shape = &run.shape;
    let routes = match shape.routes {
        Routes::Native => "native route",
        Routes::OpenAi => "OpenAI's route",
        Routes::Both => "native and OpenAI's routes",
    };
    let streams = match shape.streams {
        Streams::Yes => "streamed",
        Streams::No => "not streamed",
        Streams::Both => "streamed and not (first byte: of those streamed)",
    };
    let talk = if shape.fresh {
        "each request a conversation of its own".to_owned()
    } else {
        format!("about {} turns a conversation", whole(f64::from(shape.turns)))
    };
    let history = match shape.history_bytes {
        0 => String::new(),
        size => format!(" after a history of {}", bytes(size as f64)),
    };
    let version = run.upstream_version.as_ref().map_or_else(String::new, |version| format!(" (version {version})"));
    let durability = run.durability.as_ref().map_or_else(String::new, |how| format!(", durability {how}"));
    let clients = if run.clients == 1 { "1 client".to_owned() } else { format!("{} clients", run.clients) };
    let mut lines = vec![
        format!("{clients}, {routes}, {streams}; {:.1} s in {} cycles; seed {}", run.seconds, run.cycles, shape.seed),
        format!(
            "{talk}{history}, messages of about {}, answers of {} tokens, window {}",
            bytes(shape.message_bytes as f64),
            shape.answer_tokens,
            whole(f64::from(shape.window_tokens)),
        ),
        format!(
            "Loadline {}{durability}; {} {} at {}{version}",
            run.loadline_version,
            if run.simulated { "a simulated Ollama, model" } else { "model" },
            shape.model,
            run.upstream
        ),
        format!("{} CPUs, {}", run.machine.cpus, run.machine.os),
    ];
    if run.cut_short {
        lines.push("Cut short: this is what there was until then.".to_owned());
    }
    lines
}

/// How many gaps there were: where some merge pieces, their gaps are fewer and longer.
fn gaps_a_request(report: &Report) -> Option<String> {
    let told = |path: &PathReport| {
        let count = path.gap_us?.count as f64 / path.requests.max(1) as f64;
        Some(format!("{} {count:.1}", path.name))
    };
    let counts: Vec<String> = report.paths.iter().filter_map(told).collect();
    (!counts.is_empty()).then(|| counts.join(", "))
}

/// The names and cells of one kind of time: each path, and below it what it adds.
pub type Rows = Vec<(String, [String; 4])>;

/// First byte, gap and whole answer, each with its rows.
pub fn latencies(report: &Report) -> [(&'static str, Rows); 3] {
    [
        ("first byte", rows(report, |path| path.first_byte_us, |path| path.added.as_ref()?.first_byte_us.as_ref())),
        ("gap", rows(report, |path| path.gap_us, |_| None)),
        ("total", rows(report, |path| path.total_us, |path| path.added.as_ref()?.total_us.as_ref())),
    ]
}

fn rows(
    report: &Report,
    times: impl Fn(&PathReport) -> Option<Percentiles>,
    added: impl Fn(&PathReport) -> Option<&Differences>,
) -> Rows {
    let mut rows = Rows::new();
    for path in &report.paths {
        let cells = times(path).map(|it| [it.p50, it.p90, it.p99, it.p99_9].map(|us| time_us(us as f64)));
        rows.push((path.name.clone(), cells.unwrap_or_else(|| [UNKNOWN; 4].map(str::to_owned))));
        if let Some(it) = added(path) {
            let cells = [it.p50, it.p90, it.p99, it.p99_9].map(|us| added_us(us as f64));
            rows.push((format!("{} added", path.name), cells));
        }
    }
    rows
}

pub fn times_direct(by_cycle: Option<Spread>) -> String {
    let spread = |it: Spread| format!("{} [{}–{}]", ratio(it.median), ratio(it.min), ratio(it.max));
    by_cycle.map_or_else(|| UNKNOWN.to_owned(), spread)
}

/// At the end of the last slice, and at the end of any.
pub fn rss(path: &PathReport) -> [String; 2] {
    let shown = |rss: &Rss| [bytes(rss.now as f64), bytes(rss.max as f64)];
    path.rss_bytes.as_ref().map_or_else(|| [UNKNOWN; 2].map(str::to_owned), shown)
}

pub fn cpu(path: &PathReport) -> String {
    path.cpu_us_per_request.map_or_else(|| UNKNOWN.to_owned(), time_us)
}
