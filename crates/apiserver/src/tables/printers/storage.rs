//! Volumes, claims and storage classes.

use api::json::Value;

use super::{AGE, NAME, Printer, age, list, name, or, text, wide};

fn modes(modes: &[Value]) -> String {
    let short = |mode: &Value| match mode.as_str() {
        Some("ReadWriteOnce") => Some("RWO"),
        Some("ReadOnlyMany") => Some("ROX"),
        Some("ReadWriteMany") => Some("RWX"),
        Some("ReadWriteOncePod") => Some("RWOP"),
        _ => None,
    };
    let order = ["RWO", "ROX", "RWX", "RWOP"];
    let found: Vec<&str> = modes.iter().filter_map(short).collect();
    order.into_iter().filter(|it| found.contains(it)).collect::<Vec<_>>().join(",")
}

/// The class, whose old place is an annotation.
fn class(object: &Value) -> String {
    let old =
        object.at(&["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"]).and_then(Value::as_str);
    old.or_else(|| object.str_at(&["spec", "storageClassName"])).unwrap_or_default().to_owned()
}

fn phase(object: &Value) -> Value {
    if crate::metadata::is_deleting(object) { "Terminating".into() } else { or(object, &["status", "phase"], "") }
}

pub(super) const VOLUMES: Printer = Printer {
    columns: &[
        NAME,
        text("Capacity", "How much fits."),
        text("Access Modes", "How it can be mounted."),
        text("Reclaim Policy", "What becomes of it after its claim."),
        text("Status", "Its state."),
        text("Claim", "Who has it."),
        text("StorageClass", "Its class."),
        text("VolumeAttributesClass", "The class of its attributes."),
        text("Reason", "Why it is in its state."),
        AGE,
        wide("VolumeMode", "File system or block device."),
    ],
    cells: |it, now| {
        let claim = it.at(&["spec", "claimRef"]).map(|claim| {
            let text = |field: &str| claim.str_at(&[field]).unwrap_or_default();
            format!("{}/{}", text("namespace"), text("name"))
        });
        vec![
            name(it),
            or(it, &["spec", "capacity", "storage"], "0"),
            modes(list(it, &["spec", "accessModes"])).into(),
            or(it, &["spec", "persistentVolumeReclaimPolicy"], ""),
            phase(it),
            claim.unwrap_or_default().into(),
            class(it).into(),
            or(it, &["spec", "volumeAttributesClassName"], "<unset>"),
            or(it, &["status", "reason"], ""),
            age(it, now),
            or(it, &["spec", "volumeMode"], "<unset>"),
        ]
    },
};

pub(super) const CLAIMS: Printer = Printer {
    columns: &[
        NAME,
        text("Status", "Its state."),
        text("Volume", "The volume that it has."),
        text("Capacity", "How much fits."),
        text("Access Modes", "How it can be mounted."),
        text("StorageClass", "Its class."),
        text("VolumeAttributesClass", "The class of its attributes."),
        AGE,
        wide("VolumeMode", "File system or block device."),
    ],
    cells: |it, now| {
        let bound = it.str_at(&["spec", "volumeName"]).is_some_and(|name| !name.is_empty());
        let capacity = if bound { or(it, &["status", "capacity", "storage"], "0") } else { "".into() };
        let access = if bound { modes(list(it, &["status", "accessModes"])) } else { String::new() };
        vec![
            name(it),
            phase(it),
            or(it, &["spec", "volumeName"], ""),
            capacity,
            access.into(),
            class(it).into(),
            or(it, &["spec", "volumeAttributesClassName"], "<unset>"),
            age(it, now),
            or(it, &["spec", "volumeMode"], "<unset>"),
        ]
    },
};

pub(super) const CLASSES: Printer = Printer {
    columns: &[
        NAME,
        text("Provisioner", "Who makes volumes."),
        text("ReclaimPolicy", "What becomes of volumes after their claims."),
        text("VolumeBindingMode", "When volumes are bound."),
        text("AllowVolumeExpansion", "Whether volumes can grow."),
        AGE,
    ],
    cells: |it, now| {
        let annotation = |key: &str| it.at(&["metadata", "annotations", key]).and_then(Value::as_str) == Some("true");
        let default = annotation("storageclass.kubernetes.io/is-default-class")
            || annotation("storageclass.beta.kubernetes.io/is-default-class");
        let mut shown = name(it).as_str().unwrap_or_default().to_owned();
        if default {
            shown.push_str(" (default)");
        }
        let expands = it.get("allowVolumeExpansion").and_then(Value::as_bool).unwrap_or_default();
        vec![
            shown.into(),
            or(it, &["provisioner"], ""),
            or(it, &["reclaimPolicy"], "Delete"),
            or(it, &["volumeBindingMode"], "Immediate"),
            expands.into(),
            age(it, now),
        ]
    },
};
