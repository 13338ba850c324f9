//! Revisions: templates as they were, kept in ControllerRevisions.
//!
//! StatefulSets and DaemonSets number their templates, find an old one by its data, and delete the oldest.
//! Follows Kubernetes' `pkg/controller/history`, with equal names and hashes.

use std::sync::Arc;

use api::apps::v1::ControllerRevision;
use api::json;
use api::json::Value;
use client::Document;

use crate::machinery::edit;
use crate::machinery::hash;
use crate::machinery::ownership::Controller;

/// A revision as informers hold it.
pub type Revision = Arc<Document<ControllerRevision>>;

/// Names are cut so that there is room for the hash.
const NAME_MAX: usize = 223;

/// Data of a revision: the pod template, as a patch that replaces it.
#[must_use]
pub fn data_of(object: &Value) -> Value {
    let mut template = object.at(&["spec", "template"]).cloned().unwrap_or_default();
    template.set_at(&["$patch"], "replace");
    let mut data = json!({"spec": {"template": template}});
    data.sort_keys();
    data
}

/// The pod template that a revision keeps.
#[must_use]
pub fn template_of(revision: &Value) -> Option<Value> {
    let mut template = revision.at(&["data", "spec", "template"])?.clone();
    template.remove_at(&["$patch"]);
    Some(template)
}

/// Sorts revisions, the newest last.
pub fn sort(revisions: &mut [Revision]) {
    let key = |it: &Revision| (it.revision, it.metadata().creation_timestamp, it.metadata().name.clone());
    revisions.sort_by_key(key);
}

/// The number that the next revision gets. `revisions` are sorted.
#[must_use]
pub fn next_number(revisions: &[Revision]) -> i64 {
    revisions.last().map_or(1, |last| last.revision.saturating_add(1))
}

/// The newest revision with this data.
#[must_use]
pub fn find_equal(revisions: &[Revision], data: &Value) -> Option<Revision> {
    revisions.iter().rev().find(|revision| revision.data.as_ref() == Some(data)).cloned()
}

/// A revision to be made for a controller. `hash_label` is the label that holds the hash.
#[must_use]
pub fn new_revision(
    controller: Controller<'_>,
    object: &Value,
    number: i64,
    collisions: i32,
    hash_label: &str,
) -> Value {
    let data = data_of(object);
    let hash = hash::revision(&data, Some(collisions));
    let owner = &controller.metadata.name;
    let name = format!("{}-{hash}", owner.get(..NAME_MAX).unwrap_or(owner));
    let mut labels = object.at(&["spec", "template", "metadata", "labels"]).cloned().unwrap_or_default();
    labels.set_at(&[hash_label], hash);
    let namespace = controller.metadata.namespace.clone();
    let mut metadata = json!({"name": name, "namespace": namespace, "labels": labels});
    if !controller.metadata.annotations.is_empty() {
        metadata.set_at(&["annotations"], edit::document(&controller.metadata.annotations));
    }
    metadata.set_at(&["ownerReferences"], vec![controller.reference()]);
    json!({
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": metadata,
        "data": data,
        "revision": number,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_kubernetes() {
        // Recorded: statefulset-ordered-create.
        let spec = r#"{"containers":[{"name":"c","image":"app:1","resources":{"requests":{"cpu":"10m"}},
            "terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File",
            "imagePullPolicy":"IfNotPresent"}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,
            "dnsPolicy":"ClusterFirst","securityContext":{},"schedulerName":"default-scheduler"}"#;
        let text = format!(r#"{{"spec":{{"template":{{"metadata":{{"labels":{{"app":"web"}}}},"spec":{spec}}}}}}}"#);
        let object = api::json::parse(text.as_bytes()).unwrap();
        assert_eq!(hash::revision(&data_of(&object), Some(0)), "5f6dd94b86");
    }
}
