//! Going on from a snapshot: `X-Loadline-Restore: snapshot-…` puts its history in front of the request's own
//! messages. The client sends only what is new, turn after turn with the same header.

use std::sync::Arc;

use http::StatusCode;
use http::header::HeaderMap;

use super::Gateway;
use super::respond::Refusal;
use crate::dialect::Dialect;
use crate::history::{message, system_prompts};
use crate::store::StoreError;

/// The header that names a snapshot.
pub(super) const HEADER: &str = "x-loadline-restore";

/// The body with the named snapshot in front; `None` when none is named.
pub(super) async fn restored(
    gateway: &Gateway,
    user: &Arc<str>,
    dialect: Dialect,
    headers: &HeaderMap,
    body: &str,
) -> Result<Option<String>, Refusal> {
    let Some(named) = headers.get(HEADER) else { return Ok(None) };
    let not_found = || Refusal::new(StatusCode::NOT_FOUND, "there is no such snapshot");
    let id = named.to_str().map_err(|_| not_found())?.trim().to_owned();
    let (store, user) = (Arc::clone(&gateway.store), Arc::clone(user));
    let read = tokio::task::spawn_blocking(move || {
        let reader = store.reader()?;
        let Some(snapshot) = reader.snapshot(&id)?.filter(|row| *row.user == *user) else { return Ok(None) };
        let rows = reader.path(snapshot.conversation, Some(snapshot.link))?;
        Ok::<_, StoreError>(Some((system_prompts(&snapshot.system), rows)))
    });
    let failed = || Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "snapshots cannot be read right now");
    let read = read.await.map_err(|_| failed())?.map_err(|_| failed())?;
    let (system, rows) = read.ok_or_else(not_found)?;
    let history: Vec<_> = rows.iter().map(message).collect();
    let body = dialect.with_history(body, &system, &history).map_err(|_| {
        Refusal::new(StatusCode::BAD_REQUEST, "a snapshot can be restored on chat routes only, with a list of messages")
    })?;
    Ok(Some(body))
}
