//! Which conversation a request belongs to: the one it goes on from, the one it names, or a new one.
//!
//! Everything is looked up for one user, so nobody can go on from, or name, what is somebody else's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::StatusCode;
use http::header::HeaderMap;

use super::Gateway;
use super::conversations::{Stored, Turn};
use super::fit::links;
use super::memo::Known;
use super::respond::Refusal;
use crate::context::identity::{ConversationId, Placement};
use crate::context::{Link, Message, Role};
use crate::dialect::{Prompt, Request};
use crate::store::{Standing, Store, StoreError};

/// How often a checkpoint that another process writes is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Finds the conversation that a request belongs to: in memory, or else in the store, or else it is new.
pub(super) async fn identify(
    gateway: &Arc<Gateway>,
    user: &Arc<str>,
    headers: &HeaderMap,
    request: &Request<'_>,
    known: Option<&Known>,
) -> Result<Turn, Refusal> {
    let named = named_conversation(gateway, headers, user).await?;
    let conversations = &gateway.conversations;
    let (links, placement) = match &request.prompt {
        Prompt::Chat(messages) => {
            let links = links(gateway, user, request, messages, known);
            (Arc::clone(&links), find(gateway, user, messages, &links).await?)
        }
        // One prompt, one answer: a conversation by itself.
        Prompt::Generate(generate) => {
            let prompt = Message::plain(Role::User, generate.prompt.as_ref(), 0);
            (conversations.links(user, &[prompt]), Placement::New)
        }
    };
    let conversation = match (named, placement) {
        (Some(named), _) => named,
        (None, Placement::Continues { conversation, .. } | Placement::Branch { conversation, .. }) => conversation,
        (None, Placement::New) => next_conversation(gateway).await?,
    };
    // What another conversation has stored is not stored in the named one.
    let placement = match placement {
        Placement::Continues { conversation: other, .. } | Placement::Branch { conversation: other, .. }
            if other != conversation =>
        {
            Placement::New
        }
        same => same,
    };
    let turn = conversations.enter(user, links, placement, conversation);
    // It may have been deleted since it was found; then it must not be made again under its name.
    if named.is_some() && conversations.is_buried(conversation) {
        return Err(Refusal::new(StatusCode::NOT_FOUND, "there is no such conversation"));
    }
    Ok(turn)
}

/// A number for a conversation that is new. Where that means asking a server, nobody else waits for it.
async fn next_conversation(gateway: &Arc<Gateway>) -> Result<ConversationId, Refusal> {
    if !gateway.store.is_shared() {
        return gateway.store.next_conversation().map_err(|_| unreadable());
    }
    let store = Arc::clone(&gateway.store);
    let next = tokio::task::spawn_blocking(move || store.next_conversation()).await;
    next.map_err(|_| unreadable())?.map_err(|_| unreadable())
}

/// What is not known for certain is not guessed: a conversation must not lose its past because a disk is busy.
fn unreadable() -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "conversations cannot be looked up right now: try again in a moment")
}

/// Looks in memory, then in the store.
async fn find(
    gateway: &Arc<Gateway>,
    user: &Arc<str>,
    messages: &[Message<'_>],
    links: &Arc<[Link]>,
) -> Result<Placement, Refusal> {
    let placement = gateway.conversations.find(links);
    if let Placement::Continues { conversation, .. } | Placement::Branch { conversation, .. } = placement
        && renew(gateway, user, conversation).await? == Renewed::Same
    {
        return Ok(placement);
    }
    let placement = gateway.conversations.find(links);
    // Without an answer in it, nothing that is stored can be meant.
    let answered = messages.iter().any(|message| message.role == Role::Assistant);
    if placement != Placement::New || !answered {
        return Ok(placement);
    }
    let Some(mut found) = look_up(gateway, user, links).await? else { return Ok(placement) };
    if standing(gateway, user, found.conversation).await?.is_some_and(|stands| stands.waited) {
        // There may be a new front.
        let Some(again) = look_up(gateway, user, links).await? else { return Ok(placement) };
        found = again;
    }
    found.upstream.iter().for_each(|name| gateway.fleet.remember(found.conversation, name));
    if gateway.store.is_shared() {
        // Whatever was remembered of it may be older than this.
        gateway.conversations.put_away(found.conversation);
    }
    gateway.conversations.adopt(user, links, found);
    Ok(gateway.conversations.find(links))
}

/// The conversation that the store finds for a history.
async fn look_up(gateway: &Arc<Gateway>, user: &Arc<str>, links: &Arc<[Link]>) -> Result<Option<Stored>, Refusal> {
    let (store, asking, searched) = (Arc::clone(&gateway.store), Arc::clone(user), Arc::clone(links));
    let found = tokio::task::spawn_blocking(move || stored(&store, &asking, &searched)).await;
    found.map_err(|_| unreadable())?.map_err(|_| unreadable())
}

/// What a look at the store has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Renewed {
    /// Memory is as good as the store.
    Same,
    /// Memory was old, and is empty now.
    Forgotten,
    /// It is not this user's.
    Foreign,
}

/// How a conversation stands that others may change.
struct Stands {
    standing: Standing,
    /// Whether memory knows it so.
    known: bool,
    /// Whether another process was writing its checkpoint, and was waited for.
    waited: bool,
}

/// How a conversation stands, after waiting, within bounds, for another process that is writing its checkpoint. None if
/// nobody else can change it, or if it is not there.
async fn standing(gateway: &Arc<Gateway>, user: &str, conversation: ConversationId) -> Result<Option<Stands>, Refusal> {
    if !gateway.store.is_shared() {
        return Ok(None);
    }
    let started = Instant::now();
    let mut waited = false;
    loop {
        let store = Arc::clone(&gateway.store);
        let asked = tokio::task::spawn_blocking(move || store.standing(conversation)).await;
        let stands = asked.map_err(|_| unreadable())?.map_err(|_| unreadable())?;
        let Some((standing, known)) = stands else { return Ok(None) };
        // What is somebody else's is not waited for, nor is anything of it remembered.
        if standing.user != user {
            return Ok(Some(Stands { standing, known, waited }));
        }
        standing.upstream.iter().for_each(|name| gateway.fleet.remember(conversation, name));
        if standing.checkpoint_ms.is_none() || started.elapsed() >= gateway.config.checkpoint.wait {
            return Ok(Some(Stands { standing, known, waited }));
        }
        waited = true;
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Forgets what memory has of a conversation if another process has changed it since.
async fn renew(gateway: &Arc<Gateway>, user: &Arc<str>, conversation: ConversationId) -> Result<Renewed, Refusal> {
    if !gateway.store.is_shared() {
        return Ok(Renewed::Same);
    }
    match standing(gateway, user, conversation).await? {
        Some(stands) if stands.known && stands.standing.user == **user => return Ok(Renewed::Same),
        // Somebody else's: nobody forgets it because of that. What is nobody's is being deleted.
        Some(stands) if stands.standing.user != **user && !stands.standing.user.is_empty() => {
            return Ok(Renewed::Foreign);
        }
        Some(stands) => {
            gateway.conversations.put_away(conversation);
            gateway.store.note_version(conversation, stands.standing.version);
        }
        None => gateway.conversations.put_away(conversation),
    }
    Ok(Renewed::Forgotten)
}

/// The conversation that the store finds for a history.
fn stored(store: &Store, user: &str, links: &[Link]) -> Result<Option<Stored>, StoreError> {
    let reader = store.reader()?;
    let Some(found) = reader.find(user, links)? else { return Ok(None) };
    // Before anything of it is read.
    if let Some((standing, false)) = store.standing(found.conversation)? {
        store.note_version(found.conversation, standing.version);
    }
    Ok(Some(Stored {
        conversation: found.conversation,
        shared: found.index + 1,
        answered: true,
        tip: found.tip,
        fronts: fronts(&reader.fronts(found.conversation)?),
        upstream: reader.upstream(found.conversation)?,
    }))
}

fn fronts(rows: &[(Link, String, i64)]) -> Vec<(Link, crate::context::Front)> {
    rows.iter().filter_map(|(link, body, _)| Some((*link, serde_json::from_str(body).ok()?))).collect()
}

/// The conversation that a client names, if it is that user's.
async fn named_conversation(
    gateway: &Arc<Gateway>,
    headers: &HeaderMap,
    user: &Arc<str>,
) -> Result<Option<ConversationId>, Refusal> {
    let Some(value) = headers.get("x-loadline-conversation") else { return Ok(None) };
    let not_found = || Refusal::new(StatusCode::NOT_FOUND, "there is no such conversation");
    let id: ConversationId = value.to_str().ok().and_then(|value| value.trim().parse().ok()).ok_or_else(not_found)?;
    if renew(gateway, user, id).await? == Renewed::Foreign {
        return Err(not_found());
    }
    if let Some(owner) = gateway.conversations.owner(id) {
        return if owner == *user { Ok(Some(id)) } else { Err(not_found()) };
    }
    let store = Arc::clone(&gateway.store);
    let looked_up = tokio::task::spawn_blocking(move || {
        let reader = store.reader()?;
        let Some(owner) = reader.owner(id)? else { return Ok(None) };
        Ok::<_, StoreError>(Some((owner, fronts(&reader.fronts(id)?))))
    });
    let looked_up = looked_up.await.map_err(|_| unreadable())?.map_err(|_| unreadable())?;
    let (owner, fronts) = looked_up.filter(|_| !gateway.conversations.is_buried(id)).ok_or_else(not_found)?;
    if owner != **user {
        return Err(not_found());
    }
    let stored = Stored { conversation: id, shared: 0, answered: false, tip: false, fronts, upstream: None };
    gateway.conversations.adopt(user, &[], stored);
    Ok(Some(id))
}
