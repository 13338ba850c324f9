//! Status of a ReplicaSet.

use std::sync::Arc;

use api::core::v1::Pod;
use api::json;
use api::json::Value;
use api::time::Timestamp;
use client::Document;

use super::{Counts, ReplicatedKind};
use crate::machinery::edit;
use crate::machinery::pods::{is_available, is_ready};

/// State of the pods of a set.
pub(crate) struct ObservedPods<'a> {
    pub(crate) active: &'a [Arc<Pod>],
    pub(crate) terminating: usize,
    /// Reason why pods could not be created or deleted.
    pub(crate) failure: Option<String>,
}

/// The set with its new status, nothing if that is as it was.
pub(crate) fn updated<T: ReplicatedKind>(set: &Document<T>, seen: &ObservedPods<'_>, now: Timestamp) -> Option<Value> {
    let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let count = |counts: &dyn Fn(&Pod) -> bool| number(seen.active.iter().filter(|pod| counts(pod)).count());
    let labels = set.template_labels();
    let has_all =
        |pod: &Pod| labels.is_none_or(|all| all.iter().all(|(key, value)| pod.metadata.labels.get(key) == Some(value)));
    let new = Counts {
        replicas: number(seen.active.len()),
        fully_labeled: count(&has_all),
        ready: count(&is_ready),
        available: count(&|pod| is_available(pod, set.min_ready_seconds(), now)),
        terminating: T::COUNTS_TERMINATING.then(|| number(seen.terminating)),
        observed_generation: set.metadata().generation,
    };
    let had_failure = set.conditions().iter().any(|condition| condition.condition_type == "ReplicaFailure");
    let fails = seen.failure.is_some();
    if new == set.counts() && had_failure == fails {
        return None;
    }
    let mut document = set.to_value();
    let status = |field: &'static str| ["status", field];
    document.set_at(&status("replicas"), new.replicas);
    edit::set_count(&mut document, &status("fullyLabeledReplicas"), new.fully_labeled);
    edit::set_count(&mut document, &status("readyReplicas"), new.ready);
    edit::set_count(&mut document, &status("availableReplicas"), new.available);
    document.set_or_remove_at(&status("terminatingReplicas"), new.terminating);
    document.set_at(&status("observedGeneration"), new.observed_generation);
    match &seen.failure {
        Some(message) if !had_failure => {
            let too_few = new.replicas < set.replicas();
            let reason = if too_few { "FailedCreate" } else { "FailedDelete" };
            let condition = json!({
                "type": "ReplicaFailure",
                "status": "True",
                "lastTransitionTime": (edit::time(now)),
                "reason": reason,
                "message": message,
            });
            document.make_list_at(&status("conditions")).push(condition);
        }
        None if had_failure => {
            let conditions = document.make_list_at(&status("conditions"));
            conditions.retain(|condition| condition.str_at(&["type"]) != Some("ReplicaFailure"));
            if conditions.is_empty() {
                document.remove_at(&status("conditions"));
            }
        }
        _ => {}
    }
    Some(document)
}

#[cfg(test)]
mod tests {
    use api::apps::v1::ReplicaSet;

    use super::*;

    fn set(status: &str) -> Document<ReplicaSet> {
        let text = format!(r#"{{"metadata":{{"name":"a","generation":2}},"spec":{{"replicas":2}},"status":{status}}}"#);
        Document::new(api::json::parse(text.as_bytes()).unwrap()).unwrap()
    }

    fn status(set: &Document<ReplicaSet>, failure: Option<&str>) -> Option<String> {
        let seen = ObservedPods { active: &[], terminating: 0, failure: failure.map(ToOwned::to_owned) };
        updated(set, &seen, Timestamp { seconds: 0, nanos: 0 })
            .map(|document| document.get("status").unwrap().to_string())
    }

    #[test]
    fn a_failure_is_reported_once_and_taken_back() {
        let fresh = status(&set("{}"), None).unwrap();
        assert_eq!(fresh, r#"{"replicas":0,"terminatingReplicas":0,"observedGeneration":2}"#);
        assert_eq!(status(&set(&fresh), None), None);
        let failed = status(&set(&fresh), Some("no")).unwrap();
        assert!(failed.contains(r#""reason":"FailedCreate","message":"no""#), "{failed}");
        assert_eq!(status(&set(&failed), Some("another name, same failure")), None);
        assert_eq!(status(&set(&failed), None).unwrap(), fresh);
    }
}
