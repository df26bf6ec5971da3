//! What only one of several processes may do at a time, for as long as it lives and a moment longer.
//!
//! Where nobody else uses the store it is always to be had, and costs nothing.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

use super::{Store, StoreError};

/// After a process has died, others wait this long before they take its place.
const LASTS: Duration = Duration::from_secs(6);

/// How often it is made to last longer.
const RENEWED_EVERY: Duration = Duration::from_secs(2);

/// Held until it is dropped, or until it could not be renewed in time.
#[derive(Debug)]
pub struct Lease {
    /// Whoever has a lease does not keep the store open; one that closes gives all of its leases back.
    store: Weak<Store>,
    name: String,
    /// Each who takes it is another, also within a process.
    holder: String,
    /// Until when nobody else can have it.
    good_until: Arc<Mutex<Instant>>,
    /// None: nobody else could want it.
    renewing: Option<AbortHandle>,
}

impl Lease {
    /// Takes it, if nobody else has it.
    pub async fn take(store: &Arc<Store>, name: String) -> Result<Option<Self>, StoreError> {
        let holder = uuid::Uuid::new_v4().simple().to_string();
        let asked_at = Instant::now();
        let good_until = Arc::new(Mutex::new(asked_at + LASTS));
        if !store.is_shared() {
            return Ok(Some(Self { store: Weak::new(), name, holder, good_until, renewing: None }));
        }
        if !extended(store, &name, &holder).await? {
            return Ok(None);
        }
        let store = Arc::downgrade(store);
        let renewing = tokio::spawn(renew(Weak::clone(&store), name.clone(), holder.clone(), Arc::clone(&good_until)));
        Ok(Some(Self { store, name, holder, good_until, renewing: Some(renewing.abort_handle()) }))
    }

    /// Whether somebody else may have it by now.
    pub fn is_lost(&self) -> bool {
        let good_until = *self.good_until.lock().unwrap_or_else(PoisonError::into_inner);
        self.renewing.is_some() && Instant::now() >= good_until
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(renewing) = self.renewing.take() else { return };
        renewing.abort();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (store, name) = (Weak::clone(&self.store), std::mem::take(&mut self.name));
            let holder = std::mem::take(&mut self.holder);
            // Should that fail, it ends by itself.
            runtime.spawn_blocking(move || store.upgrade()?.release(&name, &holder).ok());
        }
    }
}

async fn renew(store: Weak<Store>, name: String, holder: String, good_until: Arc<Mutex<Instant>>) {
    loop {
        tokio::time::sleep(RENEWED_EVERY).await;
        let asked_at = Instant::now();
        let Some(store) = store.upgrade() else { return };
        match extended(&store, &name, &holder).await {
            Ok(true) => *good_until.lock().unwrap_or_else(PoisonError::into_inner) = asked_at + LASTS,
            // Somebody else has it.
            Ok(false) => break,
            // The database may be back before anybody else can have it.
            Err(_) => {}
        }
    }
    *good_until.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
}

async fn extended(store: &Arc<Store>, name: &str, holder: &str) -> Result<bool, StoreError> {
    let (store, name, holder) = (Arc::clone(store), name.to_owned(), holder.to_owned());
    tokio::task::spawn_blocking(move || store.lease(&name, &holder, LASTS)).await.unwrap_or(Err(StoreError::Stopped))
}
