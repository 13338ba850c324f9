//! Volumes, claims, storage classes and drivers.

use std::cmp::Reverse;

use api::json::Value;
use api::well_known::{
    ANNOTATION_DEFAULT_STORAGE_CLASS, ANNOTATION_DEFAULT_STORAGE_CLASS_BETA, ANNOTATION_STORAGE_CLASS_BETA,
};

use super::Description::{Field, Text};
use super::{AGE, Column, Description, NAME, PLAIN, Printer, age, is_deleting, name, number, or, text, wide};

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
    let old = object.str_at(&["metadata", "annotations", ANNOTATION_STORAGE_CLASS_BETA]);
    old.or_else(|| object.str_at(&["spec", "storageClassName"])).unwrap_or_default().to_owned()
}

fn phase(object: &Value) -> Value {
    if is_deleting(object) { "Terminating".into() } else { or(object, &["status", "phase"], "") }
}

pub(crate) const VOLUMES: Printer = Printer {
    columns: &[
        NAME,
        text("Capacity", Field("io.k8s.api.core.v1.PersistentVolumeSpec", "capacity")),
        text("Access Modes", Field("io.k8s.api.core.v1.PersistentVolumeSpec", "accessModes")),
        text("Reclaim Policy", Field("io.k8s.api.core.v1.PersistentVolumeSpec", "persistentVolumeReclaimPolicy")),
        text("Status", Field("io.k8s.api.core.v1.PersistentVolumeStatus", "phase")),
        text("Claim", Field("io.k8s.api.core.v1.PersistentVolumeSpec", "claimRef")),
        text("StorageClass", Text("StorageClass of the pv")),
        text("VolumeAttributesClass", Text("VolumeAttributesClass of the pv")),
        text("Reason", Field("io.k8s.api.core.v1.PersistentVolumeStatus", "reason")),
        AGE,
        wide("VolumeMode", Field("io.k8s.api.core.v1.PersistentVolumeSpec", "volumeMode")),
    ],
    cells: |it, now| {
        let claim = it.at(&["spec", "claimRef"]).map(|claim| {
            let text = |field: &str| claim.text(field);
            format!("{}/{}", text("namespace"), text("name"))
        });
        vec![
            name(it),
            or(it, &["spec", "capacity", "storage"], "0"),
            modes(it.list_at(&["spec", "accessModes"])).into(),
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
    ..PLAIN
};

pub(crate) const CLAIMS: Printer = Printer {
    columns: &[
        NAME,
        text("Status", Field("io.k8s.api.core.v1.PersistentVolumeClaimStatus", "phase")),
        text("Volume", Field("io.k8s.api.core.v1.PersistentVolumeClaimSpec", "volumeName")),
        text("Capacity", Field("io.k8s.api.core.v1.PersistentVolumeClaimStatus", "capacity")),
        text("Access Modes", Field("io.k8s.api.core.v1.PersistentVolumeClaimStatus", "accessModes")),
        text("StorageClass", Text("StorageClass of the pvc")),
        text("VolumeAttributesClass", Text("VolumeAttributesClass of the pvc")),
        AGE,
        wide("VolumeMode", Field("io.k8s.api.core.v1.PersistentVolumeClaimSpec", "volumeMode")),
    ],
    cells: |it, now| {
        let bound = it.str_at(&["spec", "volumeName"]).is_some_and(|name| !name.is_empty());
        let capacity = if bound { or(it, &["status", "capacity", "storage"], "0") } else { "".into() };
        let access = if bound { modes(it.list_at(&["status", "accessModes"])) } else { String::new() };
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
    ..PLAIN
};

pub(crate) const CLASSES: Printer = Printer {
    columns: &[
        NAME,
        text("Provisioner", Field("io.k8s.api.storage.v1.StorageClass", "provisioner")),
        text("ReclaimPolicy", Field("io.k8s.api.storage.v1.StorageClass", "reclaimPolicy")),
        text("VolumeBindingMode", Field("io.k8s.api.storage.v1.StorageClass", "volumeBindingMode")),
        text("AllowVolumeExpansion", Field("io.k8s.api.storage.v1.StorageClass", "allowVolumeExpansion")),
        AGE,
    ],
    cells: |it, now| {
        let expands = it.get("allowVolumeExpansion").and_then(Value::as_bool).unwrap_or_default();
        vec![
            name(it),
            or(it, &["provisioner"], ""),
            or(it, &["reclaimPolicy"], "Delete"),
            or(it, &["volumeBindingMode"], "Immediate"),
            expands.into(),
            age(it, now),
        ]
    },
    ..PLAIN
};

/// The class that claims get which name none: of those that are marked the newest, then the first by name.
pub fn default_class(classes: impl Iterator<Item = Value>) -> Option<String> {
    let is_marked = |class: &Value| {
        let annotation = |key: &str| class.str_at(&["metadata", "annotations", key]) == Some("true");
        annotation(ANNOTATION_DEFAULT_STORAGE_CLASS) || annotation(ANNOTATION_DEFAULT_STORAGE_CLASS_BETA)
    };
    let text = |class: &Value, field: &str| class.text_at(&["metadata", field]).to_owned();
    let marked = classes.filter(is_marked).map(|it| (Reverse(text(&it, "creationTimestamp")), text(&it, "name")));
    marked.min().map(|(_, name)| name)
}

pub(crate) const MIGRATIONS: Printer = Printer {
    columns: &[
        NAME,
        text("Resource", Text("GroupResource to migrate")),
        text("Status", Text("Status of the migration")),
    ],
    cells: |it, _| {
        let resource = |field: &str| it.text_at(&["spec", "resource", field]);
        let known = it.list_at(&["status", "conditions"]).iter().filter(|it| it.str_at(&["status"]) == Some("True"));
        let mut known = known.filter_map(|it| it.str_at(&["type"]));
        let state = known.rfind(|kind| matches!(*kind, "Running" | "Failed" | "Succeeded"));
        let resource = crate::resources::qualified(resource("resource"), resource("group"));
        vec![name(it), resource.into(), state.unwrap_or("Unknown").into()]
    },
    ..PLAIN
};

pub(crate) const NODES: Printer = Printer {
    columns: &[
        NAME,
        number("Drivers", Text("Drivers indicates the number of CSI drivers registered on the node")),
        AGE,
    ],
    cells: |it, now| {
        let drivers = i64::try_from(it.list_at(&["spec", "drivers"]).len()).unwrap_or(i64::MAX);
        vec![name(it), drivers.into(), age(it, now)]
    },
    ..PLAIN
};

const fn flag(name: &'static str, description: Description) -> Column {
    Column { name, kind: "boolean", description, priority: 0 }
}

pub(crate) const DRIVERS: Printer = Printer {
    columns: &[
        NAME,
        flag("AttachRequired", Field("io.k8s.api.storage.v1.CSIDriverSpec", "attachRequired")),
        flag("PodInfoOnMount", Field("io.k8s.api.storage.v1.CSIDriverSpec", "podInfoOnMount")),
        flag("StorageCapacity", Field("io.k8s.api.storage.v1.CSIDriverSpec", "storageCapacity")),
        text("TokenRequests", Field("io.k8s.api.storage.v1.CSIDriverSpec", "tokenRequests")),
        flag("RequiresRepublish", Field("io.k8s.api.storage.v1.CSIDriverSpec", "requiresRepublish")),
        text("Modes", Field("io.k8s.api.storage.v1.CSIDriverSpec", "volumeLifecycleModes")),
        AGE,
    ],
    cells: |it, now| {
        let flag = |field: &str| Value::from(it.flag_at(&["spec", field]));
        let audiences: Vec<&str> =
            it.list_at(&["spec", "tokenRequests"]).iter().filter_map(|it| it.str_at(&["audience"])).collect();
        let tokens = if audiences.is_empty() { "<unset>".to_owned() } else { audiences.join(",") };
        let modes: Vec<&str> = it.list_at(&["spec", "volumeLifecycleModes"]).iter().filter_map(Value::as_str).collect();
        vec![
            name(it),
            flag("attachRequired"),
            flag("podInfoOnMount"),
            flag("storageCapacity"),
            tokens.into(),
            flag("requiresRepublish"),
            modes.join(",").into(),
            age(it, now),
        ]
    },
    ..PLAIN
};
