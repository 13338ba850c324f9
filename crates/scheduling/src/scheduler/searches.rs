//! Attempts that wait for a search which the caller carries out aside.

use std::sync::Arc;
use std::time::Duration;

use super::{Attempt, Outcome, Scheduler};
use crate::aside::{DeviceSearch, DeviceSearched};
use crate::queue::{QueuedPod, Rejection};

impl Scheduler {
    /// The attempt begins with what was done for it before.
    pub(super) fn carry(&mut self, queued: &QueuedPod) {
        let Some(devices) = &mut self.cluster.objects.devices else { return };
        devices.carried = queued.carried;
        if devices.carried.searches > 0 {
            let carried = devices.carried;
            devices.note(|spent| {
                spent.effort = carried.effort;
                spent.searches = carried.searches;
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

    /// A search has been carried out. The pod's attempt goes on at the next [`schedule_one`](Self::schedule_one); or it is
    /// over, because there is no answer.
    pub fn searched(&mut self, searched: DeviceSearched, now: Duration) -> Option<Attempt> {
        let DeviceSearched { uid, result, carried } = searched;
        if let Some(devices) = &mut self.cluster.objects.devices {
            devices.inventory.learn(&result);
        }
        // Gone meanwhile.
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
        self.queue.reject(queued, Rejection { by: 0, pending: 0 }, now);
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

    /// Nobody waits for searches any more: those that are being carried out end.
    pub fn abandon_searches(&mut self) {
        self.searching.clear();
    }
}
