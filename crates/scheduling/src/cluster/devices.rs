//! Devices and claims to them, as the plugin that allocates them needs them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::json::Text;
use dra::{Budget, DeferredSearch, Effort, Expressions, Inventory, Narration};
use locks::Mutex;

use super::objects::{Name, Object};

/// Devices, their allocation, and the compiled selectors of claims.
pub struct Devices {
    /// Available and allocated devices.
    pub inventory: Inventory,
    /// Programs of selectors and constraints.
    pub programs: Arc<Expressions>,
    /// Cost limit for set constraints in one attempt.
    pub cost_limit: u64,
    /// Clock, if there is one: ends searches that take too long.
    pub clock: Option<Clock>,
    /// Whether every step of a search is recorded.
    pub narrates: bool,
    /// Amount of work that an attempt does itself, see [`Budget::patience`]: longer searches are deferred to
    /// the caller. `None` if attempts wait for all searches.
    pub patience: Option<u64>,
    /// Effort of background searches in this attempt's budget.
    pub(crate) carried: CarriedEffort,
    /// The claims that were created for the extended resources of pods: namespace and name, by UID of the pod.
    extended: HashMap<Text, Name>,
    spent: Mutex<Option<DeviceEffort>>,
}

/// Effort of background searches.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CarriedEffort {
    pub(crate) effort: Effort,
    pub(crate) searches: u64,
    pub(crate) time: Duration,
}

/// The time since some moment.
pub type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Effort of the device search in one attempt.
#[derive(Debug, Clone, Default)]
pub struct DeviceEffort {
    /// Total effort of all searches.
    pub effort: Effort,
    /// Number of searches: one for all equivalent nodes.
    pub searches: u64,
    /// Duration of background searches, which is not part of the attempt.
    pub time_aside: Duration,
    /// Recorded steps, if enabled.
    pub narration: Option<Narration>,
    /// Errors of expressions, without duplicates.
    pub problems: Vec<dra::Error>,
    /// The search that the attempt did not wait for.
    pub(crate) deferred: Option<(DeferredSearch, Option<Duration>)>,
}

impl Devices {
    /// No devices yet.
    pub fn new(inventory: Inventory, programs: Arc<Expressions>) -> Self {
        let (cost_limit, spent) = (Budget::COST_LIMIT, Mutex::default());
        let carried = CarriedEffort::default();
        Devices {
            inventory,
            programs,
            cost_limit,
            clock: None,
            narrates: false,
            patience: None,
            carried,
            extended: HashMap::new(),
            spent,
        }
    }

    /// Records the effort of a device search.
    pub(crate) fn note(&self, note: impl FnOnce(&mut DeviceEffort)) {
        note(self.spent.lock().get_or_insert_default());
    }

    /// Returns the effort since the last call; `None` if no devices were searched.
    pub(crate) fn take_spent(&self) -> Option<DeviceEffort> {
        self.spent.lock().take()
    }

    /// The search that the attempt did not wait for, and how long it may take.
    pub(crate) fn take_deferred(&self) -> Option<(DeferredSearch, Option<Duration>)> {
        self.spent.lock().as_mut()?.deferred.take()
    }

    /// Returns namespace and name of the claim that was created for the extended resources of a pod.
    pub(crate) fn extended_claim(&self, pod: &Text) -> Option<&Name> {
        self.extended.get(pod)
    }

    /// An object before and after a change.
    pub(super) fn see(&mut self, old: Option<&Object>, new: Option<&Object>) {
        match (old, new) {
            (_, Some(Object::ResourceSlice(slice))) => self.inventory.set_slice(slice),
            (Some(Object::ResourceSlice(slice)), None) => self.inventory.remove_slice(&slice.metadata.name),
            (_, Some(Object::DeviceTaintRule(rule))) => self.inventory.set_taint_rule(&rule.metadata.name, Some(rule)),
            (Some(Object::DeviceTaintRule(rule)), None) => self.inventory.set_taint_rule(&rule.metadata.name, None),
            (old, Some(Object::ResourceClaim(claim))) => {
                if let Some(Object::ResourceClaim(old)) = old
                    && old.metadata.uid != claim.metadata.uid
                {
                    self.inventory.remove_claim(&old.metadata.uid);
                }
                if let Some(pod) = claim.extended_resources_of() {
                    let name = (claim.metadata.namespace.clone(), claim.metadata.name.clone());
                    self.extended.insert(pod.clone(), name);
                    // The devices count as the claim's own from now on.
                    if claim.status.allocation.is_some() {
                        self.inventory.remove_claim(&pending_claim(pod));
                    }
                }
                self.inventory.see_claim(&claim.metadata.uid, claim.status.allocation.as_ref());
            }
            (Some(Object::ResourceClaim(claim)), None) => {
                self.inventory.remove_claim(&claim.metadata.uid);
                if let Some(pod) = claim.extended_resources_of()
                    && self.extended.get(pod).is_some_and(|(_, name)| *name == claim.metadata.name)
                {
                    self.extended.remove(pod);
                }
            }
            _ => {}
        }
    }
}

/// Returns the UID under which the devices for a pod's extended resources count until their claim is observed.
pub(crate) fn pending_claim(pod: &Text) -> Text {
    format!("{pod}/extended-resources").into()
}

impl std::fmt::Debug for Devices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Devices").field("inventory", &self.inventory).finish_non_exhaustive()
    }
}
