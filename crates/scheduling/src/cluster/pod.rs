//! A pod as the core keeps it: its shape, and the little that is its own.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use api::core::v1::Pod;
use api::json::Text;
use api::quantity::Quantity;
use api::time::Timestamp;
use matching::Matcher;
use matching::resources::{Demand, Options, requests};

use super::shape::{Shape, Shapes};
use crate::framework::Action;

/// The name of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodKey {
    /// Its namespace.
    pub namespace: Text,
    /// Its name there.
    pub name: Text,
}

/// A pod.
#[derive(Debug, Clone)]
pub struct PodInfo {
    /// What decides where it can run.
    pub shape: Arc<Shape>,
    /// Its name; the namespace is the shape's.
    pub name: Text,
    /// Which of all pods of that name it is.
    pub uid: Text,
    /// Where it runs; empty where it waits.
    pub node_name: Text,
    /// Where room is being made for it.
    pub nominated_node: Text,
    /// When it started, according to its node.
    pub start_time: Option<Timestamp>,
    /// Its deletion has begun.
    pub is_deleting: bool,
    /// When its deletion was asked for.
    pub deletion_time: Option<Timestamp>,
    /// It has ended for good.
    pub is_terminal: bool,
    /// The scheduler put a condition on it that room is being made: `DisruptionTarget` for preemption.
    pub is_preempted: bool,
    /// The claims that were made for its `resourceClaims`, by their names there.
    pub generated_claims: Vec<(Text, Option<Text>)>,
    /// What it takes of its node, where that is not what its shape says: it is being resized.
    pub(crate) resized: Option<Arc<Demand>>,
}

impl PodInfo {
    /// A pod as the API has it.
    pub fn new(pod: &Pod, shapes: &mut Shapes, matcher: &Matcher) -> Self {
        let shape = shapes.intern(pod, matcher);
        PodInfo {
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
            node_name: pod.spec.node_name.clone(),
            nominated_node: pod.status.nominated_node_name.clone(),
            start_time: pod.status.start_time,
            is_deleting: pod.metadata.is_deleting(),
            deletion_time: pod.metadata.deletion_timestamp,
            is_terminal: pod.is_terminal(),
            is_preempted: pod.status.conditions.iter().any(|condition| {
                condition.condition_type == "DisruptionTarget"
                    && condition.status == "True"
                    && condition.reason == "PreemptionByScheduler"
            }),
            generated_claims: pod
                .status
                .resource_claim_statuses
                .iter()
                .map(|status| (status.name.clone(), status.resource_claim_name.clone()))
                .collect(),
            resized: Demand::may_differ(pod)
                .then(|| Demand::of(pod))
                .filter(|demand| *demand != shape.demand)
                .map(Arc::new),
            shape,
        }
    }

    /// The same pod, on a node.
    #[must_use]
    pub fn on(&self, node: &Text) -> Self {
        PodInfo { node_name: node.clone(), ..self.clone() }
    }

    /// Its full name.
    pub fn key(&self) -> PodKey {
        PodKey { namespace: self.shape.namespace().clone(), name: self.name.clone() }
    }

    /// What it takes of its node.
    pub fn demand(&self) -> &Demand {
        self.resized.as_deref().unwrap_or(&self.shape.demand)
    }

    /// How important it is.
    pub fn priority(&self) -> i32 {
        self.shape.spec().priority.unwrap_or(0)
    }
}

/// What an update means to waiting pods.
pub fn changes_of_pod(old: &PodInfo, new: &PodInfo) -> Action {
    let mut action = Action::default();
    if old.labels() != new.labels() {
        action = action.or(Action::UPDATE_POD_LABEL);
    }
    if asks_for_more(old, new) {
        action = action.or(Action::UPDATE_POD_SCALE_DOWN);
    }
    if asks_for_more(new, old) {
        action = action.or(Action::UPDATE_POD_SCALE_UP);
    }
    if !old.spec().scheduling_gates.is_empty() && new.spec().scheduling_gates.is_empty() {
        action = action.or(Action::UPDATE_POD_SCHEDULING_GATES_ELIMINATED);
    }
    // Kubernetes: tolerations can only be added. Those with an expression can be replaced by others.
    let (before, after) = (&old.spec().tolerations, &new.spec().tolerations);
    if before.len() != after.len() || before.iter().zip(after).any(|(old, new)| old.expression != new.expression) {
        action = action.or(Action::UPDATE_POD_TOLERATION);
    }
    if old.generated_claims != new.generated_claims {
        action = action.or(Action::UPDATE_POD_GENERATED_RESOURCE_CLAIM);
    }
    if action.is_empty() { Action::UPDATE } else { action }
}

/// Whether a pod asks for more of something than it does in another state, or names what it does not name there.
fn asks_for_more(pod: &PodInfo, other: &PodInfo) -> bool {
    if pod.resized.is_some() || other.resized.is_some() {
        return pod.demand().requests.any_above(&other.demand().requests);
    }
    if Arc::ptr_eq(&pod.shape, &other.shape) {
        return false;
    }
    let all = |pod: &PodInfo| requests(pod.spec(), Options::default());
    let others = all(other);
    let is_more = |name: &Text, amount: &Quantity| {
        others.get(name).is_none_or(|other| amount.milli_value() > other.milli_value())
    };
    all(pod).iter().any(|(name, amount)| is_more(name, amount))
}

impl Deref for PodInfo {
    type Target = Shape;

    fn deref(&self) -> &Shape {
        &self.shape
    }
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
