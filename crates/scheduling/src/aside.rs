//! Searches for devices that an attempt does not wait for: other pods are not held up by them.
//!
//! The core returns such a search ([`Outcome::Deferred`](crate::Outcome::Deferred)); the caller runs it on any
//! thread and passes the result back ([`Scheduler::searched`](crate::Scheduler::searched)). All searches of an
//! attempt share its budget.

use std::cell::Cell;
use std::sync::Weak;
use std::time::Duration;

use api::json::Text;
use dra::constraints::look_ahead::LookAhead;
use dra::{Budget, DeferredSearch, SearchOutcome};

use crate::cluster::{CarriedEffort, Clock};

/// A search for the devices of a pod.
pub struct DeviceSearch {
    pub(crate) uid: Text,
    pub(crate) namespace: Text,
    pub(crate) search: DeferredSearch,
    pub(crate) cost_limit: u64,
    pub(crate) clock: Option<Clock>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) carried: CarriedEffort,
    /// Dropped when no attempt waits for the result any more.
    pub(crate) wanted: Weak<()>,
}

/// Result of a search.
#[derive(Debug)]
pub struct DeviceSearchResult {
    pub(crate) uid: Text,
    pub(crate) result: SearchOutcome,
    pub(crate) carried: CarriedEffort,
}

impl DeviceSearch {
    /// UID of the pod whose devices are searched.
    #[must_use]
    pub fn uid(&self) -> &Text {
        &self.uid
    }

    /// The namespace of the pod.
    #[must_use]
    pub fn namespace(&self) -> &Text {
        &self.namespace
    }

    /// Runs the search until it ends, the budget is used up, or no attempt waits for it any more.
    #[must_use]
    pub fn run(self) -> DeviceSearchResult {
        self.run_in_turn(&|| Duration::ZERO)
    }

    /// Like [`run`](Self::run), but in turns with other searches: `pause` is called periodically, waits for the
    /// next turn, and returns how long that took. Only the time of its own turns counts.
    #[must_use]
    pub fn run_in_turn(self, pause: &dyn Fn() -> Duration) -> DeviceSearchResult {
        let now = || self.clock.as_ref().map_or(Duration::ZERO, |clock| clock());
        let started = now();
        let paused = Cell::new(Duration::ZERO);
        let taken = || {
            let running = now().saturating_sub(started).saturating_sub(paused.get());
            self.carried.time.saturating_add(running)
        };
        let mut budget = Budget {
            cost_limit: self.cost_limit,
            cost: self.carried.effort.cost,
            interrupt: Box::new(|| {
                paused.set(paused.get().saturating_add(pause()));
                match (self.wanted.strong_count(), self.timeout) {
                    (0, _) => Some("the pod no longer waits for devices".to_owned()),
                    (_, Some(timeout)) if taken() > timeout => Some(late(timeout)),
                    _ => None,
                }
            }),
            ..Budget::by_cost()
        };
        let result = self.search.run(&mut budget, Some(&mut LookAhead::default()));
        drop(budget);
        let carried = CarriedEffort {
            effort: self.carried.effort.and(result.effort),
            searches: self.carried.searches,
            time: taken(),
        };
        DeviceSearchResult { uid: self.uid.clone(), result, carried }
    }
}

impl std::fmt::Debug for DeviceSearch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceSearch").field("uid", &self.uid).finish_non_exhaustive()
    }
}

/// Returns the time limit of a search that has already used some of its time.
pub(crate) fn limit(
    clock: Option<&Clock>,
    timeout: Option<Duration>,
    before: Duration,
) -> Box<dyn Fn() -> Option<String>> {
    let (Some(clock), Some(timeout)) = (clock.cloned(), timeout) else { return Box::new(|| None) };
    let started = clock();
    Box::new(move || {
        let is_late = clock().saturating_sub(started).saturating_add(before) > timeout;
        is_late.then(|| late(timeout))
    })
}

fn late(timeout: Duration) -> String {
    format!("timed out trying to allocate devices after {timeout:?}")
}
