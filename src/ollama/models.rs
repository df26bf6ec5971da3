//! What is known about each model of the upstream, learnt on first use and kept.
//!
//! A model's facts are its vocabulary, its template as far as it was seen, and its window. They are
//! fetched once, by one request, while others for the same model wait for that. A model replaced under
//! its name is noticed by a count that does not agree, or by `/api/show` asked again now and then.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use dashmap::DashMap;
use http::{Method, StatusCode};
use tokio::sync::OnceCell;

use super::client::{Upstream, UpstreamError};
use super::shelf::{Digest, Kept, Shelf};
use super::show::{self, Shown};
use crate::context::{Basis, Window};
use crate::json::{self, Fields};
use crate::tokenize::template::{Layout, SegmentCache};
use crate::tokenize::{Generation, Tables, Tokenizer};

/// How long facts are believed without asking whether the model of that name is still the same.
const RECHECK_AFTER: Duration = Duration::from_secs(60);

/// Ollama's default on machines with little video memory; larger ones are learnt from `/api/ps`.
const OLLAMA_DEFAULT_WINDOW: Window = 4096;

/// Shapes of one model that are remembered as beyond composing.
const MAX_UNLEARNABLE: usize = 10_000;

/// Models that are remembered without their vocabularies.
const MAX_SKETCHES: usize = 10_000;

/// How long a list of loaded models is good for those who only want to tell.
const LOADED_FOR: Duration = Duration::from_secs(2);

/// Below this Ollama raises a requested window.
const SMALLEST_WINDOW: Window = 4;

/// All models of one upstream.
#[derive(Debug)]
pub struct Models {
    upstream: Upstream,
    models: Arc<DashMap<String, Arc<OnceCell<Arc<Model>>>>>,
    /// Models that nobody has talked to yet, without their vocabularies.
    sketches: DashMap<String, (Arc<Model>, Instant)>,
    /// Which models are loaded, as `/api/ps` has just said.
    loaded: tokio::sync::Mutex<Option<(Instant, Bytes)>>,
    configured_window: Arc<dyn ConfiguredWindow>,
    traits: Arc<UpstreamTraits>,
    /// Where vocabularies outlive the process.
    shelf: Option<Shelf>,
    /// Those of other upstreams too.
    vocabularies: Vocabularies,
}

/// Vocabularies that are in use, by the digest of their model: several upstreams with the same model have one.
#[derive(Debug, Clone, Default)]
pub struct Vocabularies(Arc<DashMap<Digest, Weak<Tokenizer>>>);

impl Vocabularies {
    /// The one that others use already, if there is one.
    fn shared(&self, digest: &Digest, new: Arc<Tokenizer>) -> Arc<Tokenizer> {
        self.0.retain(|_, known| known.strong_count() > 0);
        let mut entry = self.0.entry(digest.clone()).or_default();
        match entry.upgrade() {
            Some(known) => known,
            None => {
                *entry = Arc::downgrade(&new);
                new
            }
        }
    }
}

/// The windows that an operator has written down.
pub trait ConfiguredWindow: Send + Sync + std::fmt::Debug {
    fn window_of(&self, model: &str) -> Option<Window>;
}

/// What was found out about the upstream itself.
#[derive(Debug, Default)]
pub(super) struct UpstreamTraits {
    /// 0 unknown, 1 earlier, 2 later: see [`Generation`].
    generation: AtomicU8,
}

impl UpstreamTraits {
    pub(super) fn generation(&self) -> Option<Generation> {
        match self.generation.load(Ordering::Relaxed) {
            1 => Some(Generation::Earlier),
            2 => Some(Generation::Later),
            _ => None,
        }
    }

    pub(super) fn learn_generation(&self, generation: Generation) {
        let number = match generation {
            Generation::Earlier => 1,
            Generation::Later => 2,
        };
        self.generation.store(number, Ordering::Relaxed);
    }
}

/// Where a window was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowSource {
    Request,
    Modelfile,
    Loaded,
    Configured,
    OllamaDefault,
}

impl WindowSource {
    pub fn name(self) -> &'static str {
        match self {
            Self::Request => "the request's num_ctx",
            Self::Modelfile => "the Modelfile",
            Self::Loaded => "the loaded model (/api/ps)",
            Self::Configured => "configuration",
            Self::OllamaDefault => "Ollama's default",
        }
    }
}

/// One model's facts.
#[derive(Debug)]
pub struct Model {
    pub name: String,
    upstream: Upstream,
    /// `Err` says why there is none.
    pub tokenizer: Result<Arc<Tokenizer>, String>,
    pub trained_window: Option<Window>,
    pub architecture: String,
    modelfile_window: Option<Window>,
    /// Which content this is, where the upstream tells; else when it was made.
    digest: Option<Digest>,
    modified_at: String,
    checked_at: Mutex<Instant>,
    /// What a request without `num_ctx` gets, once it was seen; 0 is not known.
    loaded_window: AtomicU32,
    /// Requests that bring a `num_ctx` of their own: how many there were, and how many of them the upstream has
    /// not begun to answer.
    other_windows: AtomicU64,
    other_windows_open: AtomicU32,
    /// What an overflow error has said; then a Modelfile that says more is not believed.
    overflow_window: AtomicU32,
    /// A cloud model: nothing here loads it, and it has the window it was trained for.
    runs_elsewhere: bool,
    /// Whether it looks at pictures, if that is known.
    sees: Option<bool>,
    pub(super) traits: Arc<UpstreamTraits>,
    pub(super) layout: RwLock<Layout>,
    pub(super) segments: SegmentCache,
    /// One rendering at a time, so that a crowd of first requests asks once.
    pub(super) learning: tokio::sync::Mutex<()>,
    /// Shapes of conversation that cannot be composed: the upstream renders them each time.
    unlearnable: Mutex<HashSet<u64>>,
    pub(super) shows_no_renderings: AtomicBool,
    /// Counts that claimed to be exact and were not. After the second, none claims to be.
    pub(super) exact_mismatches: AtomicU32,
    pub(super) exactness_lost: AtomicBool,
    /// By how much such counts were too low, at most.
    pub(super) shortfall_permille: AtomicU32,
    /// Tokens that the template adds for each message, where renderings cannot be had.
    pub(super) overhead_per_message: AtomicU32,
}

/// Why there are no facts.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The upstream does not know the model, or does not like its name; it says so best itself.
    #[error("the upstream has no such model")]
    Unknown,
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    #[error("the upstream's description of the model could not be read")]
    Unreadable,
}

impl Models {
    pub fn new(upstream: Upstream, configured_window: Arc<dyn ConfiguredWindow>) -> Self {
        Self {
            upstream,
            models: Arc::default(),
            sketches: DashMap::default(),
            loaded: tokio::sync::Mutex::default(),
            configured_window,
            traits: Arc::default(),
            shelf: None,
            vocabularies: Vocabularies::default(),
        }
    }

    /// The same, with vocabularies that others use too.
    pub fn sharing(self, vocabularies: Vocabularies) -> Self {
        Self { vocabularies, ..self }
    }

    /// The same, with a place where what was read of models is kept.
    pub fn with_shelf(self, shelf: Shelf) -> Self {
        Self { shelf: Some(shelf), ..self }
    }

    pub fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// The facts of a model, fetched if they are not there.
    pub async fn get(&self, name: &str) -> Result<Arc<Model>, ModelError> {
        if name.is_empty() {
            return Err(ModelError::Unknown);
        }
        let key = full_name(name);
        let cell = self.models.get(&key).map(|entry| Arc::clone(&entry));
        let cell = cell.unwrap_or_else(|| Arc::clone(&self.models.entry(key.clone()).or_default()));
        let loaded = cell.get_or_try_init(|| self.load(name)).await.map(Arc::clone);
        match &loaded {
            // Names of models that do not exist are not kept: anyone can make them up.
            Err(_) => {
                self.models.remove_if(&key, |_, cell| !cell.initialized());
            }
            Ok(model) => self.recheck_later(&key, model),
        }
        loaded
    }

    async fn load(&self, name: &str) -> Result<Arc<Model>, ModelError> {
        let digest = self.digest(name).await;
        if let Some(model) = self.load_kept(name, digest.as_ref()).await {
            return Ok(Arc::new(self.shared(model)));
        }
        let shown = self.show(name, true).await?;
        let (model, kept) = tokio::task::spawn_blocking({
            let (of, digest, traits) =
                ((name.to_owned(), self.upstream.clone()), digest.clone(), Arc::clone(&self.traits));
            move || Model::shown(of, digest, shown, traits)
        })
        .await
        .map_err(|_| ModelError::Unreadable)?;
        if let Err(reason) = &model.tokenizer {
            tracing::warn!(model = name, reason, "no vocabulary: tokens will be estimated");
        }
        // Unless it was replaced just now: then this may be another's content.
        if let Some((kept, shelf)) = kept.zip(self.shelf.clone())
            && let Some(digest) = self.digest(name).await.filter(|now| Some(now) == digest.as_ref())
        {
            tokio::task::spawn_blocking(move || {
                if let Err(error) = shelf.put(&digest, &kept) {
                    tracing::info!(%error, "a vocabulary could not be kept: it is asked for again after a restart");
                }
            });
        }
        Ok(Arc::new(self.shared(model)))
    }

    /// With the vocabulary that others use, if it is the same.
    fn shared(&self, mut model: Model) -> Model {
        if let (Ok(tokenizer), Some(digest)) = (&model.tokenizer, &model.digest) {
            model.tokenizer = Ok(self.vocabularies.shared(digest, Arc::clone(tokenizer)));
        }
        model
    }

    /// The model as it was kept by an earlier process.
    async fn load_kept(&self, name: &str, digest: Option<&Digest>) -> Option<Model> {
        let (shelf, digest) = (self.shelf.clone()?, digest?.clone());
        let (of, traits) = ((name.to_owned(), self.upstream.clone()), Arc::clone(&self.traits));
        let read = move || Model::kept(of, digest.clone(), shelf.take(&digest)?, traits);
        tokio::task::spawn_blocking(read).await.ok().flatten()
    }

    /// What the upstream calls a model's content by, if it tells.
    async fn digest(&self, name: &str) -> Option<Digest> {
        self.shelf.as_ref()?;
        digest(&self.upstream, &full_name(name)).await
    }

    async fn show(&self, name: &str, verbose: bool) -> Result<Shown, ModelError> {
        let body = format!("{{\"model\":{},\"verbose\":{verbose}}}", json::quote(name));
        let (status, body) = self.upstream.call(Method::POST, "/api/show", Some(body)).await?;
        if status.is_client_error() {
            return Err(ModelError::Unknown);
        }
        if status != StatusCode::OK {
            return Err(ModelError::Unreadable);
        }
        let read = move || show::read(std::str::from_utf8(&body).ok()?).ok();
        tokio::task::spawn_blocking(read).await.ok().flatten().ok_or(ModelError::Unreadable)
    }

    /// Asks, beside the request that noticed, whether the model was replaced.
    fn recheck_later(&self, key: &str, model: &Arc<Model>) {
        {
            let mut checked_at = model.checked_at.lock().unwrap_or_else(PoisonError::into_inner);
            if checked_at.elapsed() < RECHECK_AFTER {
                return;
            }
            *checked_at = Instant::now();
        }
        let (upstream, cells, key, model) =
            (self.upstream.clone(), Arc::clone(&self.models), key.to_owned(), Arc::clone(model));
        tokio::spawn(async move {
            if is_replaced(&upstream, &key, &model).await {
                tracing::info!(model = model.name, "the model was replaced upstream: its facts are learnt again");
                cells.remove(&key);
            }
        });
    }

    /// The models whose facts are known, by their names.
    pub fn known(&self) -> Vec<Arc<Model>> {
        let mut known: Vec<Arc<Model>> = self.models.iter().filter_map(|cell| cell.get().cloned()).collect();
        known.sort_by(|one, other| one.name.cmp(&other.name));
        known
    }

    /// The window that Ollama will really use.
    pub fn window(&self, model: &Model, num_ctx: Option<f64>) -> (Window, WindowSource) {
        let loaded = Some(model.loaded_window.load(Ordering::Relaxed)).filter(|window| *window > 0);
        let overflowed = Some(model.overflow_window.load(Ordering::Relaxed)).filter(|window| *window > 0);
        let (window, source) = if let Some(asked) = num_ctx {
            ((asked.max(0.0) as Window).max(SMALLEST_WINDOW), WindowSource::Request)
        } else if let Some(trained) = model.trained_window.filter(|_| model.runs_elsewhere) {
            (trained, WindowSource::Loaded)
        } else if let Some(window) = model.modelfile_window {
            let window = overflowed.map_or(window, |said| said.min(window));
            (window.max(SMALLEST_WINDOW), WindowSource::Modelfile)
        } else if let Some(window) = loaded {
            (window, WindowSource::Loaded)
        } else if let Some(window) = self.configured_window.window_of(&model.name) {
            (window, WindowSource::Configured)
        } else {
            (OLLAMA_DEFAULT_WINDOW, WindowSource::OllamaDefault)
        };
        (model.trained_window.map_or(window, |trained| window.min(trained)), source)
    }

    /// The window of a request without `num_ctx` to a model of that name, found without its vocabulary: a list of
    /// models is asked for often. None if nobody knows the model.
    pub async fn window_by_name(&self, name: &str) -> Option<Window> {
        let key = full_name(name);
        let known = self.models.get(&key).and_then(|cell| cell.get().cloned());
        if let Some(model) = known {
            return Some(self.window(&model, None).0);
        }
        let sketched = self.sketches.get(&key).filter(|sketch| sketch.1.elapsed() < RECHECK_AFTER);
        if let Some(model) = sketched.map(|sketch| Arc::clone(&sketch.0)) {
            return Some(self.window(&model, None).0);
        }
        let shown = self.show(name, false).await.ok()?;
        let model =
            Arc::new(Model::shown((name.to_owned(), self.upstream.clone()), None, shown, Arc::clone(&self.traits)).0);
        if !model.knows_default_window()
            && let Some(window) = self.loaded_window_of(&key).await
        {
            model.learn_window(window);
        }
        if self.sketches.len() >= MAX_SKETCHES {
            self.sketches.clear();
        }
        self.sketches.insert(key, (Arc::clone(&model), Instant::now()));
        Some(self.window(&model, None).0)
    }

    /// The window of a model that is loaded. A list of models is one question.
    async fn loaded_window_of(&self, key: &str) -> Option<Window> {
        let mut loaded = self.loaded.lock().await;
        if loaded.as_ref().is_none_or(|(at, _)| at.elapsed() >= LOADED_FOR) {
            let answer = self.upstream.call(Method::GET, "/api/ps", None).await.ok();
            let body = answer.filter(|(status, _)| *status == StatusCode::OK).map(|(_, body)| body);
            *loaded = Some((Instant::now(), body.unwrap_or_default()));
        }
        let (_, body) = loaded.as_ref()?;
        loaded_window(std::str::from_utf8(body).ok()?, key)
    }
}

impl Model {
    /// As `/api/show` tells it; with what is worth keeping of it.
    fn shown(
        of: (String, Upstream),
        digest: Option<Digest>,
        mut shown: Shown,
        traits: Arc<UpstreamTraits>,
    ) -> (Self, Option<Kept>) {
        let tables = match shown.vocabulary.take() {
            None => Err("the upstream tells no vocabulary".to_owned()),
            Some(told) => told.and_then(Tables::new).map_err(|error| error.to_string()),
        };
        let tokenizer = tables.as_ref().map_err(Clone::clone).and_then(tokenizer);
        let kept = tables.ok().filter(|_| tokenizer.is_ok()).map(|tables| Kept {
            trained_window: shown.trained_window,
            num_ctx: shown.num_ctx,
            modified_at: shown.modified_at.clone(),
            architecture: shown.architecture.clone(),
            runs_elsewhere: shown.runs_elsewhere,
            sees: shown.sees,
            tables,
        });
        (Self::new(of, digest, shown, tokenizer, traits), kept)
    }

    /// As it was kept.
    fn kept(of: (String, Upstream), digest: Digest, kept: Kept, traits: Arc<UpstreamTraits>) -> Option<Self> {
        let tokenizer = tokenizer(&kept.tables).ok()?;
        let shown = Shown {
            trained_window: kept.trained_window,
            num_ctx: kept.num_ctx,
            modified_at: kept.modified_at,
            architecture: kept.architecture,
            runs_elsewhere: kept.runs_elsewhere,
            sees: kept.sees,
            vocabulary: None,
        };
        Some(Self::new(of, Some(digest), shown, Ok(tokenizer), traits))
    }

    fn new(
        (name, upstream): (String, Upstream),
        digest: Option<Digest>,
        shown: Shown,
        tokenizer: Result<Arc<Tokenizer>, String>,
        traits: Arc<UpstreamTraits>,
    ) -> Self {
        Self {
            name,
            upstream,
            digest,
            tokenizer,
            trained_window: shown.trained_window,
            architecture: shown.architecture,
            modelfile_window: shown.num_ctx,
            modified_at: shown.modified_at,
            checked_at: Mutex::new(Instant::now()),
            loaded_window: AtomicU32::new(0),
            other_windows: AtomicU64::new(0),
            other_windows_open: AtomicU32::new(0),
            overflow_window: AtomicU32::new(0),
            runs_elsewhere: shown.runs_elsewhere,
            sees: shown.sees,
            traits,
            layout: RwLock::default(),
            segments: SegmentCache::default(),
            learning: tokio::sync::Mutex::new(()),
            unlearnable: Mutex::default(),
            shows_no_renderings: AtomicBool::new(false),
            exact_mismatches: AtomicU32::new(0),
            exactness_lost: AtomicBool::new(false),
            shortfall_permille: AtomicU32::new(0),
            overhead_per_message: AtomicU32::new(super::count::DEFAULT_OVERHEAD_PER_MESSAGE),
        }
    }

    /// Where it runs.
    pub fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// How far counts of plain chats with this model can be trusted, and why not further.
    pub fn basis(&self) -> (Basis, Option<String>) {
        if let Err(reason) = &self.tokenizer {
            (Basis::Estimated, Some(reason.clone()))
        } else if self.exactness_lost.load(Ordering::Relaxed) {
            (Basis::Calibrated, Some("counts that should have been exact were not".to_owned()))
        } else if self.shows_no_renderings.load(Ordering::Relaxed) {
            (Basis::Calibrated, Some("the upstream does not show rendered prompts".to_owned()))
        } else {
            (Basis::Exact, None)
        }
    }

    /// Whether pictures cost anything. For a model that cannot see, Ollama leaves nothing of them but their tags.
    pub fn sees_pictures(&self) -> bool {
        self.sees != Some(false)
    }

    /// How many tokens it knows.
    pub fn vocabulary_size(&self) -> Option<usize> {
        self.tokenizer.as_ref().ok().map(|tokenizer| tokenizer.vocabulary_size())
    }

    /// Looks up the window of a model that was just loaded by a request without `num_ctx`. If meanwhile another
    /// request may have had it loaded with a window of its own, then what is seen says nothing about this one.
    pub async fn look_up_loaded_window(&self, quiet: Option<Quiet>) {
        let Some(quiet) = quiet else { return };
        let Ok((StatusCode::OK, body)) = self.upstream.call(Method::GET, "/api/ps", None).await else { return };
        let found = std::str::from_utf8(&body).ok().and_then(|body| loaded_window(body, &full_name(&self.name)));
        if let Some(window) = found.filter(|_| self.no_other_window_asked_for() == Some(quiet)) {
            self.learn_window(window);
        }
    }

    /// What a request without `num_ctx` gets, as an overflow error has just said.
    pub fn learn_window_from_overflow(&self, window: Window) {
        self.overflow_window.store(window, Ordering::Relaxed);
        self.learn_window(window);
    }

    /// What a request without `num_ctx` gets, as seen or as an error said.
    pub fn learn_window(&self, window: Window) {
        if self.loaded_window.swap(window, Ordering::Relaxed) != window {
            tracing::info!(model = self.name, window, "window learnt from the upstream");
        }
    }

    /// Held while a request with a `num_ctx` of its own is on its way: it may have the model loaded anew.
    pub fn asks_for_another_window(&self) -> OtherWindow<'_> {
        self.other_windows_open.fetch_add(1, Ordering::SeqCst);
        self.other_windows.fetch_add(1, Ordering::SeqCst);
        OtherWindow(self)
    }

    /// `None` while such a request is on its way. Two equal answers: there was none in between either.
    pub fn no_other_window_asked_for(&self) -> Option<Quiet> {
        let so_far = self.other_windows.load(Ordering::SeqCst);
        (self.other_windows_open.load(Ordering::SeqCst) == 0).then_some(Quiet(so_far))
    }

    /// The window is looked up again before the next request.
    pub fn forget_window(&self) {
        self.loaded_window.store(0, Ordering::Relaxed);
    }

    pub fn knows_default_window(&self) -> bool {
        self.runs_elsewhere || self.modelfile_window.is_some() || self.loaded_window.load(Ordering::Relaxed) > 0
    }

    pub(super) fn knows_as_unlearnable(&self, shape: u64) -> bool {
        self.unlearnable.lock().unwrap_or_else(PoisonError::into_inner).contains(&shape)
    }

    pub(super) fn remember_unlearnable(&self, shape: u64) {
        let mut shapes = self.unlearnable.lock().unwrap_or_else(PoisonError::into_inner);
        if shapes.len() >= MAX_UNLEARNABLE {
            shapes.clear();
        }
        shapes.insert(shape);
    }
}

/// A moment at which nobody had asked for a window of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quiet(u64);

/// A request that asks for a window of its own, until the upstream has begun to answer it.
#[derive(Debug)]
pub struct OtherWindow<'m>(&'m Model);

impl Drop for OtherWindow<'_> {
    fn drop(&mut self) {
        self.0.other_windows_open.fetch_sub(1, Ordering::SeqCst);
    }
}

fn tokenizer(tables: &Tables) -> Result<Arc<Tokenizer>, String> {
    Tokenizer::from_tables(tables).map(Arc::new).map_err(|error| error.to_string())
}

/// Whether the model of that name is another one by now.
async fn is_replaced(upstream: &Upstream, key: &str, model: &Model) -> bool {
    if let Some(before) = &model.digest {
        return digest(upstream, key).await.is_some_and(|now| now != *before);
    }
    let body = format!("{{\"model\":{}}}", json::quote(&model.name));
    let Ok((StatusCode::OK, body)) = upstream.call(Method::POST, "/api/show", Some(body)).await else { return false };
    let shown = std::str::from_utf8(&body).ok().and_then(|body| show::read(body).ok());
    shown.is_some_and(|shown| shown.modified_at != model.modified_at)
}

/// The digest of a model in the upstream's list.
async fn digest(upstream: &Upstream, full: &str) -> Option<Digest> {
    let Ok((StatusCode::OK, body)) = upstream.call(Method::GET, "/api/tags", None).await else { return None };
    let fields = Fields::read(std::str::from_utf8(&body).ok()?, &[]).ok()?;
    fields.array("models").ok()?.into_iter().find_map(|raw| {
        let model = Fields::read(raw.get(), &[]).ok()?;
        let name = model.text("name").ok()??;
        if full_name(&name) == full { Digest::read(&model.text("digest").ok()??) } else { None }
    })
}

/// Ollama's names: without a tag it is `latest`, and case does not matter.
pub fn full_name(name: &str) -> String {
    let lower = name.to_lowercase();
    let lower = lower.strip_prefix("https://").or(lower.strip_prefix("http://")).unwrap_or(&lower);
    let lower = lower.strip_prefix("registry.ollama.ai/").unwrap_or(lower);
    let lower = lower.strip_prefix("library/").unwrap_or(lower);
    let last = lower.rsplit('/').next().unwrap_or(lower);
    if last.contains(':') { lower.to_owned() } else { format!("{lower}:latest") }
}

fn loaded_window(body: &str, full: &str) -> Option<Window> {
    let fields = Fields::read(body, &[]).ok()?;
    fields.array("models").ok()?.into_iter().find_map(|raw| {
        let model = Fields::read(raw.get(), &[]).ok()?;
        let name = model.text("name").ok()??;
        let window = model.number("context_length").ok()??;
        (full_name(&name) == full && window >= 1.0).then_some(window as Window)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_a_tag_are_latest() {
        assert_eq!(full_name("Sim"), "sim:latest");
        assert_eq!(full_name("host:5000/library/a"), "host:5000/library/a:latest");
        assert_eq!(full_name("a:7b"), "a:7b");
        assert_eq!(full_name("registry.ollama.ai/library/a"), "a:latest");
    }

    #[test]
    fn the_loaded_window_is_found_by_the_full_name() {
        let body = r#"{"models":[{"name":"b:latest","context_length":512},{"name":"a:latest","context_length":2048}]}"#;
        assert_eq!(loaded_window(body, "a:latest"), Some(2048));
        assert_eq!(loaded_window(body, "c:latest"), None);
    }
}
