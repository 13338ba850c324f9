//! Reports about a pod: events, and the condition `PodScheduled`.

use api::core::v1::{ObjectReference, Pod, PodCondition};
use api::json::{Text, Value, to_value};
use api::time::Timestamp;
use client::complaints::{self, Report};
use client::events::{Recorder, Severity, reference};
use client::objects::Patch;
use client::{Client, Error};
use matching::complaints::Complaint;

/// The pod has a node.
pub fn scheduled(recorder: &Recorder, pod: &Pod, node: &str) {
    let note = format!("Successfully assigned {}/{} to {node}", pod.metadata.namespace, pod.metadata.name);
    recorder.action(reference(pod), None, Severity::Normal, "Scheduled", "Binding", &note);
}

/// Records the event that the pod could not be scheduled.
pub fn failed(recorder: &Recorder, pod: &Pod, message: &str) {
    recorder.action(reference(pod), None, Severity::Warning, "FailedScheduling", "Scheduling", message);
}

/// Reports a faulty expression or value, once per pod and value: as an event of the pod, or in the log. The log
/// messages are those of the proposals.
pub fn complained(recorder: &Recorder, pod: &Pod, complaint: &Complaint) {
    let (verbosity, parts, event) = (complaint.verbosity(), complaint.parts(), complaint.event());
    let report = Report { title: &complaint.title(), verbosity, parts, event };
    complaints::report(recorder, reference(pod), report);
}

/// Records the event that a pod was preempted.
pub fn preempted(recorder: &Recorder, victim: &Pod, by: ObjectReference, node: &str) {
    let note = format!("Preempted by pod {} on node {node}", by.uid);
    recorder.action(reference(victim), Some(by), Severity::Normal, "Preempted", "Preempting", &note);
}

/// Contents of a condition.
#[derive(Debug, Clone, Copy)]
pub struct ConditionText<'a> {
    /// The condition.
    pub condition: &'a str,
    /// `True` or `False`.
    pub status: &'a str,
    /// One word.
    pub reason: &'a str,
    /// A sentence.
    pub message: &'a str,
}

/// Returns the patch that sets a pod's condition and nominated node; `None` if they are unchanged.
#[must_use]
pub fn status_patch(pod: &Pod, said: ConditionText<'_>, nominated_node: Option<&str>, now: Timestamp) -> Option<Value> {
    let mut status = Value::object();
    let fields = status.as_object_mut()?;
    let known = pod.status.conditions.iter().find(|it| it.condition_type == said.condition);
    let says = |it: &PodCondition| it.status == said.status && it.reason == said.reason && it.message == said.message;
    if !known.is_some_and(says) {
        // The time of the last transition stays as long as the status does.
        let since = known.filter(|it| it.status == said.status).and_then(|it| it.last_transition_time).unwrap_or(now);
        let since = to_value(&since).unwrap_or_default();
        let (kind, value, reason, message) = (said.condition, said.status, said.reason, said.message);
        let mut condition = api::json!({
            "type": kind, "status": value, "lastProbeTime": null, "lastTransitionTime": since,
            "reason": reason, "message": message,
        });
        if pod.metadata.generation != 0
            && let Some(condition) = condition.as_object_mut()
        {
            condition.insert("observedGeneration", pod.metadata.generation);
        }
        fields.insert("conditions", vec![condition]);
    }
    if let Some(node) = nominated_node.filter(|node| pod.status.nominated_node_name != *node) {
        fields.insert("nominatedNodeName", node);
    }
    (!fields.is_empty()).then(|| api::json!({"status": status}))
}

/// Writes such a patch. It is guarded by the UID, so that another pod of the same name is not changed.
///
/// # Errors
/// [`Error`].
pub async fn write_status(client: &Client, pod: &Pod, mut patch: Value) -> Result<(), Error> {
    let uid: &Text = &pod.metadata.uid;
    if let Some(patch) = patch.as_object_mut() {
        patch.insert("metadata", api::json!({"uid": (uid.as_str())}));
    }
    let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
    client.objects::<Pod>().patch(namespace, name, "status", Patch::StrategicMerge, &patch).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::*;

    const SAID: ConditionText<'_> =
        ConditionText { condition: "PodScheduled", status: "False", reason: "Unschedulable", message: "0/1 nodes" };

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanos: 0 }
    }

    /// The pod as it is after the patch.
    fn after(pod: &Pod, patch: &Value) -> Pod {
        let mut pod = pod.clone();
        let condition = patch.array_at(&["status", "conditions"]).unwrap();
        pod.status.conditions = vec![api::json::from_value(&condition[0]).unwrap()];
        pod
    }

    #[test]
    fn unchanged_condition_is_not_rewritten() {
        let pod = Pod::default();
        let patch = status_patch(&pod, SAID, None, at(10)).unwrap();
        let condition = &patch.array_at(&["status", "conditions"]).unwrap()[0];
        assert_eq!(condition.str_at(&["lastTransitionTime"]), Some("1970-01-01T00:00:10Z"));
        let pod = after(&pod, &patch);
        assert!(status_patch(&pod, SAID, None, at(20)).is_none());
        let other = status_patch(&pod, ConditionText { message: "0/2 nodes", ..SAID }, None, at(20)).unwrap();
        let condition = &other.array_at(&["status", "conditions"]).unwrap()[0];
        assert_eq!(condition.str_at(&["lastTransitionTime"]), Some("1970-01-01T00:00:10Z"), "the status is the same");
        let nominated = status_patch(&pod, SAID, Some("n1"), at(20)).unwrap();
        assert_eq!(nominated.to_string(), r#"{"status":{"nominatedNodeName":"n1"}}"#);
    }
}
