//! The nodes that a control plane plays: numbered ones from one template, and those of a file by their own names.

use api::json::Value;
use kubelet::template::Template;

use crate::replicas;

/// The nodes to be played.
#[derive(Debug)]
pub struct Nodes {
    /// This many, called `node-0` and so on.
    pub numbered: usize,
    /// Template of the nodes.
    pub template: Template,
    /// Nodes with fixed names, as they are created.
    pub named: Vec<Value>,
}

/// Requests the simulation of a node. Fields that are set by its kubelet are left to the fleet, which completes
/// nodes without an address.
pub fn played(node: &mut Value) {
    let Some(fields) = node.as_object_mut() else { return };
    if let Some(metadata) = fields.get_or_insert("metadata", Value::object).as_object_mut()
        && let Some(annotations) = metadata.get_or_insert("annotations", Value::object).as_object_mut()
    {
        annotations.remove(replicas::ANNOTATION);
        annotations.remove(replicas::OLD_ANNOTATION);
        annotations.insert(kubelet::fleet::PLAYED, "true");
    }
    if let Some(status) = fields.get_mut("status").and_then(Value::as_object_mut) {
        for field in ["addresses", "conditions", "daemonEndpoints", "volumesAttached", "volumesInUse"] {
            status.remove(field);
        }
    }
}
