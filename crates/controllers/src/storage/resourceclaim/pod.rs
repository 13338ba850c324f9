//! Claims that a pod needs.
//!
//! Pure. Follows `syncPod` and `handleClaim` in Kubernetes `pkg/controller/resourceclaim/controller.go`.

use api::core::v1::{Pod, PodResourceClaim};
use api::features::{Features, Gate};
use api::json::{Text, Value};
use api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use client::Document;

use super::{CLAIM_NAME, MAX_RESERVED};

/// The longest beginning of a generated name.
const PREFIX_MAX: usize = 57;

/// Requirement of one claim of a pod.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ClaimNeed {
    /// None.
    Nothing,
    /// Its name must be written to the pod's status.
    Tell(Text),
    /// It must be created.
    Create(Value),
}

/// A reason why a claim cannot be created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Problem {
    /// The template may come.
    #[error("resource claim template \"{0}\": resourceclaimtemplate.resource.k8s.io \"{0}\" not found")]
    NoTemplate(Text),
    /// The template requires a disabled gate: retrying helps only after a change.
    #[error("{0}")]
    Gate(&'static str),
}

/// The claim's name from the pod's status, or from the user.
pub(crate) fn known_name<'a>(pod: &'a Pod, claim: &'a PodResourceClaim) -> Option<&'a Text> {
    if let Some(name) = &claim.resource_claim_name {
        return Some(name);
    }
    let reported = pod.status.resource_claim_statuses.iter().find(|it| it.name == claim.name);
    reported.and_then(|it| it.resource_claim_name.as_ref())
}

/// Whether a claim was made for a pod.
pub(crate) fn is_for(claim: &ResourceClaim, pod: &Pod) -> bool {
    claim.metadata.namespace == pod.metadata.namespace
        && claim.metadata.controller().is_some_and(|owner| owner.uid == pod.metadata.uid)
}

/// Determines the requirement of one claim of a pod, given the claims created for it and the template that it
/// references.
pub(crate) fn need<'a>(
    pod: &Pod,
    wanted: &PodResourceClaim,
    claims: impl IntoIterator<Item = &'a ResourceClaim> + Clone,
    template: impl FnOnce(&str) -> Option<Document<ResourceClaimTemplate>>,
    features: Features,
) -> Result<ClaimNeed, Problem> {
    let Some(template_name) = &wanted.resource_claim_template_name else { return Ok(ClaimNeed::Nothing) };
    if let Some(reported) = pod.status.resource_claim_statuses.iter().find(|it| it.name == wanted.name) {
        // An entry without a name: the template requested nothing.
        let Some(name) = &reported.resource_claim_name else { return Ok(ClaimNeed::Nothing) };
        let mut all = claims.clone().into_iter();
        if all.any(|claim| claim.metadata.name == *name && is_for(claim, pod)) {
            return Ok(ClaimNeed::Nothing);
        }
    }
    let made = claims.into_iter().find(|claim| {
        is_for(claim, pod) && claim.metadata.annotations.get(CLAIM_NAME).is_some_and(|it| *it == wanted.name)
    });
    if let Some(made) = made {
        return Ok(ClaimNeed::Tell(made.metadata.name.clone()));
    }
    let template = template(template_name).ok_or_else(|| Problem::NoTemplate(template_name.clone()))?;
    let constraints = &template.spec.spec.devices.constraints;
    if constraints.iter().any(|it| it.cel.is_some()) && !features.enabled(Gate::DRACELDeviceConstraint) {
        return Err(Problem::Gate(
            "template includes a device constraint CEL expression, but the feature DRACELDeviceConstraint is disabled",
        ));
    }
    Ok(ClaimNeed::Create(new_claim(pod, wanted, &template)))
}

fn new_claim(pod: &Pod, wanted: &PodResourceClaim, template: &Document<ResourceClaimTemplate>) -> Value {
    let field = |path: &[&str]| template.value().at(path).cloned();
    let mut annotations = field(&["spec", "metadata", "annotations"]).unwrap_or_else(Value::object);
    annotations.set_at(&[CLAIM_NAME], wanted.name.clone());
    let (name, uid) = (pod.metadata.name.clone(), pod.metadata.uid.clone());
    let prefix = prefix(&name, &wanted.name);
    let mut object = api::json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {
            "generateName": prefix, "namespace": (pod.metadata.namespace.clone()), "annotations": annotations,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": true}],
        },
        "spec": (field(&["spec", "spec"]).unwrap_or_default()),
    });
    if let Some(labels) = field(&["spec", "metadata", "labels"]) {
        object.set_at(&["metadata", "labels"], labels);
    }
    object
}

/// The beginning of a claim's name; long names are shortened in proportion.
fn prefix(pod: &str, claim: &str) -> String {
    let whole = format!("{pod}-{claim}-");
    if whole.len() <= PREFIX_MAX {
        return whole;
    }
    let part = |name: &str| {
        let length = name.len().saturating_mul(PREFIX_MAX).checked_div(whole.len()).unwrap_or(0);
        name.get(..length).unwrap_or(name).to_owned()
    };
    format!("{}-{}", part(pod), part(claim))
}

/// The claim with a reservation for a pod that is on a node already; nothing if it needs none or has no room.
pub(crate) fn reserve(claim: &Document<ResourceClaim>, pod: &Pod) -> Option<Value> {
    let status = &claim.status;
    let reserved = status.reserved_for.iter().any(|it| it.uid == pod.metadata.uid);
    if status.allocation.is_none() || reserved || status.reserved_for.len() >= MAX_RESERVED {
        return None;
    }
    let mut object = claim.to_value();
    let (name, uid) = (pod.metadata.name.clone(), pod.metadata.uid.clone());
    object.make_list_at(&["status", "reservedFor"]).push(api::json!({"resource": "pods", "name": name, "uid": uid}));
    Some(object)
}

/// The status of the pod's claims, old and new, by name.
pub(crate) fn statuses(pod: &Pod, new: &[(Text, Text)]) -> Value {
    let reported = pod.status.resource_claim_statuses.iter();
    let reported = reported.filter_map(|it| Some((it.name.clone(), it.resource_claim_name.clone()?)));
    let all: std::collections::BTreeMap<Text, Text> = reported.chain(new.iter().cloned()).collect();
    let one = |(name, claim): (Text, Text)| api::json!({"name": name, "resourceClaimName": claim});
    Value::Array(all.into_iter().map(one).collect())
}
