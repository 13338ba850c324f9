//! What a scheduler knows of devices: what there is, and who has it, decisions that are not written yet included.
//!
//! A decision counts from the moment it is made ([`Inventory::assume`]) until the API shows it or it is taken back. What
//! can be used from a node is put together once and kept until a slice or the node changes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use api::json::Text;
use api::resource::v1::{AllocationResult, DeviceTaintRule, ResourceSlice};
use matching::Matcher;
use matching::node::Labels;

use crate::allocated::AllocatedState;
use crate::catalog::Catalog;
use crate::error::Error;
use crate::features::Features;
use crate::pools::{NodePools, Target};
use crate::shape;

/// What a scheduler knows of devices.
#[derive(Debug)]
pub struct Inventory {
    catalog: Catalog,
    allocated: AllocatedState,
    /// By the claim's uid.
    claims: HashMap<Text, Allocation>,
    features: Features,
    gathered: Mutex<Gathered>,
}

/// What is known about a claim.
#[derive(Debug, Default)]
struct Allocation {
    /// What the API shows.
    seen: Option<Arc<AllocationResult>>,
    /// What was decided and is not seen yet.
    assumed: Option<Arc<AllocationResult>>,
}

#[derive(Debug, Default)]
struct Gathered {
    nodes: HashMap<Text, Kept>,
    /// Shapes by number; numbers are never given twice.
    shapes: HashMap<String, u64>,
    last_shape: u64,
}

/// What can be used from a node, and of which state of the world that was told.
#[derive(Debug)]
struct Kept {
    version: (u64, u64),
    labels: Labels,
    shaped: Shaped,
}

/// What can be used from a node, and the number of nodes' shapes like this one.
#[derive(Debug, Clone)]
pub(crate) struct Shaped {
    pub(crate) pools: Arc<NodePools>,
    pub(crate) number: u64,
}

impl Inventory {
    /// Nothing is known.
    #[must_use]
    pub fn new(matcher: Arc<Matcher>, features: Features) -> Self {
        Inventory {
            catalog: Catalog::new(matcher),
            allocated: AllocatedState::new(),
            claims: HashMap::new(),
            features,
            gathered: Mutex::default(),
        }
    }

    /// What may be used.
    #[must_use]
    pub fn features(&self) -> Features {
        self.features
    }

    /// A slice that is new or has changed.
    pub fn set_slice(&mut self, slice: &ResourceSlice) {
        self.catalog.set(slice);
    }

    /// A slice that is gone.
    pub fn remove_slice(&mut self, name: &str) {
        self.catalog.remove(name);
    }

    /// A rule about taints that is new or has changed; nothing if it is gone.
    pub fn set_taint_rule(&mut self, name: &str, rule: Option<&DeviceTaintRule>) {
        self.catalog.set_taint_rule(name, rule);
    }

    /// A node that is gone.
    pub fn remove_node(&mut self, name: &str) {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner).nodes.remove(name);
    }

    /// What the API shows of a claim.
    pub fn see_claim(&mut self, uid: &Text, allocation: Option<&AllocationResult>) {
        let claim = self.claims.entry(uid.clone()).or_default();
        let before = claim.effective().cloned();
        claim.seen = allocation.cloned().map(Arc::new);
        // The decision has arrived, or somebody else's was faster and the write of ours will fail.
        if claim.seen.is_some() {
            claim.assumed = None;
        }
        self.change(uid, before);
    }

    /// A claim that is gone.
    pub fn remove_claim(&mut self, uid: &Text) {
        if let Some(claim) = self.claims.remove(uid)
            && let Some(allocation) = claim.effective()
        {
            self.allocated.remove(allocation);
        }
    }

    /// A decision that is about to be written.
    pub fn assume(&mut self, uid: &Text, allocation: AllocationResult) {
        let claim = self.claims.entry(uid.clone()).or_default();
        let before = claim.effective().cloned();
        claim.assumed = Some(Arc::new(allocation));
        self.change(uid, before);
    }

    /// A decision that was not written after all.
    pub fn take_back(&mut self, uid: &Text) {
        let Some(claim) = self.claims.get_mut(uid) else { return };
        let before = claim.effective().cloned();
        claim.assumed = None;
        self.change(uid, before);
    }

    /// A decision about the claim is on its way.
    #[must_use]
    pub fn is_assumed(&self, uid: &str) -> bool {
        self.claims.get(uid).is_some_and(|claim| claim.assumed.is_some())
    }

    /// Which devices are taken.
    #[must_use]
    pub fn allocated(&self) -> &AllocatedState {
        &self.allocated
    }

    fn change(&mut self, uid: &Text, before: Option<Arc<AllocationResult>>) {
        let after = self.claims.get(uid).and_then(Allocation::effective).cloned();
        if let Some(before) = before {
            self.allocated.remove(&before);
        }
        match after {
            Some(after) => self.allocated.add(&after),
            None => {
                self.claims.remove(uid);
            }
        }
    }

    /// What can be used from a node.
    pub(crate) fn shaped(&self, target: Target<'_>) -> Result<Shaped, Error> {
        let version = self.catalog.version_for(&target.node.name);
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = gathered.nodes.get(&target.node.name)
            && kept.version == version
            && kept.shaped.pools.optional_node_operations == target.optional_node_operations
            && (self.catalog.is_all_local() || kept.labels == target.node.labels)
        {
            return Ok(kept.shaped.clone());
        }
        let pools = Arc::new(self.catalog.pools(target, &self.features)?);
        let number = gathered.number(shape::usable(&pools));
        let shaped = Shaped { pools, number };
        let kept = Kept { version, labels: target.node.labels.clone(), shaped: shaped.clone() };
        gathered.nodes.insert(target.node.name.clone(), kept);
        Ok(shaped)
    }
}

impl Allocation {
    fn effective(&self) -> Option<&Arc<AllocationResult>> {
        self.assumed.as_ref().or(self.seen.as_ref())
    }
}

impl Gathered {
    fn number(&mut self, shape: String) -> u64 {
        if let Some(number) = self.shapes.get(&shape) {
            return *number;
        }
        self.last_shape = self.last_shape.wrapping_add(1);
        // Shapes that nodes have lost are not looked for: a forgotten one only costs a search.
        if self.shapes.len() > self.nodes.len().saturating_mul(4).max(1024) {
            self.shapes.clear();
        }
        self.shapes.insert(shape, self.last_shape);
        self.last_shape
    }
}
