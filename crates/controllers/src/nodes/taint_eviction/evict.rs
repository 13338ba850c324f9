//! Eviction of a pod: records an event, sets the pod's condition, and deletes it.

use api::core::v1::{ObjectReference, Pod};
use api::json::Value;
use api::time::Timestamp;
use api::well_known::CONDITION_DISRUPTION_TARGET;
use client::events::Severity;
use client::informer::Key;
use client::objects::{Deletion, Patch};

use crate::machinery::action::Action;
use crate::machinery::edit;
use crate::machinery::executor::{Executor, Failure};
use crate::machinery::pods::{PODS, condition};

/// Message of the event before an eviction.
pub(super) const MARKING: &str = "Marking for deletion Pod";
/// Message of the event when an eviction is cancelled.
pub(super) const CANCELLING: &str = "Cancelling deletion of Pod";

/// Reason and message of the pod's condition.
pub(crate) struct EvictionReason {
    pub(crate) reason: &'static str,
    pub(crate) message: &'static str,
}

/// Because of a taint of its node.
pub(super) const NODE_TAINT: EvictionReason =
    EvictionReason { reason: "DeletionByTaintManager", message: "Taint manager: deleting due to NoExecute taint" };

/// Records an event about the eviction of a pod.
pub(super) fn report(executor: &Executor, key: &Key, what: &str) {
    let about = ObjectReference {
        kind: "Pod".into(),
        api_version: "v1".into(),
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        ..ObjectReference::default()
    };
    executor.recorder().event(about, Severity::Normal, "TaintManagerEviction", &format!("{what} {key}"));
}

/// Sets the pod's condition, and deletes it. A pod that was deleted or replaced is ignored.
pub(crate) async fn evict(executor: &Executor, pod: &Pod, now: Timestamp, why: &EvictionReason) -> Result<(), Failure> {
    let metadata = &pod.metadata;
    let (namespace, name) = (metadata.namespace.clone(), metadata.name.clone());
    let mut actions = Vec::new();
    if let Some(patch) = patch(pod, now, why) {
        let (namespace, name) = (namespace.clone(), name.clone());
        let kind = Patch::StrategicMerge;
        actions.push(Action::Patch { resource: PODS, namespace, name, subresource: "status", kind, patch });
    }
    let how = Deletion { uid: Some(metadata.uid.to_string()), ..Deletion::default() };
    actions.push(Action::Delete { resource: PODS, namespace, name, uid: metadata.uid.clone(), how });
    match executor.perform(&edit::key(metadata), actions).await {
        Err(failure) if matches!(failure.code(), 404 | 409) => Ok(()),
        result => result,
    }
}

/// A patch that gives the reason; nothing if the pod has it.
fn patch(pod: &Pod, now: Timestamp, why: &EvictionReason) -> Option<Value> {
    let (reason, message) = (why.reason, why.message);
    let known = condition(pod, CONDITION_DISRUPTION_TARGET);
    if known.is_some_and(|it| it.status == "True" && it.reason == reason && it.message == message) {
        return None;
    }
    let since = known.filter(|it| it.status == "True").and_then(|it| it.last_transition_time).unwrap_or(now);
    let mut row = api::json!({
        "type": CONDITION_DISRUPTION_TARGET,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastProbeTime": null,
        "lastTransitionTime": (edit::time(since)),
    });
    if pod.status.observed_generation != 0 {
        row.set_at(&["observedGeneration"], pod.metadata.generation);
    }
    // A new condition comes last.
    let names = pod
        .status
        .conditions
        .iter()
        .map(|it| it.condition_type.as_str())
        .filter(|name| *name != CONDITION_DISRUPTION_TARGET);
    let order: Vec<Value> = names.chain([CONDITION_DISRUPTION_TARGET]).map(|name| api::json!({"type": name})).collect();
    let status = api::json!({"$setElementOrder/conditions": order, "conditions": [row]});
    Some(api::json!({"metadata": {"uid": (pod.metadata.uid.clone())}, "status": status}))
}
