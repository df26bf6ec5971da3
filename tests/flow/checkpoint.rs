//! What happens at 80 and 95 %: notes in the background, notes on the spot, and a front that stays as it is.

use loadline::sim::{Fault, SimConfig};
use serde_json::{Value, json};

use super::ladder::filled_to;
use crate::stage::{Stage, chat_body, words};

const NOTES: &str = "DETAILED:\n- The harbour code is 7341.\n- Tea goes forward.\nMODERATE:\n- Code 7341, tea forward.\nCOMPACT:\n- 7341";

/// An answer of the upstream, for the next question that a script of faults comes to.
fn reply(text: &str) -> Fault {
    let body = json!({ "model": "sim", "message": { "role": "assistant", "content": text }, "done": true, "done_reason": "stop", "prompt_eval_count": 9, "prompt_eval_duration": 9 });
    Fault::Status { code: 200, body: body.to_string() }
}

/// A chat at 82 %, answered, with a checkpoint written from what the upstream replies to it.
async fn after_80_percent(stage: &Stage, script: Vec<Fault>) -> Vec<Value> {
    let messages = filled_to(stage, 82.0, 2048).await;
    stage.sim.faults().push(Fault::Nothing);
    script.into_iter().for_each(|fault| stage.sim.faults().push(fault));
    let got = stage.chat(&messages, 2048).await;
    assert_eq!((got.status, got.header("x-loadline-action")), (200, "checkpoint"), "{}", got.text);
    stage.settled().await;
    let mut messages = messages.as_array().expect("messages").clone();
    messages.push(got.json()["message"].clone());
    messages.push(json!({ "role": "user", "content": "and now?" }));
    messages
}

fn last_sent(stage: &Stage) -> Vec<Value> {
    let sent: Value = serde_json::from_str(stage.forwarded("/api/chat").last().expect("forwarded")).expect("json");
    sent["messages"].as_array().expect("messages").clone()
}

fn kinds(stage: &Stage) -> Vec<String> {
    stage.events().into_iter().map(|event| event.kind).filter(|kind| kind.starts_with("checkpoint")).collect()
}

#[tokio::test]
async fn after_80_percent_a_model_writes_notes_that_stand_in_for_older_messages() {
    let stage = Stage::new().await;
    let messages = after_80_percent(&stage, vec![reply(NOTES)]).await;
    assert_eq!(kinds(&stage), ["checkpoint.started", "checkpoint.progress", "checkpoint.written"]);
    let got = stage.chat(&json!(messages), 2048).await;
    assert_eq!(got.header("x-loadline-action"), "none");
    assert_eq!(got.json()["prompt_eval_count"], got.tokens().0);
    let (sent, limit) = got.tokens();
    assert!(sent * 10 <= limit * 6, "{sent} of {limit}: aims at about half");
    let sent = last_sent(&stage);
    assert_eq!(sent[0], messages[0], "the system prompt stays");
    let note = sent[1]["content"].as_str().expect("text");
    assert_eq!(sent[1]["role"], "user", "notes are data, never the system's word");
    assert!(note.starts_with("[CHECKPOINT - notes on messages 1 to "), "{note}");
    assert!(note.contains("The harbour code is 7341."), "a new checkpoint is detailed: {note}");
    assert_eq!(sent[2..], messages[messages.len() - (sent.len() - 2)..], "the rest is verbatim");
    let checkpoints = stage.gateway.store.reader().and_then(|reader| reader.checkpoints(1)).expect("readable");
    assert_eq!(
        checkpoints[0].texts,
        ["- 7341", "- Code 7341, tea forward.", "- The harbour code is 7341.\n- Tea goes forward."]
    );
    assert_eq!((checkpoints[0].author.as_str(), checkpoints[0].level), ("sim", 3));
}

#[tokio::test]
async fn the_model_is_asked_behind_the_prompt_it_has_just_read() {
    let stage = Stage::new().await;
    after_80_percent(&stage, vec![]).await;
    let log = stage.sim.log().into_iter().map(|seen| String::from_utf8(seen.body.to_vec()).expect("text"));
    let asked: Vec<Value> = log
        .filter(|body| body.contains("write notes on our conversation") && !body.contains("_debug_render_only"))
        .map(|body| serde_json::from_str(&body).expect("json"))
        .collect();
    let [asked] = asked.as_slice() else { panic!("asked once: {}", asked.len()) };
    let sent = last_sent(&stage);
    let question = asked["messages"].as_array().expect("messages");
    assert_eq!(question[..question.len() - 1], sent[..question.len() - 1], "the same beginning, from the cache");
    assert!(question.len() < sent.len(), "only what the notes will stand for");
    assert_eq!((&asked["options"]["num_ctx"], &asked["stream"]), (&json!(2048), &json!(false)), "no reload");
    assert!(asked.get("tools").is_none());
}

#[tokio::test]
async fn a_model_that_fails_or_says_nothing_or_too_much_is_replaced_and_the_chat_goes_on() {
    let too_much = words("blah", 3000);
    for (name, fault) in [
        ("an error", Fault::Status { code: 500, body: "{\"error\":\"out of memory\"}".into() }),
        ("nothing", reply("  ")),
        ("too much", reply(&too_much)),
        ("no JSON", Fault::Garbage),
        ("no answer", Fault::CloseBeforeHeaders),
    ] {
        let stage = Stage::new().await;
        let messages = after_80_percent(&stage, vec![fault]).await;
        let checkpoints = stage.gateway.store.reader().and_then(|reader| reader.checkpoints(1)).expect("readable");
        assert_eq!(checkpoints.len(), 1, "{name}");
        assert_eq!(checkpoints[0].author, "extract", "{name}");
        let got = stage.chat(&json!(messages), 2048).await;
        assert_eq!(got.status, 200, "{name}: {}", got.text);
        assert_eq!(got.json()["prompt_eval_count"], got.tokens().0, "{name}");
        let note = last_sent(&stage)[1]["content"].as_str().expect("text").to_owned();
        assert!(note.contains("\n- user: q"), "{name}: {note}");
    }
}

#[tokio::test]
async fn a_request_of_the_same_conversation_waits_for_its_checkpoint_and_says_so() {
    // A question of its own takes the model half a second to answer: 24 tokens and more at 20 ms.
    let config = SimConfig { decode_us_per_token: 20_000, ..SimConfig::default() };
    let stage = Stage::with(config, &[]).await;
    let messages = filled_to(&stage, 82.0, 2048).await;
    let got = stage.chat(&messages, 2048).await;
    let mut messages = messages.as_array().expect("messages").clone();
    messages.push(got.json()["message"].clone());
    messages.push(json!({ "role": "user", "content": "and now?" }));
    let got = stage.chat(&json!(messages), 2048).await;
    let waited = got.warnings().into_iter().find(|warning| warning.starts_with("INFO: Waited "));
    assert!(
        waited.as_ref().is_some_and(|text| text.ends_with(" s for the checkpoint of this conversation")),
        "{waited:?}"
    );
    assert!(got.tokens().0 * 10 <= got.tokens().1 * 6, "and it was worth it");
    assert!(kinds(&stage).contains(&"checkpoint.waited".to_owned()), "{:?}", kinds(&stage));
}

#[tokio::test]
async fn somebody_elses_request_takes_the_model_back_and_the_notes_are_finished_later() {
    let config = SimConfig { decode_us_per_token: 20_000, ..SimConfig::default() };
    let stage = Stage::with(config, &[]).await;
    let messages = filled_to(&stage, 82.0, 2048).await;
    stage.chat(&messages, 2048).await;
    assert_eq!(stage.gateway.checkpoints.under_way(), 1);
    let asked = async {
        let is_question = |seen: &loadline::sim::Seen| {
            seen.path == "/api/chat"
                && String::from_utf8_lossy(&seen.body).contains("write notes on our conversation")
                && !String::from_utf8_lossy(&seen.body).contains("_debug_render_only")
        };
        while !stage.sim.log().iter().any(is_question) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), asked).await.expect("the model is asked for notes");
    // Somebody else, in the midst of it.
    let other = stage.chat(&json!([{ "role": "user", "content": "hello" }]), 2048).await;
    assert_eq!(other.status, 200);
    stage.settled().await;
    let kinds = kinds(&stage);
    assert!(kinds.contains(&"checkpoint.deferred".to_owned()), "{kinds:?}");
    assert_eq!(kinds.last().map(String::as_str), Some("checkpoint.written"), "{kinds:?}");
}

#[tokio::test]
async fn waiting_is_bounded_and_the_request_goes_on_without() {
    let config = SimConfig { decode_us_per_token: 50_000, ..SimConfig::default() };
    let stage = Stage::with(config, &[("LOADLINE_CHECKPOINT_WAIT_S", "0.15")]).await;
    let messages = filled_to(&stage, 82.0, 2048).await;
    let got = stage.chat(&messages, 2048).await;
    let mut messages = messages.as_array().expect("messages").clone();
    messages.push(got.json()["message"].clone());
    messages.push(json!({ "role": "user", "content": "and now?" }));
    let got = stage.chat(&json!(messages), 2048).await;
    assert_eq!(got.status, 200);
    assert!(got.warnings().iter().any(|text| text.ends_with(", and went on without it")), "{:?}", got.warnings());
}

#[tokio::test]
async fn between_compactions_what_is_forwarded_only_grows_at_its_end() {
    let stage = Stage::with(SimConfig { default_window: 1024, answer_tokens: 24, ..SimConfig::default() }, &[]).await;
    let mut messages = vec![json!({ "role": "system", "content": "You keep a log." })];
    let mut previous: Option<Vec<Value>> = None;
    let mut changes = 0;
    for turn in 0..60 {
        messages.push(json!({ "role": "user", "content": words(&format!("day{turn}"), 30) }));
        let body = json!({ "model": "sim", "stream": false, "messages": messages }).to_string();
        let got = stage.post("/api/chat", body).await;
        assert_eq!(got.status, 200, "{}", got.text);
        assert_eq!(got.json()["prompt_eval_count"], got.tokens().0, "turn {turn}");
        messages.push(got.json()["message"].clone());
        let sent: Vec<Value> = last_sent(&stage)
            .into_iter()
            .take_while(|message| !message["content"].as_str().is_some_and(|text| text.starts_with("[RECALLED")))
            .collect();
        if let Some(previous) = &previous
            && !sent.starts_with(previous)
        {
            changes += 1;
        }
        previous = Some(sent);
    }
    let written = kinds(&stage).iter().filter(|kind| *kind == "checkpoint.written").count();
    let compacted =
        stage.events().iter().filter(|event| ["compression", "rollover"].contains(&event.kind.as_str())).count();
    assert!(changes <= written + compacted, "{changes} changes, {written} checkpoints, {compacted} compactions");
    assert!((3..=15).contains(&written), "{written} checkpoints in 60 turns: neither never nor all the time");
    assert_eq!(stage.sim.stats().truncations, 0);
}

#[tokio::test]
async fn compression_shortens_the_checkpoints_that_are_there() {
    let stage = Stage::new().await;
    let long: String = (0..30).map(|line| format!("\n- Fact number {line} is about crate {}.", line * 11)).collect();
    let mut messages = after_80_percent(&stage, vec![reply(&format!("DETAILED:{long}"))]).await;
    let got = stage.chat(&json!(messages), 2048).await;
    let detailed = last_sent(&stage)[1]["content"].as_str().expect("text").len();
    messages.push(got.json()["message"].clone());
    // A jump from about half to 96 %.
    let (sent, limit) = got.tokens();
    let missing = limit * 96 / 100 - sent;
    messages.push(json!({ "role": "user", "content": vec!["y"; missing as usize - 16].join(" ") }));
    let got = stage.chat(&json!(messages), 2048).await;
    assert_eq!(got.header("x-loadline-action"), "compression", "{:?}", got.warnings());
    assert_eq!(got.json()["prompt_eval_count"], got.tokens().0);
    let sent = last_sent(&stage);
    assert!(sent[1]["content"].as_str().expect("text").len() * 2 <= detailed + 200, "the notes are halved");
    assert_eq!(sent.last(), messages.last(), "the current turn is untouched");
    assert!(stage.events().iter().any(|event| event.kind == "compression"));
}

#[tokio::test]
async fn a_history_that_arrives_at_once_is_compacted_at_once_in_small_windows_and_in_every_dialect() {
    for window in [2048, 4096] {
        let stage = Stage::with(SimConfig { default_window: window, ..SimConfig::default() }, &[]).await;
        let mut history: Vec<Value> = (0..500)
            .map(|number| {
                let role = if number % 2 == 0 { "user" } else { "assistant" };
                json!({ "role": role, "content": words(&format!("m{number}"), 30) })
            })
            .collect();
        history.push(json!({ "role": "user", "content": "and now?" }));
        for path in ["/api/chat", "/v1/chat/completions", "/v1/messages", "/v1/responses"] {
            let list = if path == "/v1/responses" { "input" } else { "messages" };
            let mut body = json!({ "model": "sim", "stream": false, list: history });
            if path == "/v1/messages" {
                body["max_tokens"] = 20.into();
            }
            let got = stage.post(path, body.to_string()).await;
            assert_eq!(
                (got.status, got.header("x-loadline-action")),
                (200, "rollover"),
                "{window} {path}: {}",
                got.text
            );
            assert!(got.tokens().0 <= got.tokens().1);
            assert_eq!(stage.history_of_snapshot(got.header("x-loadline-snapshot")).len(), 501, "{window} {path}");
        }
        assert_eq!(stage.sim.stats().truncations, 0);
    }
}

#[tokio::test]
async fn an_edit_before_a_checkpoint_never_meets_its_notes() {
    let stage = Stage::new().await;
    let mut messages = after_80_percent(&stage, vec![reply(NOTES)]).await;
    messages[1] = json!({ "role": "user", "content": "an edited beginning" });
    let got = stage.chat(&json!(messages), 2048).await;
    assert_eq!(got.status, 200);
    assert!(!stage.forwarded("/api/chat").last().expect("forwarded").contains("7341"));
}

#[tokio::test]
async fn an_agents_long_turn_gets_checkpoints_too_and_keeps_its_task() {
    let mut model = crate::stage::MODEL.clone();
    model.tools = true;
    let stage = Stage::with(SimConfig { default_window: 1024, models: vec![model], ..SimConfig::default() }, &[]).await;
    let task = json!({ "role": "user", "content": "Count the crates, one hold after the other." });
    let tools = json!([{ "type": "function", "function": { "name": "look", "description": "looks", "parameters": { "type": "object", "properties": {} } } }]);
    let mut messages = vec![json!({ "role": "system", "content": "Never touch the manifest." }), task.clone()];
    for step in 0..150 {
        messages.push(json!({ "role": "assistant", "content": "", "tool_calls": [{ "function": { "name": "look", "arguments": { "hold": step } } }] }));
        messages.push(json!({ "role": "tool", "tool_name": "look", "content": words(&format!("hold{step}"), 25) }));
        let body = json!({ "model": "sim", "stream": false, "messages": messages, "tools": tools, "options": { "num_predict": 4 } });
        let got = stage.post("/api/chat", body.to_string()).await;
        assert_eq!(got.status, 200, "step {step}: {}", got.text);
        assert_eq!(got.json()["prompt_eval_count"], got.tokens().0, "step {step}");
        let sent = last_sent(&stage);
        assert_eq!(sent[0], messages[0], "step {step}");
        assert!(sent.contains(&task), "step {step}: the task is gone");
        let orphans =
            sent.windows(2).filter(|pair| pair[1]["role"] == "tool" && !pair[0]["tool_calls"].is_array()).count();
        assert_eq!(orphans, 0, "step {step}: a result without its call");
        messages.push(got.json()["message"].clone());
    }
    let written = kinds(&stage).iter().filter(|kind| *kind == "checkpoint.written").count();
    assert!((5..=60).contains(&written), "{written} checkpoints in 150 steps");
}

#[tokio::test]
async fn cleaning_and_condensing_change_what_is_sent_and_never_what_is_kept() {
    let variables = [
        ("LOADLINE_PREPROCESS_CLEAN", "true"),
        ("LOADLINE_PREPROCESS_INTENT", "true"),
        ("LOADLINE_PREPROCESS_INTENT_TOKENS", "200"),
    ];
    let stage = Stage::with(SimConfig::default(), &variables).await;
    let coloured = "\u{1b}[31merror\u{1b}[0m: no such file\n\n\n\n\nwhat now?";
    let got = stage.chat(&json!([{ "role": "user", "content": coloured }]), 4096).await;
    assert_eq!(got.status, 200);
    assert_eq!(last_sent(&stage)[0]["content"], "error: no such file\n\nwhat now?");
    assert_eq!(stage.stored(&got)[0].text, coloured, "the original is stored");
    let receipt = stage.get(&format!("/loadline/receipts/{}", got.header("x-loadline-receipt"))).await.json();
    assert!(receipt["cleaned"][0]["saved"].as_u64() > Some(0), "{receipt}");

    let rambling = format!("{} Please look at crate 12.", words("well", 400));
    stage.sim.faults().push(reply("Please look at crate 12."));
    let got = stage.chat(&json!([{ "role": "user", "content": rambling }]), 4096).await;
    assert_eq!(got.status, 200, "{}", got.text);
    assert_eq!(last_sent(&stage)[0]["content"], "Please look at crate 12.");
    assert_eq!(stage.stored(&got)[0].text, rambling);
    let receipt = stage.get(&format!("/loadline/receipts/{}", got.header("x-loadline-receipt"))).await.json();
    assert_eq!(receipt["cleaned"][0]["done"], json!(["intent"]), "{receipt}");
    assert!(receipt["cleaned"][0]["saved"].as_u64() > Some(300), "{receipt}");
    // The next turn sends the same, without asking again.
    let next =
        json!([{ "role": "user", "content": rambling }, got.json()["message"], { "role": "user", "content": "and?" }]);
    stage.chat(&next, 4096).await;
    assert_eq!(last_sent(&stage)[0]["content"], "Please look at crate 12.");
    // A model that fails is no reason to fail.
    stage.sim.faults().push(Fault::Status { code: 500, body: "{}".into() });
    let other = words("hm", 400);
    let got = stage.post("/api/chat", chat_body(&json!([{ "role": "user", "content": other }]), 4096)).await;
    assert_eq!((got.status, last_sent(&stage)[0]["content"].as_str()), (200, Some(other.as_str())));
}
