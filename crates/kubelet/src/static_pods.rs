//! Static pods: from a node's own files, run independently of the server.
//!
//! [`files`] reads a directory or a file, [`for_node`] builds the pod of one node from it, and [`mirror`] its
//! mirror pod. Follows `config/file.go`, `config/common.go` and `pod/mirror_client.go` of Kubernetes' kubelet.

pub mod files;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::core::v1::{Node, Pod, Toleration};
use api::json::{Object, Text, Value, from_value};
use api::meta::v1::Object as _;
use api::time::Timestamp;
use api::well_known::{ANNOTATION_CONFIG_MIRROR, EFFECT_NO_EXECUTE};
use matching::tolerations::is_same;

use self::files::Manifest;

/// Annotation with the source of a pod; not reliable on pods from the server.
pub const SOURCE: &str = "kubernetes.io/config.source";
/// Annotation with the hash of the pod's file.
pub const HASH: &str = "kubernetes.io/config.hash";
/// Annotation with the time at which the file was first read.
pub const SEEN: &str = "kubernetes.io/config.seen";

/// Fills in the defaults of a pod and checks it, as the server does.
pub type Check = Arc<dyn Fn(&Value, Timestamp) -> Result<Value, String> + Send + Sync>;

/// Source of static pods.
#[derive(Clone)]
pub struct Options {
    /// A directory of manifests, or one manifest.
    pub path: PathBuf,
    /// Interval at which everything is read without a detected change.
    pub period: Duration,
    /// Check of a pod.
    pub check: Check,
}

/// The name that a node gives to a pod from a file.
fn name_on(name: &str, node: &str) -> String {
    format!("{name}-{}", node.to_lowercase())
}

/// UID of a pod from a file, if it has none: a hash of the file's contents, the file's name and the node's
/// name.
#[must_use]
pub fn uid(manifest: &Manifest, node: &str) -> Text {
    if let Some(own) = manifest.document.str_at(&["metadata", "uid"]).filter(|own| !own.is_empty()) {
        return own.into();
    }
    let mut sorted = manifest.document.clone();
    sorted.sort_keys();
    let text = format!("{}host:{node}file:{}", api::json::to_string(&sorted), manifest.path.display());
    format!("{:032x}", fnv(text.as_bytes())).into()
}

/// FNV-1a of 128 bits.
fn fnv(bytes: &[u8]) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(BASIS, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}

/// The namespace and the name that the pod of a manifest has on a node.
#[must_use]
pub fn key(manifest: &Manifest, node: &str) -> (Text, Text) {
    let text = |field: &str| manifest.document.text_at(&["metadata", field]);
    let namespace = match text("namespace") {
        "" => "default",
        namespace => namespace,
    };
    (namespace.into(), name_on(text("name"), node).into())
}

/// A pod that a node runs because of a manifest.
#[derive(Debug, Clone)]
pub struct StaticPod {
    /// The pod in the form that the node uses.
    pub pod: Pod,
    /// All of it.
    pub document: Value,
}

/// The pod that a node runs because of a manifest.
///
/// # Errors
/// The manifest is invalid.
pub fn for_node(manifest: &Manifest, node: &str, check: &Check, now: Timestamp) -> Result<StaticPod, String> {
    let (uid, (namespace, name)) = (uid(manifest, node), key(manifest, node));
    let mut document = manifest.document.clone();
    let fields = document.as_object_mut().ok_or("invalid pod: it is not an object")?;
    fields.remove("status");
    let metadata = part(fields, "metadata")?;
    metadata.insert("name", name);
    metadata.insert("namespace", namespace);
    metadata.insert("uid", uid.clone());
    let annotations = part(metadata, "annotations")?;
    annotations.insert(HASH, uid);
    annotations.insert(SOURCE, "file");
    annotations.insert(SEEN, now.to_string());
    let spec = part(fields, "spec")?;
    spec.insert("nodeName", node);
    tolerate_no_execute(spec);
    let document = check(&document, now)?;
    let pod = Pod::read(&document).map_err(|error| format!("invalid pod: {error}"))?;
    Ok(StaticPod { pod, document })
}

fn part<'o>(object: &'o mut Object, field: &str) -> Result<&'o mut Object, String> {
    let value = object.get_or_insert(field, Value::object);
    if value.is_null() {
        *value = Value::object();
    }
    value.as_object_mut().ok_or_else(|| format!("invalid pod: {field} is not an object"))
}

/// Pods from files stay whatever becomes of the node.
fn tolerate_no_execute(spec: &mut Object) {
    let all = api::json!({"operator": "Exists", "effect": EFFECT_NO_EXECUTE});
    let list = spec.get_or_insert("tolerations", || Value::Array(Vec::new()));
    if list.is_null() {
        *list = Value::Array(Vec::new());
    }
    // A value that is not a list is rejected by the check.
    let Some(list) = list.as_array_mut() else { return };
    let read = |it: &Value| from_value::<Toleration>(it).unwrap_or_default();
    let is_all = |it: &Value| is_same(&read(it), &read(&all));
    match list.iter_mut().find(|it| is_all(it)) {
        Some(known) => *known = all,
        None => list.push(all),
    }
}

/// Whether a pod of the server shows one from a file.
#[must_use]
pub fn is_mirror(pod: &Pod) -> bool {
    pod.metadata.annotations.contains_key(ANNOTATION_CONFIG_MIRROR)
}

/// Whether a pod of the server shows this version of a pod from a file.
#[must_use]
pub fn is_mirror_of(mirror: &Pod, pod: &Pod) -> bool {
    mirror.metadata.annotations.get(ANNOTATION_CONFIG_MIRROR) == pod.metadata.annotations.get(HASH)
}

/// Returns the mirror pod of a static pod. It is owned by the node and deleted with it.
#[must_use]
pub fn mirror(pod: &StaticPod, node: &Node) -> Value {
    let mut shown = pod.document.clone();
    let hash = shown.at(&["metadata", "annotations", HASH]).cloned();
    if let Some(fields) = shown.as_object_mut() {
        fields.remove("status");
        fields.insert("apiVersion", "v1");
        fields.insert("kind", "Pod");
        if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("uid");
            metadata.remove("creationTimestamp");
            let (name, uid) = (node.metadata.name.clone(), node.metadata.uid.clone());
            let owner = api::json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid, "controller": true});
            metadata.insert("ownerReferences", Value::Array(vec![owner]));
            if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
                annotations.insert(ANNOTATION_CONFIG_MIRROR, hash.unwrap_or_default());
            }
        }
    }
    shown
}

#[cfg(test)]
mod tests;
