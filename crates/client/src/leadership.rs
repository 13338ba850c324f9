//! The state of a leadership, which a client checks before each write.
//!
//! [`election`](crate::election) acquires and renews it.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

/// State of a leadership. Clones share it.
#[derive(Clone)]
pub struct Leadership {
    /// Time until which no other candidate can lead; without it, there is no other candidate.
    until: Option<Arc<watch::Sender<Instant>>>,
}

impl Leadership {
    /// Leadership without an election, for a single instance.
    #[must_use]
    pub fn uncontested() -> Self {
        Self { until: None }
    }

    /// One that ends at a time, unless it is extended.
    pub(crate) fn until(end: Instant) -> Self {
        Self { until: Some(Arc::new(watch::channel(end).0)) }
    }

    /// Whether this candidate is certainly still the leader: to be checked before each step that two leaders
    /// must not take.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.until.as_ref().is_none_or(|until| Instant::now() < *until.borrow())
    }

    /// Changes the time at which it ends.
    pub(crate) fn extend(&self, until: Instant) {
        if let Some(known) = &self.until {
            known.send_replace(until);
        }
    }
}
