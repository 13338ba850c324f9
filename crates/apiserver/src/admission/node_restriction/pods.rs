//! Pods of a node: mirror pods that it makes, and the status and the end of those that it runs.

use api::go_text::quote;
use api::json::Value;
use api::well_known::ANNOTATION_CONFIG_MIRROR;

use super::{Attempt, Change};
use crate::authorization::node::References;
use crate::resources;
use crate::wire::status::Result;
use api::metadata;

pub(super) fn admit(attempt: &Attempt<'_>, node: &str, change: Change<'_>) -> Result<()> {
    match change {
        Change::Create(pod) => admit_mirror(attempt, node, pod),
        Change::Delete(pod) if runs_on(pod, node) => Ok(()),
        Change::Delete(_) => {
            let why = format!("node {} can only delete pods with spec.nodeName set to itself", quote(node));
            attempt.refuse(change, &why)
        }
        Change::Update(..) => {
            let why =
                format!("unexpected operation \"UPDATE\", node {} can only create and delete mirror pods", quote(node));
            attempt.refuse(change, &why)
        }
    }
}

fn runs_on(pod: &Value, node: &str) -> bool {
    pod.str_at(&["spec", "nodeName"]) == Some(node)
}

/// A node makes pods only to show what it runs by itself, and those may need nothing of the cluster.
fn admit_mirror(attempt: &Attempt<'_>, node: &str, pod: &Value) -> Result<()> {
    let refuse = |why: &str| attempt.refuse(Change::Create(pod), why);
    let shown = quote(node);
    if pod.at(&["metadata", "annotations", ANNOTATION_CONFIG_MIRROR]).is_none() {
        let why = format!(
            "pod does not have \"{ANNOTATION_CONFIG_MIRROR}\" annotation, node {shown} can only create mirror pods"
        );
        return refuse(&why);
    }
    if !runs_on(pod, node) {
        return refuse(&format!("node {shown} can only create pods with spec.nodeName set to itself"));
    }
    let owners = pod.list_at(&["metadata", "ownerReferences"]);
    let owner = match owners {
        [owner] => owner,
        [] => return refuse(&format!("node {shown} can only create pods with an owner reference set to itself")),
        _ => return refuse(&format!("node {shown} can only create pods with a single owner reference set to itself")),
    };
    let at = |field: &str| owner.text(field);
    if (at("apiVersion"), at("kind"), at("name")) != ("v1", "Node", node) {
        return refuse(&format!("node {shown} can only create pods with an owner reference set to itself"));
    }
    if owner.get("controller").and_then(Value::as_bool) != Some(true) {
        return refuse(&format!("node {shown} can only create pods with a controller owner reference set to itself"));
    }
    if owner.get("blockOwnerDeletion").and_then(Value::as_bool) == Some(true) {
        return refuse(&format!("node {shown} must not set blockOwnerDeletion on an owner reference"));
    }
    let own = attempt.object(resources::NODES, "", node)?;
    let uid = metadata::text(&own, "uid");
    if at("uid") != uid {
        return refuse(&format!("node {node} UID mismatch: expected {} got {uid}", at("uid")));
    }
    match mentioned(pod) {
        Ok(None) => Ok(()),
        Ok(Some(what)) => refuse(&format!("node {shown} can not create pods that reference {what}")),
        Err(why) => refuse(&format!("error checking mirror pod for API references: {why}")),
    }
}

/// Volumes that need nothing of the cluster.
const PLAIN_VOLUMES: [&str; 22] = [
    "awsElasticBlockStore",
    "azureDisk",
    "cephfs",
    "cinder",
    "downwardAPI",
    "emptyDir",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

/// Returns the kind of objects that a pod references, in the words of rejections.
///
/// # Errors
/// A volume whose source is not known.
pub fn mentioned(pod: &Value) -> std::result::Result<Option<&'static str>, String> {
    let names = References::of_pod(pod);
    if !names.service_account.is_empty() {
        return Ok(Some("serviceaccounts"));
    }
    if !names.secrets.is_empty() {
        return Ok(Some("secrets"));
    }
    if !names.config_maps.is_empty() {
        return Ok(Some("configmaps"));
    }
    if !pod.list_at(&["spec", "resourceClaims"]).is_empty() {
        return Ok(Some("resourceclaims"));
    }
    for volume in pod.list_at(&["spec", "volumes"]) {
        if PLAIN_VOLUMES.iter().any(|source| has(volume, source)) {
            continue;
        }
        let needs = [
            ("configMap", "configmaps (via configmap volumes)"),
            ("secret", "secrets (via secret volumes)"),
            ("csi", "csidrivers (via CSI volumes)"),
            ("glusterfs", "endpoints (via glusterFS volumes)"),
            ("persistentVolumeClaim", "persistentvolumeclaims"),
            ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
            ("azureFile", "secrets (via azureFile volumes)"),
        ];
        if let Some((_, what)) = needs.iter().find(|(source, _)| has(volume, source)) {
            return Ok(Some(what));
        }
        let name = quote(volume.text("name"));
        let Some(projected) = volume.get("projected").filter(|it| !it.is_null()) else {
            return Err(format!("unknown volume type for volume  {name}"));
        };
        for source in projected.get("sources").and_then(Value::as_array).unwrap_or_default() {
            let needs = [
                ("configMap", "configmaps (via projected volumes)"),
                ("secret", "secrets (via projected volumes)"),
                ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
                ("clusterTrustBundle", "clustertrustbundles"),
                ("podCertificate", "podcertificates"),
            ];
            if let Some((_, what)) = needs.iter().find(|(kind, _)| has(source, kind)) {
                return Ok(Some(what));
            }
            if !has(source, "downwardAPI") {
                return Err(format!("unknown source for projected volume {name}"));
            }
        }
    }
    Ok(None)
}

fn has(value: &Value, field: &str) -> bool {
    value.get(field).is_some_and(|it| !it.is_null())
}

pub(super) fn admit_status(attempt: &Attempt<'_>, node: &str, change: Change<'_>) -> Result<()> {
    let Change::Update(new, old) = change else {
        return attempt.refuse(change, &format!("unexpected operation {}", quote(change.name())));
    };
    let shown = quote(node);
    if !runs_on(old, node) {
        let why = format!("node {shown} can only update pod status for pods with spec.nodeName set to itself");
        return attempt.refuse(change, &why);
    }
    let labels = |pod: &'_ Value| metadata::labels(pod).cloned().unwrap_or_default();
    if labels(new) != labels(old) {
        return attempt.refuse(change, &format!("node {shown} cannot update labels through pod status"));
    }
    for (field, what) in [
        ("resourceClaimStatuses", "resource claim statues"),
        ("extendedResourceClaimStatus", "extended resource claim status"),
        ("nodeAllocatableResourceClaimStatuses", "node allocatable resource claim statuses"),
    ] {
        let part = |pod: &Value| {
            let part = pod.at(&["status", field]).cloned().unwrap_or_default();
            if part.as_array().is_some_and(<[Value]>::is_empty) { Value::Null } else { part }
        };
        if part(new) != part(old) {
            return attempt.refuse(change, &format!("node {shown} cannot update {what}"));
        }
    }
    Ok(())
}

pub(super) fn admit_eviction(attempt: &Attempt<'_>, node: &str, change: Change<'_>) -> Result<()> {
    let Change::Create(_) = change else {
        return attempt.refuse(change, &format!("unexpected operation {}", change.name()));
    };
    let name = attempt.name(change);
    if name.is_empty() {
        return attempt.refuse(change, "could not determine pod from request data");
    }
    let pod = attempt.object(resources::PODS, attempt.attributes.namespace, name)?;
    if runs_on(&pod, node) {
        return Ok(());
    }
    attempt.refuse(change, &format!("node {node} can only evict pods with spec.nodeName set to itself"))
}
