//! Old labels that follow new ones.

use api::core::v1::Node;
use api::json::Value;
use api::well_known::{LABEL_ARCH, LABEL_OS};

/// The label that counts, and its older form.
const PAIRS: [(&str, &str); 2] = [(LABEL_OS, "beta.kubernetes.io/os"), (LABEL_ARCH, "beta.kubernetes.io/arch")];

/// A patch that copies the current labels to their deprecated names; nothing if they agree.
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
