//! Bytes of answers that a user has not read yet, counted until they are sent.
//!
//! A client decides how fast it reads, and over HTTP/2 it may read nothing at all. Seats do not bound this: a seat that is
//! held while a client reads would let slow readers drain a priority level. So answers are counted by their bytes, and
//! a user with too many of them waits, or is refused, while others are served.

use locks::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// The bytes of all users.
#[derive(Debug, Clone)]
pub(crate) struct Budgets(Arc<SharedBudget>);

#[derive(Debug)]
struct SharedBudget {
    /// Bytes that one user may have.
    max: usize,
    taken: Mutex<HashMap<Box<str>, usize>>,
    freed: Notify,
}

/// Bytes that count until this is dropped.
#[derive(Debug)]
pub struct Charge {
    shared: Arc<SharedBudget>,
    user: Box<str>,
    bytes: usize,
}

impl Budgets {
    /// Budgets of `max` bytes each.
    pub(crate) fn new(max: usize) -> Self {
        Self(Arc::new(SharedBudget { max, taken: Mutex::default(), freed: Notify::new() }))
    }

    /// Counts bytes, if they fit; a user without any may take more than the budget.
    pub(crate) fn take(&self, user: &str, bytes: usize) -> Option<Charge> {
        self.count(user, bytes, self.0.max)
    }

    /// Counts bytes, whether they fit or not.
    pub(crate) fn force(&self, user: &str, bytes: usize) -> Option<Charge> {
        self.count(user, bytes, usize::MAX)
    }

    fn count(&self, user: &str, bytes: usize, max: usize) -> Option<Charge> {
        let mut taken = self.0.taken();
        let before = taken.get(user).copied().unwrap_or_default();
        let after = before.saturating_add(bytes);
        if before > 0 && after > max {
            return None;
        }
        taken.insert(user.into(), after);
        Some(Charge { shared: self.0.clone(), user: user.into(), bytes })
    }

    /// As [`Self::take`], but waits until enough bytes are free.
    pub(crate) async fn wait(&self, user: &str, bytes: usize, patience: Duration) -> Option<Charge> {
        let until = Instant::now().checked_add(patience)?;
        loop {
            // Registered first: a release in between must not be missed.
            let freed = self.0.freed.notified();
            if let Some(charge) = self.take(user, bytes) {
                return Some(charge);
            }
            tokio::time::timeout_at(until, freed).await.ok()?;
        }
    }
}

impl Charge {
    /// Both of one user, as one.
    pub(crate) fn and(mut self, mut other: Self) -> Self {
        self.bytes = self.bytes.saturating_add(std::mem::take(&mut other.bytes));
        self
    }
}

impl SharedBudget {
    fn taken(&self) -> locks::MutexGuard<'_, HashMap<Box<str>, usize>> {
        self.taken.lock()
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut taken = self.shared.taken();
        if let Some(bytes) = taken.get_mut(&self.user) {
            *bytes = bytes.saturating_sub(self.bytes);
            if *bytes == 0 {
                taken.remove(&self.user);
            }
        }
        drop(taken);
        self.shared.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn users_have_budgets_of_their_own() {
        let budgets = Budgets::new(100);
        let first = budgets.take("a", 60).unwrap();
        assert!(budgets.take("a", 41).is_none());
        let second = budgets.take("a", 40).unwrap();
        let large = budgets.take("b", 1000).unwrap();
        assert!(budgets.take("b", 1).is_none(), "more than the budget only for one answer");
        let forced = budgets.force("a", 10).unwrap();
        assert!(budgets.wait("a", 10, Duration::from_secs(1)).await.is_none());
        let (waited, ()) = tokio::join!(budgets.wait("a", 60, Duration::from_secs(1)), async { drop(first) });
        assert!(waited.is_none(), "50 are taken still");
        drop(forced);
        assert!(budgets.wait("a", 60, Duration::from_secs(1)).await.is_some());
        drop((second, large));
        assert!(budgets.0.taken().is_empty());
    }
}
