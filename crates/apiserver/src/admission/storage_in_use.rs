//! `StorageObjectInUseProtection`: new claims, volumes and classes of attributes have the finalizer that keeps them while
//! they are used. The controllers take it away.

use api::json::Value;
use api::well_known::{FINALIZER_VOLUME, FINALIZER_VOLUME_ATTRIBUTES_CLASS, FINALIZER_VOLUME_CLAIM};

use super::{Attributes, Operation, Plugin, Verdict, done};

/// The plugin.
pub(super) struct StorageObjectInUseProtection;

impl Plugin for StorageObjectInUseProtection {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        let is_protected = matches!(
            attributes.resource_name(),
            ("", "persistentvolumeclaims" | "persistentvolumes") | ("storage.k8s.io", "volumeattributesclasses")
        );
        is_protected && attributes.operation == Operation::Create && attributes.subresource.is_empty()
    }

    fn mutate<'a>(&'a self, attributes: &'a Attributes<'a>, object: &'a mut Value) -> Verdict<'a> {
        mutate(attributes.resource.plural, object);
        done(Ok(()))
    }
}

/// Adds the finalizer to a new object of this resource.
fn mutate(plural: &str, object: &mut Value) {
    let finalizer = match plural {
        "persistentvolumeclaims" => FINALIZER_VOLUME_CLAIM,
        "persistentvolumes" => FINALIZER_VOLUME,
        "volumeattributesclasses" => FINALIZER_VOLUME_ATTRIBUTES_CLASS,
        _ => return,
    };
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let list = metadata.get_or_insert("finalizers", || Value::Array(Vec::new()));
    if list.is_null() {
        *list = Value::Array(Vec::new());
    }
    if let Some(list) = list.as_array_mut()
        && !list.iter().any(|it| it.as_str() == Some(finalizer))
    {
        list.push(finalizer.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_finalizer_is_added_once() {
        let mut claim = api::json!({"metadata": {"name": "c", "finalizers": ["a"]}});
        mutate("persistentvolumeclaims", &mut claim);
        mutate("persistentvolumeclaims", &mut claim);
        let expected = api::json!(["a", "kubernetes.io/pvc-protection"]);
        assert_eq!(claim.at(&["metadata", "finalizers"]), Some(&expected));
        let mut pod = api::json!({"metadata": {}});
        mutate("pods", &mut pod);
        assert_eq!(pod, api::json!({"metadata": {}}));
    }
}
