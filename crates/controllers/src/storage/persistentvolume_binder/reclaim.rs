//! Reclaiming a volume whose claim was deleted.
//!
//! Pure. Follows `reclaimVolume` in Kubernetes `pkg/controller/volume/persistentvolume/pv_controller.go`. There
//! are no disks here: a volume whose plugin would erase it is only deleted, and for external provisioners this
//! controller waits.

use api::core::v1::PersistentVolume;
use api::json::Value;
use api::well_known::ANNOTATION_PROVISIONED_BY;
use client::Document;
use client::objects::Deletion;
use client::resources::ServedView as _;

use crate::machinery::action::Action;

const MIGRATED: &str = "pv.kubernetes.io/migrated-to";
const HOST_PATH: &str = "kubernetes.io/host-path";
const NFS: &str = "kubernetes.io/nfs";

/// Action on a volume according to its policy.
#[derive(Debug, PartialEq)]
enum Verdict {
    /// None, or by an external provisioner.
    Leave,
    Delete,
    /// The policy cannot be applied.
    Fail {
        reason: &'static str,
        message: String,
    },
}

/// Returns the actions for a released volume; `released` is its document with that phase, or a failed one.
pub(super) fn reclaim(volume: &Document<PersistentVolume>, released: &Value) -> Vec<Action> {
    match verdict(volume) {
        Verdict::Leave => Vec::new(),
        // It is already being deleted.
        Verdict::Delete if volume.metadata.is_deleting() => Vec::new(),
        Verdict::Delete => {
            let (name, uid) = (volume.metadata.name.clone(), volume.metadata.uid.clone());
            let (resource, namespace) = (PersistentVolume::RESOURCE, api::json::Text::default());
            vec![Action::Delete { resource, namespace, name, uid, how: Deletion::default() }]
        }
        Verdict::Fail { .. } if released.str_at(&["status", "phase"]) == Some("Failed") => Vec::new(),
        Verdict::Fail { reason, message } => {
            let mut object = released.clone();
            object.set_at(&["status", "phase"], "Failed");
            object.set_at(&["status", "message"], message.clone());
            let about = client::events::reference(&**volume);
            vec![
                Action::UpdateStatus { resource: PersistentVolume::RESOURCE, object },
                Action::warning(&about, reason, message),
            ]
        }
    }
}

fn verdict(volume: &Document<PersistentVolume>) -> Verdict {
    let annotation = |name: &str| volume.metadata.annotations.get(name).map(|it| it.as_str()).unwrap_or_default();
    if !annotation(MIGRATED).is_empty() {
        return Verdict::Leave;
    }
    match volume.spec.persistent_volume_reclaim_policy.as_str() {
        "Retain" => Verdict::Leave,
        "Recycle" => {
            // No pods are started here that would empty a volume.
            let message = match plugin(volume) {
                Some(_) => "Recycle failed: volumes are not recycled",
                None => "No recycler plugin found for the volume!",
            };
            Verdict::Fail { reason: "VolumeFailedRecycle", message: message.to_owned() }
        }
        "Delete" => delete(volume, annotation(ANNOTATION_PROVISIONED_BY)),
        _ => {
            let message = "Volume has unrecognized PersistentVolumeReclaimPolicy".to_owned();
            Verdict::Fail { reason: "VolumeUnknownReclaimPolicy", message }
        }
    }
}

fn delete(volume: &Document<PersistentVolume>, provisioned_by: &str) -> Verdict {
    let fail = |message: String| Verdict::Fail { reason: "VolumeFailedDelete", message };
    let found = match provisioned_by {
        "" if volume.value().at(&["spec", "csi"]).is_some() => return Verdict::Leave,
        "" => plugin(volume),
        HOST_PATH => Some(HOST_PATH),
        NFS => Some(NFS),
        own if own.starts_with("kubernetes.io/") => return fail(format!("no volume plugin matched name: {own}")),
        _ => return Verdict::Leave,
    };
    let by_spec = |why: &str| match provisioned_by {
        "" => fail(format!("error getting deleter volume plugin for volume \"{}\": {why}", volume.metadata.name)),
        _ => fail(why.to_owned()),
    };
    match found {
        None => by_spec("no volume plugin matched"),
        Some(HOST_PATH) => {
            let path = volume.value().text_at(&["spec", "hostPath", "path"]);
            let is_temporary = path.split_once("/tmp/").is_some_and(|(_, rest)| !rest.is_empty());
            match is_temporary {
                true => Verdict::Delete,
                false => fail(format!("host_path deleter only supports /tmp/.+ but received provided {path}")),
            }
        }
        Some(_) => by_spec("no deletable volume plugin matched"),
    }
}

/// The plugin of the volume's source.
fn plugin(volume: &Document<PersistentVolume>) -> Option<&'static str> {
    let has = |source: &str| volume.value().at(&["spec", source]).is_some();
    [("hostPath", HOST_PATH), ("nfs", NFS)].into_iter().find(|(source, _)| has(source)).map(|(_, plugin)| plugin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(policy: &str, provisioned_by: &str, source: Value, expected: &str) {
        let mut spec = api::json!({"persistentVolumeReclaimPolicy": policy});
        if let (Value::Object(spec), Value::Object(source)) = (&mut spec, source) {
            source.iter().for_each(|(name, value)| drop(spec.insert(name, value.clone())));
        }
        let mut volume = api::json!({"metadata": {"name": "v", "uid": "u"}, "spec": spec});
        if !provisioned_by.is_empty() {
            volume.set_at(&["metadata", "annotations", ANNOTATION_PROVISIONED_BY], provisioned_by);
        }
        volume.set_at(&["status", "phase"], "Released");
        let volume: Document<PersistentVolume> = Document::new(volume).expect("a volume");
        let said = match verdict(&volume) {
            Verdict::Leave => "leave".to_owned(),
            Verdict::Delete => "delete".to_owned(),
            Verdict::Fail { reason, message } => format!("{reason}: {message}"),
        };
        assert_eq!(said, expected);
        let actions = reclaim(&volume, volume.value()).len();
        let writes = if expected.starts_with("Volume") { 2 } else { usize::from(expected == "delete") };
        assert_eq!(actions, writes);
        let mut failed = volume.to_value();
        failed.set_at(&["status", "phase"], "Failed");
        assert_eq!(reclaim(&volume, &failed).len(), usize::from(expected == "delete"), "a failure is told once");
        let mut going = failed;
        going.set_at(&["metadata", "deletionTimestamp"], "2026-01-01T00:00:00Z");
        let volume: Document<PersistentVolume> = Document::new(going.clone()).expect("a volume");
        assert_eq!(reclaim(&volume, &going), [], "it is deleted once");
    }

    #[test]
    fn the_policy_and_the_source_decide() {
        let path = |path: &str| api::json!({"hostPath": {"path": path}});
        let csi = || api::json!({"csi": {"driver": "d", "volumeHandle": "h"}});
        check("Retain", "", path("/tmp/a"), "leave");
        check("Delete", "", path("/tmp/a"), "delete");
        let elsewhere = "VolumeFailedDelete: host_path deleter only supports /tmp/.+ but received provided /data";
        check("Delete", "", path("/data"), elsewhere);
        check("Delete", "kubernetes.io/host-path", path("/data"), elsewhere);
        check("Delete", "", csi(), "leave");
        check("Delete", "example.com/disks", path("/data"), "leave");
        let unknown = "VolumeFailedDelete: no volume plugin matched name: kubernetes.io/aws-ebs";
        check("Delete", "kubernetes.io/aws-ebs", api::json!({}), unknown);
        let getting = "VolumeFailedDelete: error getting deleter volume plugin for volume \"v\":";
        check("Delete", "", api::json!({"nfs": {}}), &format!("{getting} no deletable volume plugin matched"));
        check("Delete", "", api::json!({"local": {}}), &format!("{getting} no volume plugin matched"));
        check("Recycle", "", csi(), "VolumeFailedRecycle: No recycler plugin found for the volume!");
    }
}
