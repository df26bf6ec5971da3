//! Claims about the simulator as a whole, made over HTTP or at the seam between prompt and runner.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::chatml::render;
use super::prompt::prepare;
use super::request::{Ask, Message, Prompt};
use super::runner::Window;
use super::{Fault, Flavour, Sim, SimConfig, SimModel, start};
use crate::tokenize::Generation;

/// Built once: a vocabulary takes longer than all the tests that use it.
static MODEL: LazyLock<SimModel> = LazyLock::new(|| SimModel::standard().expect("the standard model"));

fn able() -> SimModel {
    SimModel { tools: true, thinking: true, ..MODEL.renamed("able") }
}

async fn sim(flavour: Flavour) -> Sim {
    let models = vec![MODEL.clone(), able()];
    start(SimConfig { flavour, answer_tokens: 6, models, ..SimConfig::default() }).await.expect("a free port")
}

async fn post(sim: &Sim, path: &str, body: &Value) -> (u16, String, String) {
    let url = format!("{}{path}", sim.url());
    let response = reqwest::Client::new().post(url).body(body.to_string()).send().await.expect("an answer");
    let kind = response.headers()["content-type"].to_str().expect("text").to_owned();
    (response.status().as_u16(), kind, response.text().await.expect("a body"))
}

async fn post_json(sim: &Sim, path: &str, body: &Value) -> (u16, Value) {
    let (status, _, text) = post(sim, path, body).await;
    (status, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
}

fn long_conversation(messages: usize) -> Vec<Value> {
    let mut all = vec![json!({"role": "system", "content": "be nice"})];
    for index in 0..messages {
        let role = if index % 2 == 0 { "user" } else { "assistant" };
        all.push(json!({"role": role, "content": format!("m{index} hello hello hello hello hello hello hello hello")}));
    }
    all
}

#[test]
fn a_conversation_is_rendered_as_ollama_renders_chatml() {
    let messages = [
        Message::new("system", "be nice"),
        Message::new("user", "one"),
        Message::new("user", "two"),
        Message::new("assistant", "three"),
        Message::new("user", "four"),
    ];
    assert_eq!(
        render(&MODEL, &messages, &[]),
        "<|im_start|>system\nbe nice<|im_end|>\n<|im_start|>user\none\n\ntwo<|im_end|>\n\
         <|im_start|>assistant\nthree<|im_end|>\n<|im_start|>user\nfour<|im_end|>\n<|im_start|>assistant\n"
    );
}

#[test]
fn truncation_keeps_system_messages_and_the_last_one() {
    let mut messages = vec![Message::new("system", "first rule")];
    for index in 0..20 {
        messages.push(Message::new(
            if index % 2 == 0 { "user" } else { "assistant" },
            format!("number {index} ").repeat(8),
        ));
    }
    messages.insert(5, Message::new("system", "second rule"));
    let ask = Ask { prompt: Prompt::Chat(messages), ..Ask::default() };
    let rendered = prepare(&MODEL, &ask, 120, Generation::Later);
    assert!(MODEL.tokenizer.count(&rendered.text, Generation::Later).tokens <= 120);
    assert!(rendered.lost_messages);
    assert!(
        rendered.text.starts_with("<|im_start|>system\nfirst rule\n\nsecond rule<|im_end|>\n"),
        "{}",
        rendered.text
    );
    assert!(rendered.text.contains("number 18") && !rendered.text.contains("number 3 "), "{}", rendered.text);
}

#[test]
fn the_modelfile_speaks_first_unless_the_request_brings_its_own_system() {
    let model =
        SimModel { system: Some("rule".into()), messages: vec![("user".into(), "example".into())], ..MODEL.clone() };
    let render = |role: &str| {
        let ask = Ask { prompt: Prompt::Chat(vec![Message::new(role, "own")]), ..Ask::default() };
        prepare(&model, &ask, 4096, Generation::Later).text
    };
    assert!(
        render("user").starts_with("<|im_start|>system\nrule<|im_end|>\n<|im_start|>user\nexample\n\nown<|im_end|>")
    );
    assert!(render("system").starts_with("<|im_start|>user\nexample<|im_end|>\n<|im_start|>system\nown<|im_end|>"));
}

#[test]
fn what_still_overflows_is_cut_as_each_version_cuts() {
    for (window, earlier, later) in [(128, 128, 66), (512, 512, 258), (4096, 4096, 2050)] {
        let cut = |flavour| {
            let mut ids: Vec<u32> = (0..9_000).collect();
            let cut = Window { asked: i64::from(window), loaded: window }.cut(&mut ids, flavour, false);
            assert_eq!((cut, ids[..4].to_vec(), ids.last()), (Ok(true), vec![0, 1, 2, 3], Some(&8_999)));
            ids.len()
        };
        assert_eq!((cut(Flavour::V0_17), cut(Flavour::V0_33)), (earlier, later));
    }
}

#[tokio::test]
async fn an_overflow_is_refused_in_the_shape_of_each_version() {
    let body =
        json!({"model": "sim", "messages": long_conversation(30), "truncate": false, "options": {"num_ctx": 128.9}});
    let earlier = sim(Flavour::V0_17).await;
    let (status, kind, text) = post(&earlier, "/api/chat", &body).await;
    assert_eq!((status, kind.as_str()), (400, "application/json"));
    assert_eq!(text, r#"{"error":"the input length exceeds the context length"}"#);

    let later = sim(Flavour::V0_33).await;
    let (status, answer) = post_json(&later, "/api/chat", &body).await;
    let inner: Value = serde_json::from_str(answer["error"].as_str().expect("text")).expect("JSON in a string");
    assert_eq!((status, &inner["error"]["n_ctx"]), (400, &json!(256)));
    assert_eq!(inner["error"]["type"], "exceed_context_size_error");

    let fits_the_rounded_window =
        json!({"model": "sim", "messages": long_conversation(13), "truncate": false, "options": {"num_ctx": 128}});
    assert_eq!(post(&later, "/api/chat", &fits_the_rounded_window).await.0, 200);
    assert_eq!(post(&earlier, "/api/chat", &fits_the_rounded_window).await.0, 400);
}

#[tokio::test]
async fn a_second_turn_costs_only_what_is_new_unless_the_window_changes() {
    let sim = sim(Flavour::V0_33).await;
    let turn = |messages: usize, window: u32| json!({"model": "sim:latest", "stream": false, "messages": long_conversation(messages), "options": {"num_ctx": window}});
    let (_, first) = post_json(&sim, "/api/chat", &turn(21, 2048)).await;
    let evaluated_first = sim.stats().prefill_tokens_evaluated;
    let (_, second) = post_json(&sim, "/api/chat", &turn(23, 2048)).await;
    let evaluated_second = sim.stats().prefill_tokens_evaluated - evaluated_first;
    assert_eq!(first["prompt_eval_count"], json!(evaluated_first));
    assert!(evaluated_second * 5 < evaluated_first, "{evaluated_second} of {evaluated_first}");
    assert!(second["prompt_eval_count"].as_u64() > first["prompt_eval_count"].as_u64());
    assert_eq!(sim.stats().reloads, 0);
    post_json(&sim, "/api/chat", &turn(23, 1024)).await;
    assert_eq!(sim.stats().reloads, 1);
    assert_eq!(
        sim.stats().prefill_tokens_evaluated,
        evaluated_first + evaluated_second + second["prompt_eval_count"].as_u64().expect("a count")
    );
}

#[tokio::test]
async fn every_dialect_tells_the_same_counts_and_ends_its_stream_its_own_way() {
    for flavour in [Flavour::V0_17, Flavour::V0_33] {
        let sim = sim(flavour).await;
        let messages = json!([{"role": "user", "content": "hi <there>"}]);
        let (_, native) =
            post_json(&sim, "/api/chat", &json!({"model": "sim", "stream": false, "messages": messages})).await;
        let (prompt, answer) = (&native["prompt_eval_count"], &native["eval_count"]);
        let text = native["message"]["content"].as_str().expect("text");
        let (_, chat) = post_json(&sim, "/v1/chat/completions", &json!({"model": "sim", "messages": messages})).await;
        assert_eq!(
            (&chat["usage"]["prompt_tokens"], &chat["choices"][0]["message"]["content"]),
            (prompt, &json!(text))
        );
        let (_, message) =
            post_json(&sim, "/v1/messages", &json!({"model": "sim", "max_tokens": 50, "messages": messages})).await;
        assert_eq!((&message["usage"]["output_tokens"], &message["stop_reason"]), (answer, &json!("end_turn")));
        let (_, response) = post_json(&sim, "/v1/responses", &json!({"model": "sim", "input": "hi <there>"})).await;
        assert_eq!(
            (&response["usage"]["input_tokens"], &response["output"][0]["content"][0]["text"]),
            (prompt, &json!(text))
        );
        let (_, completion) =
            post_json(&sim, "/v1/completions", &json!({"model": "sim", "prompt": "hi <there>"})).await;
        assert_eq!((&completion["usage"]["prompt_tokens"], &completion["choices"][0]["text"]), (prompt, &json!(text)));

        let usage = json!({"include_usage": true});
        let native_end = match flavour {
            Flavour::V0_17 => "\"eval_count\":6,\"eval_duration\":5000}\n",
            Flavour::V0_33 => "\"eval_count\":6,\"eval_duration\":6000}\n",
        };
        let streams = [
            ("/api/chat", json!({"model": "sim", "messages": messages}), native_end),
            ("/api/generate", json!({"model": "sim", "prompt": "hi"}), native_end),
            (
                "/v1/chat/completions",
                json!({"model": "sim", "messages": messages, "stream": true, "stream_options": usage}),
                "data: [DONE]\n\n",
            ),
            ("/v1/completions", json!({"model": "sim", "prompt": "hi", "stream": true}), "data: [DONE]\n\n"),
            (
                "/v1/responses",
                json!({"model": "sim", "input": "hi", "stream": true}),
                "\"type\":\"response.completed\"}\n\n",
            ),
            (
                "/v1/messages",
                json!({"model": "sim", "max_tokens": 9, "messages": messages, "stream": true}),
                "data: {\"type\":\"message_stop\"}\n\n",
            ),
        ];
        for (path, body, end) in streams {
            let (status, kind, text) = post(&sim, path, &body).await;
            assert_eq!(
                (status, kind.as_str()),
                (200, if path.starts_with("/api") { "application/x-ndjson" } else { "text/event-stream" })
            );
            assert!(text.ends_with(end), "{path}: {text}");
        }
    }
}

#[tokio::test]
async fn a_tool_is_called_on_the_word_and_not_again_after_its_result() {
    let sim = sim(Flavour::V0_33).await;
    let tool = json!({"type": "function", "function": {"name": "weather", "description": "", "parameters": {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}}});
    let ask = |messages: Value| json!({"model": "able", "stream": false, "tools": [tool], "messages": messages});
    let said = json!({"role": "user", "content": "please CALL weather now"});
    let (_, answer) = post_json(&sim, "/api/chat", &ask(json!([said]))).await;
    assert_eq!(answer["message"]["tool_calls"][0]["function"]["arguments"], json!({"city": "sim"}));
    let after = json!([said, answer["message"], {"role": "tool", "tool_name": "weather", "content": "rain"}]);
    let (_, answer) = post_json(&sim, "/api/chat", &ask(after)).await;
    assert!(answer["message"].get("tool_calls").is_none() && !answer["message"]["thinking"].is_null());
    let refused = json!({"model": "sim", "tools": [tool], "messages": [said]});
    let (status, refused) = post_json(&sim, "/api/chat", &refused).await;
    assert_eq!(
        (status, &refused["error"]),
        (400, &json!("registry.ollama.ai/library/sim:latest does not support tools"))
    );
}

#[tokio::test]
async fn errors_have_the_shape_of_their_dialect() {
    let sim = sim(Flavour::V0_17).await;
    let messages = json!([{"role": "user", "content": "x"}]);
    let unknown = json!({"model": "nope", "messages": messages, "max_tokens": 3});
    let (status, native) = post_json(&sim, "/api/chat", &unknown).await;
    assert_eq!((status, native), (404, json!({"error": "model 'nope' not found"})));
    let (_, openai) = post_json(&sim, "/v1/chat/completions", &unknown).await;
    assert_eq!(
        openai["error"],
        json!({"message": "model 'nope' not found", "type": "api_error", "param": null, "code": null})
    );
    let (_, anthropic) = post_json(&sim, "/v1/messages", &unknown).await;
    assert_eq!(anthropic["error"], json!({"type": "not_found_error", "message": "model 'nope' not found"}));
    let (status, kind, text) = post(&sim, "/v1/messages/count_tokens", &unknown).await;
    assert_eq!((status, kind.as_str(), text.as_str()), (404, "text/plain", "404 page not found"));
    let (_, loads) = post_json(&sim, "/api/chat", &json!({"model": "sim", "messages": []})).await;
    assert_eq!(loads["done_reason"], "load");
}

#[tokio::test]
async fn scripted_faults_hit_one_request_each() {
    let sim = sim(Flavour::V0_33).await;
    let body = json!({"model": "sim", "messages": [{"role": "user", "content": "x"}]});
    let send = || reqwest::Client::new().post(format!("{}/api/chat", sim.url())).body(body.to_string()).send();
    let faults = [
        Fault::CloseBeforeHeaders,
        Fault::EndAfterChunks(2),
        Fault::ResetAfterChunks(2),
        Fault::ErrorLineAfterChunks(1),
        Fault::WrongCount(100),
    ];
    for fault in faults {
        sim.faults().push(fault);
    }
    assert!(send().await.is_err());
    let ended = send().await.expect("headers").text().await.expect("a clean end");
    assert_eq!((ended.lines().count(), ended.contains("\"done\":true")), (2, false));
    assert!(send().await.expect("headers").text().await.is_err());
    let failed = send().await.expect("headers").text().await.expect("a clean end");
    assert!(failed.lines().last().expect("a line").starts_with("{\"error\":"), "{failed}");
    let wrong = send().await.expect("headers").text().await.expect("a clean end");
    let right = send().await.expect("headers").text().await.expect("a clean end");
    let count = |text: &str| {
        serde_json::from_str::<Value>(text.lines().last().expect("a line")).expect("JSON")["prompt_eval_count"].as_i64()
    };
    assert_eq!(count(&wrong), count(&right).map(|count| count + 100));
    assert_eq!((sim.faults().pending(), sim.stats().requests, sim.log().len(), sim.stats().cancelled), (0, 6, 6, 0));
}

#[tokio::test]
async fn a_client_that_goes_away_is_noticed() {
    let models = vec![MODEL.clone()];
    let config = SimConfig { decode_us_per_token: 5_000, answer_tokens: 10_000, models, ..SimConfig::default() };
    let sim = Arc::new(start(config).await.expect("a free port"));
    let body = json!({"model": "sim", "messages": [{"role": "user", "content": "x"}]});
    let mut response = reqwest::Client::new()
        .post(format!("{}/api/chat", sim.url()))
        .body(body.to_string())
        .send()
        .await
        .expect("headers");
    response.chunk().await.expect("no error").expect("a chunk");
    drop(response);
    let noticed = async {
        while sim.stats().cancelled == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(10), noticed).await.expect("noticed");
}

#[tokio::test]
async fn show_tells_a_vocabulary_that_counts_like_ours() {
    let sim = sim(Flavour::V0_33).await;
    let (_, brief) = post_json(&sim, "/api/show", &json!({"model": "sim"})).await;
    assert!(brief["model_info"]["tokenizer.ggml.tokens"].is_null());
    assert_eq!(
        brief["template"],
        "{{- range .Messages }}<|im_start|>{{ .Role }}\n{{ .Content }}<|im_end|>\n{{ end }}<|im_start|>assistant\n"
    );
    let (_, verbose) = post_json(&sim, "/api/show", &json!({"model": "sim", "verbose": true})).await;
    let length = |name: &str| verbose["model_info"][name].as_array().map(Vec::len);
    assert_eq!(length("tokenizer.ggml.tokens"), Some(50_259));
    assert_eq!(length("tokenizer.ggml.token_type"), Some(50_259));
    assert_eq!(length("tokenizer.ggml.merges"), Some(50_000));
    let render = json!({"model": "sim", "messages": [{"role": "user", "content": "x"}], "_debug_render_only": true});
    let (_, rendered) = post_json(&sim, "/api/chat", &render).await;
    assert_eq!(rendered["_debug_info"]["rendered_template"], "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n");
    sim.stop().await;
}

#[tokio::test]
async fn an_answer_that_ends_by_itself_counts_the_token_that_ends_it() {
    let sim = sim(Flavour::V0_17).await;
    let ask = |limit: u32| json!({"model": "sim", "prompt": "hi", "stream": false, "options": {"num_predict": limit}});
    for (limit, generated, visible, reason) in [(5, 5, 5, "length"), (6, 6, 5, "stop"), (99, 6, 5, "stop")] {
        let (_, answer) = post_json(&sim, "/api/generate", &ask(limit)).await;
        assert_eq!((&answer["eval_count"], &answer["done_reason"]), (&json!(generated), &json!(reason)));
        let context = answer["context"].as_array().expect("ids").len() as u64;
        assert_eq!(context, answer["prompt_eval_count"].as_u64().expect("a count") + visible);
    }
}

#[tokio::test]
async fn the_context_that_generate_returns_was_never_cut() {
    let sim = sim(Flavour::V0_17).await;
    let options = json!({"num_ctx": 64, "num_predict": 3});
    let ask = json!({"model": "sim", "prompt": "word ".repeat(200), "stream": false, "options": options});
    let (_, answer) = post_json(&sim, "/api/generate", &ask).await;
    assert_eq!(answer["prompt_eval_count"], json!(64));
    assert!(answer["context"].as_array().expect("ids").len() > 200);
}

#[tokio::test]
async fn a_length_is_told_only_for_short_bodies_and_never_for_what_the_runner_says_to_a_stream() {
    let sim = sim(Flavour::V0_33).await;
    let ask = |stream: bool| {
        let prompt = "word ".repeat(600);
        json!({"model": "sim", "prompt": prompt, "stream": stream, "truncate": false, "options": {"num_ctx": 64}})
    };
    let cases = [
        ("/api/generate", ask(false), true),
        ("/api/generate", ask(true), false),
        ("/api/show", json!({"model": "sim"}), false),
    ];
    for (path, body, told) in cases {
        let request = reqwest::Client::new().post(format!("{}{path}", sim.url())).body(body.to_string());
        let answer = request.send().await.expect("an answer");
        let headers = answer.headers();
        assert_eq!((headers.contains_key("content-length"), headers.contains_key("transfer-encoding")), (told, !told));
    }
}

#[tokio::test]
async fn only_the_earlier_version_embeds_with_a_chat_model() {
    let ask = json!({"model": "sim", "input": "hi"});
    let (status, answer) = post_json(&sim(Flavour::V0_17).await, "/api/embed", &ask).await;
    assert_eq!((status, answer["embeddings"][0].as_array().map(Vec::len)), (200, Some(576)));
    let (status, answer) = post_json(&sim(Flavour::V0_33).await, "/api/embed", &ask).await;
    assert_eq!(status, 501);
    assert_eq!(answer["error"], "This server does not support embeddings. Start it with `--embeddings`");
}
