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
use crate::answers::{Answer, Answers, Numbers, SearchKey};
use crate::catalog::Catalog;
use crate::claims::Claims;
use crate::deferred::Searched;
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
    answers: Mutex<Answers>,
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
    usable: Numbers,
    taken: Numbers,
}

/// What can be used from a node, and of which state of the world that was told.
#[derive(Debug)]
struct Kept {
    version: (u64, u64),
    labels: Labels,
    /// Of what is taken, by pool.
    taken_versions: Vec<u64>,
    shaped: Shaped,
}

/// What can be used from a node, and numbers that nodes share that look alike.
#[derive(Debug, Clone)]
pub(crate) struct Shaped {
    pub(crate) pools: Arc<NodePools>,
    /// Of what can be used.
    pub(crate) number: u64,
    /// Of what is taken of it.
    pub(crate) taken: u64,
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
            answers: Mutex::default(),
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
        let Gathered { nodes, usable, taken } = &mut *gathered;
        if let Some(kept) = nodes.get_mut(&target.node.name)
            && kept.version == version
            && kept.shaped.pools.optional_node_operations == target.optional_node_operations
            && (self.catalog.is_all_local() || kept.labels == target.node.labels)
        {
            if !self.taken_versions(&kept.shaped.pools).eq(kept.taken_versions.iter().copied()) {
                kept.shaped.taken = taken.of(shape::taken(&kept.shaped.pools, &self.allocated));
                kept.taken_versions = self.taken_versions(&kept.shaped.pools).collect();
            }
            return Ok(kept.shaped.clone());
        }
        let pools = Arc::new(self.catalog.pools(target, &self.features)?);
        let number = usable.of(shape::usable(&pools));
        let taken = taken.of(shape::taken(&pools, &self.allocated));
        let taken_versions = self.taken_versions(&pools).collect();
        let shaped = Shaped { pools, number, taken };
        let labels = target.node.labels.clone();
        nodes.insert(target.node.name.clone(), Kept { version, labels, taken_versions, shaped: shaped.clone() });
        Ok(shaped)
    }

    fn taken_versions<'p>(&'p self, pools: &'p NodePools) -> impl Iterator<Item = u64> + 'p {
        pools.pools.iter().map(|(_, pool)| self.allocated.version(&pool.driver, &pool.name))
    }

    /// The number of what claims ask for.
    pub(crate) fn question(&self, claims: &Claims) -> u64 {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).question(claims)
    }

    /// The number of a question that nobody has asked.
    pub(crate) fn new_question(&self) -> u64 {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).new_question()
    }

    /// What a search came to before.
    pub(crate) fn answer(&self, key: &SearchKey) -> Option<Answer> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    pub(crate) fn remember(&self, key: SearchKey, answer: Answer) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).remember(key, answer);
    }

    /// What a search that was deferred came to.
    pub fn learn(&mut self, searched: &Searched) {
        if let Ok(answer) = &searched.answer {
            self.remember(searched.key, answer.clone());
        }
    }
}

impl Allocation {
    fn effective(&self) -> Option<&Arc<AllocationResult>> {
        self.assumed.as_ref().or(self.seen.as_ref())
    }
}
