//! The one factory of matchers: who asks about tolerations, affinity or volumes owns a [`Matcher`] and makes them with it.
//!
//! It holds what all of its matchers share: the compile cache with the verdicts, the distinct sets of taints, and what is
//! allowed. One per component, so that a component's gates and memory are its own.

use std::num::NonZeroUsize;

use api::core::v1;
use cel::env::EnvError;
use cel_kubernetes::cache::Clock;

use crate::expressions::CompileCache;
use crate::features::Features;
use crate::node::Node;
use crate::node_affinity::{Preferred, Required};
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

    /// What is allowed.
    pub fn features(&self) -> Features {
        self.features
    }

    /// The programs, for statistics and explanations.
    pub fn cache(&self) -> &CompileCache {
        &self.cache
    }

    /// All that a pod asks of nodes.
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
    pub fn required(&self, affinity: &v1::NodeAffinity) -> Required {
        Required::new(&Default::default(), Some(affinity), &self.cache, &self.features)
    }

    /// The preferred terms of a node affinity alone.
    pub fn preferred(&self, terms: &[v1::PreferredSchedulingTerm]) -> Preferred {
        Preferred::new(terms, &self.cache, &self.features)
    }

    /// From which nodes a volume can be reached.
    pub fn volume(&self, volume: &v1::PersistentVolume) -> VolumeMatcher {
        VolumeMatcher::new(volume, &self.cache, &self.features)
    }
}
