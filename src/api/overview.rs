//! `GET /loadline/overview`: everything at a glance, for the dashboard and `loadline top`.
//!
//! Whoever may see everybody's sees how full other people's windows are, but not what they talk about.

use std::sync::Arc;

use http::request::Parts;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::auth::Caller;
use super::query::Query;
use super::{blocking, no_store, views};
use crate::context::ladder::{CHECKPOINT_PERCENT, COMPRESSION_PERCENT, ROLLOVER_PERCENT, TOLD_PERCENT};
use crate::context::{Budget, Usage};
use crate::events;
use crate::ollama::fleet::Member;
use crate::ollama::models::Model;
use crate::proxy::respond::{self, Refusal, ResponseBody};
use crate::proxy::{Gateway, turns_by_action};
use crate::store::{ConversationRow, Disk, Reads, StoreError};

const DEFAULT_LIMIT: u32 = 50;
const MAX_LIMIT: u32 = 200;

/// Turns of a conversation that are told as bare percentages.
const RECENT_TURNS: u32 = 40;

pub(crate) async fn overview(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    head: &Parts,
) -> Result<Response<ResponseBody>, Refusal> {
    let query = Query::read(head.uri.query())?;
    let (limit, all) = (query.limit(DEFAULT_LIMIT, MAX_LIMIT)?, query.flag("all")? && caller.sees_all());
    let events = query.number("events")?.unwrap_or(0).clamp(0, i64::from(MAX_LIMIT)) as u32;
    let seen = gateway.fleet.any().seen().await;
    let user = Arc::clone(&caller.user);
    let owner = (!all).then(|| Arc::clone(&user));
    let store = Arc::clone(&gateway.store);
    let read = move |reads: &Reads| {
        let rows = reads.recent_conversations(owner.as_deref(), limit)?;
        let shown = rows.iter().map(|row| conversation(reads, row, &user)).collect::<Result<Vec<_>, _>>()?;
        let latest = reads.latest_events(owner.as_deref(), events)?;
        Ok((shown, latest, reads.last_event_id()?, store.disk().unwrap_or_default()))
    };
    let (mut conversations, latest, last_event, disk) = blocking(gateway, read).await?;
    for shown in &mut conversations {
        let writing = shown["id"].as_i64().is_some_and(|id| gateway.checkpoints.is_writing(id));
        shown["writing_checkpoint"] = writing.into();
    }
    let answer = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "now": views::now(),
        "started_at": views::time(gateway.started_at),
        "mode": gateway.config.mode.name(),
        "caller": { "user": &*caller.user, "scopes": caller.scopes.to_string(), "sees_all": caller.sees_all() },
        "auth_required": gateway.config.auth_required,
        "marks": {
            "told": TOLD_PERCENT,
            "checkpoint": CHECKPOINT_PERCENT,
            "compression": COMPRESSION_PERCENT,
            "rollover": ROLLOVER_PERCENT,
        },
        "upstream": {
            "url": gateway.upstream().name(),
            "up": seen.is_up(),
            "version": seen.version,
            "error": seen.error,
        },
        "store": about_store(gateway, disk),
        "totals": totals(gateway),
        "upstreams": upstreams(gateway),
        "models": models(gateway).iter().map(|known| model(gateway, known)).collect::<Vec<_>>(),
        "conversations": conversations,
        "last_event": last_event,
        "events": latest.iter().map(events::shown).collect::<Vec<_>>(),
    });
    Ok(no_store(respond::json(StatusCode::OK, answer.to_string())))
}

/// Everybody who answers, and how much each has to do.
pub(crate) fn upstreams(gateway: &Gateway) -> Value {
    let about = |(number, member): (usize, &Arc<Member>)| {
        json!({
            "number": number + 1,
            "url": member.name(),
            "up": member.is_up(),
            "draining": member.is_draining(),
            "in_flight": member.in_flight(),
            "error": member.trouble(),
        })
    };
    gateway.fleet.members().iter().enumerate().map(about).collect()
}

/// What is known of models, of each name once: upstreams that have the same model mostly agree.
fn models(gateway: &Gateway) -> Vec<Arc<Model>> {
    let mut known: Vec<Arc<Model>> = gateway.fleet.members().iter().flat_map(|member| member.models.known()).collect();
    known.sort_by(|one, other| one.name.cmp(&other.name));
    known.dedup_by(|one, other| one.name == other.name);
    known
}

fn about_store(gateway: &Gateway, disk: Disk) -> Value {
    let stats = gateway.store.stats();
    json!({
        "healthy": gateway.store.healthy(),
        "waiting_changes": stats.waiting,
        "commits": stats.commits,
        "failed_commits": stats.failed_commits,
        "last_commit_ms": stats.last_commit_us as f64 / 1000.0,
        "size_bytes": disk.size_bytes(),
        "free_bytes": disk.free_bytes,
    })
}

fn totals(gateway: &Gateway) -> Value {
    let metrics = &gateway.metrics;
    json!({
        "turns": turns_by_action(metrics),
        "tokens_arrived": metrics.tokens_arrived.get(),
        "tokens_forwarded": metrics.tokens_forwarded.get(),
        "tokens_saved": metrics.tokens_saved.get(),
        "tokens_recalled": metrics.tokens_recalled.get(),
        "prefill_tokens_avoided": metrics.prefill_avoided.get(),
        "counts_compared": metrics.compared(),
        "exact_mismatches": metrics.exact_mismatches(),
        "overflows": metrics.overflows.get(),
        "cut_by_upstream": metrics.cut_by_upstream.get(),
        "in_flight": metrics.in_flight.get(),
        "checkpoints_under_way": gateway.checkpoints.under_way(),
        "event_streams": metrics.event_streams.get(),
    })
}

fn model(gateway: &Gateway, model: &Model) -> Value {
    let (window, source) = gateway.window(model, None);
    let (basis, note) = model.basis();
    json!({
        "name": model.name,
        "architecture": model.architecture,
        "window": window,
        "window_from": source.name(),
        "trained_window": model.trained_window,
        "limit": Budget::new(window, gateway.config.reserve, None).limit,
        "basis": basis.name(),
        "tokenizer": model.tokenizer.as_ref().map_or("none", |tokenizer| tokenizer.kind()),
        "note": note,
    })
}

fn conversation(reads: &Reads, row: &ConversationRow, user: &str) -> Result<Value, StoreError> {
    let mut shown = views::about(row);
    shown["user"] = row.user.as_str().into();
    if row.user != user {
        shown["title"] = Value::Null;
        if let Some(shown) = shown.as_object_mut() {
            shown.remove("imported_from");
        }
    }
    let (snapshots, checkpoints) = reads.kept(row.id)?;
    shown["snapshots"] = snapshots.into();
    shown["checkpoints"] = checkpoints.into();
    let turn = reads.latest_turn(row.id)?;
    shown["load"] = turn.as_ref().and_then(views::load).into();
    let percent = |(total, limit): (u32, u32)| Usage { total, limit }.percent();
    shown["recent"] = reads.recent_usage(row.id, RECENT_TURNS)?.into_iter().map(percent).collect();
    Ok(shown)
}
