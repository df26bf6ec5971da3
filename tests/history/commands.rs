//! `token`, `conversations` and `history`, as processes: beside a server and without one.

use serde_json::{Value, json};

use crate::cli::{Running, run, stderr, stdout};

struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a directory") }
    }

    fn data(&self) -> String {
        self.dir.path().join("data").to_str().expect("text").to_owned()
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("text").to_owned()
    }

    fn run(&self, arguments: &[&str]) -> std::process::Output {
        let data = self.data();
        run(&[arguments, &["--data-dir", &data]].concat(), "")
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(arguments);
        let text = stdout(&output);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text} {}", stderr(&output)))
    }
}

#[test]
fn a_token_is_shown_once_and_known_by_its_beginning_afterwards() {
    let bench = Bench::new();
    let made = bench.json(&["token", "create", "alice", "--scope", "read", "--expires", "30d", "--json"]);
    let token = made["token"].as_str().expect("a token").to_owned();
    assert_eq!((&made["name"], &made["scopes"]), (&json!("alice"), &json!(["read"])));
    assert!(token.starts_with("ll_") && token.len() == 39);
    let list = stdout(&bench.run(&["token", "list"]));
    assert!(list.contains("alice") && list.contains(&token[..7]) && !list.contains(&token[..12]), "{list}");
    let twice = bench.run(&["token", "create", "alice"]);
    assert_eq!(twice.status.code(), Some(2));
    assert!(stderr(&twice).contains("already"), "{}", stderr(&twice));
    assert!(bench.run(&["token", "revoke", "alice"]).status.success());
    assert_eq!(bench.run(&["token", "revoke", "alice"]).status.code(), Some(2));
    assert_eq!(bench.json(&["token", "list", "--json"]), json!([]));
    assert_eq!(bench.json(&["token", "list", "--all", "--json"])[0]["state"], "revoked");
    assert_eq!(bench.run(&["token", "create", "a b"]).status.code(), Some(2));
    assert_eq!(bench.run(&["token", "create", "x", "--expires", "yesterday"]).status.code(), Some(2));
    for entry in std::fs::read_dir(bench.data()).expect("readable") {
        let bytes = std::fs::read(entry.expect("entry").path()).expect("readable");
        assert!(!bytes.windows(token.len()).any(|window| window == token.as_bytes()), "only a hash is kept");
    }
}

/// Everything that `conversations` can do, in the order in which somebody would.
fn walk(bench: &Bench) {
    let canonical = bench.file("session.jsonl", &super::import::session());
    let list = json!([{ "role": "user", "content": "Where is the oolong?" }, { "role": "assistant", "content": "In hold four." }]);
    let list = bench.file("list.json", &list.to_string());
    let made = bench.json(&["conversations", "import", &canonical, "--json"]);
    let id = made["id"].to_string();
    let other =
        bench.json(&["conversations", "import", &list, "--user", "bob", "--preset", "reasoning-first", "--json"]);
    let other = other["id"].to_string();
    let bad = bench.file("bad.json", "[{\"role\":\"user\"}]");
    let refused = bench.run(&["conversations", "import", &bad]);
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("missing required field 'content'"), "{}", stderr(&refused));

    let rows = bench.json(&["conversations", "list", "--json"]);
    assert_eq!(rows.as_array().expect("rows").len(), 2);
    let rows = bench.json(&["conversations", "list", "--user", "bob", "--json"]);
    assert_eq!((rows[0]["id"].to_string(), &rows[0]["title"]), (other.clone(), &json!("Where is the oolong?")));
    assert!(stdout(&bench.run(&["conversations", "list"])).contains("Where is the oolong?"));

    let shown = bench.json(&["conversations", "show", &id, "--json"]);
    assert_eq!((&shown["user"], &shown["system"]), (&json!("local"), &json!(["Be brief."])));
    assert_eq!(shown["history"].as_array().expect("messages").len(), 4);
    assert!(stdout(&bench.run(&["conversations", "show", &id])).contains("What is in hold 4?"));
    assert_eq!(bench.run(&["conversations", "show", "999"]).status.code(), Some(2));

    let found = bench.json(&["conversations", "search", "oolong", "--json"]);
    assert_eq!(found[0]["conversation_id"].to_string(), other);
    assert!(stdout(&bench.run(&["conversations", "search", "ool"])).contains("«oolong»"));
    assert_eq!(bench.run(&["conversations", "search", "oolong", "--user", "local"]).status.code(), Some(1));

    let export = bench.file("export.jsonl", "");
    assert!(bench.run(&["conversations", "export", &id, "--output", &export]).status.success());
    assert_eq!(std::fs::read_to_string(&export).expect("readable").trim_end(), super::import::session());
    assert!(run(&["validate", "--strict", &export], "").status.code() == Some(0));

    // Nothing listens there: tokens are estimated.
    let handoff = ["conversations", "handoff", &other, "--upstream", "http://127.0.0.1:1"];
    let section = bench.run(&handoff);
    assert!(stdout(&section).contains("[1] 👤 User") && stderr(&section).contains("estimated"), "{}", stderr(&section));
    let fitted = bench.json(&[&handoff[..], &["--tokens", "4000", "--json"]].concat());
    assert_eq!((&fitted["left_out"], &fitted["preset"]), (&json!(0), &json!("requirements-first")));
    assert_eq!(bench.run(&[&handoff[..], &["--thread", "quantum chromodynamics"]].concat()).status.code(), Some(1));
    assert_eq!(bench.run(&[&handoff[..], &["--compress"]].concat()).status.code(), Some(2));

    let unasked = bench.run(&["conversations", "delete", &id]);
    assert_eq!(unasked.status.code(), Some(2), "nobody can be asked here");
    assert!(bench.run(&["conversations", "delete", &id, &other, "--yes"]).status.success());
    assert_eq!(bench.json(&["conversations", "list", "--json"]), json!([]));
    assert_eq!(bench.run(&["conversations", "delete", &id, "--yes"]).status.code(), Some(2));
}

#[test]
fn conversations_are_looked_at_brought_in_and_deleted_without_a_server() {
    let bench = Bench::new();
    let nothing = bench.run(&["conversations", "list"]);
    assert_eq!(nothing.status.code(), Some(2));
    assert!(stderr(&nothing).contains("nothing is stored"), "{}", stderr(&nothing));
    walk(&bench);
}

#[test]
fn conversations_are_looked_at_brought_in_and_deleted_beside_a_server() {
    let bench = Bench::new();
    let server = Running::start(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--upstream",
        "http://127.0.0.1:1",
        "--data-dir",
        &bench.data(),
    ]);
    walk(&bench);
    let token = std::fs::read_to_string(std::path::Path::new(&bench.data()).join("token")).expect("the first token");
    assert!(token.starts_with("ll_"));
    let second = run(&["serve", "--listen", "127.0.0.1:0", "--data-dir", &bench.data()], "");
    assert_eq!(second.status.code(), Some(2), "one server a directory");
    drop(server);
}

#[test]
fn a_history_is_checked_for_people_and_for_programs() {
    let bench = Bench::new();
    let long = json!([{ "role": "user", "content": "x".repeat(200) }, { "role": "assistant", "content": "fine" }]);
    let file = bench.file("history.json", &json!({ "messages": long }).to_string());
    let checked = run(&["history", "check", &file, "--preset", "reasoning-first", "--json"], "");
    assert_eq!(checked.status.code(), Some(0));
    let checked: Value = serde_json::from_str(&stdout(&checked)).expect("JSON");
    assert_eq!((&checked["valid"], &checked["errors"]), (&json!(true), &json!([])));
    assert_eq!(checked["conversation_history"]["truncated_count"], 1);
    assert_eq!(checked["warnings"][0]["message"], "User message truncated from 200 to 165 characters");
    let people = run(&["history", "check", &file], "");
    assert!(stdout(&people).contains("2 messages, 0 truncated"), "{}", stdout(&people));
    let section = run(&["history", "check", &file, "--section"], "");
    assert!(stdout(&section).contains("💬 CONVERSATION HISTORY"));
    let refused = run(&["history", "check", "-", "--json"], "[{\"role\":\"system\",\"content\":\"x\"}]");
    assert_eq!(refused.status.code(), Some(1));
    let refused: Value = serde_json::from_str(&stdout(&refused)).expect("JSON");
    assert_eq!((&refused["valid"], &refused["errors"][0]["error_type"]), (&json!(false), &json!("invalid_value")));
    assert_eq!(run(&["history", "check", "-"], "{").status.code(), Some(2));
    let limits = bench.file("loadline.toml", "[history.reasoning_first]\nuser_chars = 500\n");
    let checked = run(&["history", "check", &file, "--preset", "reasoning-first", "--config", &limits, "--json"], "");
    let checked: Value = serde_json::from_str(&stdout(&checked)).expect("JSON");
    assert_eq!(checked["conversation_history"]["truncated_count"], 0, "limits are configuration");
}
