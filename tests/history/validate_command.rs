//! `loadline validate`, as a process.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::cli::{loadline, run, stderr, stdout};
use crate::history::import::{line, session};

fn sessions() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        std::fs::write(path, text).expect("written");
    };
    write("a/good.jsonl", &session());
    let twice = line(9, None, "user", json!("a gap")).replace("session-7", "s").replace("2026-01-02", "2026-01-05");
    let warned = format!("{}\n{twice}\n", line(0, None, "user", json!("hello")).replace("session-7", "s"));
    write("b/c/warned.jsonl", &warned);
    write("b/other.jsonl", &session().replace("elsewhere", "cursor"));
    write("notes.txt", "no session");
    dir
}

fn reports(arguments: &[&str]) -> (Option<i32>, Vec<Value>) {
    let output = run(arguments, "");
    let text = stdout(&output);
    (
        output.status.code(),
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text} {}", stderr(&output))),
    )
}

#[test]
fn directories_are_searched_and_strict_makes_warnings_errors() {
    let dir = sessions();
    let root = dir.path().to_str().expect("text");
    let (code, files) = reports(&["validate", root, "--json"]);
    assert_eq!((code, files.len()), (Some(0), 3));
    let keys: Vec<&str> = files[0].as_object().expect("an object").keys().map(String::as_str).collect();
    for key in ["file", "valid", "totalLines", "validMessages", "errors", "warnings", "sessionId", "provider"] {
        assert!(keys.contains(&key), "{key}: {keys:?}");
    }
    assert_eq!((&files[0]["totalLines"], &files[0]["sessionId"]), (&json!(5), &json!("session-7")));
    let (code, files) = reports(&["validate", root, "--json", "--strict"]);
    assert_eq!(code, Some(1));
    let warned = files.iter().find(|file| file["valid"] == false).expect("one is not strict");
    assert_eq!(warned["warnings"][0]["code"], "LARGE_TIME_GAP");
    let people = run(&["validate", root, "--strict", "--verbose"], "");
    assert_eq!(people.status.code(), Some(1));
    assert!(stdout(&people).contains("2 files valid, 1 file invalid"), "{}", stdout(&people));
}

#[test]
fn a_provider_chooses_files() {
    let dir = sessions();
    let root = dir.path().to_str().expect("text");
    let (code, files) = reports(&["validate", root, "--json", "--provider", "cursor"]);
    assert_eq!((code, files.len()), (Some(0), 1));
    assert_eq!(files[0]["provider"], "cursor");
    assert_eq!(run(&["validate", root, "--provider", "nobody"], "").status.code(), Some(2));
}

#[test]
fn what_cannot_be_read_is_2_and_what_is_invalid_is_1() {
    let dir = sessions();
    let missing = dir.path().join("missing.jsonl");
    let output = run(&["validate", missing.to_str().expect("text")], "");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("missing.jsonl"), "{}", stderr(&output));
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).expect("made");
    assert_eq!(run(&["validate", empty.to_str().expect("text")], "").status.code(), Some(2));
    let bad = run(&["validate", "-"], "{\"uuid\": 1}\n");
    assert_eq!(bad.status.code(), Some(1));
    assert!(stdout(&bad).contains("✗ Validation failed!") && stdout(&bad).contains("Line 1"), "{}", stdout(&bad));
}

#[test]
fn a_watched_file_is_validated_again_when_it_changes() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("session.jsonl");
    std::fs::write(&path, session()).expect("written");
    let mut child = loadline()
        .args(["validate", "--watch", dir.path().to_str().expect("text")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut told = BufReader::new(child.stderr.take().expect("piped")).lines();
    assert!(told.next().expect("a line").expect("text").starts_with("watching"));
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map(|line| line.expect("text"));
    assert!(lines.any(|line| line.contains("Validation passed!")));
    let mut file = std::fs::OpenOptions::new().append(true).open(&path).expect("opened");
    file.write_all(b"\nnot json\n").expect("written");
    drop(file);
    assert!(lines.any(|line| line.contains("[INVALID_JSON]")));
    assert!(lines.any(|line| line.contains("Validation failed!")));
    std::fs::write(dir.path().join("new.jsonl"), session()).expect("written");
    assert!(lines.any(|line| line.contains("new.jsonl")));
    assert!(lines.any(|line| line.contains("Validation passed!")));
    let id = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &id]).status().expect("kill runs").success());
    assert_eq!(child.wait().expect("it ends").code(), Some(1), "one file is still invalid");
}

#[test]
fn a_large_stream_needs_little_memory() {
    let mut child =
        loadline().args(["validate", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut input = child.stdin.take().expect("piped");
    let filler = "all hands on deck, ".repeat(500);
    let mut written = 0;
    // Within a day, so that no gap is large.
    for number in 0..20_000 {
        let text = line(number % 3600, None, "user", json!(filler));
        let text = text.replace(&format!("\"line-{}\"", number % 3600), &format!("\"line-{number}\""));
        written += text.len() + 1;
        writeln!(input, "{text}").expect("written");
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("readable");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line");
    let peak_kb: usize = peak.trim().trim_end_matches(" kB").parse().expect("a number");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    assert!(written > 190_000_000, "{written}");
    assert!(peak_kb < 64 << 10, "{peak_kb} kB for {written} bytes");
    assert!(stdout(&output).contains("Total Lines: 20000"), "{}", &stdout(&output)[..400]);
}

#[test]
fn a_file_that_cannot_be_read_does_not_hide_the_others() {
    let dir = sessions();
    let root = dir.path().to_str().expect("text");
    std::os::unix::fs::symlink("nowhere", dir.path().join("dangling.jsonl")).expect("linked");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(dir.path().join("pipe.jsonl"))
            .status()
            .expect("mkfifo runs")
            .success()
    );
    let (code, files) = reports(&["validate", root, "--json"]);
    assert_eq!((code, files.len()), (Some(2), 4));
    assert_eq!(files.iter().filter(|file| file["valid"] == true).count(), 3);
}

#[test]
fn a_provider_leaves_out_only_what_names_another() {
    let dir = sessions();
    let root = dir.path().to_str().expect("text");
    for broken in ["garbage", "{\"provider\": \"\"}", "{\"provider\": 5}"] {
        std::fs::write(dir.path().join("broken.jsonl"), broken).expect("written");
        let (code, files) = reports(&["validate", root, "--json", "--provider", "cursor"]);
        assert_eq!((code, files.len()), (Some(1), 2), "{broken}");
    }
}

#[test]
fn whoever_stops_reading_does_not_take_an_invalid_file_for_a_valid_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("bad.jsonl");
    std::fs::write(&path, "nonsense\n".repeat(5000)).expect("written");
    let mut child = loadline()
        .args(["validate", "--verbose", path.to_str().expect("text"), path.to_str().expect("text")])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(1));
}

#[test]
fn the_documentation_names_every_finding_with_its_level() {
    let documented = include_str!("../../docs/canonical-jsonl.md");
    for code in loadline::history::validate::Code::ALL {
        let row = format!("| `{}` | {} |", code.as_str(), code.level().number());
        assert!(documented.contains(&row), "{row}");
    }
}
