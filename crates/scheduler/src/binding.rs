//! The writes that a decision needs, and the binding itself.
//!
//! Leadership is checked before every write: two schedulers must not decide about one pod. A pod that waits for
//! a volume is bound only after its claim.

mod conditions;
mod extended;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use api::json::{Text, Value};
use api::resource::v1::{AllocationResult, ResourceClaim};
use api::well_known::{
    ANNOTATION_BIND_COMPLETED, ANNOTATION_BOUND_BY_CONTROLLER, ANNOTATION_SELECTED_NODE, FINALIZER_RESOURCE_CLAIM,
};
use client::election::Leadership;
use client::objects::Patch;
use client::{Client, Document, Error};
use scheduling::Placement;
use scheduling::writes::Write;
use telemetry::logs::chain;
use tracing::warn;

pub(crate) use self::extended::CreatedClaims;
use crate::second_scheduler::{self, Resolver};

/// Interval at which claims are checked meanwhile.
const VOLUMES_INTERVAL: Duration = Duration::from_millis(250);

/// A reason why a pod was not bound.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// This instance is not sure to be the leader any more.
    #[error("leadership is lost")]
    NotLeading,
    /// The volume is another claim's by now.
    #[error("volume \"{0}\" was bound to another claim")]
    VolumeTaken(String),
    /// The claim to devices is not the one that the decision was about.
    #[error("resource claim \"{0}\" has changed")]
    ClaimChanged(String),
    /// Devices did not become ready.
    #[error("resource claim \"{claim}\": {why}")]
    DevicesNotReady {
        /// The claim.
        claim: String,
        /// Description of the problem.
        why: String,
    },
    /// Another scheduler allocated the device to another claim at the same time; this allocation was undone.
    #[error("device {device} was given to resource claim {claim} at the same time")]
    DeviceTaken {
        /// The device.
        device: String,
        /// The other claim.
        claim: String,
    },
    /// Tolerations in place of expressions cannot be added.
    #[error("adding tolerations: {0}")]
    Tolerations(String),
    /// The provisioner cannot create a volume there.
    #[error("provisioning failed for PVC \"{0}\"")]
    NotProvisioned(String),
    /// The claims have no volumes yet.
    #[error("timed out waiting for the condition")]
    VolumesTimedOut,
    /// The request failed.
    #[error(transparent)]
    Request(#[from] Error),
}

impl BindError {
    /// Whether the pod was deleted or is bound, so that nothing is reported about it.
    #[must_use]
    pub fn pod_is_gone(&self) -> bool {
        matches!(self, BindError::NotLeading) || matches!(self, BindError::Request(error) if error.is_not_found())
    }

    /// The message of the pod's event, in Kubernetes' words.
    #[must_use]
    pub fn reported(&self) -> String {
        match self {
            BindError::NotLeading | BindError::Request(_) => format!("running Bind plugin \"DefaultBinder\": {self}"),
            BindError::VolumeTaken(_) | BindError::NotProvisioned(_) | BindError::VolumesTimedOut => {
                format!("running PreBind plugin \"VolumeBinding\": binding volumes: {self}")
            }
            BindError::Tolerations(_) => format!("running PreBind plugin \"TaintToleration\": {self}"),
            BindError::ClaimChanged(_) | BindError::DevicesNotReady { .. } | BindError::DeviceTaken { .. } => {
                format!("running PreBind plugin \"DynamicResources\": {self}")
            }
        }
    }
}

/// Writes what must be written before a pod is bound.
///
/// `waiting` counts those that wait for volumes, which takes as long as it takes. With a `resolver`, components that do not
/// know the proposals' fields work on the same cluster. Claims that were created are in `created`.
///
/// # Errors
/// Why the pod is not bound: the decision has to be taken back, and the created claims deleted.
pub(crate) async fn prepare(
    client: &Client,
    leadership: &Leadership,
    pod: &Pod,
    placement: &Placement,
    waiting: &AtomicUsize,
    resolver: Option<&Resolver>,
    created: &mut CreatedClaims,
) -> Result<(), BindError> {
    let leads = || if leadership.holds() { Ok(()) } else { Err(BindError::NotLeading) };
    for write in &placement.writes {
        leads()?;
        match write {
            Write::BindVolume { volume, namespace, claim, .. } => bind_volume(client, volume, namespace, claim).await?,
            Write::ProvisionVolume { namespace, claim, node, .. } => {
                let node = node.as_str();
                let annotations = api::json!({ANNOTATION_SELECTED_NODE: node});
                let patch = api::json!({"metadata": {"annotations": annotations}});
                let claims = client.objects::<PersistentVolumeClaim>();
                claims.patch(namespace, claim, "", Patch::Merge, &patch).await?;
            }
            Write::UseResourceClaim { claim, allocation, timeout } => {
                let written = use_claim(client, claim, pod, allocation.as_deref()).await?;
                if let Some(resolver) = resolver.filter(|_| allocation.is_some()) {
                    second_scheduler::check_overlap(client, &resolver.claims, &written).await?;
                }
                let devices = allocation.as_deref().or(claim.status.allocation.as_ref());
                devices_ready(client, leadership, claim, devices, *timeout).await?;
            }
            Write::CreateResourceClaim { claim, allocation, mappings, timeout } => {
                let claim = extended::create(client, claim, created).await?;
                let written = use_claim(client, &claim, pod, Some(allocation.as_ref())).await?;
                if let Some(resolver) = resolver {
                    second_scheduler::check_overlap(client, &resolver.claims, &written).await?;
                }
                extended::name_in_pod(client, pod, &claim, mappings).await?;
                devices_ready(client, leadership, &claim, Some(allocation.as_ref()), *timeout).await?;
            }
            // Written where no node fits, never before a binding.
            Write::FreeResourceClaim { claim, .. } | Write::DeleteResourceClaim { claim, .. } => {
                return Err(BindError::ClaimChanged(claim.to_string()));
            }
        }
    }
    let awaited = placement.writes.iter().filter_map(claim_of);
    let (awaited, timeouts): (Vec<(&Text, &Text)>, Vec<Duration>) = awaited.unzip();
    if let Some(timeout) = timeouts.into_iter().max() {
        waiting.fetch_add(1, Ordering::Relaxed);
        let ended = tokio::time::timeout(timeout, volumes_bound(client, &awaited, &placement.node)).await;
        waiting.fetch_sub(1, Ordering::Relaxed);
        ended.map_err(|_| BindError::VolumesTimedOut)??;
    }
    // Last: what is added to a pod cannot be taken back.
    if let Some(resolver) = resolver {
        leads()?;
        resolver.resolve(client, pod, &placement.node).await?;
    }
    Ok(())
}

/// Waits until the drivers have prepared the devices that must be ready before the pod is bound.
async fn devices_ready(
    client: &Client,
    leadership: &Leadership,
    claim: &ResourceClaim,
    allocation: Option<&AllocationResult>,
    timeout: Duration,
) -> Result<(), BindError> {
    let mut results = allocation.into_iter().flat_map(|it| &it.devices.results);
    if results.any(|result| !result.binding_conditions.is_empty()) {
        conditions::wait(client, leadership, &claim.metadata, timeout).await?;
    }
    Ok(())
}

/// Binds a pod for which all is prepared.
///
/// # Errors
/// Why the pod is not bound: the decision has to be taken back.
pub async fn bind(client: &Client, leadership: &Leadership, pod: &Pod, placement: &Placement) -> Result<(), BindError> {
    if !leadership.holds() {
        return Err(BindError::NotLeading);
    }
    Ok(client.objects::<Pod>().bind(pod, &placement.node).await?)
}

/// The claim to storage that a write is about, and how long a pod waits for it.
fn claim_of(write: &Write) -> Option<((&Text, &Text), Duration)> {
    match write {
        Write::BindVolume { namespace, claim, timeout, .. }
        | Write::ProvisionVolume { namespace, claim, timeout, .. } => Some(((namespace, claim), *timeout)),
        _ => None,
    }
}

/// Waits until claims have their volumes.
async fn volumes_bound(client: &Client, claims: &[(&Text, &Text)], node: &str) -> Result<(), BindError> {
    for (namespace, name) in claims {
        let mut was_selected = false;
        loop {
            match client.objects::<PersistentVolumeClaim>().get(namespace, name).await {
                Ok(claim) => {
                    let annotations = &claim.metadata.annotations;
                    if !claim.spec.volume_name.is_empty() && annotations.contains_key(ANNOTATION_BIND_COMPLETED) {
                        break;
                    }
                    let is_selected =
                        annotations.get(ANNOTATION_SELECTED_NODE).is_some_and(|selected| selected == node);
                    // A provisioner removes the node when it cannot create a volume there.
                    if was_selected && !is_selected {
                        return Err(BindError::NotProvisioned(name.to_string()));
                    }
                    was_selected = is_selected;
                }
                Err(error) if error.may_pass() => {}
                Err(error) => return Err(error.into()),
            }
            tokio::time::sleep(VOLUMES_INTERVAL).await;
        }
    }
    Ok(())
}

/// Sets `spec.claimRef` of a free volume.
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
    if known.spec.claim_ref.is_none() {
        set_annotation(&mut changed, ANNOTATION_BOUND_BY_CONTROLLER, "yes");
    }
    if let Some(spec) = changed.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("claimRef", reference);
    }
    // It contains the version that was read: a concurrent write is a conflict.
    volumes.update("", volume, &changed).await?;
    Ok(())
}

fn set_annotation(object: &mut Value, name: &str, value: &str) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    match metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        Some(annotations) => {
            annotations.insert(name, value);
        }
        None => {
            metadata.insert("annotations", api::json!({name: value}));
        }
    }
}

/// Gives devices to a claim and reserves it for a pod; returns the claim as written. Each write is guarded by the version that it
/// builds on: a claim that is not the one that the decision was about stays as it is.
async fn use_claim(
    client: &Client,
    known: &ResourceClaim,
    pod: &Pod,
    allocation: Option<&AllocationResult>,
) -> Result<Document<ResourceClaim>, BindError> {
    let claims = client.objects::<Document<ResourceClaim>>();
    let (namespace, name) = (&known.metadata.namespace, &known.metadata.name);
    let changed = || BindError::ClaimChanged(name.to_string());
    let write = async |subresource, patch: &Value| {
        let written = claims.patch(namespace, name, subresource, Patch::Merge, patch).await;
        written.map_err(|error| if error.is_conflict() { changed() } else { error.into() })
    };
    let is_protected =
        |claim: &ResourceClaim| claim.metadata.finalizers.iter().any(|it| it == FINALIZER_RESOURCE_CLAIM);
    let metadata = |claim: &ResourceClaim| {
        let (uid, version) = (claim.metadata.uid.as_str(), claim.metadata.resource_version.as_str());
        let mut metadata = api::json!({"uid": uid, "resourceVersion": version});
        if let Some(fields) = metadata.as_object_mut().filter(|_| !is_protected(claim)) {
            let mut finalizers: Vec<Value> = claim.metadata.finalizers.iter().map(|it| it.clone().into()).collect();
            finalizers.push(FINALIZER_RESOURCE_CLAIM.into());
            fields.insert("finalizers", Value::Array(finalizers));
        }
        metadata
    };
    let mut users = api::json::to_value(&known.status.reserved_for).map_err(|_| changed())?;
    let (pod_name, pod_uid) = (pod.metadata.name.as_str(), pod.metadata.uid.as_str());
    let user = api::json!({"resource": "pods", "name": pod_name, "uid": pod_uid});
    users.as_array_mut().ok_or_else(changed)?.push(user);
    let mut status = api::json!({"reservedFor": users});
    if let (Some(allocation), Some(fields)) = (allocation, status.as_object_mut()) {
        // The time of the allocation limits how long the drivers may take.
        let at = allocation.allocation_timestamp.or_else(|| Some(client.clock().now()));
        let allocation = AllocationResult { allocation_timestamp: at, ..allocation.clone() };
        fields.insert("allocation", api::json::to_value(&allocation).map_err(|_| changed())?);
    }
    // Our server writes the finalizer together with the devices. Other servers need a separate write.
    let written = write("status", &api::json!({"metadata": (metadata(known)), "status": status})).await?;
    if is_protected(&written) {
        return Ok(written);
    }
    write("", &api::json!({"metadata": (metadata(&written))})).await
}

/// Removes devices from claims, or claims of earlier attempts, so that a pod that fits nowhere may fit. If a write
/// fails, the decision is made again.
pub async fn free_claims(client: &Client, leadership: &Leadership, writes: &[Write]) {
    for write in writes {
        if !leadership.holds() {
            return;
        }
        if let Write::DeleteResourceClaim { namespace, claim, uid } = write {
            extended::delete(client, namespace, claim, uid).await;
        }
        let Write::FreeResourceClaim { namespace, claim, uid, resource_version } = write else { continue };
        let claims = client.objects::<Document<ResourceClaim>>();
        let freed = async {
            let known = claims.get(namespace, claim).await?;
            if known.metadata.uid != *uid || known.metadata.resource_version != *resource_version {
                return Err(BindError::ClaimChanged(claim.to_string()));
            }
            Ok(crate::devices::give_back(client, &known).await?)
        };
        if let Err(error) = freed.await {
            warn!(resourceClaim = %format!("{namespace}/{claim}"), err = %chain(&error), "Could not free resource claim");
        }
    }
}
