//! What there is, and what is loaded: the routes that only tell, and two that only pretend.
//!
//! Sizes, dates and parameter counts are made up and stay the same. Embeddings are numbers drawn
//! from a hash, equal for equal texts and good for nothing else; pulling a model fetches nothing.

use std::sync::Arc;

use axum::body::Body;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::go_json;
use super::refusal::{ErrorShape, Refusal};
use super::respond::{self, body, with_status};
use super::runner::World;
use super::{Flavour, SimModel};

const JSON: &str = "application/json; charset=utf-8";
/// About what a small model weighs.
const MODEL_BYTES: u64 = 98_000_000;
pub(super) const EMBEDDING_NUMBERS: usize = 576;

pub(super) fn version(world: &World) -> Response<Body> {
    let version = match world.config.flavour {
        Flavour::V0_17 => "0.17.4",
        Flavour::V0_33 => "0.33.0",
    };
    body(JSON, go_json::encode(&json!({"version": version})))
}

pub(super) fn tags(world: &World) -> Response<Body> {
    let models: Vec<Value> = world.config.models.iter().map(|model| tag(world, model)).collect();
    body(JSON, go_json::encode(&json!({"models": models})))
}

fn tag(world: &World, model: &SimModel) -> Value {
    let mut tag = json!({
        "name": model.tagged_name(), "model": model.tagged_name(), "modified_at": world.started.to_string(),
        "size": MODEL_BYTES, "digest": model.digest(), "details": details(),
    });
    if world.config.flavour == Flavour::V0_33 {
        tag["details"]["context_length"] = json!(model.trained_window);
        tag["details"]["embedding_length"] = json!(EMBEDDING_NUMBERS);
        tag["capabilities"] = json!(model.capabilities());
    }
    tag
}

pub(super) fn details() -> Value {
    json!({
        "parent_model": "", "format": "gguf", "family": "llama", "families": ["llama"],
        "parameter_size": "134.52M", "quantization_level": "Q4_1",
    })
}

pub(super) fn loaded(world: &World) -> Response<Body> {
    let models = world.config.models.iter().enumerate().filter_map(|(index, model)| {
        let loaded = world.loaded(index)?;
        Some(json!({
            "name": model.tagged_name(), "model": model.tagged_name(), "size": MODEL_BYTES * 2, "digest": model.digest(),
            "details": details(), "expires_at": loaded.expires_at.to_string(), "size_vram": 0,
            "context_length": loaded.window,
        }))
    });
    body(JSON, go_json::encode(&json!({"models": models.collect::<Vec<_>>()})))
}

pub(super) fn models(world: &World) -> Response<Body> {
    let data: Vec<Value> = world.config.models.iter().map(|model| openai_model(world, &model.tagged_name())).collect();
    body("application/json", go_json::encode(&json!({"object": "list", "data": data})) + "\n")
}

pub(super) fn model(world: &World, name: &str) -> Response<Body> {
    if world.find(name).is_none() {
        let refusal = Refusal::handler(StatusCode::NOT_FOUND, format!("model '{name}' not found"));
        let text = refusal.body(ErrorShape::OpenAi, world.config.flavour);
        return with_status(refusal.status, refusal.content_type(ErrorShape::OpenAi, false), text.into());
    }
    body("application/json", go_json::encode(&openai_model(world, name)) + "\n")
}

fn openai_model(world: &World, name: &str) -> Value {
    json!({"id": name, "object": "model", "created": world.started.as_second(), "owned_by": "library"})
}

pub(super) fn embed(world: &Arc<World>, request: &[u8]) -> Response<Body> {
    embeddings(world, request).map_or_else(native_refusal, |value| body(JSON, go_json::encode(&value)))
}

fn embeddings(world: &World, request: &[u8]) -> Result<Value, Refusal> {
    let object = go_json::decode(request, "api.EmbedRequest", "missing request body")?;
    let name = go_json::text(&object, "model", "EmbedRequest")?;
    let texts: Vec<&str> = match go_json::field(&object, "input") {
        None => Vec::new(),
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(texts)) if texts.iter().all(Value::is_string) => {
            texts.iter().filter_map(Value::as_str).collect()
        }
        Some(_) => return Err(Refusal::reading("invalid input type")),
    };
    let index = world.find(&name).ok_or_else(|| {
        Refusal::handler(StatusCode::NOT_FOUND, format!("model \"{name}\" not found, try pulling it first"))
    })?;
    if texts.is_empty() {
        return Ok(json!({"model": name, "embeddings": []}));
    }
    if world.config.flavour == Flavour::V0_33 {
        // Its runner is another program, which has to be started for embeddings; a chat model's is not.
        let message = "This server does not support embeddings. Start it with `--embeddings`";
        return Err(Refusal::handler(StatusCode::NOT_IMPLEMENTED, message));
    }
    let tokenizer = &world.config.models[index].tokenizer;
    let tokens: u32 = texts.iter().map(|text| tokenizer.count_prompt(text, world.generation()).tokens).sum();
    let vectors: Vec<Vec<f64>> = texts.iter().map(|text| vector(text)).collect();
    Ok(json!({
        "model": name, "embeddings": vectors, "total_duration": 1_000_000, "load_duration": 1_000, "prompt_eval_count": tokens,
    }))
}

/// A vector of length one that only depends on the text.
fn vector(text: &str) -> Vec<f64> {
    let mut bytes = [0; EMBEDDING_NUMBERS];
    blake3::Hasher::new().update(text.as_bytes()).finalize_xof().fill(&mut bytes);
    let raw = bytes.map(|byte| f64::from(byte) - 127.5);
    let length = raw.iter().map(|number| number * number).sum::<f64>().sqrt();
    // Ollama's numbers are short ones, of eight or nine digits.
    raw.iter().map(|number| (number / length * 1e9).round() / 1e9).collect()
}

pub(super) fn pull(request: &[u8]) -> Response<Body> {
    let read = || {
        let object = go_json::decode(request, "api.PullRequest", "missing request body")?;
        let mut name = go_json::text(&object, "model", "PullRequest")?;
        if name.is_empty() {
            name = go_json::text(&object, "name", "PullRequest")?;
        }
        let streams = go_json::flag(&object, "stream", "PullRequest")?.unwrap_or(true);
        if name.is_empty() { Err(Refusal::reading("invalid model name")) } else { Ok((name, streams)) }
    };
    match read() {
        Err(refusal) => native_refusal(refusal),
        Ok((_, false)) => body(JSON, "{\"status\":\"success\"}"),
        Ok((name, true)) => body("application/x-ndjson", progress(&name)),
    }
}

fn progress(name: &str) -> String {
    let digest = format!("sha256:{}", blake3::hash(name.as_bytes()).to_hex());
    let layer = |completed: u64| json!({"status": format!("pulling {}", &digest[7..19]), "digest": digest, "total": MODEL_BYTES, "completed": completed});
    let lines = [
        json!({"status": "pulling manifest"}),
        layer(0),
        layer(MODEL_BYTES / 2),
        layer(MODEL_BYTES),
        json!({"status": "verifying sha256 digest"}),
        json!({"status": "writing manifest"}),
        json!({"status": "success"}),
    ];
    lines.iter().map(|line| go_json::encode(line) + "\n").collect()
}

#[allow(clippy::needless_pass_by_value)] // It ends here, and callers pass it on from a `map_or_else`.
pub(super) fn native_refusal(refusal: Refusal) -> Response<Body> {
    let shape = ErrorShape::Native;
    respond::with_status(refusal.status, refusal.content_type(shape, false), refusal.body(shape, Flavour::V0_33).into())
}
