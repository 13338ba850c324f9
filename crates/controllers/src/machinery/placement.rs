//! Shared parts of controllers that evaluate pods on nodes: an index of pods by node, and a cache of compiled
//! expressions each.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use api::core::v1::{ObjectReference, Pod};
use client::complaints::{self, Report};
use client::controller::Runtime;
use client::events::{Recorder, Severity};
use client::informer::{Informer, Key};
use locks::Mutex;
use matching::CompileCache;
use matching::complaints::Complaint;
use matching::expressions::meter::Excess;
use telemetry::logs::chain;
use tokio::time::Instant;
use tracing::error;

/// Expressions that a controller keeps compiled; as many as Kubernetes' scheduler.
const EXPRESSIONS: NonZeroUsize = match NonZeroUsize::new(4096) {
    Some(count) => count,
    None => NonZeroUsize::MIN,
};
const INDEX: &str = "node";

/// Reason of the event about an object whose expressions cost more than one reconciliation may spend.
pub(crate) const OVER_BUDGET: &str = "ExpressionBudgetExceeded";

/// The event's message.
pub(crate) fn over_budget(excess: Excess, wait: Duration) -> String {
    format!(
        "Expressions exceeded the budget of one reconciliation ({excess}); verdicts are kept, and the next one continues in {wait:?}"
    )
}

/// The back-off of an object whose expressions exceeded the budget this many times in a row; the same as the scheduler's.
pub(crate) fn budget_backoff(failures: u32) -> Duration {
    let factor = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    Duration::from_secs(1).saturating_mul(factor).min(Duration::from_secs(10))
}

/// Number of consecutive reconciliations of each object whose expressions exceeded the budget.
#[derive(Debug, Default)]
pub(crate) struct Overruns(Mutex<HashMap<Key, u32>>);

impl Overruns {
    /// Counts an overrun and reports it. Returns the back-off.
    pub(crate) fn report(&self, key: &Key, recorder: &Recorder, about: ObjectReference, excess: Excess) -> Duration {
        let wait = self.count(key);
        recorder.event(about, Severity::Warning, OVER_BUDGET, &over_budget(excess, wait));
        wait
    }

    /// A reconciliation within the budget, or the end of the object: the next overrun is the first.
    pub(crate) fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }

    fn count(&self, key: &Key) -> Duration {
        let mut counts = self.0.lock();
        let count = counts.entry(key.clone()).or_default();
        *count = count.saturating_add(1);
        budget_backoff(*count)
    }
}

/// Reports complaints about the expressions of an object.
pub(crate) fn report(recorder: &Recorder, about: &ObjectReference, found: &[Complaint]) {
    for complaint in found {
        let (verbosity, parts, event) = (complaint.verbosity(), complaint.parts(), complaint.event());
        let report = Report { title: &complaint.title(), verbosity, parts, event };
        complaints::report(recorder, about.clone(), report);
    }
}

/// Keeps pods by the node that they are bound to.
pub(crate) fn index_pods_by_node(pods: &Informer<Pod>) {
    pods.store().add_index(INDEX, |pod| match pod.spec.node_name.as_str() {
        "" => Vec::new(),
        _ => vec![pod.spec.node_name.clone()],
    });
}

/// The pods that are bound to a node.
pub(crate) fn pods_on(pods: &Informer<Pod>, node: &str) -> Vec<Arc<Pod>> {
    pods.store().by_index(INDEX, node)
}

/// A cache of compiled expressions for one controller, with metrics that begin with `prefix`. Without one the controller
/// cannot decide anything, so it does not run.
pub(crate) fn compile_cache(controller: &str, prefix: &'static str, runtime: &Runtime) -> Option<Arc<CompileCache>> {
    let start = Instant::now();
    match CompileCache::new(EXPRESSIONS, Arc::new(move || start.elapsed())) {
        Ok(cache) => {
            let counted = cache.clone();
            runtime.registry.counters(prefix, move || counted.samples());
            Some(Arc::new(cache))
        }
        Err(error) => {
            error!(controller, err = %chain(&error), "Controller cannot run");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_of_overruns_grows_until_forgotten() {
        let (overruns, key, other) = (Overruns::default(), Key::new("a", "p"), Key::new("a", "q"));
        let seconds: Vec<u64> = (0..6).map(|_| overruns.count(&key).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 10, 10]);
        assert_eq!(overruns.count(&other).as_secs(), 1);
        overruns.forget(&key);
        assert_eq!(overruns.count(&key).as_secs(), 1);
    }
}
