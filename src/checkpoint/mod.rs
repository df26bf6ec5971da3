//! Checkpoints: notes on the older part of a conversation, written by a model after an answer at 80 %.
//!
//! Background work with one rule: nobody waits long for it. One is written at a time. When a request of
//! somebody else arrives, the model is taken back at once and the notes are continued when it is idle
//! again. A request of the same conversation waits for its checkpoint, within bounds, because it is what
//! makes the next prompt short. When the model fails, answers nothing, or answers longer than what it read,
//! notes are extracted without it. In the end there is always a checkpoint.

pub(crate) mod prompt;
mod write;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::Instant;

use crate::context::identity::ConversationId;
use crate::events::Event;
use crate::proxy::Gateway;
use crate::store::{Lease, checkpoint_lease};
use crate::telemetry::metrics::Compacting;
pub use write::{Cost, Job};

/// How often the model may be taken back before the notes are made without it.
const MAX_DEFERRALS: u32 = 3;

/// Checkpoints under way or waiting; more are not begun, and 95 % will come.
const MAX_UNDER_WAY: usize = 64;

/// How long a checkpoint may have to wait for the model before nobody waits for it any longer.
const SOON: Duration = Duration::from_millis(100);

/// How far a checkpoint has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It will be written as soon as its turn comes.
    Starting,
    Writing,
    /// Somebody else needs the model.
    Deferred,
    Done,
}

/// The checkpoints being written, and who needs the model meanwhile.
#[derive(Debug)]
pub struct Checkpoints {
    running: Mutex<HashMap<ConversationId, watch::Receiver<Phase>>>,
    /// How many requests of users are with the upstream.
    active: watch::Sender<usize>,
    one_at_a_time: Semaphore,
}

/// A user's request is with the upstream as long as this lives.
#[derive(Debug)]
pub struct Active(watch::Sender<usize>);

impl Drop for Active {
    fn drop(&mut self) {
        self.0.send_modify(|active| *active = active.saturating_sub(1));
    }
}

/// What came of waiting for a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Waited {
    pub took: Duration,
    pub written: bool,
}

impl Default for Checkpoints {
    fn default() -> Self {
        Self { running: Mutex::default(), active: watch::Sender::new(0), one_at_a_time: Semaphore::new(1) }
    }
}

impl Checkpoints {
    /// A user's request goes to the upstream: background work makes way.
    pub fn active(&self) -> Active {
        self.active.send_modify(|active| *active += 1);
        Active(self.active.clone())
    }

    /// Waits for a conversation's checkpoint if one is being written; `None` if none is.
    pub async fn wait(&self, conversation: ConversationId, at_most: Duration) -> Option<Waited> {
        let mut phase = self.running().get(&conversation).cloned()?;
        let under_way = |phase: &Phase| matches!(phase, Phase::Starting | Phase::Writing);
        if !under_way(&phase.borrow()) {
            return None;
        }
        let started = Instant::now();
        let over = tokio::time::timeout(at_most, phase.wait_for(|phase| !under_way(phase))).await;
        let written = over.is_ok_and(|phase| phase.is_ok_and(|phase| *phase == Phase::Done));
        Some(Waited { took: started.elapsed(), written })
    }

    /// Whether one is being written for a conversation.
    pub fn is_writing(&self, conversation: ConversationId) -> bool {
        self.running().contains_key(&conversation)
    }

    /// How many are under way.
    pub fn under_way(&self) -> usize {
        self.running().len()
    }

    fn running(&self) -> MutexGuard<'_, HashMap<ConversationId, watch::Receiver<Phase>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Begins a checkpoint in the background, unless the conversation's last one is still under way.
pub fn schedule(gateway: &Arc<Gateway>, job: Job) {
    let conversation = job.turn.conversation;
    let (phase, watched) = watch::channel(Phase::Starting);
    {
        let mut running = gateway.checkpoints.running();
        if running.contains_key(&conversation) || running.len() >= MAX_UNDER_WAY {
            return;
        }
        running.insert(conversation, watched);
    }
    let gateway = Arc::clone(gateway);
    tokio::spawn(async move {
        // Whatever happens in there, the conversation is free again afterwards.
        let running = Running { gateway: &gateway, conversation, phase: &phase };
        // Of several Loadlines one writes it. If it cannot be told who, nobody does, and 95 % will come.
        if let Ok(Some(_ours)) = Lease::take(&gateway.store, format!("checkpoint job {conversation}")).await {
            run(&gateway, job, &phase).await;
        }
        drop(running);
    });
}

struct Running<'g> {
    gateway: &'g Gateway,
    conversation: ConversationId,
    phase: &'g watch::Sender<Phase>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.gateway.checkpoints.running().remove(&self.conversation);
        self.phase.send_replace(Phase::Done);
    }
}

/// Waits until nobody needs the model and no other checkpoint is being written. Nobody is made to wait for a
/// checkpoint that itself has to.
async fn model_is_free<'g>(
    gateway: &'g Gateway,
    active: &mut watch::Receiver<usize>,
    deadline: Instant,
    phase: &watch::Sender<Phase>,
) -> Option<SemaphorePermit<'g>> {
    let mut free = std::pin::pin!(async {
        let permit = gateway.checkpoints.one_at_a_time.acquire().await.ok()?;
        // The sender lives as long as the gateway.
        active.wait_for(|active| *active == 0).await.ok()?;
        Some(permit)
    });
    if let Ok(permit) = tokio::time::timeout(SOON, free.as_mut()).await {
        return permit;
    }
    phase.send_replace(Phase::Deferred);
    tokio::time::timeout_at(deadline, free).await.ok().flatten()
}

async fn run(gateway: &Gateway, job: Job, phase: &watch::Sender<Phase>) {
    let Some(mut draft) = job.draft(gateway) else { return };
    let told = |kind, body| gateway.events.publish(&job.turn, Event { kind, body });
    told("checkpoint.started", json!({ "messages": [draft.first(), draft.last()], "model": draft.author() }));
    let started = Instant::now();
    let deadline = started + gateway.config.checkpoint.timeout;
    let mut deferrals = 0;
    let mut active = gateway.checkpoints.active.subscribe();
    // The notes are then made without the model.
    let failed = |reason: String| {
        tracing::warn!(conversation = job.turn.conversation, reason, "a model has not written a checkpoint");
        gateway.metrics.compaction_failed(Compacting::Checkpoint);
        told("checkpoint.failed", json!({ "reason": reason }));
    };
    // Others wait for it until it is kept.
    let mut others_wait = Ok(None);
    while !draft.is_written() {
        let Some(_turn) = model_is_free(gateway, &mut active, deadline, phase).await else {
            failed("the model was not free within checkpoint.timeout_s".to_owned());
            draft.give_up();
            break;
        };
        phase.send_replace(Phase::Writing);
        others_wait = Lease::take(&gateway.store, checkpoint_lease(job.turn.conversation)).await;
        let busy = async {
            let _busy = active.wait_for(|active| *active > 0).await;
        };
        let preempted = tokio::select! {
            biased;
            () = busy => true,
            stepped = tokio::time::timeout_at(deadline, draft.step(gateway, &job)) => {
                let trouble = match stepped {
                    Ok(Ok(())) => None,
                    Ok(Err(error)) => Some(error.to_string()),
                    Err(_) => Some("the model took longer than checkpoint.timeout_s".to_owned()),
                };
                match trouble {
                    None => told("checkpoint.progress", json!({ "done": draft.done(), "of": draft.of() })),
                    Some(reason) => {
                        failed(reason);
                        draft.give_up();
                    }
                }
                false
            }
        };
        if preempted {
            deferrals += 1;
            others_wait = Ok(None);
            phase.send_replace(Phase::Deferred);
            told("checkpoint.deferred", json!({ "times": deferrals, "done": draft.done(), "of": draft.of() }));
            if deferrals >= MAX_DEFERRALS {
                failed(format!("the model was needed elsewhere {deferrals} times"));
                draft.give_up();
            }
        }
    }
    let kept = draft.keep(gateway, &job).await;
    drop(others_wait);
    match kept {
        Ok(()) => gateway.metrics.compacted(Compacting::Checkpoint, started.elapsed()),
        Err(reason) => failed(format!("the checkpoint was not kept: {reason}")),
    }
}
