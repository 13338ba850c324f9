//! The one factory of matchers: each component that evaluates tolerations, affinity or volumes owns a
//! [`Matcher`].
//!
//! It holds the state that its matchers share: the compile cache with the verdicts, the distinct sets of
//! taints, and the enabled features. There is one per component, so that components have separate gates and
//! caches.

use std::num::NonZeroUsize;
use std::sync::Arc;

use api::core::v1;
use cel::env::EnvError;
use cel_kubernetes::cache::Clock;

use crate::expressions::{CompileCache, Meter};
use crate::features::Features;
use crate::node::Node;
use crate::node_affinity::{PreferredAffinity, RequiredAffinity};
use crate::node_selector::NodeSelector;
use crate::pod::PodMatcher;
use crate::taints;
use crate::tolerations::Tolerations;
use crate::volumes::VolumeMatcher;

/// Makes matchers that share one memory.
#[derive(Debug)]
pub struct Matcher {
    cache: CompileCache,
    sets: taints::Sets,
    features: Features,
}

impl Matcher {
    /// A factory that keeps at most `capacity` expressions of each kind.
    ///
    /// # Errors
    /// Never, unless a library of ours contradicts another.
    pub fn new(capacity: NonZeroUsize, clock: Clock, features: Features) -> Result<Self, EnvError> {
        Ok(Matcher { cache: CompileCache::new(capacity, clock)?, sets: taints::Sets::new(), features })
    }

    /// Adds a budget per attempt. The owner of the matcher begins the attempts, one at a time.
    #[must_use]
    pub fn with_meter(mut self, meter: Arc<Meter>) -> Self {
        self.cache = self.cache.metered(meter);
        self
    }

    /// The budget of an attempt, where there is one.
    pub fn meter(&self) -> Option<&Arc<Meter>> {
        self.cache.meter()
    }

    /// Enabled features.
    pub fn features(&self) -> Features {
        self.features
    }

    /// The programs, for statistics and explanations.
    pub fn cache(&self) -> &CompileCache {
        &self.cache
    }

    /// Returns a matcher for all requirements of a pod on nodes.
    pub fn pod(&self, spec: &v1::PodSpec) -> PodMatcher {
        PodMatcher::new(spec, &self.cache, &self.features)
    }

    /// A node as matchers see it.
    pub fn node(&self, node: &v1::Node) -> Node {
        Node::new(node, &self.sets)
    }

    /// Tolerations alone.
    pub fn tolerations(&self, tolerations: &[v1::Toleration]) -> Tolerations {
        Tolerations::new(tolerations, &self.cache, &self.features)
    }

    /// A node selector alone.
    pub fn node_selector(&self, selector: &v1::NodeSelector) -> NodeSelector {
        NodeSelector::new(selector, &self.cache, &self.features)
    }

    /// The required part of a node affinity alone.
    pub fn required(&self, affinity: &v1::NodeAffinity) -> RequiredAffinity {
        RequiredAffinity::new(&Default::default(), Some(affinity), &self.cache, &self.features)
    }

    /// The preferred terms of a node affinity alone.
    pub fn preferred(&self, terms: &[v1::PreferredSchedulingTerm]) -> PreferredAffinity {
        PreferredAffinity::new(terms, &self.cache, &self.features)
    }

    /// Returns a matcher for the nodes from which a volume is accessible.
    pub fn volume(&self, volume: &v1::PersistentVolume) -> VolumeMatcher {
        VolumeMatcher::new(volume, &self.cache, &self.features)
    }
}
