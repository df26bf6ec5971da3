//! What only one of several processes may do at a time, for as long as it lives and a moment longer.
//!
//! Where nobody else uses the store it is always to be had, and costs nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::AbortHandle;

use super::{Store, StoreError};

/// After a process has died, others wait this long before they take its place.
const LASTS: Duration = Duration::from_secs(6);

/// How often it is made to last longer.
const RENEWED_EVERY: Duration = Duration::from_secs(2);

/// Held until it is dropped, or until the database was away for too long.
#[derive(Debug)]
pub struct Lease {
    store: Arc<Store>,
    name: String,
    lost: Arc<AtomicBool>,
    /// None: nobody else could want it.
    renewing: Option<AbortHandle>,
}

impl Lease {
    /// Takes it, if nobody else has it.
    pub async fn take(store: &Arc<Store>, name: String) -> Result<Option<Self>, StoreError> {
        let (store, lost) = (Arc::clone(store), Arc::new(AtomicBool::new(false)));
        if !store.is_shared() {
            return Ok(Some(Self { store, name, lost, renewing: None }));
        }
        if !extended(&store, &name).await? {
            return Ok(None);
        }
        let renewing = tokio::spawn(renew(Arc::clone(&store), name.clone(), Arc::clone(&lost)));
        Ok(Some(Self { store, name, lost, renewing: Some(renewing.abort_handle()) }))
    }

    /// Whether somebody else may have it by now.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(renewing) = self.renewing.take() else { return };
        renewing.abort();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (store, name) = (Arc::clone(&self.store), std::mem::take(&mut self.name));
            // Should that fail, it ends by itself.
            runtime.spawn_blocking(move || store.release(&name).ok());
        }
    }
}

async fn renew(store: Arc<Store>, name: String, lost: Arc<AtomicBool>) {
    let mut good_until = tokio::time::Instant::now() + LASTS;
    loop {
        tokio::time::sleep(RENEWED_EVERY).await;
        let asked_at = tokio::time::Instant::now();
        match extended(&store, &name).await {
            Ok(true) => good_until = asked_at + LASTS,
            Ok(false) => break,
            // It may come back before somebody else can have it.
            Err(_) if tokio::time::Instant::now() < good_until => {}
            Err(_) => break,
        }
    }
    lost.store(true, Ordering::Relaxed);
}

async fn extended(store: &Arc<Store>, name: &str) -> Result<bool, StoreError> {
    let (store, name) = (Arc::clone(store), name.to_owned());
    tokio::task::spawn_blocking(move || store.lease(&name, LASTS)).await.unwrap_or(Err(StoreError::Stopped))
}
