//! The overview, the receipt of a turn with its texts, and the page itself.

use loadline::api::auth::Scope;
use loadline::sim::SimConfig;
use serde_json::{Value, json};

use crate::flow::filled_to;
use crate::stage::{Stage, words};

#[tokio::test]
async fn the_overview_tells_what_is_loaded_how_deep() {
    let stage = Stage::new().await;
    let token = stage.token("local").await;
    let messages = filled_to(&stage, 120.0, 2048).await;
    let rolled = stage.chat(&messages, 2048).await;
    stage.chat(&json!([{ "role": "user", "content": "<script>alert(1)</script>" }]), 2048).await;
    let seen = stage.get_as(&token, "/loadline/overview?events=10").await.json();
    let conversations = seen["conversations"].as_array().expect("a list");
    assert_eq!(conversations[0]["title"], "<script>alert(1)</script>", "the one used last comes first");
    let load = &conversations[1]["load"];
    assert_eq!((&load["action"], &load["usage"]), (&json!("rollover"), &json!(rolled.header("x-loadline-usage"))));
    assert_eq!(conversations[1]["snapshots"], 1);
    let usage: f64 = rolled.header("x-loadline-usage").trim_end_matches('%').parse().expect("a number");
    assert_eq!(conversations[1]["recent"].as_array().and_then(|recent| recent.last()?.as_f64()), Some(usage));
    assert_eq!(seen["totals"]["turns"]["rollover"], 1);
    assert_eq!((&seen["upstream"]["up"], &seen["store"]["healthy"]), (&json!(true), &json!(true)));
    assert_eq!((&seen["models"][0]["name"], &seen["models"][0]["basis"]), (&json!("sim"), &json!("exact")));
    let last = seen["events"].as_array().and_then(|events| events.last()).expect("events");
    assert_eq!(last["id"], seen["last_event"]);
    assert_eq!(stage.get("/loadline/overview").await.status, 401);
    assert_eq!(stage.get_as(&token, "/loadline/overview?limit=x").await.status, 422);
}

#[tokio::test]
async fn somebody_elses_conversations_are_nobodys_and_an_admin_sees_them_without_their_words() {
    let stage = Stage::new().await;
    let (alice, bob) = (stage.token("alice").await, stage.token("bob").await);
    let body = json!({ "model": "sim", "stream": false, "messages": [{ "role": "user", "content": "a secret plan" }] });
    let bearer = format!("Bearer {alice}");
    stage.post_with("/api/chat", body.to_string(), &[("authorization", &bearer)]).await;
    let theirs = stage.get_as(&bob, "/loadline/overview?all=true").await.json();
    assert_eq!(theirs["conversations"], json!([]));
    assert_eq!(stage.get_as(&bob, "/loadline/turns/1").await.status, 404);
    assert_eq!(stage.get_as(&alice, "/loadline/turns/1").await.status, 200);
    let admin = stage.token_with("root", &[Scope::Admin], None).await;
    let all = stage.get_as(&admin, "/loadline/overview?all=true").await;
    assert_eq!(all.json()["conversations"][0]["user"], "alice");
    assert!(!all.text.contains("secret plan"), "{}", all.text);
    assert_eq!(stage.get_as(&admin, "/loadline/overview").await.json()["conversations"], json!([]));
    assert_eq!(stage.get_as(&admin, "/loadline/turns/1").await.status, 404);
}

#[tokio::test]
async fn a_turn_tells_what_became_of_each_message_with_its_text() {
    let stage = Stage::new().await;
    let token = stage.token("local").await;
    let messages = filled_to(&stage, 120.0, 2048).await;
    let rolled = stage.chat(&messages, 2048).await;
    let overview = stage.get_as(&token, "/loadline/overview").await.json();
    let number = overview["conversations"][0]["load"]["turn"].as_i64().expect("a number");
    let turn = stage.get_as(&token, &format!("/loadline/turns/{number}")).await.json();
    let receipt = stage.get(&format!("/loadline/receipts/{}", rolled.header("x-loadline-receipt"))).await.json();
    assert_eq!(turn["snapshot"], rolled.header("x-loadline-snapshot"));
    let parts: i64 = turn["parts"].as_array().expect("parts").iter().filter_map(|part| part["tokens"].as_i64()).sum();
    assert_eq!(Some(parts), turn["sent_tokens"].as_i64(), "the parts add up");
    assert!(
        turn["notes"][0]["text"].as_str().expect("a note").starts_with("[EMERGENCY ROLLOVER - Context exceeded limit]")
    );
    let said = messages.as_array().expect("a list");
    let listed = turn["messages"].as_array().expect("messages");
    let system = said.iter().filter(|message| message["role"] == "system").count();
    assert_eq!(listed.len(), said.len() - system, "every message of the client is there once");
    for shown in listed {
        let number = shown["number"].as_u64().expect("a number") as usize;
        assert_eq!((&shown["text"], &shown["role"]), (&said[number - 1]["content"], &said[number - 1]["role"]));
        let is_verbatim = ranges(&receipt["verbatim"]).contains(&number);
        assert_eq!(shown["fate"] == "verbatim", is_verbatim, "{shown}");
    }
    let fates = |fate: &str| listed.iter().filter(|shown| shown["fate"] == fate).count();
    assert!(fates("archived") > 0 && fates("verbatim") > 0);
    assert_eq!(turn["answer"]["text"], rolled.json()["message"]["content"]);
}

fn ranges(value: &Value) -> Vec<usize> {
    let range = |range: &Value| range[0].as_u64().unwrap_or(1) as usize..=range[1].as_u64().unwrap_or(0) as usize;
    value.as_array().expect("ranges").iter().flat_map(range).collect()
}

#[tokio::test]
async fn a_turn_that_left_as_it_came_has_no_receipt_and_all_its_messages() {
    let stage = Stage::new().await;
    let token = stage.token("local").await;
    stage.chat(&json!([{ "role": "system", "content": "rules" }, { "role": "user", "content": "hello" }]), 2048).await;
    let turn = stage.get_as(&token, "/loadline/turns/1").await.json();
    assert_eq!((&turn["receipt"], &turn["parts"], &turn["system"]), (&Value::Null, &json!([]), &json!(["rules"])));
    assert_eq!((&turn["messages"][0]["text"], &turn["messages"][0]["number"]), (&json!("hello"), &json!(2)));
    assert_eq!(turn["messages"][0]["fate"], "verbatim");
    for path in ["/loadline/turns/99", "/loadline/turns/x", "/loadline/turns/"] {
        assert_eq!(stage.get_as(&token, path).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn a_refused_turn_was_sent_to_nobody() {
    let stage = Stage::new().await;
    let token = stage.token("local").await;
    let huge = json!([{ "role": "user", "content": words("huge", 3000) }]);
    assert_eq!(stage.chat(&huge, 1024).await.status, 400);
    let turn = stage.get_as(&token, "/loadline/turns/1").await.json();
    assert_eq!((&turn["action"], &turn["status"]), (&json!("refused"), &json!("refused")));
    assert_eq!((&turn["sent_tokens"], &turn["messages"][0]["fate"]), (&Value::Null, &json!("kept")));
    assert!(turn["arrived_tokens"].as_u64() > turn["limit_tokens"].as_u64(), "{turn}");
}

#[tokio::test]
async fn a_turn_whose_client_went_away_still_says_what_was_done() {
    let stage = Stage::with(SimConfig { prefill_us_per_token: 5000, ..SimConfig::default() }, &[]).await;
    let token = stage.token("local").await;
    let messages = filled_to(&stage, 120.0, 2048).await;
    let body = crate::stage::chat_body(&messages, 2048);
    let request = stage.client.post(format!("{}/api/chat", stage.url)).body(body);
    let asking = tokio::spawn(request.send());
    let patience = std::time::Duration::from_secs(30);
    let left = async {
        while stage.forwarded("/api/chat").is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(patience, left).await.expect("the prompt leaves");
    assert!(stage.events().iter().any(|event| event.kind == "rollover"));
    asking.abort();
    let ended = async {
        loop {
            let turn = stage.get_as(&token, "/loadline/turns/1").await.json();
            if turn["status"] == "cancelled" {
                break turn;
            }
        }
    };
    let turn = tokio::time::timeout(patience, ended).await.expect("the turn ends");
    assert_eq!((&turn["action"], &turn["answer"]), (&json!("rollover"), &Value::Null));
    assert!(turn["sent_tokens"].as_u64() > Some(0), "{turn}");
    let text = stage.get("/metrics").await.text;
    assert!(
        text.lines().any(|line| line == "loadline_turns_total{action=\"rollover\",ending=\"cancelled\"} 1"),
        "{text}"
    );
}

#[tokio::test]
async fn earlier_messages_of_a_turn_are_found_by_their_places() {
    let stage = Stage::new().await;
    let token = stage.token("local").await;
    let said = |number: usize| {
        let role = if number.is_multiple_of(2) { "user" } else { "assistant" };
        json!({ "role": role, "content": format!("m{number}") })
    };
    stage.chat(&(0..701).map(said).collect::<Value>(), 32768).await;
    let newest = stage.get_as(&token, "/loadline/turns/1").await.json();
    let first = newest["messages"][0]["place"].as_u64().expect("a place");
    assert_eq!(newest["earlier"].as_u64(), Some(first - 1));
    let earlier = stage.get_as(&token, &format!("/loadline/turns/1?before={first}")).await.json();
    let texts = [&earlier, &newest].into_iter().flat_map(|page| page["messages"].as_array().expect("a page"));
    let texts: Vec<&str> = texts.filter_map(|message| message["text"].as_str()).collect();
    assert_eq!(texts, (0..701).map(|number| format!("m{number}")).collect::<Vec<_>>());
    assert_eq!(earlier["earlier"], 0);
}

#[tokio::test]
async fn the_page_is_open_to_all_runs_nothing_foreign_and_says_nothing_of_anybody() {
    let stage = Stage::with(SimConfig::default(), &[("LOADLINE_AUTH_REQUIRED", "true")]).await;
    let page = stage.get("/loadline/").await;
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
    let policy = page.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'; script-src 'self'") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), "nosniff");
    let script = stage.get("/loadline/assets/app.js").await;
    assert_eq!((script.status, script.header("content-type")), (200, "text/javascript; charset=utf-8"));
    let tag = script.header("etag").to_owned();
    let again = stage.send("GET", "/loadline/assets/app.js", "", &[("if-none-match", &tag)]).await;
    assert_eq!((again.status, again.text.as_str()), (304, ""));
    for path in ["/loadline/assets/", "/loadline/assets/nothing.js", "/loadline/assets/../../Cargo.toml"] {
        assert!([401, 404].contains(&stage.get(path).await.status), "{path}");
    }
    assert_eq!(stage.post("/loadline/", "").await.status, 401);
}
