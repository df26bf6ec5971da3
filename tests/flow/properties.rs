//! What holds for every history: no plan exceeds its budget, splits a tool pair, or drops the current turn.

use loadline::sim::SimConfig;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use crate::stage::{Stage, words};

/// One turn: the user's words, calls with their results, and an answer.
fn turn() -> impl Strategy<Value = Vec<Value>> {
    (0_usize..120, 0_usize..4, 0_usize..90, any::<u16>()).prop_map(|(said, calls, result, salt)| {
        let mut turn = vec![json!({ "role": "user", "content": words(&format!("u{salt}"), said) })];
        for call in 0..calls {
            turn.push(json!({ "role": "assistant", "content": "", "tool_calls": [{ "function": { "name": "look", "arguments": { "at": call, "salt": salt } } }] }));
            turn.push(json!({ "role": "tool", "tool_name": "look", "content": words(&format!("r{salt}.{call}"), result) }));
        }
        turn.push(json!({ "role": "assistant", "content": words(&format!("a{salt}"), said / 2) }));
        turn
    })
}

/// A history that ends with the user's words, or with results that are being answered.
fn history() -> impl Strategy<Value = Vec<Value>> {
    (any::<bool>(), prop::collection::vec(turn(), 0..40), turn(), any::<bool>()).prop_map(
        |(system, turns, last, open)| {
            let mut history =
                if system { vec![json!({ "role": "system", "content": "Rule one: be brief." })] } else { Vec::new() };
            history.extend(turns.concat());
            let end = if open { last.len() - 1 } else { 1 };
            history.extend_from_slice(&last[..end]);
            history
        },
    )
}

fn holds(history: &[Value], checked: &Value) -> Result<(), TestCaseError> {
    let prompt = checked["prompt"].as_array().cloned().unwrap_or_default();
    let last_user = history.iter().rposition(|message| message["role"] == "user").expect("a user");
    if checked["valid"] != true {
        return Ok(());
    }
    prop_assert!(checked["totalTokens"].as_u64() <= checked["ollamaLimit"].as_u64(), "over the line: {checked}");
    if history[0]["role"] == "system" {
        prop_assert_eq!(&prompt[0], &history[0]);
    }
    prop_assert!(prompt.contains(&history[last_user]), "the user's message is gone");
    // What is being answered: the calls whose results are last, whole and at the end.
    let results = history.iter().rev().take_while(|message| message["role"] == "tool").count();
    let open = if results == 0 { 1 } else { results + 1 };
    prop_assert_eq!(&prompt[prompt.len() - open..], &history[history.len() - open..]);
    for (index, message) in prompt.iter().enumerate() {
        if message["role"] == "tool" {
            prop_assert!(index > 0 && prompt[index - 1]["tool_calls"].is_array(), "a result without its call");
        }
        if message["tool_calls"].is_array() {
            prop_assert_eq!(&prompt[index + 1]["role"], "tool", "a call without its result");
        }
    }
    // What leaves verbatim leaves in the order it came.
    let mut from = 0;
    let ours = |message: &Value| message["content"].as_str().is_some_and(|text| text.starts_with('['));
    for message in prompt.iter().filter(|message| !ours(message)) {
        let found = history[from..].iter().position(|original| original == message);
        prop_assert!(found.is_some(), "not the client's: {}", message);
        from += found.unwrap_or(0) + 1;
    }
    Ok(())
}

#[test]
fn no_plan_exceeds_its_budget_splits_a_tool_pair_or_drops_the_current_turn() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let mut model = crate::stage::MODEL.clone();
    model.tools = true;
    let stage = runtime.block_on(Stage::with(SimConfig { models: vec![model], ..SimConfig::default() }, &[]));
    let mut runner = TestRunner::new(Config { cases: 150, failure_persistence: None, ..Config::default() });
    let cases = (history(), prop::sample::select(vec![512_u32, 1024, 2048, 4096]));
    let outcome = runner.run(&cases, |(history, window)| {
        let body = json!({ "model": "sim", "messages": history, "options": { "num_ctx": window, "num_predict": 8 } });
        let checked = runtime.block_on(stage.post("/loadline/check/api/chat", body.to_string()));
        prop_assert_eq!(checked.status, 200, "{}", checked.text);
        holds(&history, &checked.json())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(stage.sim.stats().truncations, 0);
}
