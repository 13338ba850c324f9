//! Devices and claims to them, as the plugin that allocates them needs them.

use std::sync::Arc;

use dra::{Expressions, Inventory};

use super::objects::Object;

/// Devices, who has them, and the programs of those who ask for them.
#[derive(Debug)]
pub struct Devices {
    /// What there is, and what is taken.
    pub inventory: Inventory,
    /// Programs of selectors and constraints.
    pub programs: Arc<Expressions>,
}

impl Devices {
    /// No devices yet.
    pub fn new(inventory: Inventory, programs: Arc<Expressions>) -> Self {
        Devices { inventory, programs }
    }

    /// An object before and after a change.
    pub(super) fn see(&mut self, old: Option<&Object>, new: Option<&Object>) {
        match (old, new) {
            (_, Some(Object::ResourceSlice(slice))) => self.inventory.set_slice(slice),
            (Some(Object::ResourceSlice(slice)), None) => self.inventory.remove_slice(&slice.metadata.name),
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
