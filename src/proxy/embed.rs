//! Likeness by meaning, for archives: optional, through the upstream's `/api/embed`.
//!
//! Vectors of archived messages are made once, beside the requests, and kept in memory. A turn that comes
//! before they are ready, or whose own vector takes too long, is searched by words alone.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::json;

use super::Gateway;
use super::conversations::{Covering, Turn};
use crate::context::{Link, Message};
use crate::ollama::Upstream;

/// How long the newest message may take.
const QUERY_WITHIN: Duration = Duration::from_millis(1500);

/// Messages sent at once, and bytes taken of each.
const BATCH: usize = 32;
const LONGEST_BYTES: usize = 4000;

/// Archives remembered as tried.
const MAX_TRIED: usize = 10_000;

/// Vectors kept; a thousand numbers each.
const MAX_VECTORS: usize = 50_000;

/// The vectors that are there.
#[derive(Debug, Default)]
pub struct Vectors {
    made: Mutex<HashMap<Link, Arc<[f32]>>>,
    /// Archives, by the link they go up to, whose vectors are being made or could not be made.
    tried: Mutex<HashSet<Link>>,
}

impl Vectors {
    /// Forgets all of them; they are made again when they are needed.
    pub fn clear(&self) {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.tried.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn get(&self, link: &Link) -> Option<Arc<[f32]>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).get(link).cloned()
    }

    fn put(&self, new: impl IntoIterator<Item = (Link, Arc<[f32]>)>) {
        let mut vectors = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if vectors.len() > MAX_VECTORS {
            // Any half: which ones will be asked for is not known.
            let mut keep = false;
            vectors.retain(|_, _| {
                keep = !keep;
                keep
            });
        }
        vectors.extend(new);
    }

    /// Whether nobody has tried to make the vectors of this archive yet.
    fn is_first(&self, archive: Link) -> bool {
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        if tried.len() > MAX_TRIED {
            tried.clear();
        }
        tried.insert(archive)
    }
}

/// How alike each archived message is to the newest one; `None` where no model is configured or nothing is ready.
pub(super) async fn similarities(
    gateway: &Gateway,
    turn: &Turn,
    messages: &[Message<'_>],
    covering: &Covering,
    newest: usize,
) -> Option<Vec<f32>> {
    let model = gateway.config.recall.embed_model.as_ref()?;
    let missing: Vec<(Link, String)> = (0..covering.covered)
        .filter(|&index| !messages[index].text.trim().is_empty() && gateway.vectors.get(&turn.links[index]).is_none())
        .map(|index| (turn.links[index], start_of(&messages[index].text).to_owned()))
        .collect();
    let upstream = gateway.fleet.member_with(model).await.upstream().clone();
    if !missing.is_empty() && gateway.vectors.is_first(covering.link) {
        prepare(gateway, &upstream, model.clone(), missing);
    }
    let newest = [start_of(&messages[newest].text)];
    let asked = embed(&upstream, model, &newest);
    let query = tokio::time::timeout(QUERY_WITHIN, asked).await.ok()??.pop()?;
    let alike = |index: usize| gateway.vectors.get(&turn.links[index]).map_or(0.0, |vector| cosine(&query, &vector));
    Some((0..covering.covered).map(alike).collect())
}

/// Makes vectors in the background.
fn prepare(gateway: &Gateway, upstream: &Upstream, model: String, missing: Vec<(Link, String)>) {
    let (upstream, vectors) = (upstream.clone(), Arc::clone(&gateway.vectors));
    tokio::spawn(async move {
        for batch in missing.chunks(BATCH) {
            let texts: Vec<&str> = batch.iter().map(|(_, text)| text.as_str()).collect();
            let Some(made) = embed(&upstream, &model, &texts).await else {
                tracing::warn!(model, "an archive could not be embedded: it is searched by words alone");
                return;
            };
            vectors.put(batch.iter().map(|(link, _)| *link).zip(made.into_iter().map(Into::into)));
        }
    });
}

#[derive(Deserialize)]
struct Embedded {
    embeddings: Vec<Vec<f32>>,
}

async fn embed(upstream: &Upstream, model: &str, texts: &[&str]) -> Option<Vec<Vec<f32>>> {
    let body = json!({ "model": model, "input": texts }).to_string();
    let (status, body) = upstream.call(Method::POST, "/api/embed", Some(body)).await.ok()?;
    let embedded: Embedded = serde_json::from_slice(&body).ok().filter(|_| status == StatusCode::OK)?;
    (embedded.embeddings.len() == texts.len()).then_some(embedded.embeddings)
}

fn start_of(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST_BYTES)]
}

fn cosine(left: &[f32], right: &[f32]) -> f32 {
    if left.len() != right.len() {
        return 0.0;
    }
    let dot = |left: &[f32], right: &[f32]| left.iter().zip(right).map(|(a, b)| a * b).sum::<f32>();
    let lengths = (dot(left, left) * dot(right, right)).sqrt();
    if lengths > 0.0 { dot(left, right) / lengths } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn likeness_is_the_cosine_and_never_a_number_that_is_none() {
        assert!((cosine(&[1.0, 0.0], &[2.0, 0.0]) - 1.0).abs() < 1e-6);
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 3.0]), 0.0);
        assert_eq!(cosine(&[0.0], &[0.0]), 0.0);
        assert_eq!(cosine(&[1.0], &[1.0, 2.0]), 0.0);
    }
}
