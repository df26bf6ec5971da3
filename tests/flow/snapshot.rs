//! Snapshots: listed, shown, exported, and gone on from.

use serde_json::{Value, json};

use super::ladder::filled_to;
use crate::cli::{run, stdout};
use crate::stage::Stage;

#[tokio::test]
async fn a_snapshot_can_be_listed_shown_exported_and_restored_beside_a_running_server() {
    let stage = Stage::new().await;
    let messages = filled_to(&stage, 120.0, 2048).await;
    let got = stage.chat(&messages, 2048).await;
    let (id, place) = (got.header("x-loadline-snapshot").to_owned(), stage.place());
    let place: Vec<&str> = place.iter().map(String::as_str).collect();
    let said = messages.as_array().expect("messages");
    let cli = |arguments: &[&str]| {
        let output = run(&[&["snapshots"], place.as_slice(), arguments].concat(), "");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        stdout(&output)
    };
    assert!(cli(&["list"]).contains(&id));
    let listed: Value = serde_json::from_str(&cli(&["list", "--json"])).expect("json");
    assert_eq!(
        (listed[0]["id"].as_str(), listed[0]["messages"].as_u64()),
        (Some(id.as_str()), Some(said.len() as u64))
    );
    let shown: Value = serde_json::from_str(&cli(&["show", &id, "--json"])).expect("json");
    assert_eq!(shown["history"].as_array().map(Vec::len), Some(said.len() - 1));
    assert_eq!(shown["system"], json!(["Be brief."]));
    let lines: Vec<Value> =
        cli(&["export", &id]).lines().map(|line| serde_json::from_str(line).expect("json")).collect();
    assert_eq!(lines.len(), said.len());
    for (line, message) in lines.iter().zip(said) {
        assert_eq!(line["message"]["content"], message["content"]);
        for field in ["uuid", "timestamp", "type", "sessionId", "provider"] {
            assert!(line[field].as_str().is_some_and(|text| !text.is_empty()), "{field}: {line}");
        }
    }
    let request: Value = serde_json::from_str(&cli(&["restore", &id, "--say", "go on"])).expect("json");
    let restored = request["messages"].as_array().expect("messages");
    assert_eq!((restored.len(), restored.last().map(|last| &last["content"])), (said.len() + 1, Some(&json!("go on"))));
    let missing = run(&[&["snapshots", "show", "snapshot-nope"], place.as_slice()].concat(), "");
    assert_eq!(missing.status.code(), Some(2));
}

#[tokio::test]
async fn a_client_goes_on_from_a_snapshot_by_naming_it() {
    let stage = Stage::new().await;
    let messages = filled_to(&stage, 120.0, 2048).await;
    let got = stage.chat(&messages, 2048).await;
    let snapshot = got.header("x-loadline-snapshot").to_owned();
    let mut own = vec![json!({ "role": "user", "content": "a fresh start from there" })];
    for (path, list) in [
        ("/api/chat", "messages"),
        ("/v1/chat/completions", "messages"),
        ("/v1/messages", "messages"),
        ("/v1/responses", "input"),
    ] {
        let body = json!({ "model": "sim", "stream": false, "max_tokens": 20, list: own });
        let got = stage.post_with(path, body.to_string(), &[("x-loadline-restore", &snapshot)]).await;
        assert_eq!(got.status, 200, "{path}: {}", got.text);
        let stored = stage.stored(&got);
        assert_eq!(stored.len(), messages.as_array().expect("messages").len() - 1 + 2, "{path}");
        assert_eq!(stored[stored.len() - 2].text, "a fresh start from there", "{path}");
    }
    // Turn after turn with the same header.
    let body = |own: &[Value]| json!({ "model": "sim", "stream": false, "messages": own }).to_string();
    let headers = [("x-loadline-restore", snapshot.as_str())];
    let first = stage.post_with("/api/chat", body(&own), &headers).await;
    own.push(first.json()["message"].clone());
    own.push(json!({ "role": "user", "content": "and on" }));
    let second = stage.post_with("/api/chat", body(&own), &headers).await;
    assert_eq!(second.header("x-loadline-conversation"), first.header("x-loadline-conversation"));
    let unknown = stage.post_with("/api/chat", body(&own), &[("x-loadline-restore", "snapshot-nope")]).await;
    assert_eq!(unknown.status, 404);
}
