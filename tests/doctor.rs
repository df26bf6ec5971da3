//! `loadline doctor`, as a process against the simulator: what it sees, and the way it says to mend it.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use loadline::sim::{self, SimConfig};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::{Running, loadline, stderr, stdout};
use crate::stage::{MODEL, Stage, words};

/// Runs it on a directory, without what the environment of the tests may have.
fn doctor(data: &Path, upstream: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = loadline();
    command.env_remove("OLLAMA_HOST").env("LOADLINE_SERVER_LISTEN", "127.0.0.1:0");
    command.envs(variables.iter().copied()).args(["doctor", "--upstream", upstream, "--data-dir"]).arg(data);
    command.args(arguments).stdin(Stdio::null()).output().expect("it runs")
}

/// The same from a test that has servers of its own running.
async fn doctor_beside(data: &Path, upstream: &str, arguments: &'static [&'static str]) -> Output {
    let (data, upstream) = (data.to_owned(), upstream.to_owned());
    tokio::task::spawn_blocking(move || doctor(&data, &upstream, arguments, &[])).await.expect("it runs")
}

fn report(output: &Output) -> Value {
    serde_json::from_str(&stdout(output)).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn check<'a>(report: &'a Value, group: &str, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().expect("checks");
    let found = checks.iter().find(|check| check["group"] == group && check["name"] == name);
    found.unwrap_or_else(|| panic!("no {group}/{name} in {report:#}"))
}

fn mend<'a>(report: &'a Value, group: &str, name: &str) -> &'a str {
    check(report, group, name)["mend"].as_str().unwrap_or_else(|| panic!("no way to mend {group}/{name}: {report:#}"))
}

/// A directory as `loadline serve` would make it.
fn private_dir() -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o700)).expect("its mode");
    dir
}

/// A port that nothing listens on.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port()
}

async fn sim() -> sim::Sim {
    sim::start(SimConfig { models: vec![MODEL.clone()], ..SimConfig::default() }).await.expect("a free port")
}

#[test]
fn a_running_server_with_its_upstream_has_nothing_to_mend() {
    let dir = private_dir();
    let ollama = Running::start(&["sim", "--listen", "127.0.0.1:0", "--window", "8192"]);
    let data = dir.path().to_str().expect("text");
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--upstream", ollama.url(), "--data-dir", data];
    let server = Running::start(&arguments);
    let listen = server.url().trim_start_matches("http://");
    let output = doctor(dir.path(), ollama.url(), &["--json"], &[("LOADLINE_SERVER_LISTEN", listen)]);
    let report = report(&output);
    assert_eq!(
        (output.status.code(), &report["ok"], stderr(&output).as_str()),
        (Some(0), &json!(true), ""),
        "{report:#}"
    );
    for (group, name) in [
        ("configuration", "reads"),
        ("configuration", "port"),
        ("server", "running"),
        ("server", "stores"),
        ("upstream", "loop"),
        ("upstream", "reachable"),
        ("upstream", "truncate"),
        ("upstream", "renderings"),
        ("model sim:latest", "tokenizer"),
        ("store", "directory"),
        ("store", "files"),
        ("store", "database"),
        ("store", "first-token"),
        ("machine", "upstream-clock"),
    ] {
        assert_eq!(check(&report, group, name)["status"], "ok", "{group}/{name}: {report:#}");
    }
    assert!(
        check(&report, "configuration", "port")["seen"]
            .as_str()
            .is_some_and(|seen| seen.contains("this data directory"))
    );
    let token = std::fs::read_to_string(dir.path().join("token")).expect("a token");
    assert!(!stdout(&output).contains(token.trim()));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_check_has_the_same_fields_and_a_way_to_mend_only_where_one_is_needed() {
    let (sim, dir) = (sim().await, private_dir());
    let report = report(&doctor_beside(dir.path(), &sim.url(), &["--json"]).await);
    assert_eq!(
        report.as_object().map(|report| report.keys().collect::<Vec<_>>()).expect("an object"),
        ["ok", "checks"]
    );
    let checks = report["checks"].as_array().expect("checks");
    assert!(checks.len() > 15, "{report:#}");
    for check in checks {
        let keys: Vec<_> = check.as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["group", "name", "status", "seen", "mend"]);
        let needs = match check["status"].as_str().expect("a status") {
            "ok" | "skip" => false,
            "warn" | "fail" => true,
            other => panic!("{other}"),
        };
        assert_eq!(check["mend"].is_string(), needs, "{check:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn people_get_marks_and_words_and_no_colours_in_a_pipe() {
    let (sim, dir) = (sim().await, private_dir());
    let output = doctor_beside(dir.path(), &sim.url(), &[]).await;
    let text = stdout(&output);
    for expected in ["upstream\n", "✓ ok    reachable", "! warn  window", "→ ", "– skip  running", "Nothing is wrong"]
    {
        assert!(text.contains(expected), "`{expected}` is missing in\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "{text}");
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_mends_many_models_is_said_once_to_people() {
    let models = ["a", "b", "c"].map(|name| MODEL.renamed(name)).to_vec();
    let sim = sim::start(SimConfig { models, ..SimConfig::default() }).await.expect("a free port");
    let text = stdout(&doctor_beside(private_dir().path(), &sim.url(), &[]).await);
    assert_eq!((text.matches("OLLAMA_CONTEXT_LENGTH").count(), text.matches("→ as above").count()), (1, 2), "{text}");
}

#[test]
fn an_upstream_that_is_gone_is_wrong_and_both_ways_out_are_told() {
    let dir = private_dir();
    let output = doctor(dir.path(), &format!("http://127.0.0.1:{}", free_port()), &["--json"], &[]);
    let report = report(&output);
    assert_eq!((output.status.code(), &report["ok"]), (Some(1), &json!(false)));
    let mend = mend(&report, "upstream", "reachable");
    assert!(mend.contains("`ollama serve`") && mend.contains("upstream.url"), "{mend}");
}

#[test]
fn an_upstream_that_hangs_does_not_hang_the_doctor() {
    let dir = private_dir();
    // The system takes connections for it, and nobody ever reads.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let upstream = format!("http://{}", silent.local_addr().expect("an address"));
    let began = Instant::now();
    let output = doctor(dir.path(), &upstream, &["--json"], &[]);
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let report = report(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        check(&report, "upstream", "reachable")["seen"].as_str().is_some_and(|seen| seen.contains("does not answer"))
    );
    assert_eq!(check(&report, "store", "directory")["status"], "ok");
}

#[test]
fn an_upstream_that_is_loadline_itself_is_a_loop() {
    let dir = private_dir();
    let listen = format!("127.0.0.1:{}", free_port());
    let itself = format!("http://localhost:{}", listen.rsplit(':').next().expect("a port"));
    let output = doctor(dir.path(), &itself, &["--json"], &[("LOADLINE_SERVER_LISTEN", &listen)]);
    assert_eq!(output.status.code(), Some(1));
    let report = report(&output);
    assert_eq!(check(&report, "upstream", "loop")["status"], "fail");
    assert!(mend(&report, "upstream", "loop").contains("LOADLINE_UPSTREAM_URL"));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_loadline_as_upstream_is_told_and_one_that_leads_back_is_a_loop() {
    let (stage, dir) = (Stage::new().await, private_dir());
    let another = doctor_beside(dir.path(), &stage.url, &["--json"]).await;
    let told = report(&another);
    assert_eq!(check(&told, "upstream", "loop")["status"], "warn");
    assert!(mend(&told, "upstream", "loop").contains(&stage.sim.url()), "{told:#}");
    // The one that would listen where that one forwards to.
    let (data, url, behind) = (dir.path().to_owned(), stage.url.clone(), stage.sim.addr().to_string());
    let back =
        tokio::task::spawn_blocking(move || doctor(&data, &url, &["--json"], &[("LOADLINE_SERVER_LISTEN", &behind)]));
    let back = back.await.expect("it runs");
    assert_eq!(back.status.code(), Some(1));
    assert_eq!(check(&report(&back), "upstream", "loop")["status"], "fail");
}

#[test]
fn a_broken_configuration_is_told_and_the_rest_is_looked_at_all_the_same() {
    let dir = private_dir();
    let file = dir.path().join("loadline.toml");
    std::fs::write(&file, "[context]\nreserve = 0.9\n").expect("written");
    let upstream = format!("http://127.0.0.1:{}", free_port());
    let output = doctor(dir.path(), &upstream, &["--json", "--config", file.to_str().expect("text")], &[]);
    assert_eq!(output.status.code(), Some(1));
    let report = report(&output);
    let reads = check(&report, "configuration", "reads");
    assert!(reads["status"] == "fail" && reads["seen"].as_str().is_some_and(|seen| seen.contains("context.reserve")));
    assert!(mend(&report, "configuration", "reads").contains("LOADLINE_CONTEXT_RESERVE"));
    assert!(check(&report, "upstream", "reachable")["seen"].as_str().is_some_and(|seen| seen.contains(&upstream)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_others_can_read_is_told_with_the_commands_that_close_it() {
    let stage = Stage::new().await;
    let set = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("mode");
    set(stage.data_dir(), 0o755);
    let open = report(&doctor_beside(stage.data_dir(), &stage.sim.url(), &["--json"]).await);
    assert_eq!((&open["ok"], &check(&open, "store", "files")["status"]), (&json!(true), &json!("ok")));
    assert_eq!(mend(&open, "store", "directory"), format!("`chmod 700 {}`", stage.data_dir().display()));
    let secret = stage.data_dir().join("identity.key");
    set(&secret, 0o644);
    let output = doctor_beside(stage.data_dir(), &stage.sim.url(), &["--json"]).await;
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(mend(&report(&output), "store", "files"), format!("`chmod 600 {}`", secret.display()));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_model_is_loaded_and_a_loaded_one_keeps_its_window() {
    let (stage, model) = (Stage::new().await, "model sim:latest");
    let cold = report(&doctor_beside(stage.data_dir(), &stage.sim.url(), &["--json"]).await);
    assert_eq!(check(&cold, model, "template")["status"], "skip");
    assert!(stage.get("/api/ps").await.json()["models"].as_array().is_some_and(Vec::is_empty));
    stage.chat(&json!([{ "role": "user", "content": "a secret of mine" }]), 2048).await;
    let output = doctor_beside(stage.data_dir(), &stage.sim.url(), &["--json"]).await;
    let warm = report(&output);
    assert!(check(&warm, model, "template")["seen"].as_str().is_some_and(|seen| seen.starts_with("exact")), "{warm:#}");
    assert!(check(&warm, model, "loaded")["seen"].as_str().is_some_and(|seen| seen.contains("2048")), "{warm:#}");
    assert_eq!(stage.sim.stats().reloads, 0);
    assert!(!stdout(&output).contains("a secret of mine"));
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_ask_for_different_windows_are_told() {
    let stage = Stage::new().await;
    for (tag, window) in [("one", 1024), ("two", 8192)] {
        stage.chat(&json!([{ "role": "user", "content": words(tag, 20) }]), window).await;
    }
    let report = report(&doctor_beside(stage.data_dir(), &stage.sim.url(), &["--json"]).await);
    assert!(mend(&report, "model sim:latest", "reloads").contains("same num_ctx"), "{report:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_is_not_there_is_told_with_the_command_that_fetches_it() {
    let (sim, dir) = (sim().await, private_dir());
    let output = doctor_beside(dir.path(), &sim.url(), &["--json", "--model", "sim", "--model", "gone"]).await;
    let report = report(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(mend(&report, "model gone", "window").contains("`ollama pull gone`"));
    assert_eq!(check(&report, "model sim", "tokenizer")["status"], "ok");
}
