//! The pod of a place: its name, labels and volumes.

use api::apps::v1::StatefulSet;
use api::core::v1::Pod;
use api::json;
use api::json::Value;
use api::well_known::LABEL_CONTROLLER_REVISION_HASH;
use client::Document;
use client::resources::ServedView as _;

use crate::machinery::edit;
use crate::machinery::ownership::Controller;
use crate::machinery::pods::from_template;

const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// The set's name and the number at the end of a pod's name.
pub(super) fn parent_and_ordinal(name: &str) -> Option<(&str, i32)> {
    let (parent, digits) = name.rsplit_once('-')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten().map(|ordinal| (parent, ordinal))
}

pub(super) fn ordinal_of(pod: &Pod) -> Option<i32> {
    parent_and_ordinal(&pod.metadata.name).map(|(_, ordinal)| ordinal)
}

/// The revision from which a pod was created.
pub(super) fn revision_of(pod: &Pod) -> &str {
    pod.metadata.labels.get(LABEL_CONTROLLER_REVISION_HASH).map_or("", |it| it.as_str())
}

/// First ordinal.
pub(super) fn first(set: &StatefulSet) -> i32 {
    set.spec.ordinals.as_ref().map_or(0, |ordinals| ordinals.start)
}

pub(super) fn replicas(set: &StatefulSet) -> i32 {
    set.spec.replicas.unwrap_or(1)
}

/// Whether a place belongs to the set as it is wanted.
pub(super) fn is_wanted(set: &StatefulSet, ordinal: i32) -> bool {
    let start = first(set);
    ordinal >= start && ordinal < start.saturating_add(replicas(set))
}

pub(super) fn pod_name(set: &StatefulSet, ordinal: i32) -> String {
    format!("{}-{ordinal}", set.metadata.name)
}

pub(super) fn claim_name(set: &StatefulSet, template: &str, ordinal: i32) -> String {
    format!("{template}-{}-{ordinal}", set.metadata.name)
}

/// The pod of a place, of a template and its revision.
pub(super) fn pod(set: &Document<StatefulSet>, template: &Value, revision: &str, ordinal: i32) -> Value {
    let name = pod_name(set, ordinal);
    let controller = Controller { resource: &StatefulSet::RESOURCE, metadata: set.metadata() };
    let mut pod = from_template(template, controller);
    pod.set_at(&["metadata", "name"], name.as_str());
    pod.set_at(&["metadata", "labels", POD_NAME], name.as_str());
    pod.set_at(&["metadata", "labels", POD_INDEX], ordinal.to_string());
    pod.set_at(&["metadata", "labels", LABEL_CONTROLLER_REVISION_HASH], revision);
    pod.set_at(&["spec", "hostname"], name);
    if !set.spec.service_name.is_empty() {
        pod.set_at(&["spec", "subdomain"], set.spec.service_name.clone());
    }
    if !set.spec.volume_claim_templates.is_empty() {
        let volumes = volumes(set, &pod, ordinal);
        pod.set_at(&["spec", "volumes"], volumes);
    }
    pod
}

/// The claims of a place as volumes, and then those of the template that have other names.
fn volumes(set: &StatefulSet, pod: &Value, ordinal: i32) -> Vec<Value> {
    let templates = &set.spec.volume_claim_templates;
    let claimed = templates.iter().map(|template| {
        let (name, claim) = (template.metadata.name.clone(), claim_name(set, &template.metadata.name, ordinal));
        json!({"name": name, "persistentVolumeClaim": {"claimName": claim}})
    });
    let mut volumes: Vec<Value> = claimed.collect();
    let others = pod.list_at(&["spec", "volumes"]).iter();
    let is_claimed = |volume: &&Value| templates.iter().any(|it| volume.str_at(&["name"]) == Some(&it.metadata.name));
    volumes.extend(others.filter(|volume| !is_claimed(volume)).cloned());
    volumes
}

/// The labels of a pod with missing ones added; nothing if none is missing.
pub(super) fn missing_label(set: &StatefulSet, pod: &Pod) -> Option<Value> {
    let ordinal = ordinal_of(pod)?;
    let name = pod_name(set, ordinal);
    if pod.metadata.labels.get(POD_NAME).is_some_and(|it| *it == name) {
        return None;
    }
    let mut labels = edit::document(&pod.metadata.labels);
    labels.set_at(&[POD_NAME], name);
    labels.set_at(&[POD_INDEX], ordinal.to_string());
    Some(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_at_the_end() {
        assert_eq!(parent_and_ordinal("web-3"), Some(("web", 3)));
        assert_eq!(parent_and_ordinal("web-a-12"), Some(("web-a", 12)));
        assert_eq!(parent_and_ordinal("web-"), None);
        assert_eq!(parent_and_ordinal("web-x3"), None);
        assert_eq!(parent_and_ordinal("web-99999999999"), None);
    }
}
