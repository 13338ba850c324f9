//! Time of a pod's eviction from a node with `NoExecute` taints.
//!
//! A plan is neither shortened nor extended: it is cancelled, when the pod may stay forever or the taints are
//! removed, or carried out, when its time is reached or a taint is no longer tolerated. Follows
//! `processPodOnNode` of Kubernetes' taint-eviction controller; `matching` decides how long a pod tolerates
//! which taints.

use std::time::Duration;

use api::time::Timestamp;
use matching::tolerations::StayDuration;

/// A planned eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Time of the decision.
    pub made_at: Timestamp,
    /// Time of the eviction.
    pub fires_at: Timestamp,
}

/// Next step for a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing changes.
    Nothing,
    /// The plan is cancelled.
    Cancel,
    /// The pod is evicted now; an existing plan is cancelled.
    EvictNow {
        /// Whether an existing plan is cancelled.
        cancels: bool,
    },
    /// The pod is evicted later; an existing plan is replaced.
    Schedule {
        /// The new plan.
        plan: Plan,
        /// Whether an existing plan is replaced.
        cancels: bool,
    },
}

/// Returns the step that follows from the current tolerations.
#[must_use]
pub fn revise(plan: Option<Plan>, stay: StayDuration, now: Timestamp) -> Step {
    let after = match stay {
        StayDuration::No => return Step::EvictNow { cancels: plan.is_some() },
        StayDuration::Forever => None,
        StayDuration::Seconds(seconds) => duration(seconds),
    };
    match (after, plan) {
        (None, None) => Step::Nothing,
        (None, Some(_)) => Step::Cancel,
        // Only a plan of this very moment is replaced.
        (Some(_), Some(plan)) if plan.made_at < now => Step::Nothing,
        (Some(after), plan) => {
            let cancels = plan.is_some();
            if after.is_zero() {
                return Step::EvictNow { cancels };
            }
            let made_at = plan.map_or(now, |plan| plan.made_at);
            Step::Schedule { plan: Plan { made_at, fires_at: now.plus(after) }, cancels }
        }
    }
}

/// `None` means forever: the largest number of seconds, and durations beyond the range of Go's clock, which
/// wraps around.
fn duration(seconds: i64) -> Option<Duration> {
    if seconds == i64::MAX {
        return None;
    }
    let nanos = seconds.max(0).wrapping_mul(1_000_000_000);
    u64::try_from(nanos).ok().map(Duration::from_nanos)
}
