//! Searches for devices that an attempt does not wait for: other pods are not held up by them.
//!
//! The core hands such a search out ([`Outcome::Deferred`](crate::Outcome::Deferred)); the caller runs it wherever it likes and
//! says what came of it ([`Scheduler::searched`](crate::Scheduler::searched)). All searches of an attempt share its budget.

use std::sync::Weak;
use std::time::Duration;

use api::json::Text;
use dra::constraints::look_ahead::LookAhead;
use dra::{Budget, Deferred, Searched};

use crate::cluster::{Carried, Clock};

/// A search for the devices of a pod.
pub struct DeviceSearch {
    pub(crate) uid: Text,
    pub(crate) search: Deferred,
    pub(crate) cost_limit: u64,
    pub(crate) clock: Option<Clock>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) carried: Carried,
    /// Gone when nobody waits any more.
    pub(crate) wanted: Weak<()>,
}

/// What came of it.
#[derive(Debug)]
pub struct DeviceSearched {
    pub(crate) uid: Text,
    pub(crate) result: Searched,
    pub(crate) carried: Carried,
}

impl DeviceSearch {
    /// Whose devices are looked for.
    #[must_use]
    pub fn uid(&self) -> &Text {
        &self.uid
    }

    /// Searches: as long as the budget lasts, and somebody waits.
    #[must_use]
    pub fn run(self) -> DeviceSearched {
        let now = || self.clock.as_ref().map_or(Duration::ZERO, |clock| clock());
        let started = now();
        let is_late = limit(self.clock.as_ref(), self.timeout, self.carried.time);
        let mut budget = Budget {
            cost_limit: self.cost_limit,
            cost: self.carried.effort.cost,
            interrupt: Box::new(|| match self.wanted.strong_count() {
                0 => Some("nobody waits for the devices any more".to_owned()),
                _ => is_late(),
            }),
            ..Budget::by_cost()
        };
        let result = self.search.run(&mut budget, Some(&mut LookAhead::default()));
        let carried = Carried {
            effort: self.carried.effort.and(result.effort),
            searches: self.carried.searches,
            time: self.carried.time.saturating_add(now().saturating_sub(started)),
        };
        DeviceSearched { uid: self.uid.clone(), result, carried }
    }
}

impl std::fmt::Debug for DeviceSearch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceSearch").field("uid", &self.uid).finish_non_exhaustive()
    }
}

/// Says from when on a search takes too long, of which so much time has passed before.
pub(crate) fn limit(
    clock: Option<&Clock>,
    timeout: Option<Duration>,
    before: Duration,
) -> Box<dyn Fn() -> Option<String>> {
    let (Some(clock), Some(timeout)) = (clock.cloned(), timeout) else { return Box::new(|| None) };
    let started = clock();
    Box::new(move || {
        let is_late = clock().saturating_sub(started).saturating_add(before) > timeout;
        is_late.then(|| format!("timed out trying to allocate devices after {timeout:?}"))
    })
}
