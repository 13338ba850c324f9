//! The claim for the extended resources of a pod: created before the binding, deleted when that fails.

use api::core::v1::{ContainerExtendedResourceRequest, Pod};
use api::json::{Text, Value};
use api::resource::v1::ResourceClaim;
use api::well_known::FINALIZER_RESOURCE_CLAIM;
use client::objects::{Deletion, Patch};
use client::{Client, Document, Error};
use telemetry::logs::chain;
use tracing::warn;

use super::BindError;

/// The claims that were created for a pod which is not bound yet.
#[derive(Debug, Default)]
pub(crate) struct CreatedClaims(Vec<(Text, Text, Text)>);

impl CreatedClaims {
    /// Deletes them, because the pod was not bound. What is left behind is deleted at the next attempt.
    pub(crate) async fn delete(&self, client: &Client) {
        for (namespace, name, uid) in &self.0 {
            delete(client, namespace, name, uid).await;
        }
    }
}

/// Creates a claim under a generated name.
pub(super) async fn create(
    client: &Client,
    claim: &ResourceClaim,
    created: &mut CreatedClaims,
) -> Result<Document<ResourceClaim>, BindError> {
    let metadata = &claim.metadata;
    let unfit = || BindError::ClaimChanged(metadata.generate_name.to_string());
    let annotations = api::json::to_value(&metadata.annotations).map_err(|_| unfit())?;
    let owners = api::json::to_value(&metadata.owner_references).map_err(|_| unfit())?;
    let spec = api::json::to_value(&claim.spec).map_err(|_| unfit())?;
    let (name, namespace) = (metadata.generate_name.as_str(), metadata.namespace.as_str());
    let object = api::json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"generateName": name, "namespace": namespace, "annotations": annotations, "ownerReferences": owners},
        "spec": spec,
    });
    let claims = client.objects::<Document<ResourceClaim>>();
    let claim = claims.create(namespace, &object).await?;
    let metadata = &claim.metadata;
    created.0.push((metadata.namespace.clone(), metadata.name.clone(), metadata.uid.clone()));
    Ok(claim)
}

/// Names the claim in the status of the pod, where the node finds it.
pub(super) async fn name_in_pod(
    client: &Client,
    pod: &Pod,
    claim: &ResourceClaim,
    mappings: &[ContainerExtendedResourceRequest],
) -> Result<(), BindError> {
    let name = claim.metadata.name.as_str();
    let mappings = api::json::to_value(mappings).map_err(|_| BindError::ClaimChanged(name.to_owned()))?;
    let uid = pod.metadata.uid.as_str();
    let patch = api::json!({
        "metadata": {"uid": uid},
        "status": {"extendedResourceClaimStatus": {"requestMappings": mappings, "resourceClaimName": name}},
    });
    client.objects::<Pod>().patch(&pod.metadata.namespace, &pod.metadata.name, "status", Patch::Merge, &patch).await?;
    Ok(())
}

/// Deletes a claim whose pod is not bound: nothing uses its devices, so the finalizer goes first.
pub(super) async fn delete(client: &Client, namespace: &str, name: &str, uid: &str) {
    if let Err(error) = try_delete(client, namespace, name, uid).await
        && !error.is_not_found()
    {
        warn!(resourceClaim = %format!("{namespace}/{name}"), err = %chain(&error), "Could not delete resource claim");
    }
}

async fn try_delete(client: &Client, namespace: &str, name: &str, uid: &str) -> Result<(), Error> {
    let claims = client.objects::<Document<ResourceClaim>>();
    let known = claims.get(namespace, name).await?;
    if known.metadata.uid != uid {
        return Ok(());
    }
    if known.metadata.finalizers.iter().any(|it| it == FINALIZER_RESOURCE_CLAIM) {
        let others = known.metadata.finalizers.iter().filter(|it| *it != FINALIZER_RESOURCE_CLAIM);
        let others = Value::Array(others.map(|it| it.clone().into()).collect());
        let version = known.metadata.resource_version.as_str();
        let patch = api::json!({"metadata": {"uid": uid, "resourceVersion": version, "finalizers": others}});
        claims.patch(namespace, name, "", Patch::Merge, &patch).await?;
    }
    claims.delete(namespace, name, &Deletion { uid: Some(uid.into()), ..Deletion::default() }).await
}
