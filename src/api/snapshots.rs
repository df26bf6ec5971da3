//! What rollovers have kept: one snapshot, and its export.

use std::sync::Arc;

use http::{Response, StatusCode};

use super::views::{about_snapshot, in_full};
use super::{Asked, reading_much};
use crate::history::{export, system_prompts};
use crate::proxy::respond::{self, Refusal, ResponseBody};
use crate::store::{Reads, SnapshotRow, StoreError};

fn not_found() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "snapshot not found")
}

fn owned(reads: &Reads, user: &str, id: &str) -> Result<Option<SnapshotRow>, StoreError> {
    Ok(reads.snapshot(id)?.filter(|row| row.user == user))
}

/// `GET /api/snapshots/{id}`
pub(super) async fn show(asked: &Asked<'_>, id: &str) -> Result<Response<ResponseBody>, Refusal> {
    let (user, id) = (Arc::clone(&asked.caller.user), id.to_owned());
    let read = move |reads: &Reads| {
        let Some(row) = owned(reads, &user, &id)? else { return Ok(None) };
        let mut shown = about_snapshot(&row);
        shown["system"] = system_prompts(&row.system).into();
        let said = reads.path(row.conversation, Some(row.link))?;
        shown["history"] = said.iter().map(|message| in_full(row.conversation, message)).collect();
        Ok(Some(shown))
    };
    let shown = reading_much(asked.gateway, read).await?.ok_or_else(not_found)?;
    Ok(respond::json(StatusCode::OK, shown.to_string()))
}

/// `GET /api/snapshots/{id}/export`: canonical JSONL.
pub(super) async fn export(asked: &Asked<'_>, id: &str) -> Result<Response<ResponseBody>, Refusal> {
    let (user, id) = (Arc::clone(&asked.caller.user), id.to_owned());
    let read = move |reads: &Reads| match owned(reads, &user, &id)? {
        None => Ok(None),
        Some(row) => export::snapshot(reads, &row).map(|lines| Some((row.id, lines))),
    };
    let (id, lines) = reading_much(asked.gateway, read).await?.ok_or_else(not_found)?;
    Ok(respond::attachment(&format!("{id}.jsonl"), lines))
}
