//! A request's way through: guard → normalise → admit → route, and for the six gated paths the line in [`gate`].
//!
//! * [`server`] accepts connections, [`guard`] says who may talk to us, [`path`] reads the path once.
//! * [`gate`] is the corridor: read → parse → identify → count → decide → plan → forward → observe → record.
//!   [`fit`] is its middle: from a request to the request that may leave; `compact` is what happens there at
//!   95 and 100 %, `recall` what comes back. `record` writes turns down, `receipt` says what became of one;
//!   `whole` keeps an answer back that is one text until it is stored.
//! * `passage` is a request from its first byte to its last: its span in the log and its numbers.
//! * [`relay`] is the plain way for everything else, `windows` for lists of models, which tell the window in force;
//!   [`own`] are the routes that are ours.
//! * [`respond`] makes HTTP of every failure, in the client's dialect.

pub(crate) mod compact;
pub mod conversations;
pub mod embed;
mod feed;
pub mod fit;
pub mod gate;
pub mod guard;
pub mod headers;
mod identify;
pub mod memo;
pub mod observe;
mod own;
mod passage;
pub mod path;
mod preprocess;
pub mod recall;
mod receipt;
mod record;
pub mod relay;
pub mod respond;
mod restore;
pub mod server;
mod spread;
mod tally;
mod whole;
mod windows;

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use tracing::Instrument;

use crate::api::{self, auth::Keys, token::Token};
use crate::checkpoint::{Checkpoints, Cost};
use crate::config::{self, Config};
use crate::context::identity::ConversationId;
use crate::context::{ChainKey, Window};
use crate::dashboard;
use crate::dialect::{Dialect, ErrorShape};
use crate::events::{Events, now_ms};
use crate::ollama::client::AddressError;
use crate::ollama::models::{ConfiguredWindow, Vocabularies, WindowSource};
use crate::ollama::{Fleet, Model, Models, Shelf, Upstream};
use crate::store::{Durability, Signal, Store, StoreError};
use crate::telemetry::metrics::Metrics;
use crate::webhooks::Deliveries;
use conversations::Conversations;
pub use own::check as check_request;
pub(crate) use own::turns_by_action;
use passage::{OurOwn, Passage, Watched};
use respond::{Refusal, ResponseBody};

/// Of the store's eight readers.
const LONG_READS: usize = 2;

/// Bytes of a reason that are logged: names in it may be as long as a client likes.
const MOST_LOGGED: usize = 300;

/// That are worked on at once.
const IMPORTS: usize = 2;

/// Everything a request needs, shared by all of them.
#[derive(Debug)]
pub struct Gateway {
    pub config: Config,
    /// Those who answer.
    pub fleet: Fleet,
    pub conversations: Arc<Conversations>,
    pub memos: Arc<memo::Memos>,
    pub checkpoints: Checkpoints,
    pub store: Arc<Store>,
    pub events: Events,
    /// Who may do what.
    pub keys: Keys,
    /// Searches and exports wait for each other, so that nobody else waits for them.
    pub long_reads: tokio::sync::Semaphore,
    /// Imports wait for each other: each may take much memory.
    pub imports: Arc<tokio::sync::Semaphore>,
    pub vectors: Arc<embed::Vectors>,
    pub metrics: Metrics,
    pub started_at: i64,
    /// How the calls to those who want to know have gone.
    pub webhooks: Deliveries,
    /// What questions of our own have cost the models.
    pub cost: Cost,
    /// Cancelled when the server stops: what has no end of its own ends then.
    pub stopping: tokio_util::sync::CancellationToken,
    /// Long messages that a model could not condense, by their digests.
    condense_failed: Mutex<HashSet<[u8; 32]>>,
}

/// Why the gateway cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("upstream.url")]
    Upstream(#[from] AddressError),
    #[error("store")]
    Store(#[from] StoreError),
    #[error("metrics")]
    Metrics(#[from] prometheus::Error),
}

impl Gateway {
    pub fn new(config: Config) -> Result<Self, StartError> {
        let durability = match config.durability {
            config::Durability::Full => Durability::Full,
            config::Durability::Normal => Durability::Normal,
        };
        let store = Arc::new(config.home().open(durability)?);
        let secret = store.secret()?;
        let key = ChainKey::new(secret);
        let metrics = Metrics::new()?;
        let commits = metrics.commits.clone();
        store.watch_commits(move |committed| commits.note(committed));
        let gateway = Self {
            fleet: fleet(&config, &metrics)?,
            conversations: Arc::new(Conversations::new(key, config.max_conversations)),
            memos: Arc::new(memo::Memos::new(blake3::derive_key("loadline bodies read before", &secret))),
            checkpoints: Checkpoints::default(),
            events: Events::new(Arc::clone(&store), metrics.events.clone()),
            long_reads: tokio::sync::Semaphore::new(LONG_READS),
            imports: Arc::new(tokio::sync::Semaphore::new(IMPORTS)),
            keys: Keys::new(Arc::clone(&store), config.auth_required),
            store,
            vectors: Arc::default(),
            webhooks: Deliveries::new(&metrics.webhook_deliveries, config.webhooks.receivers.len()),
            metrics,
            started_at: now_ms(),
            cost: Cost::default(),
            stopping: tokio_util::sync::CancellationToken::new(),
            condense_failed: Mutex::default(),
            config,
        };
        gateway.hear_of_others();
        Ok(gateway)
    }

    /// Has memory keep up with what other Loadlines do on the same store.
    fn hear_of_others(&self) {
        let (events, keys) = (self.events.ear(), self.keys.known());
        let (conversations, memos) = (Arc::clone(&self.conversations), Arc::clone(&self.memos));
        let vectors = Arc::clone(&self.vectors);
        self.store.watch_others(move |signal| match signal {
            Signal::Events => events.wake(),
            Signal::Tokens => keys.clear(),
            Signal::Gone(conversation) => {
                conversations.bury(conversation);
                events.forget(conversation);
                // Whose it was is not known here; all of it can be read again.
                memos.clear();
                vectors.clear();
            }
        });
    }

    /// One of the upstreams, where it does not matter which.
    pub fn upstream(&self) -> &Upstream {
        self.fleet.any().upstream()
    }

    /// How many upstreams answer.
    pub async fn upstreams_up(&self) -> usize {
        let looks = self.fleet.members().iter().map(|member| member.seen());
        futures_util::future::join_all(looks).await.iter().filter(|seen| seen.is_up()).count()
    }

    /// The window that Ollama will really use.
    pub fn window(&self, model: &Model, num_ctx: Option<f64>) -> (Window, WindowSource) {
        self.fleet.any().models.window(model, num_ctx)
    }

    /// Deletes a conversation: from the disk, and from what is remembered of it. Turns that are under way end
    /// without being stored.
    pub async fn delete(&self, user: &str, conversation: ConversationId) -> Result<(), StoreError> {
        self.conversations.bury(conversation);
        let deleted = self.store.delete(conversation).await;
        self.events.forget(conversation).await;
        self.memos.forget(user);
        self.vectors.clear();
        if matches!(&deleted, Err(error) if !matches!(error, StoreError::Rejected(_))) {
            self.conversations.unbury(conversation);
        }
        deleted
    }

    /// Answers one request. Never fails: whatever goes wrong becomes an answer.
    pub async fn handle(self: &Arc<Self>, request: Request<Incoming>) -> Response<Watched> {
        let path = path::normalise(request.uri().path());
        let shape = ErrorShape::of_path(path.as_deref().unwrap_or(request.uri().path()));
        let passage = Passage::begin(self, request.method(), path.as_deref().ok());
        let origin = guard::known_origin(request.headers(), &self.config.allowed_hosts);
        let routed = AssertUnwindSafe(self.route(request, path)).catch_unwind().instrument(passage.span.clone()).await;
        let mut response = match routed {
            Ok(Ok(response)) => response,
            Ok(Err(refusal)) => {
                // The message may quote a host or a model's name, but never what was said.
                passage.span.in_scope(|| {
                    tracing::warn!(
                        status = refusal.status.as_u16(),
                        reason = &refusal.message[..refusal.message.floor_char_boundary(MOST_LOGGED)],
                        "refused"
                    )
                });
                refusal.trouble.into_iter().for_each(|trouble| self.metrics.upstream_trouble(trouble));
                our_own(refusal.response(shape))
            }
            Err(_) => our_own(
                Refusal::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "Loadline failed on this request; others are not affected",
                )
                .response(shape),
            ),
        };
        origin.into_iter().for_each(|origin| guard::let_read(origin, response.headers_mut()));
        passage.answered(response)
    }

    async fn route(
        self: &Arc<Self>,
        request: Request<Incoming>,
        path: Result<String, path::PathError>,
    ) -> Result<Response<ResponseBody>, Refusal> {
        let (mut head, body) = request.into_parts();
        guard::check(&head, &self.config.allowed_hosts)?;
        let path = path.map_err(|error| {
            let status = match error {
                path::PathError::TooLong => StatusCode::URI_TOO_LONG,
                path::PathError::Forbidden => StatusCode::BAD_REQUEST,
            };
            Refusal::new(status, error.to_string())
        })?;
        let query: Vec<u8> = percent_encoding::percent_decode_str(head.uri.query().unwrap_or_default()).collect();
        if Token::is_in(&query) || Token::is_in(path.as_bytes()) {
            // It would be in every log on the way. Whoever wrote it there should make a new one.
            return Err(Refusal::new(
                StatusCode::BAD_REQUEST,
                "a token has no place in an address: send it in a header",
            ));
        }
        let caller = self.keys.admit(&head.method, &path, &mut head.headers).await?;
        if dashboard::is_ours(&path) {
            return dashboard::answer(&head, &path);
        }
        if api::is_ours(&path) {
            return api::answer(self, &caller, &head, &path, body).await;
        }
        if own::is_ours(&path) {
            return own::answer(self, &caller, head, &path, body).await;
        }
        match Dialect::of_path(&path) {
            Some(dialect) if head.method == Method::POST => gate::gate(self, &caller.user, dialect, head, body).await,
            _ if windows::tells(self, &head.method, &path) => windows::told(self, head, &path, body).await,
            _ => relay::relay(self, head, &path, body).await,
        }
    }
}

/// The upstreams that the configuration names.
fn fleet(config: &Config, metrics: &Metrics) -> Result<Fleet, StartError> {
    let (windows, vocabularies) = (Arc::new(config.windows.clone()), Vocabularies::default());
    let member = |url: &String| {
        let upstream = Upstream::new(url, config.connect_timeout, config.first_byte_timeout)?;
        let windows: Arc<dyn ConfiguredWindow> = windows.clone();
        let models = Models::new(upstream, windows).with_shelf(Shelf::in_data_dir(&config.data_dir));
        Ok(models.sharing(vocabularies.clone()))
    };
    let members = config.upstream_urls.iter().map(member).collect::<Result<Vec<_>, StartError>>()?;
    Ok(Fleet::new(members, config.sharing, metrics.fleet.clone()))
}

fn our_own(mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    response.extensions_mut().insert(OurOwn);
    response
}
