//! A pod as the core keeps it: its shape, and the little that is its own.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use api::annotations::REJECTED;
use api::core::v1::Pod;
use api::json::Text;
use api::quantity::Quantity;
use api::time::Timestamp;
use api::well_known::CONDITION_DISRUPTION_TARGET;
use matching::Matcher;
use matching::resources::{Demand, Options, requests};

use super::shape::{Shape, Shapes};
use crate::framework::Action;

/// The name of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodKey {
    /// Namespace of the pod.
    pub namespace: Text,
    /// Name of the pod.
    pub name: Text,
}

/// A pod.
#[derive(Debug, Clone)]
pub struct PodInfo {
    /// Properties that determine where it can run.
    pub shape: Arc<Shape>,
    /// Name of the pod; the namespace is the shape's.
    pub name: Text,
    /// UID of the pod.
    pub uid: Text,
    /// Name of its node; empty while it is pending.
    pub node_name: Text,
    /// Node to which it is nominated.
    pub nominated_node: Text,
    /// Start time reported by its node.
    pub start_time: Option<Timestamp>,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// Time at which its deletion was requested.
    pub deletion_time: Option<Timestamp>,
    /// Whether it has ended.
    pub is_terminal: bool,
    /// Whether the scheduler has set the condition `DisruptionTarget` on it because of a preemption.
    pub is_preempted: bool,
    /// The claims that were made for its `resourceClaims`, by their names there.
    pub generated_claims: Vec<(Text, Option<Text>)>,
    /// Reason not to schedule it on any node: its annotations are invalid.
    pub rejection: Option<Text>,
    /// Demand on its node while it is being resized, if it differs from that of its shape.
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
                condition.condition_type == CONDITION_DISRUPTION_TARGET
                    && condition.status == "True"
                    && condition.reason == "PreemptionByScheduler"
            }),
            generated_claims: pod
                .status
                .resource_claim_statuses
                .iter()
                .map(|status| (status.name.clone(), status.resource_claim_name.clone()))
                .collect(),
            rejection: pod.metadata.annotations.get(REJECTED).cloned(),
            resized: Demand::may_differ(pod)
                .then(|| Demand::of(pod))
                .filter(|demand| *demand != shape.demand)
                .map(Arc::new),
            shape,
        }
    }

    /// A copy of the pod on a node.
    #[must_use]
    pub fn on(&self, node: &Text) -> Self {
        PodInfo { node_name: node.clone(), ..self.clone() }
    }

    /// Namespace and name.
    pub fn key(&self) -> PodKey {
        PodKey { namespace: self.shape.namespace().clone(), name: self.name.clone() }
    }

    /// Demand on its node.
    pub fn demand(&self) -> &Demand {
        self.resized.as_deref().unwrap_or(&self.shape.demand)
    }

    /// Priority of the pod.
    pub fn priority(&self) -> i32 {
        self.shape.spec().priority.unwrap_or(0)
    }
}

/// Classifies an update of a pod for waiting pods.
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
    if old.rejection != new.rejection
        || before.len() != after.len()
        || before.iter().zip(after).any(|(old, new)| old.expression != new.expression)
    {
        action = action.or(Action::UPDATE_POD_TOLERATION);
    }
    if old.generated_claims != new.generated_claims {
        action = action.or(Action::UPDATE_POD_GENERATED_RESOURCE_CLAIM);
    }
    if action.is_empty() { Action::UPDATE } else { action }
}

/// Whether a pod requests more of a resource than in another state, or a resource that it does not request
/// there.
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
