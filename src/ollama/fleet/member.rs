//! One upstream among several: whether it is there, which models it has, how much it has to do.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use http::StatusCode;

use super::choose::Candidate;
use crate::json::Fields;
use crate::ollama::models::full_name;
use crate::ollama::probe::{Probe, Seen};
use crate::ollama::{Models, Upstream};

/// A list of models is short, however many there are.
const MAX_LIST_BYTES: usize = 8 << 20;

/// What a list may take before somebody goes on without it.
const LIST_WITHIN: Duration = Duration::from_millis(1500);

#[derive(Debug)]
pub struct Member {
    pub models: Models,
    name: String,
    pub(super) in_flight: AtomicUsize,
    up: AtomicBool,
    draining: AtomicBool,
    catalogue: RwLock<Option<Catalogue>>,
    probe: Probe,
    /// When it was found to be away, and why.
    trouble: Mutex<Option<String>>,
}

/// The models of an upstream.
#[derive(Debug, Default)]
struct Catalogue {
    all: HashSet<String>,
    loaded: HashSet<String>,
    at: Option<Instant>,
}

impl Member {
    pub(super) fn new(models: Models) -> Self {
        Self {
            name: models.upstream().name(),
            models,
            in_flight: AtomicUsize::new(0),
            up: AtomicBool::new(true),
            draining: AtomicBool::new(false),
            catalogue: RwLock::default(),
            probe: Probe::default(),
            trouble: Mutex::default(),
        }
    }

    pub fn upstream(&self) -> &Upstream {
        self.models.upstream()
    }

    /// Its address, for people and for remembering where a conversation was.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Why it is away.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// It gets nothing new from now on, or gets something again. What it has goes on.
    pub fn drain(&self, draining: bool) {
        match (self.draining.swap(draining, Ordering::Relaxed), draining) {
            (false, true) => tracing::info!(upstream = self.name, "an upstream is drained: it gets nothing new"),
            (true, false) => tracing::info!(upstream = self.name, "an upstream is used again"),
            (true, true) | (false, false) => {}
        }
    }

    /// It could not be reached. Somebody looks after it until it can.
    pub fn is_away(&self, reason: &str) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.to_owned());
        if self.up.swap(false, Ordering::Relaxed) {
            tracing::warn!(upstream = self.name, reason, "an upstream is away: others take its requests");
        }
    }

    fn is_back(&self) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if !self.up.swap(true, Ordering::Relaxed) {
            tracing::info!(upstream = self.name, "an upstream is back");
            // It may have other models now.
            *self.catalogue.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// Asks whether it is there; at most every other second, however many want to know.
    pub async fn seen(&self) -> Seen {
        let seen = self.probe.seen(self.upstream()).await;
        match &seen.error {
            Some(reason) => self.is_away(reason),
            None => self.is_back(),
        }
        seen
    }

    pub(super) fn candidate(&self, model: &str, most: usize, avoided: bool) -> Candidate {
        let catalogue = self.catalogue.read().unwrap_or_else(PoisonError::into_inner);
        let in_flight = self.in_flight();
        Candidate {
            up: self.is_up(),
            draining: self.is_draining(),
            avoided,
            has_model: catalogue.as_ref().map(|catalogue| catalogue.all.contains(model)),
            loaded: catalogue.as_ref().is_some_and(|catalogue| catalogue.loaded.contains(model)),
            in_flight,
            full: most > 0 && in_flight >= most,
        }
    }

    /// How old the list of its models is; none: there is none.
    pub(super) fn listed_for(&self) -> Option<Duration> {
        let catalogue = self.catalogue.read().unwrap_or_else(PoisonError::into_inner);
        catalogue.as_ref()?.at.map(|at| at.elapsed())
    }

    /// Asks which models it has, and which of them are loaded.
    pub(super) async fn list(&self) {
        let asked = async { (names(self.upstream(), "/api/tags").await, names(self.upstream(), "/api/ps").await) };
        let Ok((Some(all), loaded)) = tokio::time::timeout(LIST_WITHIN, asked).await else { return };
        let listed = Catalogue { all, loaded: loaded.unwrap_or_default(), at: Some(Instant::now()) };
        *self.catalogue.write().unwrap_or_else(PoisonError::into_inner) = Some(listed);
    }
}

async fn names(upstream: &Upstream, path: &str) -> Option<HashSet<String>> {
    let Ok((StatusCode::OK, body)) = upstream.ask(path, MAX_LIST_BYTES).await else { return None };
    let fields = Fields::read(std::str::from_utf8(&body).ok()?, &[]).ok()?;
    let name = |raw: &serde_json::value::RawValue| {
        let model = Fields::read(raw.get(), &[]).ok()?;
        Some(full_name(&model.text("name").ok()??))
    };
    Some(fields.array("models").ok()?.into_iter().filter_map(name).collect())
}
