//! Status of a terminating namespace.
//!
//! Pure. Follows Kubernetes `pkg/controller/namespace/deletion/status_condition_utils.go`.

use std::collections::BTreeMap;

use api::json::Value;
use api::time::Timestamp;

use crate::machinery::edit;

/// Result of one attempt to empty a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    /// Error of discovery.
    pub(crate) discovery: Option<String>,
    /// Failures of deletions.
    pub(crate) failures: Vec<String>,
    /// Number of remaining objects by resource, as `PLURAL.GROUP`.
    pub(crate) remaining: BTreeMap<String, usize>,
    /// Number of objects held by each finalizer.
    pub(crate) finalizers: BTreeMap<String, usize>,
}

/// A condition: its type, then reason and message if all is well.
const CONDITIONS: [(&str, &str, &str); 5] = [
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
    ("NamespaceFinalizersRemaining", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
];

impl Findings {
    /// The reason and message of a condition that is true.
    fn trouble(&self, condition: &str) -> Option<(&'static str, String)> {
        let listed = |counts: &BTreeMap<String, usize>, before: &str| {
            let mut parts: Vec<String> =
                counts.iter().map(|(name, count)| format!("{name} {before} {count} resource instances")).collect();
            parts.sort();
            parts.join(", ")
        };
        match condition {
            "NamespaceDeletionDiscoveryFailure" => Some(("DiscoveryFailed", self.discovery.clone()?)),
            "NamespaceDeletionContentFailure" if !self.failures.is_empty() => {
                let mut failures = self.failures.clone();
                failures.sort();
                let (count, failures) = (failures.len(), failures.join(", "));
                let message = format!("Failed to delete all resource types, {count} remaining: {failures}");
                Some(("ContentDeletionFailed", message))
            }
            "NamespaceContentRemaining" if !self.remaining.is_empty() => {
                let resources = listed(&self.remaining, "has");
                Some(("SomeResourcesRemain", format!("Some resources are remaining: {resources}")))
            }
            "NamespaceFinalizersRemaining" if !self.finalizers.is_empty() => {
                let finalizers = listed(&self.finalizers, "in");
                let message = format!("Some content in the namespace has finalizers remaining: {finalizers}");
                Some(("SomeFinalizersRemain", message))
            }
            _ => None,
        }
    }
}

/// Returns the namespace with the conditions of the findings; `None` if they are unchanged.
pub(crate) fn with_conditions(namespace: &Value, findings: &Findings, now: Timestamp) -> Option<Value> {
    let mut new = namespace.clone();
    let conditions = new.make_list_at(&["status", "conditions"]);
    let mut changed = false;
    for (name, reason, message) in CONDITIONS {
        let (status, reason, message) = match findings.trouble(name) {
            Some((reason, message)) => ("True", reason, message),
            None => ("False", reason, message.to_owned()),
        };
        let known = conditions.iter_mut().find(|it| it.str_at(&["type"]) == Some(name));
        let Some(known) = known else {
            let time = edit::time(now);
            conditions.push(api::json!({
                "type": name, "status": status, "lastTransitionTime": time, "reason": reason, "message": message
            }));
            changed = true;
            continue;
        };
        let is = |field: &str, value: &str| known.str_at(&[field]) == Some(value);
        if is("status", status) && is("reason", reason) && is("message", &message) {
            continue;
        }
        if !is("status", status) {
            known.set_at(&["lastTransitionTime"], edit::time(now));
        }
        known.set_at(&["status"], status);
        known.set_at(&["reason"], reason);
        known.set_at(&["message"], message);
        changed = true;
    }
    changed.then_some(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp { seconds: 60, nanos: 0 };

    #[track_caller]
    fn conditions(namespace: &Value) -> Vec<String> {
        let list = namespace.array_at(&["status", "conditions"]).expect("conditions");
        let text = |it: &Value, field: &str| it.text(field).to_owned();
        list.iter()
            .map(|it| {
                format!("{} {} {}: {}", text(it, "type"), text(it, "status"), text(it, "reason"), text(it, "message"))
            })
            .collect()
    }

    #[test]
    fn everything_gone_is_five_times_false_and_then_nothing_new() {
        let namespace = api::json!({"metadata": {"name": "a"}, "status": {"phase": "Terminating"}});
        let new = with_conditions(&namespace, &Findings::default(), NOW).expect("it is new");
        let said = conditions(&new);
        assert_eq!(said.len(), 5);
        assert!(said.iter().all(|it| it.contains(" False ")), "{said:?}");
        assert_eq!(with_conditions(&new, &Findings::default(), NOW), None);
    }

    #[test]
    fn remaining_content_is_listed_in_order() {
        let namespace = api::json!({"metadata": {"name": "a"}});
        let findings = Findings {
            remaining: BTreeMap::from([("configmaps.".to_owned(), 2), ("widgets.example.com".to_owned(), 1)]),
            finalizers: BTreeMap::from([("example.com/hold".to_owned(), 3)]),
            failures: vec!["b".to_owned(), "a".to_owned()],
            discovery: None,
        };
        let new = with_conditions(&namespace, &findings, NOW).expect("it is new");
        assert_eq!(
            conditions(&new)[2..],
            [
                "NamespaceDeletionContentFailure True ContentDeletionFailed: Failed to delete all resource types, 2 remaining: a, b",
                "NamespaceContentRemaining True SomeResourcesRemain: Some resources are remaining: configmaps. has 2 resource instances, widgets.example.com has 1 resource instances",
                "NamespaceFinalizersRemaining True SomeFinalizersRemain: Some content in the namespace has finalizers remaining: example.com/hold in 3 resource instances",
            ]
        );
        let later = with_conditions(&new, &Findings::default(), Timestamp { seconds: 120, nanos: 0 }).expect("changed");
        let times: Vec<&str> = later
            .array_at(&["status", "conditions"])
            .expect("conditions")
            .iter()
            .filter_map(|it| it.str_at(&["lastTransitionTime"]))
            .collect();
        assert_eq!(times[0], "1970-01-01T00:01:00Z", "unchanged");
        assert_eq!(times[4], "1970-01-01T00:02:00Z");
    }
}
