//! `loadline bench load`, as a process: that its figures are all there and agree with each other. None of them is held
//! against a time: how fast a machine is, is not ours to test.

use std::process::Output;

use serde_json::Value;

use crate::cli::{Running, run, stderr, stdout};

const FEW: [&str; 8] = ["bench", "load", "--requests", "40", "--clients", "2", "--warm-up", "0"];

fn load(more: &[&str]) -> Output {
    let arguments: Vec<&str> = FEW.iter().chain(more).copied().collect();
    run(&arguments, "")
}

fn report(output: &Output) -> Value {
    assert!(output.status.success(), "{}{}", stdout(output), stderr(output));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

fn names(report: &Value) -> Vec<&str> {
    report["paths"].as_array().expect("paths").iter().filter_map(|path| path["name"].as_str()).collect()
}

fn assert_percentiles_ascend(times: &Value) {
    let order = ["p50", "p90", "p99", "p99_9", "max"].map(|name| times[name].as_u64().expect(name));
    assert!(order.is_sorted() && order[0] > 0, "{times}");
    assert!(times["mean"].as_f64() > Some(0.0), "{times}");
}

fn sum(rows: &Value, name: &str) -> u64 {
    rows.as_array().expect("rows").iter().map(|row| row[name].as_u64().expect(name)).sum()
}

fn assert_path_is_whole(path: &Value, requests: u64) {
    assert_eq!(path["requests"], requests, "{path}");
    assert_eq!(path["total_us"]["count"], requests, "{path}");
    // Of those that were streamed, if any were.
    let streamed = path["first_byte_us"]["count"].as_u64().expect("a number");
    assert!((1..=requests).contains(&streamed) && (streamed < requests) == path["gap_us"].is_object(), "{path}");
    for name in ["first_byte_us", "total_us"] {
        assert_percentiles_ascend(&path[name]);
    }
    assert_percentiles_ascend(&path["gap_us"]);
    assert!(path["first_byte_us"]["max"].as_u64() <= path["total_us"]["max"].as_u64(), "{path}");
    assert!(path["requests_per_s"].as_f64() > Some(0.0) && path["answer_bytes_per_s"].as_f64() > Some(0.0), "{path}");
    assert_eq!(
        (&path["errors"]["total"], path["errors"]["by_kind"].as_object().map(|kinds| kinds.len())),
        (&0.into(), Some(0))
    );
    assert_eq!(sum(&path["by_turn"], "requests"), requests);
    assert!(path["by_turn"].as_array().unwrap().iter().all(|turns| turns["request_bytes_mean"].as_f64() > Some(0.0)));
    assert_eq!(path["cycles"].as_array().map(Vec::len), Some(10));
    assert_eq!(sum(&path["cycles"], "requests"), requests);
    if cfg!(target_os = "linux") {
        assert!(path["rss_bytes"]["now"].as_u64() > Some(1 << 20), "{path}");
        assert!(path["rss_bytes"]["now"].as_u64() <= path["rss_bytes"]["max"].as_u64(), "{path}");
        // So few requests may take less than the system counts.
        assert!(path["cpu_us_per_request"].as_f64().is_none_or(|cpu| cpu > 0.0), "{path}");
        assert!(path.get("cpu_us_per_request").is_some(), "{path}");
    }
}

fn assert_compared(path: &Value) {
    for name in ["first_byte_us", "total_us"] {
        assert!(["p50", "p90", "p99", "p99_9"].iter().all(|at| path["added"][name][at].is_i64()), "{path}");
    }
    for spread in [
        &path["added"]["total_p50_us_by_cycle"],
        &path["added"]["first_byte_p50_us_by_cycle"],
        &path["requests_per_s_ratio_by_cycle"],
    ] {
        let order = ["min", "median", "max"].map(|name| spread[name].as_f64().expect(name));
        assert!(order.is_sorted(), "{spread}");
    }
    assert!(path["requests_per_s_ratio_by_cycle"]["min"].as_f64() > Some(0.0), "{path}");
}

#[test]
fn a_load_report_has_every_figure_of_both_paths_and_a_page_that_needs_nobody() {
    let dir = tempfile::tempdir().expect("a directory");
    let page = dir.path().join("load <b>.html");
    let output = load(&["--json", "--html", page.to_str().expect("text")]);
    let report = report(&output);
    assert_eq!(stderr(&output), "", "who reads JSON is told nothing else");
    assert_eq!(names(&report), ["direct", "loadline"]);
    for path in report["paths"].as_array().unwrap() {
        assert_path_is_whole(path, 40);
    }
    let (direct, loadline) = (&report["paths"][0], &report["paths"][1]);
    assert!(direct["added"].is_null() && direct["requests_per_s_ratio_by_cycle"].is_null());
    assert_compared(loadline);
    let added =
        loadline["total_us"]["p50"].as_i64().zip(direct["total_us"]["p50"].as_i64()).map(|(one, other)| one - other);
    assert_eq!(loadline["added"]["total_us"]["p50"].as_i64(), added);
    let about = &report["run"];
    assert_eq!(
        (&about["clients"], &about["seed"], &about["cycles"], &about["cut_short"]),
        (&2.into(), &1.into(), &10.into(), &false.into())
    );
    assert_eq!(
        (&about["route"], &about["stream"], &about["durability"]),
        (&"both".into(), &"both".into(), &"full".into())
    );
    assert_eq!(about["loadline_version"], env!("CARGO_PKG_VERSION"));
    assert!(about["machine"]["cpus"].as_u64() > Some(0) && about["upstream_version"].is_string(), "{about}");
    assert_is_a_page(&std::fs::read_to_string(page).expect("a page"));
}

fn assert_is_a_page(page: &str) {
    for plot in ["total", "first-byte", "requests", "turns", "sizes", "memory"] {
        let figure = page.split_once(&format!("<figure id=\"{plot}\">")).unwrap_or_else(|| panic!("no {plot}")).1;
        let figure = figure.split_once("</figure>").expect("its end").0;
        assert!(figure.contains("<title>direct</title>") && figure.contains("<title>loadline</title>"), "{figure}");
        assert!(!figure.contains("d=\"\"") && !figure.contains("NaN") && !figure.contains("inf"), "{figure}");
    }
    for outside in ["<script", "href=", "src=", "url(", "@import", "<b>.html"] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("load &lt;b&gt;.html") && page.contains("light-dark("), "{page}");
}

#[test]
fn the_table_names_both_paths_and_ends_with_a_plain_sentence() {
    let output = load(&["--route", "native", "--stream", "no"]);
    let text = stdout(&output);
    assert!(output.status.success(), "{text}{}", stderr(&output));
    for begins in
        ["direct ", "loadline ", "loadline added ", "first byte ", "gap ", "total ", "2 clients, native route"]
    {
        assert!(text.lines().any(|line| line.starts_with(begins)), "`{begins}` is missing in\n{text}");
    }
    let last = text.lines().last().expect("a line");
    assert!(last.starts_with("Loadline adds ") && last.contains("of the requests a second"), "{last}");
    let table: Vec<&str> = text.lines().filter(|line| *line != last).collect();
    assert!(table.iter().all(|line| line.chars().count() <= 110), "{text}");
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_measured() {
    let sim = Running::start(&["sim", "--listen", "127.0.0.1:0"]);
    let refused = |flags: &[&str], why: &str| {
        let output = load(flags);
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
        assert!(stderr(&output).contains(why), "{flags:?}: {}", stderr(&output));
    };
    refused(&["--model", "llama3.2"], "--upstream");
    refused(&["--upstream", sim.url(), "--model", "sim", "--through", sim.url()], "there is no Loadline at");
    refused(&["--html", "/nowhere/at/all.html"], "/nowhere/at/all.html");
}

#[test]
fn another_proxy_is_a_third_path() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().to_str().expect("text");
    let sim = Running::start(&["sim", "--listen", "127.0.0.1:0"]);
    let other = Running::start(&["serve", "--listen", "127.0.0.1:0", "--upstream", sim.url(), "--data-dir", data]);
    let relay = Running::start(&["bench", "relay", "--upstream", sim.url()]);
    let (named, bare) = (format!("other={}", other.url()), format!("relay={}", relay.url()));
    let asked = ["--json", "--upstream", sim.url(), "--model", "sim", "--window", "4096", "--against"];
    let report = report(&load(&[&asked[..], &[&named, "--against", &bare, "--against", other.url()]].concat()));
    let unnamed = other.url().trim_start_matches("http://");
    assert_eq!(names(&report), ["direct", "loadline", "other", "relay", unnamed]);
    for path in report["paths"].as_array().unwrap() {
        assert_path_is_whole(path, 40);
    }
    assert_compared(&report["paths"][2]);
}

#[test]
fn a_simulator_that_answers_at_once_is_understood_on_both_routes_and_ways() {
    let report = report(&load(&["--json", "--instant"]));
    for path in report["paths"].as_array().unwrap() {
        assert_path_is_whole(path, 40);
    }
}

#[test]
fn a_path_that_does_not_answer_is_named_and_nothing_is_measured() {
    let sim = Running::start(&["sim", "--listen", "127.0.0.1:0"]);
    // A port that was free a moment ago, and that nobody listens on now.
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let named = format!("absent=http://{free}");
    let output = load(&["--upstream", sim.url(), "--model", "sim", "--against", &named]);
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    assert!(said.contains("absent") && said.contains(&free.to_string()) && said.contains("connection"), "{said}");
    let output = load(&["--upstream", sim.url(), "--model", "nobody-has-this"]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("direct") && said.contains("status 404") && said.contains("not found"), "{said}");
}

#[test]
fn with_several_upstreams_it_tells_how_often_chats_went_back_and_what_that_saved() {
    let output = load(&["--json", "--upstreams", "3", "--prefill-us", "20", "--turns", "8"]);
    let report = report(&output);
    assert_eq!(names(&report), ["direct", "loadline", "no-affinity"]);
    let affinity = &report["affinity"];
    assert_eq!(affinity["upstreams"], 3);
    let choice = |name: &str| affinity["choices"][name].as_u64().expect(name);
    // Each request was chosen for once; those of the warming up are not all counted.
    assert!(choice("affine") > 0 && choice("affine") + choice("moved") + choice("new") >= 40, "{affinity}");
    let rate = affinity["hit_rate"].as_f64().expect("a rate");
    let expected = choice("affine") as f64 / (choice("affine") + choice("moved")) as f64;
    assert!((rate - expected).abs() < 1e-9, "{affinity}");
    for name in ["first_byte_p50_ratio", "total_p50_ratio", "requests_per_s_ratio"] {
        assert!(affinity[name].as_f64() > Some(0.0), "{name}: {affinity}");
    }
    let table = stdout(&load(&["--upstreams", "2"]));
    assert!(table.contains("2 upstreams: ") && table.contains("went back to the one that had read them"), "{table}");
    assert!(self::report(&load(&["--json"]))["affinity"].is_null());
}
