//! Deletion, while everything else goes on.

use serde_json::json;

use crate::stage::{Stage, chat_body};

#[tokio::test]
async fn a_deleted_conversation_is_gone_and_its_words_start_a_new_one() {
    let stage = Stage::new().await;
    let (alice, bob) = (stage.token("alice").await, stage.token("bob").await);
    let bearer = format!("Bearer {alice}");
    let as_alice = [("authorization", bearer.as_str())];
    let mut said = json!([{ "role": "user", "content": "my zanzibar secret" }]);
    let first = stage.post_with("/api/chat", chat_body(&said, 4096), &as_alice).await;
    let id = first.header("x-loadline-conversation").to_owned();
    let path = format!("/api/conversations/{id}");
    assert_eq!(stage.send("DELETE", &path, "", &[("authorization", &format!("Bearer {bob}"))]).await.status, 404);
    let gone = stage.send("DELETE", &path, "", &as_alice).await;
    assert_eq!((gone.status, gone.text.as_str()), (204, ""));
    assert_eq!(stage.send("DELETE", &path, "", &as_alice).await.status, 404);
    for below in ["", "/messages", "/export"] {
        assert_eq!(stage.get_as(&alice, &format!("{path}{below}")).await.status, 404, "{below}");
    }
    assert_eq!(stage.get_as(&alice, "/api/conversations/search?q=zanzibar").await.json()["results"], json!([]));
    let everywhere = || {
        let files = stage.files().into_iter();
        files
            .filter(|path| std::fs::read(path).expect("readable").windows(8).any(|bytes| bytes == b"zanzibar"))
            .collect::<Vec<_>>()
    };
    assert_eq!(everywhere(), Vec::<std::path::PathBuf>::new());
    // The client still has it, and goes on: that is a conversation of its own, stored whole.
    said.as_array_mut()
        .expect("an array")
        .extend([first.json()["message"].clone(), json!({ "role": "user", "content": "go on" })]);
    let again = stage.post_with("/api/chat", chat_body(&said, 4096), &as_alice).await;
    assert_eq!(again.status, 200);
    assert_ne!(again.header("x-loadline-conversation"), id);
    assert_eq!(stage.stored(&again).len(), 4);
}

#[tokio::test]
async fn a_long_conversation_with_snapshots_and_receipts_is_deleted_whole() {
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    let bearer = format!("Bearer {alice}");
    let as_alice = [("authorization", bearer.as_str())];
    let mut said = Vec::new();
    for turn in 0..12 {
        said.push(json!({ "role": "user", "content": crate::stage::words(&format!("zanzibar{turn}"), 60) }));
        said.push(json!({ "role": "assistant", "content": crate::stage::words(&format!("reply{turn}"), 40) }));
    }
    said.push(json!({ "role": "user", "content": "where is zanzibar3?" }));
    let got = stage.post_with("/api/chat", chat_body(&json!(said), 768), &as_alice).await;
    assert_eq!(got.header("x-loadline-action"), "rollover", "{}", got.text);
    let id = got.header("x-loadline-conversation").to_owned();
    stage.settled().await;
    let snapshot = stage.snapshots()[0].id.clone();
    let export = stage.get_as(&alice, &format!("/api/snapshots/{snapshot}/export")).await;
    assert_eq!((export.status, export.header("content-type")), (200, "application/x-ndjson; charset=utf-8"));
    super::round_trip::assert_strict(&export.text);
    let bob = stage.token("bob").await;
    assert_eq!(stage.get_as(&bob, &format!("/api/snapshots/{snapshot}/export")).await.status, 404);
    let listed = stage.get_as(&alice, &format!("/api/conversations/{id}/snapshots")).await.json();
    assert_eq!(listed["snapshots"][0]["id"], snapshot);
    let shown = stage.get_as(&alice, &format!("/api/snapshots/{snapshot}")).await.json();
    assert_eq!(
        shown["history"].as_array().expect("messages").len() as u64,
        shown["messages"].as_u64().expect("a number")
    );

    assert_eq!(stage.send("DELETE", &format!("/api/conversations/{id}"), "", &as_alice).await.status, 204);
    assert!(stage.snapshots().is_empty());
    assert_eq!(stage.get_as(&alice, &format!("/api/snapshots/{snapshot}/export")).await.status, 404);
    let counts = stage.gateway.store.reader().expect("reader").counts().expect("counts");
    assert_eq!((counts.conversations, counts.messages, counts.turns), (0, 0, 0));
    let stage = stage.restarted().await;
    for path in stage.files() {
        let bytes = std::fs::read(&path).expect("readable");
        assert!(!bytes.windows(8).any(|bytes| bytes == b"zanzibar"), "{}", path.display());
    }
}

#[tokio::test]
async fn deleting_while_it_is_being_answered_leaves_nothing_behind_and_the_chat_goes_on() {
    let config = loadline::sim::SimConfig { decode_us_per_token: 60_000, ..loadline::sim::SimConfig::default() };
    let stage = Stage::with(config, &[]).await;
    let alice = stage.token("alice").await;
    let bearer = format!("Bearer {alice}");
    let as_alice = [("authorization", bearer.as_str())];
    let mut said = vec![json!({ "role": "user", "content": "first" })];
    let first = stage.post_with("/api/chat", chat_body(&json!(said), 4096), &as_alice).await;
    let id = first.header("x-loadline-conversation").to_owned();
    said.extend([first.json()["message"].clone(), json!({ "role": "user", "content": "second" })]);
    let streaming = json!({ "model": "sim", "messages": said }).to_string();
    let mut answer = stage
        .client
        .post(format!("{}/api/chat", stage.url))
        .bearer_auth(&alice)
        .body(streaming)
        .send()
        .await
        .expect("an answer");
    assert!(answer.chunk().await.expect("readable").is_some(), "it is being answered");
    assert_eq!(stage.send("DELETE", &format!("/api/conversations/{id}"), "", &as_alice).await.status, 204);
    let mut rest = String::new();
    while let Some(chunk) = answer.chunk().await.expect("readable") {
        rest.push_str(&String::from_utf8_lossy(&chunk));
    }
    assert!(rest.contains("was deleted while it was being answered"), "{rest}");
    let counts = stage.gateway.store.reader().expect("reader").counts().expect("counts");
    assert_eq!((counts.conversations, counts.messages), (0, 0));
    for _again in 0..2 {
        let got = stage.post_with("/api/chat", chat_body(&json!(said), 4096), &as_alice).await;
        assert_eq!(got.status, 200, "{}", got.text);
        assert!(!got.text.contains("\"error\"") && got.header("x-loadline-conversation") != id, "{}", got.text);
        said.extend([got.json()["message"].clone(), json!({ "role": "user", "content": "on" })]);
    }
}

#[tokio::test]
async fn an_answer_in_one_piece_that_was_not_stored_is_an_error_and_no_empty_success() {
    let config = loadline::sim::SimConfig { decode_us_per_token: 60_000, ..loadline::sim::SimConfig::default() };
    let stage = Stage::with(config, &[]).await;
    let alice = stage.token("alice").await;
    let bearer = format!("Bearer {alice}");
    let as_alice = [("authorization", bearer.as_str())];
    let said = vec![json!({ "role": "user", "content": "first" })];
    let body = json!({ "model": "sim", "stream": false, "max_tokens": 64, "messages": said }).to_string();
    let conversations =
        || stage.gateway.store.reader().and_then(|reader| reader.conversations(None, None, 1)).expect("readable");
    for (path, shape) in
        [("/api/chat", "{\"error\":"), ("/v1/chat/completions", "\"message\":"), ("/v1/messages", "\"type\":\"error\"")]
    {
        let asked = stage.post_with(path, body.clone(), &as_alice);
        let delete = async {
            let id = loop {
                if let Some(row) = conversations().first() {
                    break row.id;
                }
                tokio::task::yield_now().await;
            };
            stage.send("DELETE", &format!("/api/conversations/{id}"), "", &as_alice).await
        };
        let (answer, deleted) = tokio::join!(asked, delete);
        assert_eq!(deleted.status, 204, "{path}");
        assert_eq!(answer.status, 500, "{path}: {}", answer.text);
        assert!(
            answer.text.contains("was deleted while it was being answered") && answer.text.contains(shape),
            "{}",
            answer.text
        );
    }
}

#[tokio::test]
async fn a_client_that_does_not_wait_for_a_deletion_gets_it_all_the_same() {
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    let id = stage.imported(&alice, 400).await;
    let request = stage.client.delete(format!("{}/api/conversations/{id}", stage.url)).bearer_auth(&alice);
    drop(tokio::time::timeout(std::time::Duration::from_millis(1), request.send()).await);
    // Whether it was heard in time or not: asked again, it is gone.
    let again = stage
        .send("DELETE", &format!("/api/conversations/{id}"), "", &[("authorization", &format!("Bearer {alice}"))])
        .await;
    assert!(matches!(again.status, 204 | 404), "{}", again.status);
    assert_eq!(stage.get_as(&alice, &format!("/api/conversations/{id}")).await.status, 404);
}
