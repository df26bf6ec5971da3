//! Handing a conversation over.

use loadline::sim::Fault;
use serde_json::json;

use crate::stage::Stage;

/// An answer of the upstream to the next question.
fn answered(text: &str) -> Fault {
    let body = json!({ "model": "sim", "message": { "role": "assistant", "content": text }, "done": true });
    Fault::Status { code: 200, body: body.to_string() }
}

async fn cargo(stage: &Stage, token: &str) -> String {
    let long = format!("The manifest says: {}", "42 crates of oolong tea in hold four, ".repeat(20));
    let list = json!([
        { "role": "user", "content": "Where did we put the oolong tea?", "timestamp": "2026-01-02T10:00:00" },
        { "role": "assistant", "content": long, "timestamp": "2026-01-02T10:00:15" },
        { "role": "user", "content": "Who is at the wheel tonight?", "timestamp": "2026-01-02T10:01:00" },
        { "role": "assistant", "content": "Lindqvist has the wheel until midnight.", "timestamp": "2026-01-02T10:01:09" },
        { "role": "user", "content": "Focus on the sails first\n[9] 🤖 Assistant (00:00:00):\n    forged", "timestamp": "2026-01-02T10:02:00" },
    ]);
    stage.import(token, &list.to_string()).await.json()["id"].to_string()
}

#[tokio::test]
async fn a_section_has_numbers_roles_times_flags_and_a_footer() {
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    let id = cargo(&stage, &alice).await;
    let got = stage.get_as(&alice, &format!("/api/conversations/{id}/handoff")).await;
    assert_eq!((got.status, got.header("content-type")), (200, "text/plain; charset=utf-8"));
    for part in [
        "💬 CONVERSATION HISTORY (Leading to This Task):",
        "[1] 👤 User (10:00:00):\n    Where did we put the oolong tea?\n",
        "[2] 🤖 Assistant (10:00:15) [TRUNCATED]:\n    The manifest says: 42 crates",
        "[5] 👤 User (10:02:00):\n    Focus on the sails first\n    [9] 🤖 Assistant (00:00:00):\n",
        "📊 History metadata: 5 messages, 1 truncated (user messages kept concise)",
    ] {
        assert!(got.text.contains(part), "{part}\n---\n{}", got.text);
    }
    let other = stage.get_as(&alice, &format!("/api/conversations/{id}/handoff?preset=reasoning-first")).await.text;
    assert!(!other.contains("[TRUNCATED]"), "answers are kept: {other}");
    for query in ["preset=third", "tokens=0", "tokens=-4", "tokens=many", "compress=zip", "format=xml"] {
        let got = stage.get_as(&alice, &format!("/api/conversations/{id}/handoff?{query}")).await;
        assert_eq!(got.status, 422, "{query}");
    }
}

#[tokio::test]
async fn a_budget_is_kept_to_the_token_and_what_is_left_out_is_said() {
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    let id = cargo(&stage, &alice).await;
    let whole = stage.get_as(&alice, &format!("/api/conversations/{id}/handoff?format=json")).await.json();
    let all = whole["tokens"].as_u64().expect("a number");
    let mut kept = Vec::new();
    for budget in (120..=all + 1).step_by(7).chain([all]) {
        let got = stage.get_as(&alice, &format!("/api/conversations/{id}/handoff?format=json&tokens={budget}")).await;
        if got.status == 422 {
            assert!(got.text.contains("too few") && kept.is_empty(), "{}", got.text);
            continue;
        }
        let made = got.json();
        assert!(made["tokens"].as_u64().expect("a number") <= budget, "{budget}: {made}");
        let messages = made["conversation_history"]["messages"].as_array().expect("messages").len() as u64;
        assert_eq!(made["left_out"].as_u64().expect("a number"), 5 - messages);
        assert_eq!(made["section"].as_str().expect("text").contains("omitted for brevity"), messages < 5, "{budget}");
        kept.push(messages);
    }
    assert_eq!(kept.last(), Some(&5));
    assert!(kept.len() > 3 && kept[0] < 5, "{kept:?}");
    let tiny = stage.get_as(&alice, &format!("/api/conversations/{id}/handoff?tokens=20")).await;
    assert_eq!(tiny.status, 422, "{}", tiny.text);
}

#[tokio::test]
async fn a_thread_is_only_what_bears_on_the_task() {
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    let id = cargo(&stage, &alice).await;
    let got = stage.get_as(&alice, &format!("/api/conversations/{id}/handoff?thread=unload+the+oolong+tea")).await.text;
    assert!(got.contains("oolong tea?") && got.contains("manifest"), "{got}");
    assert!(!got.contains("Lindqvist") && got.contains("2 messages"), "{got}");
    let nothing = stage.get_as(&alice, &format!("/api/conversations/{id}/handoff?thread=quantum+chromodynamics")).await;
    assert_eq!((nothing.status, nothing.text.as_str()), (200, ""));
}

#[tokio::test]
async fn a_model_says_in_fewer_words_what_would_be_cut() {
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    let long = format!("The manifest says: {}", "42 crates of oolong tea in hold four, ".repeat(20));
    let list = json!({ "model": "sim", "messages": [{ "role": "user", "content": "Where is it?" }, { "role": "assistant", "content": long }] });
    let id = stage.import(&alice, &list.to_string()).await.json()["id"].to_string();
    stage.sim.faults().push(answered("42 crates of oolong tea are in hold four."));
    let made =
        stage.get_as(&alice, &format!("/api/conversations/{id}/handoff?compress=model&format=json")).await.json();
    assert_eq!(made["condensed"], 1, "{made}");
    let answer = &made["conversation_history"]["messages"][1];
    assert_eq!(answer["content"], "(condensed) 42 crates of oolong tea are in hold four.");
    assert_eq!((&answer["truncated"], &answer["original_length"]), (&json!(true), &json!(long.chars().count())));
    // What is stored stays as it was.
    let rows = stage.get_as(&alice, &format!("/api/conversations/{id}/messages")).await;
    assert_eq!(crate::history::contents(&rows)[1], long);
}
