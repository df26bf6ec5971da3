//! The commands, as processes: what they print, and their exit codes.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;

use serde_json::{Value, json};

use crate::live::gguf;
use crate::stage::MODEL;

pub fn loadline() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loadline"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("LOADLINE_")) {
        command.env_remove(name);
    }
    command
}

pub fn run(arguments: &[&str], input: &str) -> Output {
    let mut child = loadline()
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("written");
    child.wait_with_output().expect("it ends")
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// A model file with the simulator's vocabulary.
fn model_file(dir: &tempfile::TempDir) -> String {
    let path = dir.path().join("model.gguf");
    std::fs::write(&path, gguf::tiny_model(&MODEL.vocabulary, 8192)).expect("written");
    path.to_str().expect("text").to_owned()
}

/// A process that ends with the test.
pub struct Running(Child, pub String, Option<std::thread::JoinHandle<String>>);

impl Running {
    pub fn start(arguments: &[&str]) -> Self {
        Self::spawned(loadline().args(arguments).stderr(Stdio::null()))
    }

    /// A command that is prepared already.
    pub fn of(mut command: Command) -> Self {
        Self::spawned(command.stderr(Stdio::null()))
    }

    /// With settings, and with its log kept for [`Running::stopped`].
    pub fn with_log(arguments: &[&str], settings: &[(&str, &str)]) -> Self {
        Self::spawned(loadline().args(arguments).envs(settings.iter().copied()).stderr(Stdio::piped()))
    }

    pub fn url(&self) -> &str {
        &self.1
    }

    /// Asks it to end, waits until it has, and gives what it has logged.
    pub fn stopped(mut self) -> String {
        let asked = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status();
        assert!(asked.expect("kill is there").success());
        self.2.take().expect("kept").join().expect("text")
    }

    fn spawned(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        // Read all along: a process whose pipe is full would stop.
        let log = child.stderr.take().map(|mut stderr| {
            std::thread::spawn(move || {
                let mut log = String::new();
                stderr.read_to_string(&mut log).expect("text");
                log
            })
        });
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
        let url = line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("unexpected: {line}")).to_owned();
        Self(child, url, log)
    }
}

/// What a process that goes on prints, line by line.
pub struct Lines(Child, mpsc::Receiver<String>);

impl Lines {
    pub fn of(arguments: &[&str]) -> Self {
        let mut child =
            loadline().args(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        let printed = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
        let (tell, lines) = mpsc::channel();
        std::thread::spawn(move || printed.for_each(|line| drop(tell.send(line))));
        Self(child, lines)
    }

    pub fn next(&mut self) -> String {
        self.1.recv_timeout(std::time::Duration::from_secs(60)).expect("a line")
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_demo_keeps_its_promises_and_says_what_happens() {
    let output = run(&["demo", "--exit"], "");
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    let text = stdout(&output);
    for expected in [
        "INFO: Context at 7",
        "INFO: Context at 8",
        "WARNING: Context at 9",
        "CRITICAL: Context at 1",
        "rollover",
        "snapshot-",
    ] {
        assert!(text.contains(expected), "`{expected}` is missing in\n{text}");
    }
}

#[test]
fn count_works_offline_from_a_model_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let model = model_file(&dir);
    let text = "Hello <|im_start|>there<|im_end|>";
    let expected = MODEL.tokenizer.count_prompt(text, Default::default()).tokens.to_string();
    assert_eq!(stdout(&run(&["count", "--gguf", &model, text], "")).trim(), expected);
    assert_eq!(stdout(&run(&["count", "--gguf", &model], text)).trim(), expected);
    let lines = format!("{}\n{}\n", json!(text), json!("a\nb"));
    let output = run(&["count", "--gguf", &model, "--lines"], &lines);
    assert_eq!(stdout(&output).lines().collect::<Vec<_>>(), [expected.as_str(), "3"]);
    let output = run(&["count", "--gguf", &model, "--lines"], "not json\n");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("line 1"), "{}", stderr(&output));
}

#[test]
fn check_answers_for_a_file_offline_and_says_no_with_1() {
    let dir = tempfile::tempdir().expect("a directory");
    let model = model_file(&dir);
    let check = |words: usize| {
        let request = dir.path().join("request.json");
        let body =
            json!({ "model": "any", "messages": [{ "role": "user", "content": vec!["word"; words].join(" ") }] });
        std::fs::write(&request, body.to_string()).expect("written");
        run(&["check", request.to_str().expect("text"), "--gguf", &model, "--window", "512"], "")
    };
    let fine = check(10);
    let answer: Value = serde_json::from_str(&stdout(&fine)).expect("json");
    assert_eq!((fine.status.code(), &answer["valid"], &answer["ollamaLimit"]), (Some(0), &json!(true), &json!(435)));
    assert_eq!(answer["basis"], "calibrated");
    let no = check(900);
    let answer: Value = serde_json::from_str(&stdout(&no)).expect("json");
    assert_eq!((no.status.code(), &answer["valid"]), (Some(1), &json!(false)));
}

#[test]
fn serve_and_sim_print_where_they_listen_and_work_together() {
    let dir = tempfile::tempdir().expect("a directory");
    let sim = Running::start(&["sim", "--listen", "127.0.0.1:0"]);
    let data = dir.path().to_str().expect("text");
    let proxy = Running::start(&["serve", "--listen", "127.0.0.1:0", "--upstream", &sim.1, "--data-dir", data]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let answer: Value = runtime.block_on(async {
        let body = json!({ "model": "sim", "stream": false, "messages": [{ "role": "user", "content": "hi" }] });
        let response = reqwest::Client::new()
            .post(format!("{}/api/chat", proxy.1))
            .body(body.to_string())
            .send()
            .await
            .expect("an answer");
        assert_eq!(response.headers()["x-loadline-action"], "none");
        serde_json::from_str(&response.text().await.expect("a body")).expect("json")
    });
    assert_eq!(answer["done"], true);
    let model = run(&["count", "--upstream", &sim.1, "--model", "sim", "hi"], "");
    assert_eq!(stdout(&model).trim(), "1", "{}", stderr(&model));
}

#[test]
fn what_cannot_be_done_is_said_on_standard_error_with_code_2() {
    for (arguments, expected) in [
        (vec!["count", "--gguf", "/does/not/exist.gguf", "x"], "/does/not/exist.gguf"),
        (vec!["serve", "--listen", "0.0.0.0:0"], "server.listen"),
        (vec!["serve", "--config", "/does/not/exist.toml"], "/does/not/exist.toml"),
        (vec!["serve", "--upstream", "https://example.org"], "only http:// upstreams"),
        (vec!["frobnicate"], "frobnicate"),
    ] {
        let output = run(&arguments, "");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains(expected), "{arguments:?}: {}", stderr(&output));
        assert!(stdout(&output).is_empty(), "{arguments:?}");
    }
}

#[test]
fn help_teaches_every_command() {
    let help = stdout(&run(&["--help"], ""));
    for command in ["serve", "demo", "sim", "check", "count", "events", "top", "doctor"] {
        assert!(help.contains(command), "{help}");
        let own = run(&[command, "--help"], "");
        assert!(own.status.success() && stdout(&own).len() > 200, "{command}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let dir = tempfile::tempdir().expect("a directory");
    let model = model_file(&dir);
    let mut child = loadline()
        .args(["count", "--gguf", &model, "hi"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    drop(child.stdout.take());
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!((ended.status.code(), stderr(&ended).as_str()), (Some(0), ""));
}

#[test]
fn bench_recall_prints_what_is_kept_beside_what_truncation_keeps() {
    let dataset = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/recall/travel.jsonl");
    let output = run(&["bench", "recall", dataset, "--window", "2048", "--window", "4096", "--json"], "");
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_str(&stdout(&output)).expect("one JSON object");
    for (row, (window, limit)) in report["windows"].as_array().expect("rows").iter().zip([(2048, 1740), (4096, 3481)]) {
        assert_eq!((&row["window"], &row["limit"]), (&json!(window), &json!(limit)));
        assert!(
            row["questions"].as_u64() >= Some(15) && row["evidence"].as_u64() >= row["questions"].as_u64(),
            "{row}"
        );
        let (kept, truncation) = (row["kept"].as_f64().expect("a share"), row["truncation"].as_f64().expect("a share"));
        assert!(kept >= 0.65 && kept > truncation, "{row}");
    }
    let missing = run(&["bench", "recall", "/nowhere.jsonl"], "");
    assert_eq!(missing.status.code(), Some(2));
    assert!(stderr(&missing).contains("/nowhere.jsonl"));
}
