//! `loadline top`, as a process: one plain screen, who may see it, and what it leaves behind.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Output;

use serde_json::{Value, json};

use crate::cli::{Running, loadline, stderr, stdout};

const TOKEN: &str = "ll_of_a_test";

fn overview() -> Value {
    json!({
        "version": "0.1.0", "now": "2026-11-16T14:03:52Z", "mode": "enforce",
        "caller": { "user": "local", "sees_all": false },
        "upstream": { "url": "http://127.0.0.1:11434", "up": true, "version": "0.17.4" },
        "store": { "healthy": true },
        "conversations": [{ "id": 7, "user": "local", "title": "Trim \u{1b}[31mthe sails", "model": "smollm2",
            "updated_at": "2026-11-16T14:03:40Z",
            "load": { "action": "none", "arrived_tokens": 724, "limit_tokens": 1000, "usage": "72.4%" } }],
        "events": [{ "id": 1, "kind": "warning", "at": "2026-11-16T14:03:40Z", "text": "INFO: Context at 72.4%" }]
    })
}

/// A server that gives this answer to every holder of the token; gone with the test process.
fn serve(answer: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let lines = BufReader::new(stream.try_clone().expect("a handle")).lines().map_while(Result::ok);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let known = head.iter().any(|line| line.ends_with(&format!("Bearer {TOKEN}")));
            let asked =
                head.first().is_some_and(|line| line.starts_with("GET /loadline/overview?limit=100&events=100"));
            let (status, body) = match (known, asked) {
                (false, _) => ("401 Unauthorized", r#"{"error":"no such token"}"#),
                (true, false) => ("404 Not Found", "{}"),
                (true, true) => ("200 OK", answer.as_str()),
            };
            let length = body.len();
            write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
                .expect("written");
        }
    });
    format!("http://{address}")
}

fn top(arguments: &[&str], token: Option<&str>) -> Output {
    let mut command = loadline();
    command.arg("top").args(arguments).env("COLUMNS", "120");
    if let Some(token) = token {
        command.env("LOADLINE_TOKEN", token);
    }
    command.output().expect("it ends")
}

fn names_of_tokens(dir: &str) -> Vec<String> {
    let output = loadline().args(["token", "list", "--all", "--json", "--data-dir", dir]).output().expect("it ends");
    let tokens: Value = serde_json::from_str(&stdout(&output)).expect("json");
    tokens.as_array().expect("a list").iter().map(|token| token["name"].to_string()).collect()
}

#[test]
fn one_screen_is_plain_text_and_json_is_as_it_came() {
    let answer = overview().to_string();
    let url = serve(answer.clone());
    // The output is no terminal, so that `--once` goes without saying.
    for arguments in [vec!["--url", &url, "--once"], vec!["--url", &url]] {
        let output = top(&arguments, Some(TOKEN));
        let page = stdout(&output);
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(!page.contains('\u{1b}'), "{page}");
        for expected in
            ["loadline 0.1.0 enforce, Ollama up 0.17.4", "72.4% i", "the sails", "14:03:40", "INFO: Context at"]
        {
            assert!(page.contains(expected), "`{expected}` is missing in\n{page}");
        }
    }
    assert_eq!(stdout(&top(&["--url", &url, "--json"], Some(TOKEN))).trim_end(), answer);
}

#[test]
fn without_a_server_or_a_token_it_says_so_with_code_2() {
    let dir = tempfile::tempdir().expect("a directory");
    let url = serve(overview().to_string());
    let nobody = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
    let nobody = format!("http://{nobody}");
    for (arguments, token, expected) in [
        (vec!["--once", "--data-dir", dir.path().to_str().expect("text")], None, "no loadline serves from"),
        (vec!["--once", "--url", &nobody], Some(TOKEN), "does not answer: Connection refused"),
        (vec!["--once", "--url", &url], None, "LOADLINE_TOKEN"),
        (vec!["--once", "--url", &url], Some("ll_wrong"), "does not accept the token: no such token"),
        (vec!["--once", "--url", "https://127.0.0.1:1"], Some(TOKEN), "only http://"),
        (vec!["--interval", "0"], None, "between 0.2 and 3600"),
    ] {
        let output = top(&arguments, token);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(expected), "{arguments:?}: {}", stderr(&output));
        assert!(stdout(&output).is_empty() && !stderr(&output).contains("ll_"), "{arguments:?}");
    }
}

#[test]
fn the_address_of_a_server_that_was_killed_is_not_called() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().to_str().expect("text");
    drop(Running::start(&["serve", "--listen", "127.0.0.1:0", "--data-dir", data]));
    let left = std::fs::read_to_string(dir.path().join("loadline.lock")).expect("a file");
    assert!(left.starts_with("http://"), "{left}");
    let output = top(&["--once", "--data-dir", data], None);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("no loadline serves from"), "{}", stderr(&output));
}

#[test]
fn the_token_it_makes_for_itself_is_gone_when_it_ends() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().to_str().expect("text");
    let _server = Running::start(&["serve", "--listen", "127.0.0.1:0", "--data-dir", data]);
    let before = names_of_tokens(data);
    let output = top(&["--once", "--data-dir", data], None);
    assert!(!stderr(&output).contains("token"), "it was accepted: {}", stderr(&output));
    assert_eq!(names_of_tokens(data), before);
}

#[test]
fn a_real_server_is_found_by_its_directory_and_shows_what_was_said_to_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data").to_str().expect("text").to_owned();
    let sim = Running::start(&["sim", "--listen", "127.0.0.1:0"]);
    let server = Running::start(&["serve", "--listen", "127.0.0.1:0", "--upstream", sim.url(), "--data-dir", &data]);
    let body =
        json!({ "model": "sim", "stream": false, "messages": [{ "role": "user", "content": "Trim the sails" }] });
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let request = reqwest::Client::new().post(format!("{}/api/chat", server.url())).body(body.to_string());
    runtime.block_on(async { request.send().await.expect("an answer").bytes().await.expect("a body") });
    let output = top(&["--once", "--data-dir", &data], None);
    let page = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(page.contains("Trim the sails") && page.contains("enforce, Ollama up"), "{page}");
    let told = stdout(&top(&["--json", "--data-dir", &data], None));
    let told: Value = serde_json::from_str(&told).expect("json");
    assert_eq!((&told["caller"]["sees_all"], &told["totals"]["turns"]["none"]), (&json!(true), &json!(1)));
    assert!(names_of_tokens(&data).iter().all(|name| !name.contains("command")), "its tokens are gone");
}
