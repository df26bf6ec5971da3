//! Reading a conversation's messages, scenario by scenario as the feature was specified.

use crate::history::contents;
use crate::stage::Stage;
use serde_json::json;

fn numbered(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| format!("message {number}")).collect()
}

#[tokio::test]
async fn story_1_scenario_1_without_a_limit_up_to_50_messages_oldest_first() {
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    let (short, long) = (stage.imported(&alice, 6).await, stage.imported(&alice, 70).await);
    let got = stage.get_as(&alice, &format!("/api/conversations/{short}/messages")).await;
    assert_eq!((got.status, contents(&got)), (200, numbered(0..6)));
    let got = stage.get_as(&alice, &format!("/api/conversations/{long}/messages")).await;
    assert_eq!((got.status, contents(&got)), (200, numbered(0..50)));
}

#[tokio::test]
async fn story_1_scenario_2_a_limit_of_10_gives_the_ten_oldest() {
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    let id = stage.imported(&alice, 60).await;
    let got = stage.get_as(&alice, &format!("/api/conversations/{id}/messages?limit=10")).await;
    assert_eq!((got.status, contents(&got)), (200, numbered(0..10)));
}

#[tokio::test]
async fn story_1_scenario_3_a_conversation_of_somebody_else_is_not_found() {
    let stage = Stage::new().await;
    let (alice, bob) = (stage.token("alice").await, stage.token("bob").await);
    let id = stage.imported(&alice, 4).await;
    for below in ["/messages", "", "/load", "/snapshots", "/export", "/handoff", "/messages?limit=3"] {
        let theirs = stage.get_as(&bob, &format!("/api/conversations/{id}{below}")).await;
        let nobodys = stage.get_as(&bob, &format!("/api/conversations/987654{below}")).await;
        assert_eq!((theirs.status, nobodys.status), (404, 404), "{below}");
        assert_eq!(theirs.text, nobodys.text, "{below}: nothing tells the two apart");
    }
    assert_eq!(stage.get_as(&bob, "/api/conversations").await.json()["conversations"], json!([]));
    assert_eq!(stage.get_as(&bob, "/api/conversations/search?q=message").await.json()["results"], json!([]));
}

#[tokio::test]
async fn story_2_scenario_1_a_limit_of_200_gives_at_most_200() {
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    let id = stage.imported(&alice, 230).await;
    let got = stage.get_as(&alice, &format!("/api/conversations/{id}/messages?limit=200")).await;
    assert_eq!((got.status, contents(&got)), (200, numbered(0..200)));
}

#[tokio::test]
async fn story_2_scenario_2_a_limit_of_500_is_clamped_to_200() {
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    let id = stage.imported(&alice, 230).await;
    for limit in ["500", "201", "99999999999999999999"] {
        let got = stage.get_as(&alice, &format!("/api/conversations/{id}/messages?limit={limit}")).await;
        assert_eq!((got.status, contents(&got)), (200, numbered(0..200)), "{limit}");
    }
}

#[tokio::test]
async fn story_2_scenario_3_a_limit_of_0_or_less_is_a_validation_error() {
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    let id = stage.imported(&alice, 3).await;
    for limit in ["0", "-1", "-200"] {
        let got = stage.get_as(&alice, &format!("/api/conversations/{id}/messages?limit={limit}")).await;
        assert_eq!(got.status, 422, "{limit}");
        assert!(got.json()["error"].as_str().expect("a reason").contains("limit"), "{}", got.text);
    }
}

#[tokio::test]
async fn edge_case_a_conversation_without_messages_gives_an_empty_array() {
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    let id = stage.import(&alice, "[]").await.json()["id"].as_i64().expect("a number");
    let got = stage.get_as(&alice, &format!("/api/conversations/{id}/messages")).await;
    assert_eq!((got.status, got.text.as_str()), (200, "[]"));
}

#[tokio::test]
async fn edge_case_a_missing_or_invalid_token_is_unauthorised() {
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    let id = stage.imported(&alice, 3).await;
    let path = format!("/api/conversations/{id}/messages");
    let unknown = loadline::api::token::Token::new().expect("randomness");
    let missing = stage.get(&path).await;
    assert_eq!(missing.status, 401);
    assert_eq!(missing.header("www-authenticate"), "Bearer");
    for (name, value) in [
        ("authorization", format!("Bearer {}", unknown.reveal())),
        ("authorization", "Bearer nonsense".to_owned()),
        ("authorization", "Bearer ".to_owned()),
        ("authorization", format!("Bearer {alice}x")),
        ("authorization", format!("Basic {alice}")),
        ("x-api-key", unknown.reveal().to_owned()),
    ] {
        let got = stage.send("GET", &path, "", &[(name, &value)]).await;
        assert_eq!((got.status, &got.text), (401, &missing.text), "{name}: {value}");
    }
    let expired = stage.token_with("alice", &loadline::api::auth::Scope::ALL, Some(1_000)).await;
    assert_eq!(stage.get_as(&expired, &path).await.status, 401);
}

#[tokio::test]
async fn edge_case_a_limit_that_is_no_number_is_a_validation_error() {
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    let id = stage.imported(&alice, 3).await;
    for limit in ["ten", "1.5", "", "10abc", "0x10", "1e1", "%00"] {
        let got = stage.get_as(&alice, &format!("/api/conversations/{id}/messages?limit={limit}")).await;
        assert_eq!(got.status, 422, "{limit}");
    }
    assert_eq!(stage.get_as(&alice, "/api/conversations/twelve/messages").await.status, 422);
}

#[tokio::test]
async fn a_message_has_exactly_five_fields_and_is_the_same_after_a_restart() {
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    let said = json!([{ "role": "user", "content": "Add a task to buy groceries" }]);
    let body = json!({ "model": "sim", "stream": false, "messages": said }).to_string();
    let chat = stage.send("POST", "/api/chat", &body, &[("x-api-key", &alice)]).await;
    let path = format!("/api/conversations/{}/messages", chat.header("x-loadline-conversation"));
    let got = stage.get_as(&alice, &path).await;
    let rows = got.json();
    assert_eq!(rows.as_array().expect("an array").len(), 2);
    for (row, role) in rows.as_array().expect("an array").iter().zip(["user", "assistant"]) {
        let fields: Vec<&str> = row.as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!(fields, ["id", "conversation_id", "role", "content", "created_at"]);
        assert!(row["id"].is_i64() || row["id"].is_u64());
        assert_eq!(row["conversation_id"].to_string(), chat.header("x-loadline-conversation"));
        assert_eq!(row["role"], role);
        let at = row["created_at"].as_str().expect("text");
        assert!(at.ends_with('Z') && at.parse::<jiff::Timestamp>().is_ok(), "{at}");
    }
    assert_eq!(rows[0]["content"], "Add a task to buy groceries");
    assert_eq!(rows[1]["content"], chat.json()["message"]["content"]);
    let stage = stage.restarted().await;
    assert_eq!(stage.get_as(&alice, &path).await.text, got.text);
}

#[tokio::test]
async fn after_goes_on_where_a_page_ended() {
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    let id = stage.imported(&alice, 25).await;
    let (mut all, mut next) = (Vec::new(), format!("/api/conversations/{id}/messages?limit=10"));
    for _page in 0..3 {
        let got = stage.get_as(&alice, &next).await;
        all.extend(contents(&got));
        let Some(link) = got.header("link").strip_prefix('<').and_then(|link| link.split_once(">; rel=\"next\""))
        else {
            break;
        };
        next = link.0.to_owned();
    }
    assert_eq!(all, numbered(0..25));
    let got = stage.get_as(&alice, &format!("/api/conversations/{id}/messages?after=987654")).await;
    assert_eq!(got.status, 422);
}

#[tokio::test]
async fn a_user_lists_searches_and_looks_into_their_own_conversations() {
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    let as_alice = [("authorization", &*format!("Bearer {alice}"))];
    let mut said =
        json!([{ "role": "system", "content": "Be brief." }, { "role": "user", "content": "Where is the tea?" }]);
    let chat = stage.post_with("/api/chat", crate::stage::chat_body(&said, 4096), &as_alice).await;
    let id = chat.header("x-loadline-conversation").to_owned();
    said.as_array_mut()
        .expect("an array")
        .extend([chat.json()["message"].clone(), json!({ "role": "user", "content": "And the coffee?" })]);
    let again = stage.post_with("/api/chat", crate::stage::chat_body(&said, 4096), &as_alice).await;
    assert_eq!(again.header("x-loadline-conversation"), id);
    stage.imported(&alice, 2).await;

    let list = stage.get_as(&alice, "/api/conversations?limit=1").await.json();
    assert_eq!(list["conversations"].as_array().expect("an array").len(), 1);
    let rest = stage.get_as(&alice, &format!("/api/conversations?after={}", list["next"])).await.json();
    assert_eq!((&rest["conversations"][0]["title"], &rest["next"]), (&json!("Where is the tea?"), &json!(null)));

    let found = stage.get_as(&alice, "/api/conversations/search?q=coff").await.json();
    assert_eq!(found["results"][0]["excerpt"], "And the coffee?");
    assert_eq!(found["results"][0]["conversation_id"].to_string(), id);
    assert_eq!(stage.get_as(&alice, "/api/conversations/search?q=").await.status, 422);

    let details = stage.get_as(&alice, &format!("/api/conversations/{id}")).await.json();
    assert_eq!(
        (&details["system"], &details["messages"], &details["model"]),
        (&json!(["Be brief."]), &json!(4), &json!("sim"))
    );
    let curve = stage.get_as(&alice, &format!("/api/conversations/{id}/load")).await.json();
    let sent: Vec<String> = curve["turns"]
        .as_array()
        .expect("turns")
        .iter()
        .map(|turn| format!("{}/{}", turn["sent_tokens"], turn["limit_tokens"]))
        .collect();
    assert_eq!(sent, [chat.header("x-loadline-tokens"), again.header("x-loadline-tokens")]);
    let full = stage.get_as(&alice, &format!("/api/conversations/{id}/messages?full=true&limit=1")).await.json();
    assert_eq!((&full[0]["seq"], &full[0]["status"]), (&json!(1), &json!("complete")));
}

#[tokio::test]
async fn every_branch_can_be_read_and_exported() {
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    let bearer = format!("Bearer {alice}");
    let as_alice = [("authorization", bearer.as_str())];
    let mut said = vec![json!({ "role": "user", "content": "first" })];
    let first = stage.post_with("/api/chat", crate::stage::chat_body(&json!(said), 4096), &as_alice).await;
    let id = first.header("x-loadline-conversation");
    said.push(first.json()["message"].clone());
    for edit in ["left", "right"] {
        let mut edited = said.clone();
        edited.push(json!({ "role": "user", "content": edit }));
        stage.post_with("/api/chat", crate::stage::chat_body(&json!(edited), 4096), &as_alice).await;
    }
    let branches = stage.get_as(&alice, &format!("/api/conversations/{id}/branches")).await.json();
    let branches = branches["branches"].as_array().expect("branches");
    assert_eq!(branches.len(), 2);
    for (branch, edit) in branches.iter().zip(["right", "left"]) {
        let rows = stage.get_as(&alice, &format!("/api/conversations/{id}/messages?to={}", branch["to"])).await;
        assert_eq!(contents(&rows)[2], edit);
        let export = stage.get_as(&alice, &format!("/api/conversations/{id}/export?to={}", branch["to"])).await.text;
        assert!(export.contains(&format!("\"{edit}\"")), "{export}");
    }
    for below in ["messages?to=987654", "export?to=987654", "messages?to=x"] {
        assert_eq!(stage.get_as(&alice, &format!("/api/conversations/{id}/{below}")).await.status, 422, "{below}");
    }
    assert_eq!(stage.get_as(&alice, "/api/conversations/987654/branches").await.status, 404);
    assert_eq!(stage.send("PUT", &format!("/api/conversations/{id}"), "", &as_alice).await.status, 405);
    assert_eq!(stage.get_as(&alice, &format!("/api/conversations/{id}/nothing")).await.status, 404);
}
