//! An agent that calls its tool a hundred and fifty times in a window of 4,096 tokens, each result several
//! kilobytes long, on a real Ollama; and a third of that in the other dialects that have tools. It must come to
//! its end with its rules still in force: whatever left, left with the system prompt, the task, the tools, and no
//! result without its call.

use loadline::sim::SimConfig;
use serde_json::{Value, json};

use super::recorder::Recorder;
use super::scripted::{Cast, SAYS};
use super::server::{ollama, tell};
use crate::stage::{Got, MODEL, Stage};

/// On Ollama's own API. On the others the same happens; a third of it shows that.
const STEPS: usize = 150;

const RULES: &str = "You are the harbour's clerk. Never sign for a ship that you have not seen. Report in one line.";
const TASK: &str = "Go through all the logs of this year and tell me which nights the gate stood open.";

/// A result of two to four kilobytes, in words, that is like no other.
fn result(step: usize) -> String {
    let ships = ["Margaret", "Swallow", "Northern Light", "Grace", "Albatross", "Old Harry", "Constance"];
    let did = [
        "passed the gate slowly before dawn",
        "waited outside for the tide",
        "left with a load of timber",
        "came in under sail, short of water",
    ];
    let line = |number: usize| {
        let (ship, did) = (ships[(step + number * 3) % ships.len()], did[(step * 5 + number) % did.len()]);
        format!("The {ship} {did}, and the watchman wrote down her name and {}.\n", step * 40 + number)
    };
    std::iter::once(format!("This is the log of night {step}.\n")).chain((0..22 + step * 7 % 18).map(line)).collect()
}

/// How an agent talks on one of the APIs.
struct Api {
    path: &'static str,
    /// Whatever else belongs into a request: the tools, and the rules where they are no message.
    request: fn(model: &str, messages: &[Value], tools: bool) -> Value,
    /// The assistant's message as it goes back, and the result of its call.
    exchange: fn(answer: &Value, result: &str) -> [Value; 2],
    /// What was said at last.
    said: fn(answer: &Value) -> &Value,
    /// Whether a forwarded message brings a result, and how many calls one makes.
    results: fn(message: &Value) -> usize,
    calls: fn(message: &Value) -> usize,
}

fn schema() -> Value {
    json!({ "type": "object", "properties": { "harbour": { "type": "string" } }, "required": ["harbour"] })
}

fn function() -> Value {
    json!({ "type": "function", "function": { "name": "get_tide", "description": "the log of one night", "parameters": schema() } })
}

fn listed(value: &Value) -> usize {
    value.as_array().map_or(0, Vec::len)
}

fn blocks(message: &Value, kind: &str) -> usize {
    message["content"].as_array().map_or(0, |blocks| blocks.iter().filter(|block| block["type"] == kind).count())
}

const NATIVE: Api = Api {
    path: "/api/chat",
    request: |model, messages, tools| {
        let mut body = json!({ "model": model, "stream": false, "messages": messages });
        if tools {
            body["tools"] = json!([function()]);
        }
        body
    },
    exchange: |answer, result| {
        [answer["message"].clone(), json!({ "role": "tool", "tool_name": "get_tide", "content": result })]
    },
    said: |answer| &answer["message"]["content"],
    results: |message| usize::from(message["role"] == "tool"),
    calls: |message| listed(&message["tool_calls"]),
};

const OPENAI: Api = Api {
    path: "/v1/chat/completions",
    request: NATIVE.request,
    exchange: |answer, result| {
        let message = answer["choices"][0]["message"].clone();
        let id = message["tool_calls"][0]["id"].clone();
        [message, json!({ "role": "tool", "tool_call_id": id, "content": result })]
    },
    said: |answer| &answer["choices"][0]["message"]["content"],
    results: NATIVE.results,
    calls: NATIVE.calls,
};

const ANTHROPIC: Api = Api {
    path: "/v1/messages",
    request: |model, messages, tools| {
        let mut body =
            json!({ "model": model, "max_tokens": 200, "system": messages[0]["content"], "messages": messages[1..] });
        if tools {
            body["tools"] =
                json!([{ "name": "get_tide", "description": "the log of one night", "input_schema": schema() }]);
        }
        body
    },
    exchange: |answer, result| {
        let call = answer["content"].as_array().into_iter().flatten().find(|block| block["type"] == "tool_use");
        let id = call.map_or(Value::Null, |call| call["id"].clone());
        let back = json!([{ "type": "tool_result", "tool_use_id": id, "content": result }]);
        [json!({ "role": "assistant", "content": answer["content"] }), json!({ "role": "user", "content": back })]
    },
    said: |answer| &answer["content"][0]["text"],
    results: |message| blocks(message, "tool_result"),
    calls: |message| blocks(message, "tool_use"),
};

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_keeps_its_rules_for_150_steps_on_ollamas_api() {
    walks(&NATIVE, STEPS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_keeps_its_rules_on_openais_api() {
    walks(&OPENAI, STEPS / 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_keeps_its_rules_on_anthropics_api() {
    walks(&ANTHROPIC, STEPS / 3).await;
}

async fn walks(api: &Api, steps: usize) {
    let Some(ollama) = ollama(&format!("an agent on {}", api.path)) else { return };
    let cast = tokio::task::spawn_blocking(|| Cast::on(ollama)).await.expect("models are made");
    let model = cast.names["agent"].as_str().expect("a name");
    let recorder = Recorder::before(&ollama.url).await;
    let config = SimConfig { models: vec![MODEL.clone()], ..SimConfig::default() };
    let sim = loadline::sim::start(config).await.expect("a free port");
    let stage = Stage::before(sim, &recorder.url(), &[("LOADLINE_CHECKPOINT_WAIT_S", "300")]).await;
    let mut messages = vec![json!({ "role": "system", "content": RULES }), json!({ "role": "user", "content": TASK })];
    let mut answers: Vec<Got> = Vec::new();
    for step in 0..steps {
        let got = stage.post(api.path, (api.request)(model, &messages, true).to_string()).await;
        assert_eq!(got.status, 200, "step {step}: {}", got.text);
        messages.extend((api.exchange)(&got.json(), &result(step)));
        let call = &messages[messages.len() - 2];
        assert_eq!((api.calls)(call), 1, "step {step}: {}", got.text);
        answers.push(got);
    }
    // The task stands, and the tools are taken away: now it has to report.
    let last = stage.post(api.path, (api.request)(model, &messages, false).to_string()).await;
    assert_eq!((api.said)(&last.json()), SAYS, "{}", last.text);
    holds(api, steps, &recorder);
    is_calm(api, &answers, &stage);
}

/// Every prompt that left has all that it needs.
fn holds(api: &Api, steps: usize, recorder: &Recorder) {
    let forwarded = recorder.forwarded(api.path);
    assert!(forwarded.len() > steps, "{}", forwarded.len());
    for (step, body) in forwarded.iter().enumerate() {
        let text = body.to_string();
        let mut messages = body["messages"].as_array().expect("messages").iter();
        let rules = if body["system"].is_null() { &body["messages"][0]["content"] } else { &body["system"] };
        assert_eq!(rules, RULES, "step {step} left without its rules: {text}");
        let task = messages.any(|message| message["role"] == "user" && message["content"] == TASK);
        assert!(task, "step {step} left without its task: {text}");
        assert_eq!(body["tools"], (api.request)("", &[Value::Null], step < steps)["tools"], "step {step}: its tools");
        let mut open = 0;
        for message in body["messages"].as_array().expect("messages") {
            let results = (api.results)(message);
            assert!(results <= open, "step {step}: a result without its call: {text}");
            open = open - results + (api.calls)(message);
        }
        assert_eq!(open, 0, "step {step}: a call without its result: {text}");
        if step > 0 {
            let newest = serde_json::to_string(&result(step - 1)).expect("text");
            assert!(text.contains(newest.trim_matches('"')), "step {step}: the newest result was touched: {text}");
        }
    }
}

/// Compactions come when they must, not again and again.
fn is_calm(api: &Api, steps: &[Got], stage: &Stage) {
    let compacted = ["compression", "rollover"];
    let acted: Vec<bool> = steps.iter().map(|got| compacted.contains(&got.header("x-loadline-action"))).collect();
    let kinds = ["checkpoint.written", "compression", "rollover"];
    let events = stage.events();
    let counts = kinds.map(|kind| events.iter().filter(|event| event.kind == kind).count());
    let brought: usize = (0..steps.len()).map(result).map(|result| result.len()).sum();
    let limit = steps[0].tokens().1;
    tell(&format!(
        "live: an agent on {}: {} steps, {} KB of results, a limit of {limit} tokens: {counts:?} {kinds:?}",
        api.path,
        steps.len(),
        brought >> 10
    ));
    let in_a_row = acted.split(|acted| !acted).map(<[bool]>::len).max().unwrap_or_default();
    assert!(in_a_row <= 1, "{in_a_row} steps in a row were compacted before they left");
    assert_eq!(stage.gateway.metrics.overflows.get() + stage.gateway.metrics.cut_by_upstream.get(), 0);
    assert_eq!(stage.gateway.metrics.exact_mismatches(), 0);
    assert!(stage.gateway.metrics.compared() >= steps.len() as u64, "counts were held against reported ones");
    assert!(steps.iter().all(|got| got.header("x-loadline-basis") == "exact"));
}
