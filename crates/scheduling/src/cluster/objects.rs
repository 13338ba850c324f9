//! The objects besides nodes and pods that plugins read, by kind and name.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::apps::v1::{ReplicaSet, StatefulSet};
use api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim, ReplicationController, Service};
use api::json::Text;
use api::policy::v1::PodDisruptionBudget;
use api::resource::v1::{DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice};
use api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment};
use api::well_known::ANNOTATION_SELECTED_NODE;
use matching::Matcher;
use matching::volumes::VolumeMatcher;

use super::devices::Devices;
use crate::framework::{Change, Resource};

/// Namespace and name; cluster-wide objects have an empty namespace.
pub(crate) type Name = (Text, Text);

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident($type:ty) in $table:ident: $group:ident, $resource:expr, $change:expr;)*) => {
        /// A kind of object.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ObjectKind {
            $($(#[$doc])* $kind,)*
        }

        /// An object.
        #[derive(Debug, Clone)]
        pub enum Object {
            $($(#[$doc])* $kind(Arc<$type>),)*
        }

        /// All objects.
        #[derive(Debug, Default)]
        pub struct Objects {
            $($(#[$doc])* pub $table: BTreeMap<(Text, Text), Arc<$type>>,)*
            /// Accessibility of volumes from nodes.
            pub(crate) reach: BTreeMap<Text, VolumeMatcher>,
            /// Decisions about volumes that are not yet written.
            pub(crate) assumed: AssumedVolumes,
            /// Devices and their allocation; `None` if they are not used.
            pub(crate) devices: Option<Devices>,
            volumes_version: u64,
            selectors_version: u64,
            classes_version: u64,
        }

        impl Objects {
            /// Adds or changes an object; returns its previous state.
            fn put(&mut self, object: &Object) -> Option<Object> {
                match object {
                    $(Object::$kind(object) => {
                        self.touch(Group::$group);
                        let name = (object.metadata.namespace.clone(), object.metadata.name.clone());
                        self.$table.insert(name, object.clone()).map(Object::$kind)
                    })*
                }
            }

            /// Removes an object.
            fn take(&mut self, kind: ObjectKind, name: &Name) -> Option<Object> {
                match kind {
                    $(ObjectKind::$kind => {
                        self.touch(Group::$group);
                        self.$table.remove(name).map(Object::$kind)
                    })*
                }
            }
        }

        impl Object {
            /// Kind of the object.
            pub fn kind(&self) -> ObjectKind {
                match self {
                    $(Object::$kind(_) => ObjectKind::$kind,)*
                }
            }
        }

        impl ObjectKind {
            /// Event resource of a change; `None` if no plugin waits for it.
            pub(crate) fn resource(self) -> Option<Resource> {
                match self {
                    $(ObjectKind::$kind => $resource,)*
                }
            }
        }

        /// A change as plugins see it.
        pub(crate) fn change<'c>(kind: ObjectKind, old: Option<&'c Object>, new: Option<&'c Object>) -> Change<'c> {
            match kind {
                $(ObjectKind::$kind => {
                    fn of(object: &Object) -> Option<&$type> {
                        match object {
                            Object::$kind(object) => Some(object),
                            _ => None,
                        }
                    }
                    let make: fn(Option<&'c $type>, Option<&'c $type>) -> Change<'c> = $change;
                    make(old.and_then(of), new.and_then(of))
                })*
            }
        }
    };
}

kinds! {
    /// A piece of storage.
    Volume(PersistentVolume) in volumes: Volumes, Some(Resource::PersistentVolume), |old, new| Change::Volume { old, new };
    /// A request for storage.
    Claim(PersistentVolumeClaim) in claims: Volumes, Some(Resource::PersistentVolumeClaim), |old, new| Change::Claim { old, new };
    /// A kind of storage.
    StorageClass(StorageClass) in storage_classes: Volumes, Some(Resource::StorageClass), |old, new| Change::StorageClass { old, new };
    /// The storage drivers of a node.
    CsiNode(CSINode) in csi_nodes: Volumes, Some(Resource::CSINode), |old, new| Change::CsiNode { old, new };
    /// A storage driver.
    CsiDriver(CSIDriver) in csi_drivers: Volumes, Some(Resource::CSIDriver), |old, new| Change::CsiDriver { old, new };
    /// Storage capacity of a part of the cluster.
    CsiStorageCapacity(CSIStorageCapacity) in csi_storage_capacities: Volumes, Some(Resource::CSIStorageCapacity), |old, new| Change::CsiStorageCapacity { old, new };
    /// A volume on a node.
    VolumeAttachment(VolumeAttachment) in volume_attachments: Volumes, Some(Resource::VolumeAttachment), |old, new| Change::VolumeAttachment { old, new };
    /// A namespace.
    Namespace(Namespace) in namespaces: Selectors, None, |_, _| Change::Other;
    /// Pods under one name.
    Service(Service) in services: Selectors, None, |_, _| Change::Other;
    /// A controller of pods.
    ReplicationController(ReplicationController) in replication_controllers: Selectors, None, |_, _| Change::Other;
    /// A controller of pods.
    ReplicaSet(ReplicaSet) in replica_sets: Selectors, None, |_, _| Change::Other;
    /// A controller of pods.
    StatefulSet(StatefulSet) in stateful_sets: Selectors, None, |_, _| Change::Other;
    /// Limit on voluntary disruptions.
    DisruptionBudget(PodDisruptionBudget) in disruption_budgets: Budgets, None, |_, _| Change::Other;
    /// Devices under one name.
    DeviceClass(DeviceClass) in device_classes: Devices, Some(Resource::DeviceClass), |old, new| Change::DeviceClass { old, new };
    /// A claim to devices.
    ResourceClaim(ResourceClaim) in resource_claims: Devices, Some(Resource::ResourceClaim), |old, new| Change::ResourceClaim { old, new };
    /// Devices of a driver.
    ResourceSlice(ResourceSlice) in resource_slices: Devices, Some(Resource::ResourceSlice), |_, _| Change::Other;
    /// Taints for devices; they count as part of the slices.
    DeviceTaintRule(DeviceTaintRule) in device_taint_rules: Devices, Some(Resource::ResourceSlice), |_, _| Change::Other;
}

/// Version counter that a kind of object increments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    Volumes,
    Selectors,
    Budgets,
    Devices,
}

/// Decisions about volumes that are not yet written.
#[derive(Debug, Default)]
pub(crate) struct AssumedVolumes {
    /// The claim to which a volume was given, by the volume's name.
    pub(crate) bound: BTreeMap<Text, Name>,
    /// The node near which a claim's volume is made.
    pub(crate) provisioned: BTreeMap<Name, Text>,
}

impl Objects {
    /// Adds or changes an object; returns its previous state.
    pub fn set(&mut self, object: &Object, matcher: &Matcher) -> Option<Object> {
        match object {
            Object::Volume(volume) => {
                self.reach.insert(volume.metadata.name.clone(), matcher.volume(volume));
                // Once the API shows the decision, it need not be kept here.
                let claim = volume.spec.claim_ref.as_ref();
                let claim = claim.map(|claim| (claim.namespace.clone(), claim.name.clone()));
                if self.assumed.bound.get(&volume.metadata.name).is_some_and(|assumed| Some(assumed) == claim.as_ref())
                {
                    self.assumed.bound.remove(&volume.metadata.name);
                }
            }
            Object::Claim(claim) => {
                let name = (claim.metadata.namespace.clone(), claim.metadata.name.clone());
                let node = claim.metadata.annotations.get(ANNOTATION_SELECTED_NODE);
                if self.assumed.provisioned.get(&name).is_some_and(|assumed| Some(assumed) == node) {
                    self.assumed.provisioned.remove(&name);
                }
            }
            _ => {}
        }
        let old = self.put(object);
        if let Some(devices) = &mut self.devices {
            devices.see(old.as_ref(), Some(object));
        }
        old
    }

    /// Removes an object.
    pub fn remove(&mut self, kind: ObjectKind, namespace: &str, name: &str) -> Option<Object> {
        if kind == ObjectKind::Volume {
            self.reach.remove(name);
        }
        let old = self.take(kind, &(namespace.into(), name.into()));
        if let Some(devices) = &mut self.devices {
            devices.see(old.as_ref(), None);
        }
        old
    }

    /// Changes with volumes, claims, classes and drivers.
    pub fn volumes_version(&self) -> u64 {
        self.volumes_version
    }

    /// Changes with namespaces, services and controllers of pods.
    pub fn selectors_version(&self) -> u64 {
        self.selectors_version
    }

    /// Changes with device classes.
    pub fn classes_version(&self) -> u64 {
        self.classes_version
    }

    pub(crate) fn touch_volumes(&mut self) {
        self.touch(Group::Volumes);
    }

    fn touch(&mut self, group: Group) {
        match group {
            Group::Volumes => self.volumes_version = self.volumes_version.wrapping_add(1),
            Group::Selectors => self.selectors_version = self.selectors_version.wrapping_add(1),
            Group::Devices => self.classes_version = self.classes_version.wrapping_add(1),
            // Read on demand, and never cached.
            Group::Budgets => {}
        }
    }
}
