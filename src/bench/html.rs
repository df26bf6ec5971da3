//! The report as a page that one can send to a colleague: one file, no scripts, nothing from elsewhere.

use std::fmt::Write;

use super::compare::Spread;
use super::plot::{Axis, LOOKS, Line, draw, escape};
use super::report::{ByTurn, LOADLINE, PathReport, Report};
use super::table::{UNKNOWN, about, cpu, latencies, rss, times_direct};
use super::units::{added_us, bytes, rate, ratio, time_us, whole};

const STYLE: &str = include_str!("report.css");

/// The whole page.
pub fn page(report: &Report) -> String {
    let style = STYLE;
    let title = format!("Load: {}", report.paths.iter().map(|path| path.name.as_str()).collect::<Vec<_>>().join(", "));
    let title = escape(&title);
    let (sentence, about) = (escape(&report.sentence()), lines(&about(&report.run)));
    let (headline, legend, plots, tables) = (headline(report), legend(report), plots(report), tables(report));
    let command = escape(&report.run.command);
    format!(
        r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
<header>
<h1>{title}</h1>
<p class="sentence">{sentence}</p>
<dl class="headline">{headline}</dl>
<p class="about">{about}</p>
</header>
{legend}
<div class="plots">
{plots}</div>
{tables}<footer>
<h2>The command</h2>
<pre><code>{command}</code></pre>
</footer>
</main>
</body>
</html>
"#
    )
}

fn lines(lines: &[String]) -> String {
    lines.iter().map(|line| escape(line)).collect::<Vec<_>>().join("<br>\n")
}

/// What one looks at first.
fn headline(report: &Report) -> String {
    let loadline = report.path(LOADLINE);
    let added = loadline.and_then(|path| path.added.as_ref());
    let unknown = || UNKNOWN.to_owned();
    let spread = |by_cycle: Option<Spread>, show: fn(f64) -> String| {
        let shown = by_cycle.map(|it| (show(it.median), format!("{} to {} by cycle", show(it.min), show(it.max))));
        shown.unwrap_or_else(|| (unknown(), String::new()))
    };
    let errors: u64 = report.paths.iter().map(|path| path.errors.total).sum();
    let requests: u64 = report.paths.iter().map(|path| path.requests).sum();
    let errors = (whole(errors as f64), format!("beside {} requests answered", whole(requests as f64)));
    let figures = [
        ("added to the first byte, p50", spread(added.and_then(|it| it.first_byte_p50_us_by_cycle), added_us)),
        ("added to the whole answer, p50", spread(added.and_then(|it| it.total_p50_us_by_cycle), added_us)),
        ("requests/s, × direct", spread(loadline.and_then(|path| path.requests_per_s_ratio_by_cycle), ratio)),
        ("errors", errors),
    ];
    figures.into_iter().fold(String::new(), |mut html, (name, (figure, note))| {
        let _infallible = write!(
            html,
            "<div><dt>{name}</dt><dd>{}</dd><dd class=\"note\">{}</dd></div>",
            escape(&figure),
            escape(&note)
        );
        html
    })
}

fn legend(report: &Report) -> String {
    let mut html = String::from("<ul class=\"legend\">");
    for (look, path) in report.paths.iter().enumerate() {
        let (look, name, url) = (look % LOOKS, escape(&path.name), escape(&path.url));
        let _infallible = write!(
            html,
            r#"<li><svg viewBox="0 0 34 8" class="key line{look}" aria-hidden="true"><path class="line" d="M0 4H34"/></svg><b>{name}</b> <span>{url}</span></li>"#
        );
    }
    html.push_str("</ul>");
    html
}

fn plots(report: &Report) -> String {
    let curve = |of: fn(&PathReport) -> &Vec<(f64, f64)>| lines_of(report, |path| of(path).clone());
    let times = |lines: &[Line]| Axis::log("time, each step the same factor", every_y(lines), time_us);
    let total = curve(|path| &path.curves.total);
    let first = curve(|path| &path.curves.first_byte);
    let speed =
        lines_of(report, |path| path.cycles.iter().map(|it| (it.cycle as f64 + 1.0, it.requests_per_s)).collect());
    let turns = lines_of(report, |path| by_turn(report, path, |it| it.total_p50_us as f64));
    let sizes = lines_of(report, |path| by_turn(report, path, |it| it.request_bytes_mean));
    let memory =
        lines_of(report, |path| path.cycles.iter().filter_map(|it| Some((it.ended_s, it.rss_bytes? as f64))).collect());
    let cycles = Axis::from_nought("cycle", every_x(&speed), whole);
    let seconds = Axis::from_nought("seconds", every_x(&memory), whole);
    let speeds = Axis::from_nought("requests/s", every_y(&speed), rate);
    let sizes_axis = Axis::from_nought("request", every_y(&sizes), bytes);
    let turn_times = Axis::from_nought("time", every_y(&turns), time_us);
    let memory_axis = Axis::from_nought("memory", every_y(&memory), bytes);
    [
        figure("total", "Whole answer, by percentile", &percentiles(), &times(&total), &total),
        figure("first-byte", "First byte, by percentile", &percentiles(), &times(&first), &first),
        figure("requests", "Requests a second, cycle by cycle", &cycles, &speeds, &speed),
        figure("memory", "Resident memory while it ran", &seconds, &memory_axis, &memory),
        figure("turns", "Whole answer, p50, by turn of the conversation", &turn_axis(report), &turn_times, &turns),
        figure("sizes", "What a request weighs, by turn", &turn_axis(report), &sizes_axis, &sizes),
    ]
    .concat()
}

fn figure(id: &str, title: &str, x: &Axis, y: &Axis, lines: &[Line]) -> String {
    let svg = draw(title, x, y, lines);
    format!("<figure id=\"{id}\"><figcaption>{title}</figcaption>{svg}</figure>\n")
}

fn lines_of(report: &Report, points: impl Fn(&PathReport) -> Vec<(f64, f64)>) -> Vec<Line> {
    let line = |(look, path): (usize, &PathReport)| Line { name: path.name.clone(), look, points: points(path) };
    report.paths.iter().enumerate().map(line).collect()
}

fn every_x(lines: &[Line]) -> impl Iterator<Item = f64> + Clone {
    lines.iter().flat_map(|line| &line.points).map(|point| point.0)
}

fn every_y(lines: &[Line]) -> impl Iterator<Item = f64> + Clone {
    lines.iter().flat_map(|line| &line.points).map(|point| point.1)
}

/// By how many nines it has: what is rare has as much room as what is common.
fn percentiles() -> Axis {
    let marks = [("0", 0.0), ("50", 0.5), ("90", 0.9), ("99", 0.99), ("99.9", 0.999), ("99.99", 0.9999)];
    let ticks = marks.map(|(name, share): (&str, f64)| (-(1.0 - share).log10(), name.to_owned()));
    Axis::marked("percentile", 0.0, 4.0, ticks.to_vec())
}

/// Where turns begin that some path had, in their order.
fn beginnings(report: &Report) -> Vec<(u32, Option<u32>)> {
    let mut ranges: Vec<_> = report.paths.iter().flat_map(|path| &path.by_turn).map(|it| (it.from, it.to)).collect();
    ranges.sort_unstable();
    ranges.dedup();
    ranges
}

fn by_turn(report: &Report, path: &PathReport, figure: impl Fn(&ByTurn) -> f64) -> Vec<(f64, f64)> {
    let ranges = beginnings(report);
    let place = |from: u32| ranges.iter().position(|range| range.0 == from);
    path.by_turn.iter().filter_map(|it| Some((place(it.from)? as f64, figure(it)))).collect()
}

fn turn_axis(report: &Report) -> Axis {
    let ranges = beginnings(report);
    // Where each range begins: there is no room for more.
    let ticks = ranges.iter().enumerate().map(|(place, (from, _))| (place as f64, whole(f64::from(*from)))).collect();
    Axis::marked("from turn", -0.4, ranges.len() as f64 - 0.6, ticks)
}

fn tables(report: &Report) -> String {
    let mut html = String::from("<section class=\"tables\">\n");
    let paths = report.paths.iter().map(|path| {
        let [now, most] = rss(path);
        let errors = whole(path.errors.total as f64);
        let answered = format!("{}/s", bytes(path.answer_bytes_per_s));
        let cells = [
            rate(path.requests_per_s),
            times_direct(path.requests_per_s_ratio_by_cycle),
            errors,
            now,
            most,
            cpu(path),
            answered,
        ];
        (path.name.clone(), cells.to_vec())
    });
    let names = ["requests/s", "× direct [by cycle]", "errors", "RSS", "RSS at most", "CPU a request", "answers"];
    html.push_str(&rows("Paths", &names, paths));
    for (name, latency) in latencies(report) {
        let name = match name {
            "total" => "Whole answer",
            "gap" => "Between chunks of a stream",
            _ => "First byte",
        };
        let cells = latency.into_iter().map(|(row, cells)| (row, cells.to_vec()));
        html.push_str(&rows(name, &["p50", "p90", "p99", "p99.9"], cells));
    }
    let turns = report.paths.iter().flat_map(|path| {
        path.by_turn.iter().map(move |it| {
            let range = it.to.map_or_else(|| format!("{}+", it.from), |to| format!("{}–{to}", it.from));
            let cpu = it.cpu_us_per_request.map_or_else(|| UNKNOWN.to_owned(), time_us);
            let size = bytes(it.request_bytes_mean);
            (path.name.clone(), vec![range, whole(it.requests as f64), time_us(it.total_p50_us as f64), cpu, size])
        })
    });
    html.push_str(&rows("By turn", &["turns", "requests", "total p50", "CPU a request", "mean request"], turns));
    let failed = report.paths.iter().flat_map(|path| {
        path.errors
            .by_kind
            .iter()
            .map(move |(kind, count)| (path.name.clone(), vec![kind.clone(), whole(*count as f64)]))
    });
    if report.paths.iter().any(|path| path.errors.total > 0) {
        html.push_str(&rows("Errors", &["kind", "how many"], failed));
    }
    html.push_str("</section>\n");
    html
}

fn rows(title: &str, names: &[&str], rows: impl Iterator<Item = (String, Vec<String>)>) -> String {
    let head: String = names.iter().map(|name| format!("<th scope=\"col\">{name}</th>")).collect();
    let mut html = format!("<table><caption>{title}</caption><thead><tr><td></td>{head}</tr></thead><tbody>\n");
    for (row, cells) in rows {
        let cells: String = cells.iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect();
        let _infallible = writeln!(html, "<tr><th scope=\"row\">{}</th>{cells}</tr>", escape(&row));
    }
    html.push_str("</tbody></table>\n");
    html
}
