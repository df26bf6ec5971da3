//! Export → validate --strict → import → export gives the same bytes, and the same conversation.

use loadline::context::{ChainKey, Link, Message, Role};
use loadline::history::import::{Owner, sessions};
use loadline::history::validate::{Options, human, validate};
use loadline::history::{export, message};
use loadline::store::{BeginTurn, Change, Durability, FinishTurn, MessageRow, NewMessage, Store, TurnStatus};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::stage::{Stage, chat_body};

/// A moment after everything that tests write down.
fn options() -> Options {
    Options::at(jiff::Timestamp::now())
}

pub fn assert_strict(lines: &str) {
    let report = validate(lines.as_bytes(), &options()).expect("readable");
    assert!(report.passes(true), "{}\n{lines}", human(&report, true, true));
}

/// Something that a client sends.
#[derive(Debug, Clone)]
enum Said {
    User(String, u32),
    Assistant { text: String, thinking: String, calls: Vec<(String, String, Value)> },
    Result { id: Option<String>, name: Option<String>, text: String },
    Other(String),
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[a-z]{1,12}( [a-z]{1,8}){0,6}",
        Just(" spaces around \n\n and lines\u{2028}\u{0}\u{1b}[31m".to_owned()),
        Just("日本語 🎉 \"quotes\" \\ {\"json\": 1}".to_owned()),
    ]
}

fn id() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), Just("call_0".to_owned()), "call-[a-c]"]
}

fn arguments() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({})),
        Just(json!({ "path": "a b", "n": 1.5e3, "deep": { "list": [null, true, "x"] } })),
        "[a-z]{0,6}".prop_map(Value::from),
        Just(json!("{\"not\": decoded")),
        Just(json!([1, 2])),
    ]
}

fn said() -> impl Strategy<Value = Said> {
    let call = (id(), "[a-z]{0,5}", arguments());
    prop_oneof![
        (text(), 0_u32..3).prop_map(|(text, images)| Said::User(text, images)),
        (text(), text(), prop::collection::vec(call, 0..3)).prop_map(|(text, thinking, calls)| Said::Assistant {
            text,
            thinking,
            calls
        }),
        (prop::option::of(id()), prop::option::of("[a-z]{1,5}"), text()).prop_map(|(id, name, text)| Said::Result {
            id,
            name,
            text
        }),
        text().prop_map(Said::Other),
    ]
}

fn new_message(said: &Said, link: Link) -> NewMessage {
    let plain = |role: &str, text: &str| NewMessage {
        link,
        role: role.to_owned(),
        text: text.to_owned(),
        thinking: String::new(),
        tool_calls: None,
        tool_name: None,
        tool_call_id: None,
        images: 0,
        raw: None,
    };
    match said {
        Said::User(text, images) => {
            let pictures: Vec<&str> = (0..*images).map(|_| "iVBORw0KGgo=").collect();
            let raw = (*images > 0).then(|| json!({ "role": "user", "content": text, "images": pictures }).to_string());
            NewMessage { images: *images, raw, ..plain("user", text) }
        }
        Said::Assistant { text, thinking, calls } => {
            let call = |(id, name, arguments): &(String, String, Value)| json!({ "id": id, "name": name, "arguments": arguments });
            let calls: Vec<Value> = calls.iter().map(call).collect();
            let tool_calls = (!calls.is_empty()).then(|| Value::from(calls).to_string());
            NewMessage { thinking: thinking.clone(), tool_calls, ..plain("assistant", text) }
        }
        Said::Result { id, name, text } => {
            NewMessage { tool_call_id: id.clone(), tool_name: name.clone(), ..plain("tool", text) }
        }
        Said::Other(text) => plain("wizard", text),
    }
}

/// Stores a conversation as chats do: the user's part, then the answer.
fn store_chat(store: &Store, key: &ChainKey, history: &[Said], gaps_ms: &[i64]) -> i64 {
    let id = store.next_conversation().expect("a number");
    let mut link = key.start("local");
    let mut at = 1_767_000_000_000;
    for (number, said) in history.iter().enumerate() {
        let before = link;
        // Any link will do that nothing else has.
        let placeholder = Message::plain(Role::User, format!("{number} {said:?}"), 0);
        link = key.extend(link, &placeholder);
        at += gaps_ms[number % gaps_ms.len()];
        let turn = format!("{id}-{number}");
        let is_answer = matches!(said, Said::Assistant { .. });
        let one = new_message(said, link);
        let begin = BeginTurn {
            turn: turn.clone(),
            conversation: id,
            user: "local".to_owned(),
            at,
            model: "sim".to_owned(),
            dialect: "chat",
            upstream: None,
            system: "[\"be brief\"]".to_owned(),
            after: (number > 0).then_some(before),
            messages: if is_answer { Vec::new() } else { vec![one.clone()] },
        };
        drop(store.submit(Change::Begin(begin)));
        let finish = FinishTurn {
            conversation: id,
            turn,
            at,
            status: if number % 5 == 4 { TurnStatus::Cancelled } else { TurnStatus::Complete },
            answer: is_answer.then_some(one),
            arrived_tokens: 1,
            sent_tokens: 1,
            limit_tokens: 10,
            reported_tokens: None,
            basis: "exact",
            action: "none",
            receipt: None,
            upstream: None,
            events: Vec::new(),
        };
        store.submit(Change::Finish(finish)).wait().expect("stored");
    }
    id
}

fn exported(store: &Store, id: i64) -> String {
    let reader = store.reader().expect("reader");
    let row = reader.conversation(id).expect("read").expect("there");
    export::conversation(&reader, &row, None).expect("exported")
}

fn import(store: &Store, key: &ChainKey, lines: &str) -> i64 {
    let (sessions, _) = sessions(lines.as_bytes(), &options()).expect("valid");
    let conversation = store.next_conversation().expect("a number");
    let owner = Owner { key, user: "somebody", conversation, now_ms: 1_767_000_000_000 };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(store.import(vec![sessions[0].import(&owner)])).expect("stored");
    conversation
}

/// What a message says, wherever it was said.
fn meaning(row: &MessageRow) -> String {
    let said = message(row);
    let calls: Vec<_> =
        said.tool_calls.iter().map(|call| (call.name.to_string(), call.canonical_arguments.clone())).collect();
    let thinking = if row.role == "assistant" { row.thinking.as_str() } else { "" };
    let status = if row.role == "assistant" { row.status.as_str() } else { "" };
    format!("{} {:?} {thinking:?} {calls:?} {:?} {} {status}", row.role, row.text, row.tool_name, row.images)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn export_validate_import_export_is_byte_identical(
        history in prop::collection::vec(said(), 1..14),
        gaps_ms in prop::collection::vec(prop_oneof![0_i64..5000, Just(-60_000), Just(100 * 3_600_000)], 1..4),
    ) {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path(), Durability::Normal).expect("a store");
        let key = ChainKey::new(store.secret().expect("a secret"));
        let id = store_chat(&store, &key, &history, &gaps_ms);
        let lines = exported(&store, id);
        assert_strict(&lines);
        prop_assert_eq!(&exported(&store, id), &lines, "exporting twice gives the same");
        let copy = import(&store, &key, &lines);
        prop_assert_eq!(&exported(&store, copy), &lines);
        let path = |id| store.reader().expect("reader").path(id, None).expect("path");
        let well_named = |said: &Said| match said {
            // A call without a name, or whose arguments are no JSON, is told as what it was.
            Said::Assistant { calls, .. } => calls.iter().all(|(_, name, arguments)| !name.is_empty() && !arguments.as_str().is_some_and(|text| text.starts_with('{'))),
            Said::User(..) | Said::Result { .. } | Said::Other(_) => true,
        };
        if history.iter().all(well_named) {
            let meanings = |id| path(id).iter().map(meaning).collect::<Vec<_>>();
            prop_assert_eq!(meanings(copy), meanings(id));
        }
    }
}

#[tokio::test]
async fn chats_on_every_api_are_exported_strictly_and_come_back() {
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    let pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let data_url = format!("data:image/png;base64,{pixel}");
    let requests = [
        (
            "/api/chat",
            json!({ "model": "sim", "stream": false, "messages": [
            { "role": "user", "content": "look", "images": [pixel] },
            { "role": "assistant", "content": "", "tool_calls": [{ "function": { "name": "read", "arguments": { "p": 1 } } }] },
            { "role": "tool", "content": "", "tool_name": "read" },
        ] }),
        ),
        (
            "/v1/chat/completions",
            json!({ "model": "sim", "messages": [
            { "role": "developer", "content": "be brief" },
            { "role": "user", "content": [{ "type": "text", "text": "what is it?" }, { "type": "image_url", "image_url": { "url": data_url } }] },
            { "role": "assistant", "content": null, "tool_calls": [{ "id": "call_0", "type": "function", "function": { "name": "read", "arguments": "{\"p\":1}" } }] },
            { "role": "tool", "tool_call_id": "call_0", "content": "a pixel" },
            { "role": "assistant", "content": "again", "tool_calls": [{ "id": "call_0", "type": "function", "function": { "name": "read", "arguments": "{}" } }] },
            { "role": "tool", "tool_call_id": "call_0", "content": "still a pixel" },
            { "role": "tool", "tool_call_id": "call_77", "content": "nobody asked" },
            { "role": "user", "content": "so?" },
        ] }),
        ),
        (
            "/v1/messages",
            json!({ "model": "sim", "max_tokens": 16, "system": "be kind", "messages": [
            { "role": "user", "content": [{ "type": "text", "text": "look" }, { "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": pixel } }] },
            { "role": "assistant", "content": [{ "type": "thinking", "thinking": "hm" }, { "type": "tool_use", "id": "t1", "name": "read", "input": {} }] },
            { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t1", "content": [{ "type": "text", "text": "ok" }] }] },
        ] }),
        ),
        (
            "/v1/responses",
            json!({ "model": "sim", "instructions": "be quick", "input": [
            { "role": "user", "content": [{ "type": "input_text", "text": "hello" }] },
        ] }),
        ),
        ("/api/generate", json!({ "model": "sim", "stream": false, "prompt": "Once upon", "system": "tell tales" })),
    ];
    for (path, body) in requests {
        let got = stage.post_with(path, body.to_string(), &[("authorization", &format!("Bearer {alice}"))]).await;
        assert_eq!(got.status, 200, "{path}: {}", got.text);
        let id = got.header("x-loadline-conversation").to_owned();
        let export = stage.get_as(&alice, &format!("/api/conversations/{id}/export")).await;
        assert_strict(&export.text);
        if body.to_string().contains(pixel) {
            assert!(export.text.contains(pixel), "{path}: images are kept");
        }
        let copy = stage.import(&alice, &export.text).await;
        assert_eq!(copy.status, 201, "{path}: {}", copy.text);
        let again = stage.get_as(&alice, &format!("/api/conversations/{}/export", copy.json()["id"])).await;
        assert_eq!(again.text, export.text, "{path}");
    }
}

#[tokio::test]
async fn an_export_of_a_branch_holds_the_way_to_what_was_said_last() {
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    let bearer = format!("Bearer {alice}");
    let as_alice = [("authorization", bearer.as_str())];
    let mut said = vec![json!({ "role": "user", "content": "first" })];
    let first = stage.post_with("/api/chat", chat_body(&json!(said), 4096), &as_alice).await;
    said.push(first.json()["message"].clone());
    let id = first.header("x-loadline-conversation");
    for edit in ["left", "right"] {
        let mut edited = said.clone();
        edited.push(json!({ "role": "user", "content": edit }));
        let got = stage.post_with("/api/chat", chat_body(&json!(edited), 4096), &as_alice).await;
        assert_eq!((got.status, got.header("x-loadline-conversation")), (200, id), "{}", got.text);
    }
    let export = stage.get_as(&alice, &format!("/api/conversations/{id}/export")).await.text;
    assert!(export.contains("\"right\"") && !export.contains("\"left\""), "{export}");
    assert_strict(&export);
}

#[tokio::test]
async fn a_system_prompt_that_changed_after_an_import_does_not_spoil_the_round_trip() {
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    let bearer = format!("Bearer {alice}");
    let mut file = super::import::session();
    for day in ["Monday", "Tuesday"] {
        let id = stage.import(&alice, &file).await.json()["id"].to_string();
        let said = json!([
            { "role": "system", "content": format!("Today is {day}.") },
            { "role": "user", "content": "What is in hold 4?" },
            { "role": "assistant", "content": "Let me see.", "tool_calls": [{ "function": { "name": "read", "arguments": { "path": "hold.txt" } } }] },
            { "role": "tool", "content": "42 crates" },
            { "role": "assistant", "content": "42 crates." },
            { "role": "user", "content": format!("And on {day}?") },
        ]);
        let chat = stage.post_with("/api/chat", chat_body(&said, 4096), &[("authorization", &bearer)]).await;
        assert_eq!(chat.header("x-loadline-conversation"), id, "{day}");
        let export = stage.get_as(&alice, &format!("/api/conversations/{id}/export")).await.text;
        assert!(export.contains(&format!("Today is {day}.")), "{export}");
        assert_strict(&export);
        for _again in 0..2 {
            let copy = stage.import(&alice, &export).await;
            assert_eq!(copy.status, 201, "{}", copy.text);
            let id = copy.json()["id"].to_string();
            let again = stage.get_as(&alice, &format!("/api/conversations/{id}/export")).await.text;
            assert_eq!(again, export, "{day}");
            // Otherwise the next day would go on from the copy.
            assert_eq!(
                stage
                    .send("DELETE", &format!("/api/conversations/{id}"), "", &[("authorization", &bearer)])
                    .await
                    .status,
                204
            );
        }
        assert_eq!(
            stage.send("DELETE", &format!("/api/conversations/{id}"), "", &[("authorization", &bearer)]).await.status,
            204
        );
        file = export;
    }
}

#[tokio::test]
async fn large_arguments_of_a_call_without_an_id_leave_strictly_and_come_back() {
    let stage = Stage::new().await;
    let alice = stage.token("alice").await;
    let long = "all hands on deck, the tide is turning and the wind is fair ".repeat(400);
    let body = json!({ "model": "sim", "stream": false, "options": { "num_ctx": 32768 }, "messages": [
        { "role": "user", "content": "write it down" },
        { "role": "assistant", "content": long, "tool_calls": [{ "function": { "name": "write", "arguments": { "text": long } } }] },
        { "role": "tool", "content": "written" },
        { "role": "user", "content": "thanks" },
    ] });
    let got = stage.post_with("/api/chat", body.to_string(), &[("authorization", &format!("Bearer {alice}"))]).await;
    assert_eq!(got.status, 200, "{}", got.text);
    let id = got.header("x-loadline-conversation").to_owned();
    let export = stage.get_as(&alice, &format!("/api/conversations/{id}/export")).await.text;
    assert_strict(&export);
    let copy = stage.import(&alice, &export).await.json()["id"].to_string();
    let full = |id: String| {
        let (stage, alice) = (&stage, &alice);
        async move {
            stage.get_as(alice, &format!("/api/conversations/{id}/messages?full=1")).await.json()[1]["tool_calls"]
                .clone()
        }
    };
    assert_eq!(full(copy).await, full(id).await, "the call is as it was, without an id");
}
