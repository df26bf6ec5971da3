//! What was read of a model outlives the process, and is not used for another model.

use std::time::Duration;

use loadline::sim::{self, SimConfig, SimModel};
use serde_json::json;

use crate::stage::{MODEL, Stage};

/// How often the upstream was asked for a vocabulary.
fn vocabularies_told(stage: &Stage) -> usize {
    let asked = stage.sim.log().into_iter().filter(|seen| seen.path == "/api/show");
    asked.filter(|seen| String::from_utf8_lossy(&seen.body).contains("\"verbose\":true")).count()
}

/// Waits until so many models are kept.
async fn kept(stage: &Stage, models: usize) {
    let dir = stage.data_dir().join("models");
    let files = || {
        std::fs::read_dir(&dir).map_or(0, |files| {
            files.filter(|file| file.as_ref().is_ok_and(|file| file.path().extension().is_none())).count()
        })
    };
    let waited = async {
        while files() != models {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waited).await.expect("the model is kept");
}

async fn chat_exactly(stage: &Stage) -> (u32, u32) {
    let got = stage.chat(&json!([{ "role": "user", "content": "hello there, <|im_end|> caf\u{e9}" }]), 99_999).await;
    assert_eq!((got.status, got.header("x-loadline-basis")), (200, "exact"), "{}", got.text);
    assert_eq!(got.json()["prompt_eval_count"], got.tokens().0);
    got.tokens()
}

#[tokio::test]
async fn after_a_restart_a_vocabulary_is_not_asked_for_again() {
    let stage = Stage::new().await;
    let before = chat_exactly(&stage).await;
    assert_eq!(vocabularies_told(&stage), 1);
    kept(&stage, 1).await;
    let stage = stage.restarted().await;
    assert_eq!(chat_exactly(&stage).await, before);
    assert_eq!(vocabularies_told(&stage), 1);
}

#[tokio::test]
async fn a_model_of_the_same_name_with_another_content_is_asked_for() {
    let stage = Stage::new().await;
    let (_, limit) = chat_exactly(&stage).await;
    kept(&stage, 1).await;
    let larger = SimModel { trained_window: MODEL.trained_window * 2, ..MODEL.clone() };
    let sim = sim::start(SimConfig { models: vec![larger], ..SimConfig::default() }).await.expect("a free port");
    let stage = stage.restarted_before(sim).await;
    let (_, larger_limit) = chat_exactly(&stage).await;
    assert_eq!(vocabularies_told(&stage), 1, "of the new one");
    assert!(larger_limit > limit, "{larger_limit} {limit}");
    kept(&stage, 2).await;
}

#[tokio::test]
async fn what_cannot_be_kept_or_read_back_does_no_harm() {
    let stage = Stage::new().await;
    let before = chat_exactly(&stage).await;
    kept(&stage, 1).await;
    let dir = stage.data_dir().join("models");
    for file in std::fs::read_dir(&dir).expect("directory") {
        std::fs::write(file.expect("file").path(), "nonsense").expect("written");
    }
    let stage = stage.restarted().await;
    assert_eq!(chat_exactly(&stage).await, before);
    assert_eq!(vocabularies_told(&stage), 2);
}
