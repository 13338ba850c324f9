//! Node template of a fleet: a Node manifest with defaults, whose name each node replaces.

use std::net::SocketAddr;

use api::core::v1::Node;
use api::json::{ConvertError, Object, Value};
use api::meta::v1::Object as _;
use api::time::Timestamp;
use api::well_known::{LABEL_ARCH, LABEL_HOSTNAME, LABEL_OS};

use crate::annotations::Problems;
use crate::node_status;
use crate::runtime::Pressure;

/// Labels, taints, capacity and the like of nodes to be.
#[derive(Debug, Clone)]
pub struct Template {
    document: Value,
}

/// A reason why a manifest cannot be a template.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The manifest is of another kind.
    #[error("a node template has the kind `Node`, not `{0}`")]
    Kind(String),
    /// The manifest has unknown fields.
    #[error("unknown field `{}` in the node template", .0.join("`, `"))]
    Unknown(Vec<String>),
    /// A value of it has the wrong type.
    #[error("the node template cannot be read: {0}")]
    Value(String),
    /// An annotation of the simulation has an unknown name or value.
    #[error("the node template cannot be used: {0}")]
    Annotation(String),
    /// A field of it cannot be read.
    #[error("the node template cannot be read")]
    Form(#[from] ConvertError),
}

impl Default for Template {
    fn default() -> Self {
        Template { document: Value::object() }
    }
}

impl Template {
    /// A template from a Node manifest, which may leave out everything.
    ///
    /// # Errors
    /// [`TemplateError`].
    pub fn new(document: Value) -> Result<Self, TemplateError> {
        let kind = document.str_at(&["kind"]).unwrap_or("Node");
        if kind != "Node" {
            return Err(TemplateError::Kind(kind.to_owned()));
        }
        // Fields that the server would drop or refuse are typing errors, not absent fields.
        if let Some(node) = api::types::by_api_version("v1", "Node") {
            let decoded = api::types::decode(node, &document).map_err(TemplateError::Value)?;
            if !decoded.unknown_fields.is_empty() {
                return Err(TemplateError::Unknown(decoded.unknown_fields));
            }
        }
        let node = Node::read(&document)?;
        let problems = Problems::of_node(&node.metadata.annotations);
        if let Some(error) = problems.errors.into_iter().next() {
            return Err(TemplateError::Annotation(error));
        }
        Ok(Template { document })
    }

    /// A template from a Node that the server has accepted.
    pub(crate) fn of_stored(document: Value) -> Self {
        Template { document }
    }

    /// The node with this name and number, as it registers itself: ready, with the labels every node has.
    #[must_use]
    pub fn node(&self, name: &str, number: usize, endpoint: Option<SocketAddr>, now: Timestamp) -> Value {
        let mut node = self.document.clone();
        let Some(fields) = node.as_object_mut() else { return node };
        fields.insert("apiVersion", "v1");
        fields.insert("kind", "Node");
        let metadata = part(fields, "metadata");
        metadata.insert("name", name);
        let labels = part(metadata, "labels");
        let defaults = [(LABEL_ARCH, architecture()), (LABEL_HOSTNAME, name), (LABEL_OS, "linux")];
        for (label, value) in defaults {
            labels.get_or_insert(label, || value.into());
        }
        let status = part(fields, "status");
        status.get_or_insert("capacity", default_capacity);
        let capacity = status.get("capacity").cloned().unwrap_or_default();
        status.get_or_insert("allocatable", || capacity);
        status.get_or_insert("addresses", || node_status::addresses(name, number, endpoint));
        status.insert("conditions", node_status::conditions(&[], None, Pressure::default(), now));
        status.insert("daemonEndpoints", node_status::endpoints(endpoint));
        let info = part(status, "nodeInfo");
        for (field, value) in node_info(name) {
            info.get_or_insert(field, || value.into());
        }
        node
    }
}

fn part<'o>(object: &'o mut Object, field: &str) -> &'o mut Object {
    let value = object.get_or_insert(field, Value::object);
    if value.as_object().is_none() {
        *value = Value::object();
    }
    match value {
        Value::Object(part) => part,
        #[expect(clippy::unreachable, reason = "it was made an object above")]
        _ => unreachable!(),
    }
}

fn default_capacity() -> Value {
    api::json!({"cpu": "8", "ephemeral-storage": "100Gi", "memory": "32Gi", "pods": "110"})
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Machine information of a simulated node; the same after every start.
fn node_info(name: &str) -> [(&'static str, String); 10] {
    [
        ("machineID", name.to_owned()),
        ("systemUUID", name.to_owned()),
        ("bootID", name.to_owned()),
        ("kernelVersion", "simulated".to_owned()),
        ("osImage", "Celplane simulated node".to_owned()),
        ("containerRuntimeVersion", "sim://1".to_owned()),
        ("kubeletVersion", api::kubernetes::BUILD.to_owned()),
        ("kubeProxyVersion", String::new()),
        ("operatingSystem", "linux".to_owned()),
        ("architecture", architecture().to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(template: &str) -> Value {
        let document = api::json::parse(template.as_bytes()).unwrap();
        Template::new(document).unwrap().node("n1", 4, None, Timestamp { seconds: 0, nanos: 0 })
    }

    #[test]
    fn defaults_fill_gaps_and_keep_given_values() {
        let it = node(
            r#"{"metadata": {"name": "other", "labels": {"zone": "a", "kubernetes.io/os": "windows"}},
            "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}, "status": {"capacity": {"cpu": "2"}}}"#,
        );
        assert_eq!(it.str_at(&["metadata", "name"]), Some("n1"));
        assert_eq!(it.str_at(&["metadata", "labels", "kubernetes.io/hostname"]), Some("n1"));
        assert_eq!(it.str_at(&["metadata", "labels", "kubernetes.io/os"]), Some("windows"));
        assert_eq!(it.at(&["status", "allocatable"]), Some(&api::json!({"cpu": "2"})));
        let view: Node = Node::read(&it).unwrap();
        assert_eq!(view.spec.taints.len(), 1);
        assert_eq!(view.status.addresses[0].address, "10.64.0.5");
        assert_eq!(view.status.conditions.last().unwrap().status, "True");
    }

    #[test]
    fn non_node_template_is_rejected() {
        let refused = |text: &str| Template::new(api::json::parse(text.as_bytes()).unwrap()).unwrap_err().to_string();
        assert_eq!(refused(r#"{"kind": "Pod"}"#), "a node template has the kind `Node`, not `Pod`");
        let typed = "the node template cannot be read: json: cannot unmarshal number into Go struct field NodeSpec.spec.taints \
                     of type []v1.Taint";
        assert_eq!(refused(r#"{"spec": {"taints": 3}}"#), typed);
        let unknown = "unknown field `statuss` in the node template";
        assert_eq!(refused(r#"{"statuss": {"capacity": {"cpu": "16"}}}"#), unknown);
        let odd = r#"{"metadata": {"annotations": {"sim.celplane.dev/devices": "rong:8"}}}"#;
        let annotation = "the node template cannot be used: annotation `sim.celplane.dev/devices` cannot be `rong:8`";
        assert_eq!(refused(odd), annotation);
    }
}
