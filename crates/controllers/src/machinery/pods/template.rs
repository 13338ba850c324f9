//! A pod made from a template.

use api::json;
use api::json::Value;

use crate::machinery::ownership::Controller;

/// Names may not be longer.
const NAME_MAX: usize = 253;

/// A pod as a template has it, controlled by `controller`. Its name is left to the server.
#[must_use]
pub fn from_template(template: &Value, controller: Controller<'_>) -> Value {
    let owner = &controller.metadata.name;
    let prefix = if owner.len() < NAME_MAX { format!("{owner}-") } else { owner.to_string() };
    let namespace = controller.metadata.namespace.clone();
    let mut metadata = json!({"generateName": prefix, "namespace": namespace});
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template.at(&["metadata", field]) {
            metadata.set_at(&[field], value.clone());
        }
    }
    metadata.set_at(&["ownerReferences"], vec![controller.reference()]);
    let spec = template.get("spec").cloned().unwrap_or_default();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}
