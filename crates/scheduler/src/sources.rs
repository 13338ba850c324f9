//! Changes for the core: one informer per kind, whose changes are merged by object until the core has time.

use std::sync::Arc;
use std::time::Duration;

use api::apps::v1::{ReplicaSet, StatefulSet};
use api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController, Service};
use api::policy::v1::PodDisruptionBudget;
use api::resource::v1::{DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice};
use api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment};
use client::informer::Change;
use client::{Health, Informer, Informers, KeptForm};
use scheduling::Scheduler;
use scheduling::cluster::{Object, ObjectKind};
use tokio::sync::Notify;

/// Passes the changes of one collection to the core.
type ForwardFn = Box<dyn FnMut(&mut Scheduler, Duration) + Send + Sync>;

/// All collections.
pub struct Sources {
    informers: Informers,
    health: Health,
    pods: Informer<Pod>,
    report: Vec<ForwardFn>,
    ready: Arc<Notify>,
}

impl Sources {
    /// Follows all collections. Needs a Tokio runtime.
    #[must_use]
    pub fn start(informers: Informers, health: Health) -> Self {
        let pods = informers.all::<Pod>();
        let mut sources = Self { informers, health, pods, report: Vec::new(), ready: Arc::default() };
        sources.follow::<Node>(|core, change, now| match change {
            Change::Deleted(node) => core.remove_node(&node.metadata.name, now),
            changed => core.set_node(changed.newest(), now),
        });
        sources.follow::<Pod>(|core, change, now| match change {
            Change::Deleted(pod) => core.remove_pod(&pod.metadata.uid, now),
            Change::Updated { old, new } => {
                // Another object of the same name.
                if old.metadata.uid != new.metadata.uid {
                    core.remove_pod(&old.metadata.uid, now);
                }
                core.set_pod(new, now);
            }
            Change::Added(pod) => core.set_pod(pod, now),
        });
        macro_rules! objects {
            ($($type:ty => $kind:ident,)*) => {
                $(sources.follow::<$type>(|core, change, now| match change {
                    Change::Deleted(object) => {
                        let metadata = &object.metadata;
                        core.remove_object(ObjectKind::$kind, &metadata.namespace, &metadata.name, now);
                    }
                    changed => core.set_object(&Object::$kind(changed.newest().clone()), now),
                });)*
            };
        }
        objects! {
            Namespace => Namespace,
            PersistentVolume => Volume,
            PersistentVolumeClaim => Claim,
            StorageClass => StorageClass,
            CSINode => CsiNode,
            CSIDriver => CsiDriver,
            CSIStorageCapacity => CsiStorageCapacity,
            VolumeAttachment => VolumeAttachment,
            Service => Service,
            ReplicationController => ReplicationController,
            ReplicaSet => ReplicaSet,
            StatefulSet => StatefulSet,
            PodDisruptionBudget => DisruptionBudget,
            DeviceClass => DeviceClass,
            ResourceClaim => ResourceClaim,
            ResourceSlice => ResourceSlice,
            DeviceTaintRule => DeviceTaintRule,
        }
        sources
    }

    fn follow<T: KeptForm>(&mut self, report: fn(&mut Scheduler, &Change<T>, Duration)) {
        let informer = self.informers.all::<T>();
        let mut changes = informer.changes_waking(self.ready.clone());
        let watched = informer.clone();
        self.health.add(format!("informer/{}", informer.name()), move || watched.health());
        self.report.push(Box::new(move |core, now| {
            while let Some((_, change)) = changes.try_next() {
                report(core, &change, now);
            }
        }));
    }

    /// The informer of pods.
    #[must_use]
    pub fn pods(&self) -> &Informer<Pod> {
        &self.pods
    }

    /// Waits until all informers have synced.
    pub async fn synced(&self) {
        self.informers.synced().await;
    }

    /// Waits until something has changed.
    pub async fn changed(&self) {
        self.ready.notified().await;
    }

    /// Passes all changes to the core.
    pub fn forward(&mut self, core: &mut Scheduler, now: Duration) {
        for report in &mut self.report {
            report(core, now);
        }
    }
}
