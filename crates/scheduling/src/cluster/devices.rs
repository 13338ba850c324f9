//! Devices and claims to them, as the plugin that allocates them needs them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dra::{Budget, Deferred, Effort, Expressions, Inventory, Narration};

use super::objects::Object;

/// Devices, who has them, and the programs of those who ask for them.
pub struct Devices {
    /// What there is, and what is taken.
    pub inventory: Inventory,
    /// Programs of selectors and constraints.
    pub programs: Arc<Expressions>,
    /// What constraints over sets may cost in one attempt.
    pub cost_limit: u64,
    /// What time it is, where somebody knows: searches that take too long are ended.
    pub clock: Option<Clock>,
    /// Every step of a search is told.
    pub narrates: bool,
    /// How much work an attempt does itself, see [`Budget::patience`]: what takes longer is carried out by the caller, aside.
    /// Nothing if attempts wait for all searches.
    pub patience: Option<u64>,
    /// What searches that were carried out aside took of this attempt's budget.
    pub(crate) carried: Carried,
    spent: Mutex<Option<Spent>>,
}

/// What searches that were carried out aside have taken.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Carried {
    pub(crate) effort: Effort,
    pub(crate) searches: u64,
    pub(crate) time: Duration,
}

/// The time since some moment.
pub type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// What looking for devices took in one attempt.
#[derive(Debug, Clone, Default)]
pub struct Spent {
    /// What was done, of all searches.
    pub effort: Effort,
    /// How many searches there were: one for all nodes that look alike.
    pub searches: u64,
    /// Step by step, if that was asked for.
    pub narration: Option<Narration>,
    /// What went wrong with expressions; each once.
    pub problems: Vec<dra::Error>,
    /// The search that the attempt did not wait for.
    pub(crate) deferred: Option<(Deferred, Option<Duration>)>,
}

impl Devices {
    /// No devices yet.
    pub fn new(inventory: Inventory, programs: Arc<Expressions>) -> Self {
        let (cost_limit, spent) = (Budget::COST_LIMIT, Mutex::default());
        let carried = Carried::default();
        Devices { inventory, programs, cost_limit, clock: None, narrates: false, patience: None, carried, spent }
    }

    /// Notes what looking for devices took.
    pub(crate) fn note(&self, note: impl FnOnce(&mut Spent)) {
        note(self.spent.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default());
    }

    /// What was noted since the last call; nothing if no devices were looked for.
    pub(crate) fn take_spent(&self) -> Option<Spent> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The search that the attempt did not wait for, and how long it may take.
    pub(crate) fn take_deferred(&self) -> Option<(Deferred, Option<Duration>)> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner).as_mut()?.deferred.take()
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
                self.inventory.see_claim(&claim.metadata.uid, claim.status.allocation.as_ref());
            }
            (Some(Object::ResourceClaim(claim)), None) => self.inventory.remove_claim(&claim.metadata.uid),
            _ => {}
        }
    }
}

impl std::fmt::Debug for Devices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Devices").field("inventory", &self.inventory).finish_non_exhaustive()
    }
}
