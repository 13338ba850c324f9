//! Reconciliation of a claim.
//!
//! Pure. Follows `syncClaim` in Kubernetes `pkg/controller/volume/persistentvolume/pv_controller.go`.

use api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod};
use api::json::Value;
use api::storage::v1::StorageClass;
use api::well_known::{
    ANNOTATION_DEFAULT_STORAGE_CLASS, ANNOTATION_DEFAULT_STORAGE_CLASS_BETA, ANNOTATION_STORAGE_PROVISIONER,
};
use client::Document;
use client::resources::ServedView as _;

use super::matching::{claim_class, find, is_bound_to, mismatch};
use super::{BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE};
use crate::machinery::action::{Action, Decision};

const PROVISIONER_BETA: &str = "volume.beta.kubernetes.io/storage-provisioner";

type Claim = Document<PersistentVolumeClaim>;
type Volume = Document<PersistentVolume>;

/// State besides the claim.
pub(crate) struct ClaimContext<'a> {
    pub(crate) volumes: &'a [Volume],
    pub(crate) classes: &'a [StorageClass],
    /// The pods that use the claim.
    pub(crate) pods: &'a [&'a Pod],
}

/// Returns the decision about a claim.
pub(crate) fn sync(claim: &Claim, seen: &ClaimContext<'_>) -> Decision {
    let mut decision = Decision::default();
    if claim.metadata.annotations.contains_key(BIND_COMPLETED) {
        sync_bound(claim, seen, &mut decision);
    } else {
        sync_unbound(claim, seen, &mut decision);
    }
    decision
}

fn about(claim: &Claim) -> ObjectReference {
    client::events::reference(&**claim)
}

fn named<'a>(seen: &ClaimContext<'a>, name: &str) -> Option<&'a Volume> {
    seen.volumes.iter().find(|volume| volume.metadata.name == name)
}

fn sync_unbound(claim: &Claim, seen: &ClaimContext<'_>, decision: &mut Decision) {
    let actions = &mut decision.actions;
    if claim.spec.volume_name.is_empty() {
        return sync_searching(claim, seen, actions);
    }
    let Some(volume) = named(seen, &claim.spec.volume_name) else {
        actions.extend(status(claim, "Pending", None));
        return;
    };
    let name = &volume.metadata.name;
    if volume.spec.claim_ref.is_none() {
        if let Some(why) = mismatch(volume, claim) {
            let message = format!("Cannot bind to requested volume \"{name}\": {why}");
            actions.push(Action::warning(&about(claim), "VolumeMismatch", message));
            actions.extend(status(claim, "Pending", None));
        } else {
            bind(volume, claim, actions);
        }
    } else if is_bound_to(volume, claim) {
        bind(volume, claim, actions);
    } else {
        let message = format!("volume \"{name}\" already bound to a different claim.");
        actions.push(Action::warning(&about(claim), "FailedBinding", message));
        if !claim.metadata.annotations.contains_key(BOUND_BY_CONTROLLER) {
            actions.extend(status(claim, "Pending", None));
        }
    }
}

fn sync_searching(claim: &Claim, seen: &ClaimContext<'_>, actions: &mut Vec<Action>) {
    let class_name = claim_class(claim);
    let class = seen.classes.iter().find(|class| class.metadata.name == class_name);
    let delayed = class.is_some_and(|it| it.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"));
    if let Some(volume) = find(claim, seen.volumes, delayed) {
        return bind(volume, claim, actions);
    }
    if claim.spec.storage_class_name.is_none()
        && claim_class(claim).is_empty()
        && let Some(default) = default_class(seen.classes)
    {
        let mut object = claim.to_value();
        object.set_at(&["spec", "storageClassName"], default.metadata.name.clone());
        actions.push(Action::Update { resource: PersistentVolumeClaim::RESOURCE, object });
        return;
    }
    if delayed && !claim.metadata.annotations.contains_key(SELECTED_NODE) {
        let (reason, message) = waiting_for(seen.pods);
        actions.push(Action::normal(&about(claim), reason, message));
    } else if !class_name.is_empty() {
        return provision(claim, class, actions);
    } else {
        let message = "no persistent volumes available for this claim and no storage class is set".to_owned();
        actions.push(Action::normal(&about(claim), "FailedBinding", message));
    }
    actions.extend(status(claim, "Pending", None));
}

fn waiting_for(pods: &[&Pod]) -> (&'static str, String) {
    let unplaced = pods.iter().filter(|pod| pod.spec.node_name.is_empty() && !pod.is_terminal());
    let mut names: Vec<&str> = unplaced.map(|pod| pod.metadata.name.as_str()).collect();
    names.sort_unstable();
    match names.as_slice() {
        [] => ("WaitForFirstConsumer", "waiting for first consumer to be created before binding".to_owned()),
        [only] => ("WaitForPodScheduled", format!("waiting for pod {only} to be scheduled")),
        several => ("WaitForPodScheduled", format!("waiting for pods {} to be scheduled", several.join(","))),
    }
}

/// The class for claims without one: the newest of those marked as default.
fn default_class(classes: &[StorageClass]) -> Option<&StorageClass> {
    let says = |class: &StorageClass, key: &str| class.metadata.annotations.get(key).is_some_and(|it| it == "true");
    let defaults = classes.iter().filter(|class| {
        says(class, ANNOTATION_DEFAULT_STORAGE_CLASS) || says(class, ANNOTATION_DEFAULT_STORAGE_CLASS_BETA)
    });
    defaults.max_by_key(|class| (class.metadata.creation_timestamp, std::cmp::Reverse(class.metadata.name.clone())))
}

/// Nothing is provisioned here: requests an external provisioner, or records why that is impossible.
fn provision(claim: &Claim, class: Option<&StorageClass>, actions: &mut Vec<Action>) {
    let about = about(claim);
    let Some(class) = class else {
        let message = format!("storageclass.storage.k8s.io \"{}\" not found", claim_class(claim));
        actions.push(Action::warning(&about, "ProvisioningFailed", message));
        return;
    };
    let provisioner = &class.provisioner;
    if provisioner.starts_with("kubernetes.io/") {
        let message = format!("no volume plugin matched name: {provisioner}");
        actions.push(Action::warning(&about, "ProvisioningFailed", message));
        return;
    }
    let mut object = claim.to_value();
    for key in [PROVISIONER_BETA, ANNOTATION_STORAGE_PROVISIONER] {
        object.set_at(&["metadata", "annotations", key], provisioner.clone());
    }
    if object != *claim.value() {
        actions.push(Action::Update { resource: PersistentVolumeClaim::RESOURCE, object });
    }
    let message = format!(
        "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the system \
         administrator. If volume creation is delayed, please verify that the provisioner is running and correctly \
         registered."
    );
    actions.push(Action::normal(&about, "ExternalProvisioning", message));
}

fn sync_bound(claim: &Claim, seen: &ClaimContext<'_>, decision: &mut Decision) {
    let mut lose = |reason: &'static str, message: &str| {
        if let Some(action) = status(claim, "Lost", None) {
            decision.actions.push(action);
            decision.actions.push(Action::warning(&about(claim), reason, message.to_owned()));
        }
    };
    if claim.spec.volume_name.is_empty() {
        return lose("ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!");
    }
    let Some(volume) = named(seen, &claim.spec.volume_name) else {
        return lose("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!");
    };
    match &volume.spec.claim_ref {
        Some(other) if other.uid != claim.metadata.uid => {
            lose("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly");
        }
        _ => bind(volume, claim, &mut decision.actions),
    }
}

/// Binds in both directions: four writes, each only if something differs.
fn bind(volume: &Volume, claim: &Claim, actions: &mut Vec<Action>) {
    let mut object = volume.to_value();
    let metadata = &claim.metadata;
    let is_same = volume
        .spec
        .claim_ref
        .as_ref()
        .is_some_and(|it| it.name == metadata.name && it.namespace == metadata.namespace && it.uid == metadata.uid);
    if !is_same {
        let reference = api::json!({
            "kind": "PersistentVolumeClaim", "namespace": (metadata.namespace.clone()), "name": (metadata.name.clone()),
            "uid": (metadata.uid.clone()), "apiVersion": "v1", "resourceVersion": (metadata.resource_version.clone()),
        });
        object.set_at(&["spec", "claimRef"], reference);
    }
    if !is_bound_to(volume, claim) {
        // The volume was not reserved for this claim by the user.
        object.set_at(&["metadata", "annotations", BOUND_BY_CONTROLLER], "yes");
    }
    if object != *volume.value() {
        actions.push(Action::Update { resource: PersistentVolume::RESOURCE, object: object.clone() });
    }
    actions.extend(super::volume::phase(&object, "Bound"));
    let mut object = claim.to_value();
    if claim.spec.volume_name != volume.metadata.name {
        object.set_at(&["spec", "volumeName"], volume.metadata.name.clone());
        object.set_at(&["metadata", "annotations", BOUND_BY_CONTROLLER], "yes");
    }
    object.set_at(&["metadata", "annotations", BIND_COMPLETED], "yes");
    if object != *claim.value() {
        actions.push(Action::Update { resource: PersistentVolumeClaim::RESOURCE, object: object.clone() });
    }
    actions.extend(status_of(claim, object, "Bound", Some(volume)));
}

fn status(claim: &Claim, phase: &str, volume: Option<&Volume>) -> Option<Action> {
    status_of(claim, claim.to_value(), phase, volume)
}

/// Sets the status in a form of the claim that may have other changes, too.
fn status_of(claim: &Claim, mut object: Value, phase: &str, volume: Option<&Volume>) -> Option<Action> {
    let before = object.get("status").cloned();
    object.set_at(&["status", "phase"], phase);
    match volume {
        None => {
            for field in ["accessModes", "capacity", "currentVolumeAttributesClassName"] {
                object.remove_at(&["status", field]);
            }
        }
        Some(volume) => {
            let field = |path: &[&str]| volume.value().at(path).cloned();
            if let Some(modes) = field(&["spec", "accessModes"]) {
                object.set_at(&["status", "accessModes"], modes);
            }
            // A claim that is bound may be resized: its capacity is no longer the volume's matter.
            if claim.status.phase != "Bound"
                && let Some(storage) = field(&["spec", "capacity", "storage"])
            {
                object.set_at(&["status", "capacity", "storage"], storage);
            }
            if claim.status.phase != "Bound"
                && let Some(class) = field(&["spec", "volumeAttributesClassName"])
            {
                object.set_at(&["status", "currentVolumeAttributesClassName"], class);
            }
        }
    }
    let changed = before.as_ref() != object.get("status");
    changed.then_some(Action::UpdateStatus { resource: PersistentVolumeClaim::RESOURCE, object })
}
