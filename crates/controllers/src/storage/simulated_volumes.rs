//! A provisioner without disks: claims of its storage classes get volumes, which are expanded and deleted with
//! their claims.
//!
//! Runs only with simulated nodes. The binder annotates the claims of a class with the name of its provisioner,
//! for `WaitForFirstConsumer` once the scheduler has selected a node; this controller then creates the volume.
//! It expands volumes whose claims request more, and deletes released volumes with the policy `Delete`. Follows
//! `sig-storage-lib-external-provisioner`, whose events it records.

use std::sync::Arc;

use api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use api::json::{Text, Value};
use api::quantity::Quantity;
use api::storage::v1::StorageClass;
use api::well_known::{ANNOTATION_DEFAULT_STORAGE_CLASS, ANNOTATION_PROVISIONED_BY, ANNOTATION_STORAGE_PROVISIONER};
use client::Document;
use client::controller::{Controller, Next, own};
use client::informer::{Informer, Key};
use client::objects::Deletion;
use client::resources::ServedView as _;

use crate::machinery::action::Action;
use crate::machinery::executor::{Executor, Failure};
use crate::machinery::expectations::UNSETTLED;
use crate::machinery::outcome;
use crate::manager::Context;

/// The provisioner that storage classes name.
pub const PROVISIONER: &str = "sim.celplane.dev/volumes";
/// The component of its events.
const COMPONENT: &str = "simulated-volumes";

type Claim = Document<PersistentVolumeClaim>;
type Volume = Document<PersistentVolume>;

/// The storage class of a new cluster: the default one, which waits for the first pod as those of other clusters do.
#[must_use]
pub fn default_class() -> Value {
    api::json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "standard", "annotations": {ANNOTATION_DEFAULT_STORAGE_CLASS: "true"}},
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": true,
    })
}

struct Volumes {
    volumes: Informer<Volume>,
    claims: Informer<Claim>,
    classes: Informer<StorageClass>,
    executor: Executor,
}

/// Runs the controller until shutdown, if the cluster is simulated.
pub async fn run(context: Context) {
    if !context.settings.simulated_volumes {
        return;
    }
    let informers = &context.informers;
    let (volumes, claims) = (informers.all::<Volume>(), informers.all::<Claim>());
    let classes = informers.all::<StorageClass>();
    let executor = Executor::new(COMPONENT, context.client.clone(), context.refusals.clone());
    executor.expectations().follow(&volumes, &PersistentVolume::RESOURCE.plural);
    executor.expectations().follow(&claims, &PersistentVolumeClaim::RESOURCE.plural);
    // Keys without a namespace are volumes.
    let runner = Controller::new(COMPONENT, &context.runtime)
        .watch(&volumes, |volume: &Volume| is_ours(volume).then(|| own(volume)).flatten())
        .watch(&claims, own)
        .watch(&classes, |_| None);
    let controller = Arc::new(Volumes { volumes, claims, classes, executor });
    runner
        .run(move |key| {
            let controller = controller.clone();
            async move { controller.reconcile(key).await }
        })
        .await;
}

fn is_ours(volume: &Volume) -> bool {
    volume.metadata.annotations.get(ANNOTATION_PROVISIONED_BY).is_some_and(|by| by == PROVISIONER)
}

impl Volumes {
    async fn reconcile(&self, key: Key) -> Result<Next, Failure> {
        if !self.executor.settled(&key) {
            return Ok(Next::After(UNSETTLED));
        }
        let actions = if key.namespace.is_empty() {
            match self.volumes.store().get_key(&key) {
                Some(volume) => reclaim(&volume),
                None => return Ok(self.gone(&key)),
            }
        } else {
            let Some(claim) = self.claims.store().get_key(&key) else { return Ok(self.gone(&key)) };
            if claim.spec.volume_name.is_empty() {
                let name = claim.spec.storage_class_name.clone().unwrap_or_default();
                let class = self.classes.store().get("", &name);
                let exists = self.volumes.store().get("", &volume_name(&claim)).is_some();
                if exists { Vec::new() } else { provision(&claim, class.as_deref()) }
            } else {
                let volume = self.volumes.store().get("", &claim.spec.volume_name);
                let class = volume.as_ref().and_then(|it| self.classes.store().get("", &it.spec.storage_class_name));
                let may_grow = class.is_some_and(|class| class.allow_volume_expansion == Some(true));
                volume.filter(|_| may_grow).map(|volume| expand(&claim, &volume)).unwrap_or_default()
            }
        };
        match self.executor.perform(&key, actions).await {
            // The local copy was late.
            Err(failure) if failure.is_already_exists() => Ok(Next::Done),
            result => outcome::next(result),
        }
    }

    fn gone(&self, key: &Key) -> Next {
        self.executor.forget(key);
        Next::Done
    }
}

fn volume_name(claim: &Claim) -> String {
    format!("pvc-{}", claim.metadata.uid)
}

/// Creates the volume of a claim that the binder has marked for this provisioner.
fn provision(claim: &Claim, class: Option<&StorageClass>) -> Vec<Action> {
    let is_marked = claim.metadata.annotations.get(ANNOTATION_STORAGE_PROVISIONER).is_some_and(|by| by == PROVISIONER);
    let Some(class) = class.filter(|class| is_marked && class.provisioner == PROVISIONER) else { return Vec::new() };
    if claim.metadata.is_deleting() {
        return Vec::new();
    }
    let metadata = &claim.metadata;
    let about = client::events::reference(&**claim);
    let name = volume_name(claim);
    let field = |path: &[&str]| claim.value().at(path).cloned().unwrap_or_default();
    let policy = class.reclaim_policy.as_deref().unwrap_or("Delete");
    let path = format!("/var/lib/celplane/volumes/{name}");
    let object = api::json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": (name.as_str()), "annotations": {ANNOTATION_PROVISIONED_BY: PROVISIONER}},
        "spec": {
            "accessModes": (field(&["spec", "accessModes"])),
            "capacity": {"storage": (field(&["spec", "resources", "requests", "storage"]))},
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": (metadata.namespace.clone()),
                "name": (metadata.name.clone()), "uid": (metadata.uid.clone()),
                "resourceVersion": (metadata.resource_version.clone()),
            },
            "hostPath": {"path": path, "type": "DirectoryOrCreate"},
            "persistentVolumeReclaimPolicy": policy,
            "storageClassName": (class.metadata.name.clone()),
            "volumeMode": (claim.spec.volume_mode.clone().unwrap_or_else(|| "Filesystem".into())),
        },
    });
    let begins = format!("External provisioner is provisioning volume for claim \"{}\"", metadata.key());
    let done = format!("Successfully provisioned volume {name}");
    vec![
        Action::normal(&about, "Provisioning", begins),
        Action::Create { resource: PersistentVolume::RESOURCE, object },
        Action::normal(&about, "ProvisioningSucceeded", done),
    ]
}

/// Expands a volume whose claim requests more, then reports the new size in the claim's status.
fn expand(claim: &Claim, volume: &Volume) -> Vec<Action> {
    const CAPACITY: [&str; 3] = ["spec", "capacity", "storage"];
    let size = |object: &Value, path: &[&str]| object.str_at(path).and_then(|text| Quantity::parse(text).ok());
    let asked = size(claim.value(), &["spec", "resources", "requests", "storage"]);
    let (Some(asked), true, "Bound") = (asked, is_ours(volume), claim.status.phase.as_str()) else { return Vec::new() };
    let mut actions = Vec::new();
    if size(volume.value(), &CAPACITY).is_some_and(|has| has < asked) {
        let mut object = volume.to_value();
        object.set_at(&CAPACITY, asked.to_string());
        actions.push(Action::Update { resource: PersistentVolume::RESOURCE, object });
    }
    if size(claim.value(), &["status", "capacity", "storage"]).is_some_and(|has| has < asked) {
        let mut object = claim.to_value();
        object.set_at(&["status", "capacity", "storage"], asked.to_string());
        actions.push(Action::UpdateStatus { resource: PersistentVolumeClaim::RESOURCE, object });
        let about = client::events::reference(&**claim);
        actions.push(Action::normal(&about, "VolumeResizeSuccessful", "Resize volume succeeded".to_owned()));
    }
    actions
}

/// Deletes a volume that its claim has released, if its policy is `Delete`.
fn reclaim(volume: &Volume) -> Vec<Action> {
    let is_due = volume.status.phase == "Released" && volume.spec.persistent_volume_reclaim_policy == "Delete";
    if !is_due || !is_ours(volume) || volume.metadata.is_deleting() {
        return Vec::new();
    }
    let (name, uid) = (volume.metadata.name.clone(), volume.metadata.uid.clone());
    let (resource, namespace) = (PersistentVolume::RESOURCE, Text::default());
    vec![Action::Delete { resource, namespace, name, uid, how: Deletion::default() }]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class() -> StorageClass {
        api::json::from_value(&default_class()).expect("a class")
    }

    fn claim(marked: bool, size: &str, bound: bool) -> Claim {
        let mut claim = api::json!({
            "metadata": {"name": "data", "namespace": "ns", "uid": "u1", "annotations": {}},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}},
                "storageClassName": "standard", "volumeMode": "Filesystem",
            },
            "status": {"phase": "Pending"},
        });
        if marked {
            claim.set_at(&["metadata", "annotations", ANNOTATION_STORAGE_PROVISIONER], PROVISIONER);
        }
        if bound {
            claim.set_at(&["spec", "volumeName"], "pvc-u1");
            claim.set_at(&["status"], api::json!({"phase": "Bound", "capacity": {"storage": "1Gi"}}));
        }
        Document::new(claim).expect("a claim")
    }

    fn volume(phase: &str) -> Volume {
        let actions = provision(&claim(true, "1Gi", false), Some(&class()));
        let mut object = actions
            .into_iter()
            .find_map(|it| if let Action::Create { object, .. } = it { Some(object) } else { None })
            .expect("a volume");
        object.set_at(&["status", "phase"], phase);
        Document::new(object).expect("a volume")
    }

    #[test]
    fn marked_claim_gets_a_volume_of_its_size() {
        assert_eq!(provision(&claim(false, "1Gi", false), Some(&class())), [], "not marked by the binder");
        assert_eq!(provision(&claim(true, "1Gi", false), None), []);
        let mut other = class();
        other.provisioner = "example.com/disks".into();
        assert_eq!(provision(&claim(true, "1Gi", false), Some(&other)), []);
        let made = volume("Bound");
        assert_eq!(made.metadata.name, "pvc-u1");
        assert_eq!(made.value().str_at(&["spec", "capacity", "storage"]), Some("1Gi"));
        assert_eq!(made.spec.claim_ref.as_ref().map(|it| it.uid.as_str()), Some("u1"));
        assert_eq!(made.spec.persistent_volume_reclaim_policy, "Delete");
    }

    #[test]
    fn claim_that_asks_for_more_expands_its_volume() {
        assert_eq!(expand(&claim(true, "1Gi", true), &volume("Bound")), []);
        let actions = expand(&claim(true, "3Gi", true), &volume("Bound"));
        let [Action::Update { object: volume, .. }, Action::UpdateStatus { object: claim, .. }, Action::Event(_)] =
            actions.as_slice()
        else {
            panic!("{actions:?}")
        };
        assert_eq!(volume.str_at(&["spec", "capacity", "storage"]), Some("3Gi"));
        assert_eq!(claim.str_at(&["status", "capacity", "storage"]), Some("3Gi"));
    }

    #[test]
    fn released_volume_is_deleted_by_its_policy() {
        assert_eq!(reclaim(&volume("Bound")), []);
        assert!(matches!(reclaim(&volume("Released")).as_slice(), [Action::Delete { .. }]));
        let mut kept = volume("Released").to_value();
        kept.set_at(&["spec", "persistentVolumeReclaimPolicy"], "Retain");
        assert_eq!(reclaim(&Document::new(kept).expect("a volume")), []);
    }
}
