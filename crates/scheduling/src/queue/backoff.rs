//! How long a pod waits before it is tried again.

use std::time::Duration;

use super::QueuedPod;

/// How long pods wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure; doubled with each further one.
    pub initial: Duration,
    /// At most.
    pub max: Duration,
    /// After this long, a pod that waits for something to change is tried all the same.
    pub max_unschedulable: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff {
            initial: Duration::from_secs(1),
            max: Duration::from_secs(10),
            max_unschedulable: Duration::from_secs(300),
        }
    }
}

impl Backoff {
    /// When the pod may be tried again.
    pub(super) fn end(&self, queued: &QueuedPod) -> Duration {
        // Errors count from their first in a row, rejections from the first of all.
        let failures = if queued.errors > 0 { queued.errors } else { queued.rejections };
        let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        let wait = self.initial.saturating_mul(factor).min(self.max);
        queued.since.saturating_add(wait)
    }
}
