//! Claims and volumes, brought together by playing both sides in turn.

use api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use api::json::Value;
use api::metadata;
use api::storage::v1::StorageClass;
use client::Document;

use super::{claim, volume};
use crate::machinery::action::Action;

fn pv(name: &str, size: &str, modes: &[&str]) -> Value {
    let modes: Vec<Value> = modes.iter().map(|it| (*it).into()).collect();
    api::json!({"metadata": {"name": name}, "spec": {"capacity": {"storage": size}, "accessModes": modes,
        "storageClassName": "c", "persistentVolumeReclaimPolicy": "Retain"}, "status": {"phase": "Available"}})
}

fn pvc(size: &str) -> Value {
    api::json!({"metadata": {"name": "c", "namespace": "a", "uid": "u"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "storageClassName": "c", "resources": {"requests": {"storage": size}}}, "status": {"phase": "Pending"}})
}

fn sync(claim: &Value, volumes: &[Value], classes: &[StorageClass]) -> Vec<Action> {
    let claim: Document<PersistentVolumeClaim> = Document::new(claim.clone()).expect("a claim");
    let volumes: Vec<Document<PersistentVolume>> =
        volumes.iter().map(|it| Document::new(it.clone()).expect("a volume")).collect();
    claim::sync(&claim, &claim::ClaimContext { volumes: &volumes, classes, pods: &[] }).actions
}

/// Describes each action: the written object, or the reason of the event.
fn reported(actions: &[Action]) -> Vec<String> {
    let one = |action: &Action| match action {
        Action::Update { resource, object } => format!("{} {}", resource.plural, metadata::name(object)),
        Action::UpdateStatus { object, resource } => {
            let phase = object.text_at(&["status", "phase"]);
            format!("{} {} {phase}", resource.plural, metadata::name(object))
        }
        Action::Event(event) => format!("{}: {}", event.reason, event.message),
        other => format!("{other:?}"),
    };
    actions.iter().map(one).collect()
}

#[test]
fn the_smallest_volume_with_the_fewest_modes_is_bound_in_four_writes() {
    let volumes = [
        pv("big", "10Gi", &["ReadWriteOnce"]),
        pv("mid", "2Gi", &["ReadWriteOnce"]),
        pv("small", "500Mi", &["ReadWriteOnce"]),
        pv("more", "1Gi", &["ReadWriteOnce", "ReadWriteMany"]),
    ];
    let actions = sync(&pvc("1Gi"), &volumes, &[]);
    assert_eq!(
        reported(&actions),
        [
            "persistentvolumes mid",
            "persistentvolumes mid Bound",
            "persistentvolumeclaims c",
            "persistentvolumeclaims c Bound"
        ]
    );
    let Some(Action::UpdateStatus { object, .. }) = actions.last() else { panic!("{actions:?}") };
    assert_eq!(object.str_at(&["status", "capacity", "storage"]), Some("2Gi"));
    assert_eq!(metadata::annotation(object, super::BOUND_BY_CONTROLLER), Some("yes"));
    let Some(Action::UpdateStatus { object: bound, .. }) = actions.get(1) else { panic!("{actions:?}") };
    assert_eq!(sync(object, std::slice::from_ref(bound), &[]), [], "it is bound");
}

#[test]
fn user_bindings_lack_the_controller_annotation() {
    let mut meant = pv("v", "1Gi", &["ReadWriteOnce"]);
    meant.set_at(&["spec", "claimRef"], api::json!({"name": "c", "namespace": "a"}));
    let actions = sync(&pvc("1Gi"), &[meant], &[]);
    let Some(Action::Update { object, .. }) = actions.first() else { panic!("{actions:?}") };
    assert_eq!(metadata::annotation(object, super::BOUND_BY_CONTROLLER), None);
    let mut asking = pvc("1Gi");
    asking.set_at(&["spec", "volumeName"], "v");
    let actions = sync(&asking, &[pv("v", "1Gi", &["ReadWriteOnce"])], &[]);
    let Some(Action::Update { object, .. }) = actions.get(2) else { panic!("{actions:?}") };
    assert_eq!(metadata::annotation(object, super::BOUND_BY_CONTROLLER), None);
    asking.set_at(&["spec", "resources", "requests", "storage"], "9Gi");
    let refused = sync(&asking, &[pv("v", "1Gi", &["ReadWriteOnce"])], &[]);
    assert_eq!(
        reported(&refused),
        ["VolumeMismatch: Cannot bind to requested volume \"v\": requested PV is too small"]
    );
}

#[test]
fn a_claim_without_a_volume_says_why() {
    let class = |mode: &str, provisioner: &str| -> StorageClass {
        let class = api::json!({"metadata": {"name": "c"}, "provisioner": provisioner, "volumeBindingMode": mode});
        api::json::from_value(&class).expect("a class")
    };
    assert_eq!(
        reported(&sync(&pvc("1Gi"), &[], &[])),
        ["ProvisioningFailed: storageclass.storage.k8s.io \"c\" not found"]
    );
    assert_eq!(
        reported(&sync(&pvc("1Gi"), &[], &[class("Immediate", "kubernetes.io/no-provisioner")])),
        ["ProvisioningFailed: no volume plugin matched name: kubernetes.io/no-provisioner"]
    );
    let waiting = sync(&pvc("1Gi"), &[pv("v", "1Gi", &["ReadWriteOnce"])], &[class("WaitForFirstConsumer", "x")]);
    assert_eq!(reported(&waiting), ["WaitForFirstConsumer: waiting for first consumer to be created before binding"]);
    let external = reported(&sync(&pvc("1Gi"), &[], &[class("Immediate", "example.com/d")]));
    assert_eq!(external.first().map(String::as_str), Some("persistentvolumeclaims c"));
    let mut lost = pvc("1Gi");
    lost.set_at(&["metadata", "annotations"], api::json!({"pv.kubernetes.io/bind-completed": "yes"}));
    lost.set_at(&["spec", "volumeName"], "gone");
    lost.set_at(&["status"], api::json!({"phase": "Bound", "capacity": {"storage": "1Gi"}}));
    let actions = sync(&lost, &[], &[]);
    assert_eq!(
        reported(&actions),
        [
            "persistentvolumeclaims c Lost",
            "ClaimLost: Bound claim has lost its PersistentVolume. Data on the volume is lost!"
        ]
    );
}

#[test]
fn a_volume_follows_its_claim() {
    let with = |reference: Value, phase: &str| -> Document<PersistentVolume> {
        let mut volume = pv("v", "1Gi", &["ReadWriteOnce"]);
        volume.set_at(&["spec", "claimRef"], reference);
        volume.set_at(&["status", "phase"], phase);
        Document::new(volume).expect("a volume")
    };
    let named = |name: &str| -> PersistentVolumeClaim {
        let mut claim = pvc("1Gi");
        claim.set_at(&["spec", "volumeName"], name);
        api::json::from_value(&claim).expect("a claim")
    };
    let bound = api::json!({"name": "c", "namespace": "a", "uid": "u"});
    let free: Document<PersistentVolume> = {
        let mut volume = pv("v", "1Gi", &[]);
        volume.remove_at(&["status"]);
        Document::new(volume).expect("a volume")
    };
    assert_eq!(reported(&volume::sync(&free, None).actions), ["persistentvolumes v Available"]);
    assert_eq!(reported(&volume::sync(&with(bound.clone(), "Bound"), None).actions), ["persistentvolumes v Released"]);
    assert_eq!(volume::sync(&with(bound.clone(), "Released"), None).actions, []);
    assert_eq!(
        reported(&volume::sync(&with(bound.clone(), "Available"), Some(&named("v"))).actions),
        ["persistentvolumes v Bound"]
    );
    let meant = api::json!({"name": "c", "namespace": "a"});
    assert_eq!(volume::sync(&with(meant, "Available"), Some(&named("v"))).actions, []);
    let taken = volume::sync(&with(bound, "Bound"), Some(&named("other"))).actions;
    let Some(Action::Update { object, .. }) = taken.first() else { panic!("{taken:?}") };
    assert_eq!(
        object.at(&["spec", "claimRef"]),
        Some(&api::json!({"name": "c", "namespace": "a"})),
        "as the user meant it"
    );
}
