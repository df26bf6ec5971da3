//! Byte by byte: for a corpus of requests, what comes through Loadline is what comes straight from Ollama, and what
//! reaches Ollama is what was sent. The few things that differ, differ on purpose; they are listed here, with why,
//! and the documentation has the same list. A difference that is not listed is a failure, and so is one that is
//! listed and no longer there.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::LazyLock;
use std::time::Duration;

use loadline::sim::SimConfig;
use regex::Regex;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::clients::IMAGE;
use super::recorder::Recorder;
use super::scripted::Cast;
use super::server::ollama;
use crate::stage::{MODEL, Stage};

/// What differs, and why it has to.
const DIFFERENT: [(&str, &str); 7] = [
    ("answer, header `date`", "It is the time at which each was asked."),
    (
        "answer, headers `connection`, `content-length`, `transfer-encoding`",
        "They are about one hop: each server says how it puts a body on its own wire, and a short answer that is kept until it is stored has a length. The body is the same.",
    ),
    (
        "answer, headers `x-loadline-*`",
        "They say how full the prompt was and what was done about it; gated routes only.",
    ),
    (
        "answer, `model_info.*.context_length` of `/api/show`",
        "It is the window in force, not the one that the model was trained for: `context.tell_window = false` leaves it.",
    ),
    (
        "answer, `data[].context_length`, `data[].context_window`, `data[].max_model_len` of `/v1/models`",
        "Clients look there for the window, and Ollama does not say it: `context.tell_window = false` leaves them out.",
    ),
    (
        "request, header `accept-encoding`",
        "It is not forwarded: answers are read along, and may get a last frame of Loadline's own.",
    ),
    (
        "request, `truncate` of `/api/chat` and `/api/generate`",
        "`\"truncate\":false` is added, so that a wrong guess is an error and not a silent cut.",
    ),
];

/// What is different each time, with or without Loadline.
static CHANGING: LazyLock<Regex> = LazyLock::new(|| {
    let times = r#""(?:created_at|completed_at|expires_at|created|total_duration|load_duration|prompt_eval_duration|eval_duration)":(?:"[^"]*"|[0-9]+)"#;
    let ids = r#"(?:chatcmpl-|cmpl-|resp_|msg_|rs_|fc_|call_|toolu_|req_)[A-Za-z0-9_]+"#;
    Regex::new(&format!("{times}|{ids}")).expect("a pattern")
});

struct Row {
    method: &'static str,
    path: &'static str,
    body: Option<Value>,
}

fn corpus(models: &Value) -> Vec<Row> {
    let said =
        json!([{ "role": "system", "content": "be brief" }, { "role": "user", "content": "hello <b>&\u{2028} 🚢" }]);
    let tool = json!({ "type": "function", "function": { "name": "get_tide", "description": "d", "parameters": { "type": "object", "properties": { "harbour": { "type": "string" } } } } });
    let called = json!([
        { "role": "user", "content": "the tide?" },
        { "role": "assistant", "content": "", "tool_calls": [{ "id": "call_1", "type": "function", "function": { "name": "get_tide", "arguments": { "harbour": "Brest" } } }] },
        { "role": "tool", "tool_call_id": "call_1", "tool_name": "get_tide", "content": "high at six" },
    ]);
    let mut rows = Vec::new();
    let mut post = |path: &'static str, role: &str, more: Value| {
        let mut body = json!({ "model": models[role] });
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        rows.push(Row { method: "POST", path, body: Some(body) });
    };
    for stream in [false, true] {
        post("/api/chat", "say", json!({ "stream": stream, "messages": said }));
        post(
            "/api/chat",
            "say",
            json!({ "stream": stream, "messages": said, "keep_alive": "1m", "options": { "seed": 1, "temperature": 0.5, "num_predict": 3 } }),
        );
        post("/api/chat", "say", json!({ "stream": stream, "messages": said, "logprobs": true, "top_logprobs": 2 }));
        post(
            "/api/chat",
            "call",
            json!({ "stream": stream, "messages": [{ "role": "user", "content": "the tide?" }], "tools": [tool] }),
        );
        post("/api/chat", "call", json!({ "stream": stream, "messages": called, "tools": [tool] }));
        post("/api/chat", "think", json!({ "stream": stream, "messages": said, "think": true }));
        post("/api/chat", "think", json!({ "stream": stream, "messages": said, "think": false }));
        post(
            "/api/chat",
            "sight",
            json!({ "stream": stream, "messages": [{ "role": "user", "content": "look", "images": [IMAGE] }] }),
        );
        post("/api/generate", "say", json!({ "stream": stream, "prompt": "hello", "system": "be brief" }));
        post("/api/generate", "say", json!({ "stream": stream, "prompt": "hello<|say|>", "raw": true }));
        post("/api/generate", "think", json!({ "stream": stream, "prompt": "hello", "think": true }));
        post("/v1/chat/completions", "say", json!({ "stream": stream, "messages": said }));
        post(
            "/v1/chat/completions",
            "say",
            json!({ "stream": stream, "messages": said, "stream_options": { "include_usage": true }, "max_tokens": 4 }),
        );
        post(
            "/v1/chat/completions",
            "call",
            json!({ "stream": stream, "messages": [{ "role": "user", "content": "the tide?" }], "tools": [tool] }),
        );
        post("/v1/chat/completions", "think", json!({ "stream": stream, "messages": said }));
        let picture = json!([{ "type": "text", "text": "look" }, { "type": "image_url", "image_url": { "url": format!("data:image/png;base64,{IMAGE}") } }]);
        post(
            "/v1/chat/completions",
            "sight",
            json!({ "stream": stream, "messages": [{ "role": "user", "content": picture }] }),
        );
        post("/v1/completions", "say", json!({ "stream": stream, "prompt": "hello" }));
        post("/v1/responses", "say", json!({ "stream": stream, "input": "hello" }));
        post("/v1/responses", "think", json!({ "stream": stream, "input": "hello" }));
        post(
            "/v1/messages",
            "say",
            json!({ "stream": stream, "max_tokens": 50, "system": "be brief", "messages": [said[1]] }),
        );
        post(
            "/v1/messages",
            "think",
            json!({ "stream": stream, "max_tokens": 50, "messages": [said[1]], "thinking": { "type": "enabled", "budget_tokens": 1024 } }),
        );
        post(
            "/v1/messages",
            "call",
            json!({ "stream": stream, "max_tokens": 50, "messages": [said[1]], "tools": [{ "name": "get_tide", "description": "d", "input_schema": { "type": "object" } }] }),
        );
        for path in ["/api/chat", "/api/generate", "/v1/chat/completions", "/v1/messages", "/v1/responses"] {
            post(
                path,
                "nobody",
                json!({ "model": "no-such-model", "stream": stream, "messages": said, "prompt": "x", "input": "x", "max_tokens": 5 }),
            );
            post(path, "say", json!({ "stream": stream, "messages": 5, "prompt": 5, "input": 5, "max_tokens": 5 }));
        }
    }
    post("/api/embed", "say", json!({ "input": ["one", "two"] }));
    post("/api/embeddings", "say", json!({ "prompt": "one" }));
    post("/v1/embeddings", "say", json!({ "input": "one" }));
    post("/api/show", "say", json!({}));
    post("/api/show", "nobody", json!({ "model": "no-such-model" }));
    post("/api/chat", "say", json!({ "messages": [] }));
    post("/api/nonsense", "say", json!({}));
    rows.extend(["/", "/api/version", "/v1/models", "/nope"].map(|path| Row { method: "GET", path, body: None }));
    rows.extend(["/", "/api/tags"].map(|path| Row { method: "HEAD", path, body: None }));
    rows
}

struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

async fn ask(url: &str, row: &Row) -> Answer {
    let request = reqwest::Client::new().request(row.method.parse().expect("a method"), format!("{url}{}", row.path));
    let request = request.header("accept-encoding", "gzip").header("x-mine", "kept");
    let request = match &row.body {
        Some(body) => request.header("content-type", "application/json").body(body.to_string()),
        None => request,
    };
    let answer = request.send().await.expect("an answer");
    let mut headers: Vec<(String, String)> = answer
        .headers()
        .iter()
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    headers.sort();
    Answer { status: answer.status().as_u16(), headers, body: answer.text().await.expect("a body") }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_through_is_what_ollama_said_but_for_what_is_listed() {
    let Some(ollama) = ollama("what_comes_through_is_what_ollama_said") else { return };
    let cast = tokio::task::spawn_blocking(|| Cast::on(ollama)).await.expect("models are made");
    let recorder = Recorder::before(&ollama.url).await;
    let config = SimConfig { models: vec![MODEL.clone()], ..SimConfig::default() };
    let sim = loadline::sim::start(config).await.expect("a free port");
    let stage = Stage::before(sim, &recorder.url(), &[]).await;
    let models: Vec<&str> =
        cast.names.as_object().into_iter().flatten().filter_map(|(_, name)| name.as_str()).collect();
    let mut found = BTreeSet::new();
    for row in corpus(&cast.names) {
        let told = format!("{} {} {}", row.method, row.path, row.body.as_ref().unwrap_or(&Value::Null));
        // Whoever is asked first loads the model: both are asked with it loaded.
        if row.body.as_ref().is_some_and(|body| body["model"] != "no-such-model") {
            ask(&ollama.url, &row).await;
        }
        let (direct, through) = (ask(&ollama.url, &row).await, ask(&stage.url, &row).await);
        assert_eq!(through.status, direct.status, "{told}\n{}\n{}", direct.body, through.body);
        found.extend(headers_differ(&direct.headers, &through.headers));
        found.extend(bodies_differ(&row, (&direct.body, &through.body), &models, &told));
        found.extend(requests_differ(&row, &recorder, &told));
    }
    let listed: BTreeSet<String> = DIFFERENT.iter().map(|(what, _)| (*what).to_owned()).collect();
    assert_eq!(found, listed);
}

/// Names of headers that are not the same on both sides.
fn headers_differ(direct: &[(String, String)], through: &[(String, String)]) -> BTreeSet<String> {
    let [direct, through]: [BTreeSet<_>; 2] = [direct.iter().collect(), through.iter().collect()];
    direct
        .symmetric_difference(&through)
        .map(|(name, _)| match name.as_str() {
            "connection" | "content-length" | "transfer-encoding" => {
                "headers `connection`, `content-length`, `transfer-encoding`".to_owned()
            }
            ours if ours.starts_with("x-loadline-") => "headers `x-loadline-*`".to_owned(),
            other => format!("header `{other}`"),
        })
        .map(|what| format!("answer, {what}"))
        .collect()
}

fn bodies_differ(row: &Row, (direct, through): (&str, &str), models: &[&str], told: &str) -> Option<String> {
    let masked = |body: &str| CHANGING.replace_all(body, "*").into_owned();
    if masked(direct) == masked(through) {
        return None;
    }
    let read = |body: &str| serde_json::from_str::<Value>(body).ok();
    let pair = (read(direct), read(through));
    let (Some(mut direct_value), Some(mut through_value)) = pair else {
        panic!("{told}\nwithout: {direct}\nwith: {through}");
    };
    let listed = match row.path {
        "/api/show" => {
            let info = through_value["model_info"].as_object_mut().expect("facts about the model");
            for (name, value) in info.iter_mut().filter(|(name, _)| name.ends_with(".context_length")) {
                assert_eq!(*value, 4096, "the window in force");
                *value = direct_value["model_info"][name.as_str()].clone();
            }
            "`model_info.*.context_length` of `/api/show`"
        }
        "/v1/models" => {
            // Other tests make models meanwhile, and Ollama has no order for those of the same second.
            for listed in [&mut direct_value, &mut through_value] {
                let data = listed["data"].as_array_mut().expect("models");
                data.retain(|model| models.iter().any(|name| model["id"] == format!("{name}:latest")));
                data.sort_by_key(|model| model["id"].to_string());
                assert_eq!(data.len(), models.len(), "{told}");
            }
            for model in through_value["data"].as_array_mut().expect("models") {
                let fields = model.as_object_mut().expect("a model");
                ["context_length", "context_window", "max_model_len"]
                    .iter()
                    .for_each(|name| drop(fields.remove(*name)));
            }
            "`data[].context_length`, `data[].context_window`, `data[].max_model_len` of `/v1/models`"
        }
        _ => panic!("{told}\nwithout: {direct}\nwith: {through}"),
    };
    // Ollama writes the parameters in another order each time.
    for told in [&mut direct_value, &mut through_value] {
        for name in ["parameters", "modelfile"] {
            let lines: BTreeSet<&str> = told[name].as_str().unwrap_or_default().lines().collect();
            told[name] = json!(lines);
        }
    }
    assert_eq!(masked(&direct_value.to_string()), masked(&through_value.to_string()), "{told}");
    Some(format!("answer, {listed}"))
}

/// What reached the upstream, beside what was sent to it.
fn requests_differ(row: &Row, recorder: &Recorder, told: &str) -> BTreeSet<String> {
    let Some(sent) = row.body.as_ref().map(Value::to_string) else { return BTreeSet::new() };
    let (headers, arrived) = recorder.latest(row.path).unwrap_or_else(|| panic!("nothing arrived: {told}"));
    let mut found = BTreeSet::new();
    if arrived != sent {
        assert_eq!(arrived.replacen("\"truncate\":false,", "", 1), sent, "{told}");
        assert!(["/api/chat", "/api/generate"].contains(&row.path), "{told}");
        found.insert("request, `truncate` of `/api/chat` and `/api/generate`".to_owned());
    }
    assert_eq!(headers.get("x-mine").expect("it arrives"), "kept", "{told}");
    assert_eq!(headers.get("content-type").expect("it arrives"), "application/json", "{told}");
    if !headers.contains_key("accept-encoding") {
        found.insert("request, header `accept-encoding`".to_owned());
    }
    found
}

#[test]
fn the_documentation_lists_what_differs() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/clients.md");
    let text = std::fs::read_to_string(file).expect("the documentation is there");
    for (what, why) in DIFFERENT {
        let line = format!("| {what} | {why} |\n");
        assert!(text.contains(&line), "docs/clients.md lacks the line\n{line}");
    }
}

/// Chunks keep their rhythm: the upstream makes the next piece only when the client has the one before, so nothing
/// that is held back, not even by one piece, ever comes to its end.
#[tokio::test(flavor = "multi_thread")]
async fn every_piece_arrives_before_the_next_one_is_made() {
    let sim =
        loadline::sim::start(SimConfig { models: vec![MODEL.clone()], answer_tokens: 30, ..SimConfig::default() })
            .await
            .expect("a free port");
    let allowed = Arc::new(Semaphore::new(1));
    let recorder = Recorder::in_step(&sim.url(), Arc::clone(&allowed)).await;
    let stage = Stage::before(sim, &recorder.url(), &[]).await;
    let said = json!([{ "role": "user", "content": "tell me" }]);
    for (path, body) in [
        ("/api/chat", json!({ "model": "sim", "messages": said })),
        ("/api/generate", json!({ "model": "sim", "prompt": "tell me" })),
        ("/v1/chat/completions", json!({ "model": "sim", "messages": said, "stream": true })),
        ("/v1/completions", json!({ "model": "sim", "prompt": "tell me", "stream": true })),
        ("/v1/responses", json!({ "model": "sim", "input": "tell me", "stream": true })),
        ("/v1/messages", json!({ "model": "sim", "messages": said, "max_tokens": 99, "stream": true })),
    ] {
        let mut pieces = 0;
        let reading = async {
            let asked = stage.client.post(format!("{}{path}", stage.url)).body(body.to_string()).send();
            let mut answer = asked.await.expect("an answer");
            while answer.chunk().await.expect("a whole body").is_some() {
                pieces += 1;
                allowed.add_permits(1);
            }
        };
        tokio::time::timeout(Duration::from_secs(60), reading)
            .await
            .unwrap_or_else(|_| panic!("{path} waits for ever"));
        assert!(pieces >= 30, "{path}: {pieces} pieces");
        // What was not used up is taken back.
        allowed.forget_permits(Semaphore::MAX_PERMITS);
        allowed.add_permits(1);
    }
}
