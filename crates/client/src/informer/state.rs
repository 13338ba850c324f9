//! State of an informer: whether it has synced, and the time of the last message from the server.

use locks::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Maximum silence of a watch. A server sends a bookmark each minute; a watch that is silent for longer is
/// closed, because its connection may be dead without notice.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(150);
/// Time without contact after which a copy counts as stale.
const LAG_MAX: Duration = Duration::from_secs(30);

struct Contact {
    last: Instant,
    /// The failure since the last contact.
    failure: Option<String>,
}

pub(super) struct State {
    synced: watch::Sender<bool>,
    contact: Mutex<Contact>,
    unreadable: AtomicU64,
}

impl State {
    pub(super) fn new() -> Self {
        let contact = Contact { last: Instant::now(), failure: None };
        Self { synced: watch::channel(false).0, contact: Mutex::new(contact), unreadable: AtomicU64::new(0) }
    }

    fn contact(&self) -> MutexGuard<'_, Contact> {
        self.contact.lock()
    }

    /// Records a message from the server.
    pub(super) fn received(&self) {
        *self.contact() = Contact { last: Instant::now(), failure: None };
    }

    /// Records a failure to reach the server.
    pub(super) fn failed(&self, why: String) {
        self.contact().failure = Some(why);
    }

    pub(super) fn has_everything(&self) {
        self.synced.send_replace(true);
    }

    pub(super) fn is_unreadable(&self) {
        self.unreadable.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn unreadable(&self) -> u64 {
        self.unreadable.load(Ordering::Relaxed)
    }

    pub(super) fn has_synced(&self) -> bool {
        *self.synced.borrow()
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    pub(super) async fn synced(&self) {
        // An error means that the sender was dropped, which cannot happen while `self` lives.
        let _ = self.subscribe().wait_for(|synced| *synced).await;
    }

    pub(super) fn health(&self) -> Result<(), String> {
        let contact = self.contact();
        let silent = contact.last.elapsed();
        let because = contact.failure.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
        if !self.has_synced() {
            return Err(format!("has not synced yet{because}"));
        }
        let limit = if contact.failure.is_some() { LAG_MAX } else { SILENCE_MAX.saturating_add(LAG_MAX) };
        if silent > limit {
            return Err(format!("has received nothing from the server for {} s{because}", silent.as_secs()));
        }
        Ok(())
    }
}
