//! Old labels that follow new ones.

use api::core::v1::Node;
use api::json::Value;

/// The label that counts, and its older form.
const PAIRS: [(&str, &str); 2] =
    [("kubernetes.io/os", "beta.kubernetes.io/os"), ("kubernetes.io/arch", "beta.kubernetes.io/arch")];

/// A patch that brings the older labels in line; nothing if they are.
#[must_use]
pub fn patch(node: &Node) -> Option<Value> {
    let labels = &node.metadata.labels;
    let mut changed = api::json::Object::new();
    for (label, older) in PAIRS {
        if let Some(value) = labels.get(label).filter(|value| labels.get(older) != Some(value)) {
            changed.insert(older, value.clone());
        }
    }
    (!changed.is_empty()).then(|| api::json!({"metadata": {"labels": changed}}))
}
