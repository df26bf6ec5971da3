//! Histories that come from elsewhere.

use serde_json::{Value, json};

use crate::history::contents;
use crate::stage::{Stage, chat_body};

/// A line of a canonical file.
pub fn line(number: usize, parent: Option<usize>, kind: &str, content: Value) -> String {
    let parent = parent.map(|parent| format!("line-{parent}"));
    json!({
        "uuid": format!("line-{number}"), "parentUuid": parent, "timestamp": super::timestamp(number), "type": kind,
        "sessionId": "session-7", "provider": "elsewhere", "cwd": "/somewhere",
        "message": { "role": if kind == "meta" { "system" } else { kind }, "content": content },
    })
    .to_string()
}

pub fn session() -> String {
    let call = json!([
        { "type": "thinking", "thinking": "I must look." },
        { "type": "text", "text": "Let me see." },
        { "type": "tool_use", "id": "call-1", "name": "read", "input": { "path": "hold.txt" } },
    ]);
    let result = json!([{ "type": "tool_result", "tool_use_id": "call-1", "content": "42 crates" }]);
    [
        line(0, None, "meta", json!("Be brief.")),
        line(1, Some(0), "user", json!("What is in hold 4?")),
        line(2, Some(1), "assistant", call),
        line(3, Some(2), "user", result),
        line(4, Some(3), "assistant", json!("42 crates.")),
    ]
    .join("\n")
}

#[tokio::test]
async fn a_list_is_kept_whole_and_the_presets_form_beside_it() {
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    let long = "x".repeat(500);
    let list = json!({ "conversation_history": [
        { "role": "user", "content": "Fix the bug", "timestamp": "2026-01-02T10:00:00",
          "attachments": [{ "type": "code", "language": "python", "content": "1/0" }] },
        { "role": "orchestrator", "content": long, "timestamp": "2026-01-02T10:00:15" },
    ] });
    let got = stage.import(&alice, &list.to_string()).await;
    assert_eq!(got.status, 201, "{}", got.text);
    let made = got.json();
    assert_eq!((&made["preset"], &made["warnings"]), (&json!("requirements-first"), &json!([])));
    let stored = &made["conversation_history"];
    assert_eq!((&stored["total_messages"], &stored["truncated_count"]), (&json!(2), &json!(1)));
    assert_eq!(stored["messages"][1]["original_length"], 500);
    assert_eq!(stored["messages"][1]["truncated"], true);
    assert_eq!(stored["messages"][0]["attachments"][0]["language"], "python");
    assert_eq!(stored["metadata"]["oldest_message"], "2026-01-02T10:00:00");
    let id = &made["id"];
    let rows = stage.get_as(&alice, &format!("/api/conversations/{id}/messages")).await;
    assert_eq!(contents(&rows), ["Fix the bug".to_owned(), long], "what is kept is whole");
    assert_eq!(rows.json()[1]["role"], "assistant");
    assert_eq!(rows.json()[0]["created_at"], "2026-01-02T10:00:00Z");
    let details = stage.get_as(&alice, &format!("/api/conversations/{id}")).await.json();
    assert_eq!(details["conversation_history"], *stored);
}

#[tokio::test]
async fn a_list_that_cannot_be_taken_says_why_and_leaves_nothing() {
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    for (body, query, said) in [
        (json!([{ "role": "user" }]), "", "Message at index 0 missing required field 'content'"),
        (
            json!([{ "role": "system", "content": "x" }]),
            "",
            "Message at index 0 has invalid role 'system', must be user|assistant|orchestrator",
        ),
        (json!("text"), "", "conversation_history must be a list of message dicts"),
        (
            json!([{ "role": "user", "content": "x".repeat(301) }]),
            "?preset=reasoning-first",
            "User message exceeds hard limit of 300 characters",
        ),
        (json!({ "other": 1 }), "", "conversation_history"),
        (json!({ "preset": "third", "messages": [] }), "", "third"),
    ] {
        let bearer = format!("Bearer {alice}");
        let got = stage
            .send("POST", &format!("/api/conversations{query}"), &body.to_string(), &[("authorization", &bearer)])
            .await;
        assert_eq!(got.status, 422, "{body}");
        assert!(got.json()["error"].as_str().expect("a reason").contains(said), "{}", got.text);
    }
    assert_eq!(stage.import(&alice, "not json").await.status, 422);
    assert_eq!(stage.import(&alice, "").await.status, 422);
    assert_eq!(stage.get_as(&alice, "/api/conversations").await.json()["conversations"], json!([]));
}

#[tokio::test]
async fn an_imported_session_is_the_same_conversation_when_it_goes_on() {
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    let got = stage.import(&alice, &session()).await;
    assert_eq!(got.status, 201, "{}", got.text);
    assert_eq!(got.json()["conversations"][0]["session"], "session-7");
    let id = got.json()["id"].to_string();
    let full = stage.get_as(&alice, &format!("/api/conversations/{id}/messages?full=1")).await.json();
    let shape: Vec<_> = full
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| (row["role"].as_str().expect("text"), row["content"].as_str().expect("text")))
        .collect();
    assert_eq!(
        shape,
        [
            ("user", "What is in hold 4?"),
            ("assistant", "Let me see."),
            ("tool", "42 crates"),
            ("assistant", "42 crates.")
        ]
    );
    assert_eq!((&full[1]["thinking"], &full[1]["tool_calls"][0]["name"]), (&json!("I must look."), &json!("read")));
    assert_eq!((&full[2]["tool_call_id"], &full[0]["created_at"]), (&json!("call-1"), &json!("2026-01-02T10:00:01Z")));
    // A client that has the same history goes on from it, on another API.
    let said = json!([
        { "role": "system", "content": "Be brief." },
        { "role": "user", "content": "What is in hold 4?" },
        { "role": "assistant", "content": "Let me see.", "tool_calls": [{ "function": { "name": "read", "arguments": { "path": "hold.txt" } } }] },
        { "role": "tool", "content": "42 crates" },
        { "role": "assistant", "content": "42 crates." },
        { "role": "user", "content": "And in hold 5?" },
    ]);
    let chat =
        stage.post_with("/api/chat", chat_body(&said, 4096), &[("authorization", &format!("Bearer {alice}"))]).await;
    assert_eq!(chat.header("x-loadline-conversation"), id);
    let export = stage.get_as(&alice, &format!("/api/conversations/{id}/export")).await.text;
    assert!(export.starts_with(&session()), "what was imported leaves as it came");
    assert_eq!(export.lines().count(), 7);
    let last: Value = serde_json::from_str(export.lines().last().expect("a line")).expect("JSON");
    assert_eq!((&last["sessionId"], &last["provider"]), (&json!("session-7"), &json!("elsewhere")));
    super::round_trip::assert_strict(&export);
}

#[tokio::test]
async fn a_file_that_is_not_valid_is_refused_with_its_lines() {
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    let orphan = json!([{ "type": "tool_result", "tool_use_id": "call-9", "content": "?" }]);
    let body = format!("{}\n{}", session(), line(5, Some(4), "user", orphan));
    let got = stage.import(&alice, &body).await;
    assert_eq!(got.status, 422);
    assert_eq!(
        (&got.json()["errors"][0]["code"], &got.json()["errors"][0]["line"]),
        (&json!("ORPHAN_TOOL_RESULT"), &json!(6))
    );
    assert_eq!(stage.get_as(&alice, "/api/conversations").await.json()["conversations"], json!([]));
}

#[tokio::test]
async fn a_parent_makes_a_branch_and_several_sessions_several_conversations() {
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    let other = line(0, None, "user", json!("Another session")).replace("session-7", "session-8");
    let edited = line(5, Some(0), "user", json!("What is in hold 6?"));
    let nowhere = line(6, Some(99), "assistant", json!("Rope."));
    let got = stage.import(&alice, &[session(), edited, nowhere, other].join("\r\n")).await;
    assert_eq!(got.status, 201, "{}", got.text);
    let made = got.json();
    assert_eq!(made["conversations"].as_array().expect("two").len(), 2);
    let codes: Vec<&str> =
        made["warnings"].as_array().expect("warnings").iter().filter_map(|issue| issue["code"].as_str()).collect();
    assert!(codes.contains(&"PARENT_NOT_FOUND") && codes.contains(&"MIXED_SESSIONS"), "{codes:?}");
    let rows = stage.get_as(&alice, &format!("/api/conversations/{}/messages", made["id"])).await;
    assert_eq!(contents(&rows), ["What is in hold 6?", "Rope."], "the branch that was said last");
    let details = stage.get_as(&alice, &format!("/api/conversations/{}", made["id"])).await.json();
    assert_eq!((&details["messages"], &details["branches"]), (&json!(6), &json!(2)), "both branches are kept");
}

#[tokio::test]
async fn one_entry_that_is_no_message_costs_no_other() {
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    let mut list = vec![
        json!({ "role": "system", "content": "rules" }),
        json!(7),
        json!({ "role": "user", "content": null, "timestamp": "2040-01-01T00:00:00Z" }),
    ];
    list.extend((0..200).map(|number| json!({ "role": "user", "content": format!("m{number}"), "timestamp": super::timestamp(500 - number), "tool_calls": [number] })));
    let got = stage.import(&alice, &json!(list).to_string()).await;
    assert_eq!(got.status, 201, "{}", got.text);
    let made = got.json();
    assert_eq!((&made["left_out"], &made["conversations"][0]["messages"]), (&json!([0, 1]), &json!(201)));
    assert!(made["warnings"][0]["message"].as_str().expect("text").contains("truncating to most recent 50"));
    let rows = stage.get_as(&alice, &format!("/api/conversations/{}/messages?limit=200", made["id"])).await.json();
    let rows = rows.as_array().expect("rows");
    assert_eq!((&rows[0]["content"], &rows[199]["content"]), (&json!(""), &json!("m198")));
    let times: Vec<&str> = rows.iter().map(|row| row["created_at"].as_str().expect("text")).collect();
    assert!(times.is_sorted(), "whatever the clocks said");
    assert!(times[199] < "2040", "nothing was said in the future");
}

#[tokio::test]
async fn a_list_of_millions_is_refused_before_it_fills_the_memory() {
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    let body = format!("[{}1]", "1,".repeat(3_000_000));
    let got = stage.import(&alice, &body).await;
    assert_eq!(got.status, 422);
    assert!(got.text.contains("at most 100000 messages"), "{}", got.text);
}

#[tokio::test]
async fn whoever_sends_slowly_holds_up_nobody() {
    use tokio::io::AsyncWriteExt;
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    let id = stage.imported(&alice, 4).await;
    let mut slow = Vec::new();
    for _sender in 0..4 {
        let mut socket = tokio::net::TcpStream::connect(stage.addr).await.expect("connected");
        let head = format!(
            "POST /api/conversations HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {alice}\r\nContent-Length: 1000\r\n\r\n["
        );
        socket.write_all(head.as_bytes()).await.expect("written");
        slow.push(socket);
    }
    let quick = async {
        assert_eq!(stage.get_as(&alice, &format!("/api/conversations/{id}/export")).await.status, 200);
        assert_eq!(stage.get_as(&alice, "/api/conversations/search?q=message").await.status, 200);
        assert_eq!(stage.import(&alice, "[]").await.status, 201);
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), quick).await.expect("nobody waits for them");
}

#[tokio::test]
async fn a_line_with_thousands_of_results_is_taken_in_pieces_and_comes_back() {
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    let uses: Vec<Value> = (0..2500)
        .map(|number| json!({ "type": "tool_use", "id": format!("c{number}"), "name": "look", "input": {} }))
        .collect();
    let results: Vec<Value> = (0..2500).map(|number| json!({ "type": "tool_result", "tool_use_id": format!("c{number}"), "content": format!("r{number}") })).collect();
    let file = [
        line(0, None, "user", json!("go")),
        line(1, Some(0), "assistant", json!(uses)),
        line(2, Some(1), "user", json!(results)),
        line(3, Some(2), "assistant", json!("done")),
    ]
    .join("\n");
    let got = stage.import(&alice, &file).await;
    assert_eq!((got.status, &got.json()["conversations"][0]["messages"]), (201, &json!(2503)), "{}", got.text);
    let export = stage.get_as(&alice, &format!("/api/conversations/{}/export", got.json()["id"])).await.text;
    assert_eq!(export.trim_end(), file);
}
