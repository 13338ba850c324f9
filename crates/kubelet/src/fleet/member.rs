//! One node of a fleet: its state between two checks.

use locks::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use api::coordination::v1::Lease;
use api::core::v1::{Node, ObjectReference, Pod};
use api::json::Text;
use client::Client;
use client::complaints::{self, Report};
use client::events::{Recorder, Severity};
use client::informer::Key;
use matching::complaints::Complaint;

use crate::container_events::ContainerEvent;
use crate::faults::Faults;
use crate::pod_addresses::PodAddresses;

/// One node of a fleet.
pub(super) struct Member {
    pub(super) name: Text,
    /// Number of the node in the fleet.
    pub(super) number: usize,
    /// Client with the node's name.
    pub(super) client: Client,
    recorder: OnceLock<Recorder>,
    gone: AtomicBool,
    faults: Mutex<Faults>,
    pub(super) lease: Mutex<Option<Lease>>,
    state: Mutex<State>,
}

/// State of the node's pods.
pub(super) struct State {
    pub(super) addresses: PodAddresses,
    /// The pods that may run here, by uid.
    pub(super) admitted: HashMap<Text, Arc<Pod>>,
    /// The pods whose volumes are valid, by UID.
    pub(super) mounted: HashSet<Text>,
    /// The pods that wait for their volumes, by uid.
    pub(super) unmounted: HashMap<Text, Key>,
    /// The pods that are being stopped, by UID.
    pub(super) ending: HashSet<Text>,
    /// The version of a pod that this node wrote last, by UID: older ones are outdated.
    written: HashMap<Text, u64>,
    /// The pods whose devices are prepared, by uid.
    pub(super) prepared: HashSet<Text>,
}

impl Member {
    /// A node of the fleet. Without a recorder, it starts one with its first event.
    pub(super) fn new(name: &str, number: usize, client: Client, recorder: Option<Recorder>) -> Self {
        Self {
            name: name.into(),
            number,
            client,
            recorder: recorder.map_or_else(OnceLock::new, OnceLock::from),
            gone: AtomicBool::new(false),
            faults: Mutex::default(),
            lease: Mutex::default(),
            state: Mutex::new(State {
                addresses: PodAddresses::new(number),
                admitted: HashMap::new(),
                mounted: HashSet::new(),
                unmounted: HashMap::new(),
                ending: HashSet::new(),
                written: HashMap::new(),
                prepared: HashSet::new(),
            }),
        }
    }

    /// Records events about containers of a pod.
    pub(super) fn report(&self, pod: &Pod, news: Vec<ContainerEvent>) {
        for ContainerEvent { field_path, severity, reason, message } in news {
            let about = ObjectReference { field_path: field_path.into(), ..client::events::reference(pod) };
            self.recorder().event(about, severity, reason, &message);
        }
    }

    /// Records a warning about a pod. Most nodes record nothing and need no recorder.
    pub(super) fn warn(&self, pod: &Pod, reason: &str, message: &str) {
        self.recorder().event(client::events::reference(pod), Severity::Warning, reason, message);
    }

    /// Reports expressions that had no answer for a pod.
    pub(super) fn complain(&self, pod: &Pod, found: &[Complaint]) {
        for complaint in found {
            let (verbosity, parts, event) = (complaint.verbosity(), complaint.parts(), complaint.event());
            let report = Report { title: &complaint.title(), verbosity, parts, event };
            complaints::report(self.recorder(), client::events::reference(pod), report);
        }
    }

    pub(super) fn is_gone(&self, gone: bool) {
        self.gone.store(gone, Ordering::Relaxed);
    }

    /// Whether the node exists and is not stopped by a fault.
    pub(super) fn is_alive(&self) -> bool {
        !self.gone.load(Ordering::Relaxed) && !self.faults().stopped
    }

    pub(super) fn faults(&self) -> Faults {
        *self.faults.lock()
    }

    pub(super) fn set_faults(&self, faults: Faults) {
        *self.faults.lock() = faults;
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Recorder of the node's events. Most nodes need none.
    pub(super) fn recorder(&self) -> &Recorder {
        self.recorder.get_or_init(|| Recorder::of_node(&self.client, &self.name))
    }

    pub(super) fn known_lease(&self) -> Option<Lease> {
        self.lease.lock().clone()
    }

    pub(super) fn keep_lease(&self, lease: Option<Lease>) {
        *self.lease.lock() = lease;
    }
}

impl State {
    /// Whether this node has written the pod since this version of it.
    pub(super) fn has_written_since(&self, pod: &Pod) -> bool {
        let seen = pod.metadata.resource_version.parse::<u64>().unwrap_or(u64::MAX);
        self.written.get(&pod.metadata.uid).is_some_and(|written| *written > seen)
    }

    /// Records the version of a write.
    pub(super) fn has_written(&mut self, pod: &Pod) {
        if let Ok(version) = pod.metadata.resource_version.parse() {
            self.written.insert(pod.metadata.uid.clone(), version);
        }
    }

    /// Releases the resources of a pod.
    pub(super) fn release(&mut self, uid: &str) {
        self.admitted.remove(uid);
        self.mounted.remove(uid);
        self.unmounted.remove(uid);
        self.prepared.remove(uid);
        self.addresses.give_back(uid);
    }

    /// Removes the state of a deleted pod.
    pub(super) fn forget(&mut self, uid: &str) {
        self.release(uid);
        self.ending.remove(uid);
        self.written.remove(uid);
    }
}

/// The node's own address.
pub(super) fn address_of(node: &Node) -> String {
    let address = node.status.addresses.iter().find(|it| it.address_type == "InternalIP");
    address.map(|it| it.address.to_string()).unwrap_or_default()
}
