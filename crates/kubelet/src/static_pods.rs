//! Pods from a node's own files, which run whether the server is there or not.
//!
//! [`files`] reads what is in a directory or a file, [`for_node`] makes of it the pod that one node runs, and [`mirror`] what
//! the server is shown of it. Follows `config/file.go`, `config/common.go` and `pod/mirror_client.go` of Kubernetes' kubelet.

pub mod files;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::core::v1::{Node, Pod};
use api::json::{Object, Text, Value};
use api::meta::v1::Object as _;
use api::time::Timestamp;

use self::files::Manifest;

/// Where a pod comes from; the server's are not told from others by it.
pub const SOURCE: &str = "kubernetes.io/config.source";
/// Which version of its file a pod is made from.
pub const HASH: &str = "kubernetes.io/config.hash";
/// When the file was first read.
const SEEN: &str = "kubernetes.io/config.seen";
/// That a pod of the server only shows one from a file, and which.
pub const MIRROR: &str = "kubernetes.io/config.mirror";

/// Fills in the defaults of a pod and checks it, as the server does.
pub type Check = Arc<dyn Fn(&Value, Timestamp) -> Result<Value, String> + Send + Sync>;

/// Where static pods come from.
#[derive(Clone)]
pub struct Options {
    /// A directory of manifests, or one manifest.
    pub path: PathBuf,
    /// How often everything is read though nothing seems to have changed.
    pub period: Duration,
    /// What must hold of a pod.
    pub check: Check,
}

/// The name that a node gives to a pod from a file.
fn name_on(name: &str, node: &str) -> String {
    format!("{name}-{}", node.to_lowercase())
}

/// The uid of a pod from a file, if it has none: a hash of what the file says, of the file's name and of the node's.
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
    let text = |field: &str| manifest.document.str_at(&["metadata", field]).unwrap_or_default();
    let namespace = match text("namespace") {
        "" => "default",
        namespace => namespace,
    };
    (namespace.into(), name_on(text("name"), node).into())
}

/// A pod that a node runs because of a manifest.
#[derive(Debug, Clone)]
pub struct StaticPod {
    /// What the node needs to know of it.
    pub pod: Pod,
    /// All of it.
    pub document: Value,
}

/// The pod that a node runs because of a manifest.
///
/// # Errors
/// What is wrong with the manifest.
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
    let all = api::json!({"operator": "Exists", "effect": "NoExecute"});
    let list = spec.get_or_insert("tolerations", || Value::Array(Vec::new()));
    if list.is_null() {
        *list = Value::Array(Vec::new());
    }
    // What is not a list is refused by the check.
    let Some(list) = list.as_array_mut() else { return };
    let is_all = |it: &Value| {
        let text = |field: &str| it.str_at(&[field]).unwrap_or_default();
        (text("operator"), text("effect"), text("key"), text("value")) == ("Exists", "NoExecute", "", "")
    };
    match list.iter_mut().find(|it| is_all(it)) {
        Some(known) => *known = all,
        None => list.push(all),
    }
}

/// Whether a pod of the server shows one from a file.
#[must_use]
pub fn is_mirror(pod: &Pod) -> bool {
    pod.metadata.annotations.contains_key(MIRROR)
}

/// Whether a pod of the server shows this version of a pod from a file.
#[must_use]
pub fn is_mirror_of(mirror: &Pod, pod: &Pod) -> bool {
    mirror.metadata.annotations.get(MIRROR) == pod.metadata.annotations.get(HASH)
}

/// What the server is shown of a pod from a file. It belongs to the node and goes with it.
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
                annotations.insert(MIRROR, hash.unwrap_or_default());
            }
        }
    }
    shown
}

#[cfg(test)]
mod tests;
