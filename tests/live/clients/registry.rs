//! A registry of models on loopback, with as much of its protocol as `pull` uses. Every name exists, and each
//! has a content of its own, so that nothing of it is there before it is pulled.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::Path;
use axum::http::header::{CONTENT_RANGE, LOCATION, RANGE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;

use crate::live::server::digest;

/// As long as the runtime that it was started on.
pub async fn start() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let addr = listener.local_addr().expect("an address");
    let routes = Router::new()
        .route("/v2/library/{name}/manifests/{tag}", get(manifest))
        .route("/v2/library/{name}/blobs/{digest}", get(blob));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    addr
}

/// The model itself, which nobody will run, and what describes it.
fn contents(name: &str) -> [(&'static str, Vec<u8>); 2] {
    let model = name.bytes().cycle().take(3 << 20).collect();
    let config = json!({
        "model_format": "gguf", "model_family": "llama", "model_families": ["llama"], "model_type": name,
        "file_type": "F16", "architecture": "amd64", "os": "linux", "rootfs": { "type": "layers", "diff_ids": [] },
    });
    [
        ("application/vnd.ollama.image.model", model),
        ("application/vnd.docker.container.image.v1+json", config.to_string().into_bytes()),
    ]
}

async fn manifest(Path((name, _tag)): Path<(String, String)>) -> Response {
    let [layer, config] = contents(&name)
        .map(|(kind, bytes)| json!({ "mediaType": kind, "digest": digest(&bytes), "size": bytes.len() }));
    let kind = "application/vnd.docker.distribution.manifest.v2+json";
    axum::Json(json!({ "schemaVersion": 2, "mediaType": kind, "config": config, "layers": [layer] })).into_response()
}

/// All of a blob, or the part that is asked for.
async fn blob(Path((name, wanted)): Path<(String, String)>, headers: HeaderMap) -> Response {
    let Some((_, bytes)) = contents(&name).into_iter().find(|(_, bytes)| digest(bytes) == wanted) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let range = headers.get(RANGE).and_then(|range| range.to_str().ok()?.strip_prefix("bytes=")?.split_once('-'));
    let Some((first, last)) = range.map(|(first, last)| (first.parse(), last.parse())) else {
        // Ollama wants to be told where a blob really is, even if it is here.
        return ([(LOCATION, format!("/v2/library/{name}/blobs/{wanted}"))], bytes).into_response();
    };
    let (first, last): (usize, usize) = (first.expect("a number"), last.unwrap_or(bytes.len() - 1));
    let told = format!("bytes {first}-{last}/{}", bytes.len());
    (StatusCode::PARTIAL_CONTENT, [(CONTENT_RANGE, told)], bytes[first..=last].to_vec()).into_response()
}
