//! Attempts that wait for a background search by the caller.

use std::sync::Arc;
use std::time::Duration;

use super::{Attempt, Outcome, Scheduler};
use crate::aside::{DeviceSearch, DeviceSearchResult};
use crate::queue::{QueuedPod, Rejection};

impl Scheduler {
    /// Starts the attempt with the effort of earlier searches for it.
    pub(super) fn carry(&mut self, queued: &QueuedPod) {
        let Some(devices) = &mut self.cluster.objects.devices else { return };
        devices.carried = queued.carried;
        if devices.carried.searches > 0 {
            let carried = devices.carried;
            devices.note(|spent| {
                spent.effort = carried.effort;
                spent.searches = carried.searches;
                spent.time_aside = carried.time;
            });
        }
    }

    /// The search that the attempt did not wait for, if there is one. The pod stays in flight.
    pub(super) fn defer(&mut self, queued: &QueuedPod) -> Option<DeviceSearch> {
        let devices = self.cluster.objects.devices.as_ref()?;
        let (search, timeout) = devices.take_deferred()?;
        let spent = devices.take_spent().unwrap_or_default();
        let mut carried = queued.carried;
        carried.effort = spent.effort;
        carried.searches = spent.searches.max(1);
        let wanted = Arc::new(());
        let search = DeviceSearch {
            uid: queued.pod.uid.clone(),
            namespace: queued.pod.namespace().clone(),
            search,
            cost_limit: devices.cost_limit,
            clock: devices.clock.clone(),
            timeout,
            carried,
            wanted: Arc::downgrade(&wanted),
        };
        self.searching.insert(queued.pod.uid.clone(), wanted);
        Some(search)
    }

    /// Processes the result of a search. The pod's attempt continues at the next
    /// [`schedule_one`](Self::schedule_one); or it has ended, because there is no result.
    pub fn searched(&mut self, searched: DeviceSearchResult, now: Duration) -> Option<Attempt> {
        let DeviceSearchResult { uid, result, carried } = searched;
        if let Some(devices) = &mut self.cluster.objects.devices {
            devices.inventory.learn(&result);
        }
        // The pod was removed meanwhile.
        self.searching.remove(&uid)?;
        let mut queued = self.queue.get(&uid).filter(|_| self.queue.is_in_flight(&uid))?.clone();
        let Some(failure) = result.failure() else {
            self.queue.resume(&uid, carried);
            return None;
        };
        let mut attempt = Attempt::new(&queued);
        attempt.outcome = Outcome::Error(failure.to_string());
        queued.carried = carried;
        self.carry(&queued);
        attempt.devices = self.cluster.objects.devices.as_ref().and_then(crate::cluster::Devices::take_spent);
        self.queue.search_ended(queued, now);
        Some(attempt)
    }

    /// A search could not be carried out: its pod is tried again after a back-off.
    pub fn search_failed(&mut self, uid: &str, now: Duration) {
        self.searching.remove(uid);
        if let Some(queued) = self.queue.get(uid).filter(|_| self.queue.is_in_flight(uid)) {
            let queued = queued.clone();
            self.queue.reject(queued, Rejection { by: 0, pending: 0 }, now);
        }
    }

    /// Cancels all background searches.
    pub fn abandon_searches(&mut self) {
        self.searching.clear();
    }
}
