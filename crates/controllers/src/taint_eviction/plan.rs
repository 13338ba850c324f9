//! When a pod is evicted from a node with `NoExecute` taints.
//!
//! A plan once made is neither shortened nor extended: it is cancelled, when the pod may stay for ever or the taints are
//! gone, or carried out, when its time comes or a taint is no longer tolerated. Follows `processPodOnNode` of Kubernetes'
//! taint-eviction controller; how long a pod tolerates which taints is decided by `matching`.

use std::time::Duration;

use api::time::Timestamp;
use matching::tolerations::Stay;

/// That a pod is to be evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// When that was decided.
    pub made_at: Timestamp,
    /// When it happens.
    pub fires_at: Timestamp,
}

/// What is to be done about a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// All stays as it is.
    Nothing,
    /// The plan is given up.
    Cancel,
    /// The pod goes now; a plan that stood is given up for that.
    EvictNow {
        /// There was one.
        cancels: bool,
    },
    /// The pod goes later; a plan that stood is replaced.
    Schedule {
        /// The new plan.
        plan: Plan,
        /// There was another.
        cancels: bool,
    },
}

/// What follows from what the tolerations now say.
#[must_use]
pub fn revise(plan: Option<Plan>, stay: Stay, now: Timestamp) -> Step {
    let after = match stay {
        Stay::No => return Step::EvictNow { cancels: plan.is_some() },
        Stay::Forever => None,
        Stay::Seconds(seconds) => duration(seconds),
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

/// Nothing is for ever: the largest number of seconds, and what Go's clock cannot count, which wraps around.
fn duration(seconds: i64) -> Option<Duration> {
    if seconds == i64::MAX {
        return None;
    }
    let nanos = seconds.max(0).wrapping_mul(1_000_000_000);
    u64::try_from(nanos).ok().map(Duration::from_nanos)
}
