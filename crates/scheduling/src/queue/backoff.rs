//! Back-off of pods.

use std::time::Duration;

use super::QueuedPod;

/// Back-off times of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Delay after the first failure; doubled with each further one.
    pub initial: Duration,
    /// At most.
    pub max: Duration,
    /// Time after which a waiting pod is tried without an event.
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
    /// Time at which the pod may be tried again.
    pub(super) fn end(&self, queued: &QueuedPod) -> Duration {
        // Errors count from their first in a row, rejections from the first of all.
        let failures = if queued.errors > 0 { queued.errors } else { queued.rejections };
        let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        let wait = self.initial.saturating_mul(factor).min(self.max);
        queued.since.saturating_add(wait.max(after_searches(queued.searches_without_answer)))
    }
}

/// Back-off after this many device searches without a result: a search takes seconds.
fn after_searches(count: u32) -> Duration {
    const INITIAL: Duration = Duration::from_secs(10);
    const MAX: Duration = Duration::from_secs(300);
    match count.checked_sub(1) {
        None => Duration::ZERO,
        Some(doublings) => INITIAL.saturating_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX)).min(MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_after_searches_grows() {
        let seconds = [0, 1, 2, 3, 6, 40].map(|count| after_searches(count).as_secs());
        assert_eq!(seconds, [0, 10, 20, 40, 300, 300]);
    }
}
