//! The simulator against the real thing, and the gate against no gate at all.

use loadline::sim::{Flavour, SimConfig, SimModel};
use serde_json::{Value, json};

use super::server::ollama;
use super::vocabularies::{CHATML, gpt2, smollm};
use crate::inputs::{accepted, deep, refused, without_ids};
use crate::stage::{MODEL, Stage, words};

async fn post(url: &str, path: &str, body: impl Into<reqwest::Body>) -> (u16, String) {
    let response = reqwest::Client::new().post(format!("{url}{path}")).body(body).send().await.expect("an answer");
    (response.status().as_u16(), response.text().await.expect("a body"))
}

fn history(turns: usize) -> Value {
    let turn = |number: usize| {
        [
            json!({ "role": "user", "content": words(&format!("u{number}"), 12) }),
            json!({ "role": "assistant", "content": words(&format!("a{number}"), 12) }),
        ]
    };
    let system = [json!({ "role": "system", "content": "be nice" })];
    system
        .into_iter()
        .chain((0..turns).flat_map(turn))
        .chain([json!({ "role": "user", "content": "and now?" })])
        .collect()
}

/// What is compared of an answer: the status, the names of its fields in order, its counts and its errors.
fn outline(status: u16, body: &str) -> Value {
    let lines: Vec<Value> = body
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| match serde_json::from_str::<Value>(line.strip_prefix("data: ").unwrap_or(line)) {
            Err(_) => json!(line),
            Ok(value) => {
                let names: Vec<&String> = value.as_object().map(|map| map.keys().collect()).unwrap_or_default();
                let told = ["error", "prompt_eval_count", "done_reason", "done", "_debug_info", "object"];
                let told: Vec<Value> = told.iter().map(|name| value[*name].clone()).collect();
                json!({ "names": names, "told": told, "usage": value["usage"]["prompt_tokens"], "input": value["usage"]["input_tokens"] })
            }
        })
        .collect();
    // Both answer with the same number of tokens, but not every token is a chunk of its own.
    let ends = [lines.first().cloned(), lines.last().cloned()];
    json!({ "status": status, "ends": ends })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_simulator_agrees_with_real_ollama() {
    let Some(ollama) = ollama("the_simulator_agrees_with_real_ollama") else { return };
    if !ollama.is_the_built_one("the_simulator_agrees_with_real_ollama") {
        return;
    }
    let name = tokio::task::spawn_blocking(|| ollama.smollm2()).await.expect("made");
    let vocabulary = smollm().expect("SmolLM2 is in the cache");
    let model = SimModel::new(name, vocabulary).expect("a valid vocabulary");
    let sim = loadline::sim::start(SimConfig { flavour: Flavour::V0_17, models: vec![model], ..SimConfig::default() })
        .await
        .expect("a port");
    let options = json!({ "num_ctx": 256, "num_predict": 3, "seed": 1, "temperature": 0 });
    let with = |extra: Value| {
        let mut body = json!({ "model": name, "options": options });
        body.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
        body
    };
    let rows = [
        ("/api/chat", with(json!({ "stream": false, "messages": history(2) }))),
        ("/api/chat", with(json!({ "messages": history(1) }))),
        ("/api/chat", with(json!({ "stream": false, "messages": history(2), "_debug_render_only": true }))),
        ("/api/chat", with(json!({ "stream": false, "messages": history(20) }))),
        ("/api/chat", with(json!({ "stream": false, "messages": history(20), "truncate": false }))),
        ("/api/chat", with(json!({ "messages": history(20), "truncate": false }))),
        ("/api/chat", with(json!({ "stream": false, "messages": [{ "role": "user", "content": words("one", 300) }] }))),
        ("/api/chat", json!({ "model": name, "messages": [] })),
        ("/api/chat", json!({ "model": "nope", "messages": history(1) })),
        ("/api/chat", json!({ "messages": history(1) })),
        ("/api/chat", with(json!({ "stream": false, "messages": history(1), "tools": super::conversations::tools() }))),
        ("/api/generate", with(json!({ "stream": false, "prompt": "hi" }))),
        ("/api/generate", with(json!({ "stream": false, "prompt": "hi", "raw": true }))),
        ("/api/generate", with(json!({ "stream": false, "prompt": words("long", 400), "truncate": false }))),
        ("/v1/chat/completions", json!({ "model": name, "messages": history(1), "max_tokens": 3, "temperature": 0 })),
        ("/v1/chat/completions", json!({ "model": "nope", "messages": history(1) })),
        ("/v1/completions", json!({ "model": name, "prompt": "hi", "max_tokens": 3 })),
        ("/v1/messages", json!({ "model": name, "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 3 })),
        ("/v1/responses", json!({ "model": name, "input": "hi", "max_output_tokens": 3 })),
    ];
    for (path, body) in rows {
        let (real, simulated) =
            (post(&ollama.url, path, body.to_string()).await, post(&sim.url(), path, body.to_string()).await);
        assert_eq!(
            outline(simulated.0, &simulated.1),
            outline(real.0, &real.1),
            "{path} {body}\nreal: {}\nsim: {}",
            real.1,
            simulated.1
        );
    }
}

/// A stage in front of real Ollama, with a tiny model called `sim` as the input rows want it.
async fn real_stage(test: &str) -> Option<(Stage, &'static str)> {
    let ollama = ollama(test)?;
    tokio::task::spawn_blocking(|| {
        let tiny = ollama.tiny("inputs", &gpt2(), CHATML, &json!({}));
        ollama.copy(&tiny, "sim");
    })
    .await
    .expect("made");
    let sim =
        loadline::sim::start(SimConfig { models: vec![MODEL.clone()], ..SimConfig::default() }).await.expect("a port");
    Some((Stage::before(sim, &ollama.url, &[]).await, &ollama.url))
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_inputs_get_real_ollamas_own_answers() {
    let Some((stage, direct)) = real_stage("bad_inputs_get_real_ollamas_own_answers").await else { return };
    for (name, path, body) in refused() {
        let through = stage.post(path, body.clone()).await;
        let (status, text) = post(direct, path, body).await;
        assert_eq!((through.status, without_ids(&through.text)), (status, without_ids(&text)), "{path}, {name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_inputs_that_real_ollama_takes_are_taken_and_counted() {
    let Some((stage, _)) = real_stage("odd_inputs_that_real_ollama_takes_are_taken_and_counted").await else { return };
    let mut rows = accepted();
    rows.push(("depth 9,900", "/api/chat", deep()));
    for (name, path, body) in rows {
        let got = stage.post(path, body).await;
        assert_eq!(got.status, 200, "{path}, {name}: {}", got.text);
        let answer = got.json();
        let reported =
            if path == "/api/chat" { &answer["prompt_eval_count"] } else { &answer["usage"]["prompt_tokens"] };
        assert_eq!(*reported, got.tokens().0, "{path}, {name}");
    }
}

/// The window is what Ollama will really use: what it reports for a loaded model, or the Modelfile.
#[tokio::test(flavor = "multi_thread")]
async fn the_window_is_found_out() {
    let Some(ollama) = ollama("the_window_is_found_out") else { return };
    let (plain, own) = tokio::task::spawn_blocking(|| {
        let vocabulary = gpt2();
        (
            ollama.tiny("window", &vocabulary, CHATML, &json!({})),
            ollama.tiny("window-own", &vocabulary, CHATML, &json!({ "parameters": { "num_ctx": 2000 } })),
        )
    })
    .await
    .expect("made");
    let sim =
        loadline::sim::start(SimConfig { models: vec![MODEL.clone()], ..SimConfig::default() }).await.expect("a port");
    let stage = Stage::before(sim, &ollama.url, &[]).await;
    for (model, options, limit) in [
        (&plain, json!({ "num_predict": 1 }), 3481),
        (&own, json!({ "num_predict": 1 }), 1700),
        (&plain, json!({ "num_predict": 1, "num_ctx": 1000.9 }), 850),
    ] {
        let body = json!({ "model": model, "stream": false, "messages": [{ "role": "user", "content": "hi" }], "options": options });
        let got = stage.post("/api/chat", body.to_string()).await;
        assert_eq!((got.status, got.tokens().1), (200, limit), "{body}: {}", got.text);
    }
}

/// A long chat in a small window: every answer comes, nothing is cut, every count is as predicted.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_chat_stays_under_the_line() {
    let Some(ollama) = ollama("a_long_chat_stays_under_the_line") else { return };
    let model = tokio::task::spawn_blocking(|| ollama.tiny("long", &gpt2(), CHATML, &json!({}))).await.expect("made");
    let sim =
        loadline::sim::start(SimConfig { models: vec![MODEL.clone()], ..SimConfig::default() }).await.expect("a port");
    let stage = Stage::before(sim, &ollama.url, &[]).await;
    let mut messages = vec![json!({ "role": "system", "content": "You keep a log." })];
    let mut compactions = 0;
    for turn in 0..40 {
        messages.push(json!({ "role": "user", "content": words(&format!("day {turn}"), 25) }));
        let body = json!({ "model": model, "stream": false, "messages": messages, "options": { "num_ctx": 1024, "num_predict": 16 } });
        let got = stage.post("/api/chat", body.to_string()).await;
        assert_eq!(got.status, 200, "turn {turn}: {}", got.text);
        let (sent, limit) = got.tokens();
        assert!(sent <= limit);
        assert_eq!(got.json()["prompt_eval_count"], sent, "turn {turn}, {}", got.header("x-loadline-basis"));
        compactions += usize::from(got.header("x-loadline-action") != "none");
        messages.push(got.json()["message"].clone());
    }
    assert!(compactions >= 2, "{compactions}");
}
