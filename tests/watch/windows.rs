//! Lists and descriptions of models tell the window in force.

use loadline::sim::SimConfig;
use serde_json::{Value, json};

use crate::stage::Stage;

async fn shown(stage: &Stage) -> Value {
    stage.post("/api/show", json!({ "model": "sim" }).to_string()).await.json()
}

#[tokio::test]
async fn clients_are_told_the_window_that_they_get() {
    let stage = Stage::with(SimConfig { default_window: 2048, ..SimConfig::default() }, &[]).await;
    let direct: Value = {
        let request = stage.client.post(format!("{}/api/show", stage.sim.url())).body("{\"model\":\"sim\"}");
        let text = request.send().await.expect("an answer").text().await.expect("text");
        serde_json::from_str(&text).expect("json")
    };
    let trained = direct["model_info"]["llama.context_length"].clone();
    stage
        .post(
            "/api/chat",
            json!({ "model": "sim", "stream": false, "messages": [{ "role": "user", "content": "hi" }] }).to_string(),
        )
        .await;
    let mut told = shown(&stage).await;
    assert_eq!(told["model_info"]["llama.context_length"], 2048);
    told["model_info"]["llama.context_length"] = trained;
    assert_eq!(told, direct, "nothing else is different");
    for path in ["/v1/models", "/v1/models/sim:latest"] {
        let listed = stage.get(path).await.json();
        let model = if path == "/v1/models" { &listed["data"][0] } else { &listed };
        assert_eq!((&model["id"], &model["context_length"]), (&json!("sim:latest"), &json!(2048)), "{listed}");
        assert_eq!((&model["context_window"], &model["max_model_len"]), (&json!(2048), &json!(2048)));
    }
}

#[tokio::test]
async fn a_model_that_nobody_has_talked_to_is_told_without_reading_its_vocabulary() {
    let stage = Stage::new().await;
    assert_eq!(shown(&stage).await["model_info"]["llama.context_length"], 4096, "Ollama's default");
    let asked = stage.sim.log().into_iter().filter(|seen| seen.path == "/api/show");
    let verbose = asked.filter(|seen| String::from_utf8_lossy(&seen.body).contains("\"verbose\":true")).count();
    assert_eq!(verbose, 0);
    let before = stage.sim.log().len();
    shown(&stage).await;
    assert_eq!(stage.sim.log().len(), before + 1, "what is known is not asked again");
}

#[tokio::test]
async fn it_can_be_left_as_ollama_says_it_and_errors_pass() {
    let stage = Stage::with(SimConfig::default(), &[("LOADLINE_CONTEXT_TELL_WINDOW", "false")]).await;
    let direct = stage.client.get(format!("{}/v1/models", stage.sim.url())).send().await.expect("an answer");
    assert_eq!(stage.get("/v1/models").await.text, direct.text().await.expect("text"));
    let told = Stage::new().await;
    let unknown = told.post("/api/show", "{\"model\":\"nobody\"}").await;
    let direct = told.client.post(format!("{}/api/show", told.sim.url())).body("{\"model\":\"nobody\"}");
    let direct = direct.send().await.expect("an answer");
    assert_eq!(unknown.status, direct.status().as_u16());
    assert_eq!(unknown.text, direct.text().await.expect("text"));
    assert_eq!(told.post("/api/show", "not json").await.status, 400);
}
