//! The writes that a decision needs, and the binding itself.
//!
//! Every write asks first whether leadership still holds: two schedulers must not decide about one pod.

use api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use api::json::Value;
use client::election::Leadership;
use client::objects::Patch;
use client::{Client, Document, Error};
use scheduling::Placement;
use scheduling::writes::Write;

/// Why a pod was not bound.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Somebody else may lead by now.
    #[error("leadership is lost")]
    NotLeading,
    /// The volume is another claim's by now.
    #[error("volume \"{0}\" was given to another claim")]
    VolumeTaken(String),
    /// The server said no, or nothing.
    #[error(transparent)]
    Request(#[from] Error),
}

/// Writes what must be written first, then binds.
///
/// # Errors
/// Why the pod is not bound: the decision has to be taken back.
pub async fn bind(client: &Client, leadership: &Leadership, pod: &Pod, placement: &Placement) -> Result<(), BindError> {
    let leads = || if leadership.holds() { Ok(()) } else { Err(BindError::NotLeading) };
    for write in &placement.writes {
        leads()?;
        match write {
            Write::BindVolume { volume, namespace, claim } => bind_volume(client, volume, namespace, claim).await?,
            Write::ProvisionVolume { namespace, claim, node } => {
                let node = node.as_str();
                let annotations = api::json!({"volume.kubernetes.io/selected-node": node});
                let patch = api::json!({"metadata": {"annotations": annotations}});
                let claims = client.objects::<PersistentVolumeClaim>();
                claims.patch(namespace, claim, "", Patch::Merge, &patch).await?;
            }
        }
    }
    leads()?;
    Ok(client.objects::<Pod>().bind(pod, &placement.node).await?)
}

/// Sets `spec.claimRef` of a volume that is nobody's.
async fn bind_volume(client: &Client, volume: &str, namespace: &str, claim: &str) -> Result<(), BindError> {
    let volumes = client.objects::<Document<PersistentVolume>>();
    let claims = client.objects::<PersistentVolumeClaim>();
    let (known, wanted) = tokio::try_join!(volumes.get("", volume), claims.get(namespace, claim))?;
    if let Some(claimed) = &known.spec.claim_ref
        && (claimed.namespace != namespace || claimed.name != claim)
    {
        return Err(BindError::VolumeTaken(volume.to_owned()));
    }
    let mut changed = known.to_value();
    let uid = wanted.metadata.uid.as_str();
    let reference = api::json!({
        "kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim, "uid": uid, "apiVersion": "v1",
    });
    if let Some(spec) = changed.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("claimRef", reference);
    }
    // The version that was read is still in it: somebody else's write is a conflict.
    volumes.update("", volume, &changed).await?;
    Ok(())
}
