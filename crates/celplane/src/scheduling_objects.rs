//! Conversion of manifests to the objects of the scheduler's core.

use std::sync::Arc;

use anyhow::Result;
use api::json::Value;
use api::meta::v1::Object as View;
use scheduling::cluster::Object;

macro_rules! kinds {
    ($($name:literal => $kind:ident,)*) => {
        /// Kinds that affect placement, besides nodes and pods.
        pub(crate) const KINDS: &[&str] = &[$($name),*];

        /// Converts an object that affects placement, besides nodes and pods; `None` for other kinds.
        pub(crate) fn object_of(kind: &str, value: &Value) -> Result<Option<Object>> {
            Ok(match kind {
                $($name => Some(Object::$kind(Arc::new(View::read(value)?))),)*
                _ => None,
            })
        }
    };
}

kinds! {
    "Namespace" => Namespace,
    "PersistentVolume" => Volume,
    "PersistentVolumeClaim" => Claim,
    "StorageClass" => StorageClass,
    "CSINode" => CsiNode,
    "CSIDriver" => CsiDriver,
    "CSIStorageCapacity" => CsiStorageCapacity,
    "VolumeAttachment" => VolumeAttachment,
    "Service" => Service,
    "ReplicationController" => ReplicationController,
    "ReplicaSet" => ReplicaSet,
    "StatefulSet" => StatefulSet,
    "PodDisruptionBudget" => DisruptionBudget,
    "DeviceClass" => DeviceClass,
    "ResourceClaim" => ResourceClaim,
    "ResourceSlice" => ResourceSlice,
    "DeviceTaintRule" => DeviceTaintRule,
}
