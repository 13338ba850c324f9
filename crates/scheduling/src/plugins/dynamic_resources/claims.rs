//! The claims of a pod: which they are, and whether they are in a state to be allocated.

use std::sync::Arc;

use api::annotations::REJECTED;
use api::json::Text;
use api::resource::v1::ResourceClaim;
use matching::node_selector::NodeSelector;

use crate::cluster::{Cluster, Devices, PodInfo};
use crate::framework::Status;

/// The claims of a pod.
pub(super) struct PodClaims {
    claims: Vec<(Arc<ResourceClaim>, Nodes)>,
}

/// Nodes on which the devices of a claim can be used.
pub(super) enum Nodes {
    All,
    Selected(NodeSelector),
}

impl Nodes {
    pub(super) fn contain(&self, node: &matching::Node) -> bool {
        match self {
            Nodes::All => true,
            Nodes::Selected(selector) => selector.matches(node),
        }
    }
}

/// A claim of a pod: its name, and whether it must have been made for the pod.
pub(super) struct ClaimName {
    name: Text,
    is_generated: bool,
}

/// The names of a pod's claims; those that the pod turned out not to need are left out.
///
/// # Errors
/// A claim is not created yet, in Kubernetes' words.
pub(super) fn names(pod: &PodInfo) -> Result<Vec<ClaimName>, String> {
    let mut names = Vec::new();
    for claim in &pod.spec().resource_claims {
        if let Some(name) = &claim.resource_claim_name {
            names.push(ClaimName { name: name.clone(), is_generated: false });
        } else if claim.resource_claim_template_name.is_some() {
            let Some((_, generated)) = pod.generated_claims.iter().find(|(name, _)| *name == claim.name) else {
                return Err(not_created(pod));
            };
            names.extend(generated.clone().map(|name| ClaimName { name, is_generated: true }));
        } else {
            let key = pod.key();
            let name = &claim.name;
            return Err(format!("pod \"{key}\", spec.resourceClaim {name:?}: none of the supported fields are set"));
        }
    }
    Ok(names)
}

/// Checks that the claims created for a pod exist. The pod's status may name one before it is observed.
///
/// # Errors
/// A claim is not created yet, in Kubernetes' words.
pub(super) fn are_made(pod: &PodInfo, cluster: &Cluster) -> Result<(), String> {
    for ClaimName { name, is_generated } in names(pod)? {
        let is_known = || cluster.objects.resource_claims.contains_key(&(pod.namespace().clone(), name.clone()));
        if is_generated && !is_known() {
            return Err(not_created(pod));
        }
    }
    Ok(())
}

fn not_created(pod: &PodInfo) -> String {
    format!("pod \"{}\": ResourceClaim not created yet", pod.key())
}

/// The claims of a pod as the API has them.
///
/// # Errors
/// A claim does not exist, is being deleted, or belongs to another pod.
pub(super) fn of_pod(pod: &PodInfo, cluster: &Cluster) -> Result<Vec<Arc<ResourceClaim>>, String> {
    let namespace = pod.namespace();
    let mut claims = Vec::new();
    for ClaimName { name, is_generated } in names(pod)? {
        let claim = cluster.objects.resource_claims.get(&(namespace.clone(), name.clone()));
        let Some(claim) = claim else {
            return Err(format!("resourceclaim.resource.k8s.io {:?} not found", name.as_str()));
        };
        if claim.metadata.is_deleting() {
            return Err(format!("resourceclaim {:?} is being deleted", name.as_str()));
        }
        let owner = claim.metadata.controller();
        if is_generated && owner.is_none_or(|owner| owner.uid != pod.uid) {
            let key = pod.key();
            return Err(format!("ResourceClaim {namespace}/{name} was not created for Pod {key} (Pod is not owner)"));
        }
        claims.push(claim.clone());
    }
    Ok(claims)
}

impl PodClaims {
    /// The claims of a pod, and from where those with devices can be used.
    ///
    /// # Errors
    /// A claim does not exist, is being deleted, or belongs to another pod.
    pub(super) fn of(pod: &PodInfo, cluster: &Cluster) -> Result<Self, String> {
        let claims = of_pod(pod, cluster)?.into_iter().map(|claim| {
            let selector = claim.status.allocation.as_ref().and_then(|allocation| allocation.node_selector.as_ref());
            // Allocations take neither expressions nor versions, whatever pods may.
            let parse = |selector| NodeSelector::new(selector, cluster.matcher.cache(), &matching::Features::default());
            let nodes = selector.map_or(Nodes::All, |selector| Nodes::Selected(parse(selector)));
            (claim, nodes)
        });
        Ok(PodClaims { claims: claims.collect() })
    }

    /// Adds a claim without devices.
    pub(super) fn push(&mut self, claim: Arc<ResourceClaim>) {
        self.claims.push((claim, Nodes::All));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<ResourceClaim>> {
        self.claims.iter().map(|(claim, _)| claim)
    }

    pub(super) fn to_allocate(&self) -> impl Iterator<Item = &Arc<ResourceClaim>> {
        self.all().filter(|claim| claim.status.allocation.is_none())
    }

    /// Claims with devices, and where these can be used.
    pub(super) fn allocated(&self) -> impl Iterator<Item = (&Arc<ResourceClaim>, &Nodes)> {
        self.claims.iter().filter(|(claim, _)| claim.status.allocation.is_some()).map(|(claim, nodes)| (claim, nodes))
    }

    pub(super) fn have_alternatives(&self) -> bool {
        self.all().any(|claim| claim.spec.devices.requests.iter().any(|request| !request.first_available.is_empty()))
    }

    /// For each request with alternatives that has its devices: which alternative it has.
    pub(super) fn alternatives_given(&self) -> impl Iterator<Item = usize> {
        self.allocated().flat_map(|(claim, _)| {
            let results = claim.status.allocation.iter().flat_map(|allocation| &allocation.devices.results);
            claim.spec.devices.requests.iter().filter_map(move |request| {
                request.first_available.iter().position(|alternative| {
                    let full_name = format!("{}/{}", request.name, alternative.name);
                    results.clone().any(|result| result.request == full_name)
                })
            })
        })
    }
}

/// Checks that a claim without devices can get some now.
///
/// # Errors
/// The claim is being allocated, uses a disabled feature, or names a class that does not exist.
pub(super) fn check(claim: &ResourceClaim, devices: &Devices, cluster: &Cluster) -> Result<(), Status> {
    let metadata = &claim.metadata;
    let key = || format!("{}/{}", metadata.namespace, metadata.name);
    if devices.inventory.is_assumed(&metadata.uid) {
        return Err(Status::unresolvable(format!("resource claim {} is in the process of being allocated", key())));
    }
    if let Some(why) = metadata.annotations.get(REJECTED) {
        return Err(Status::unresolvable(format!("resource claim {}: {why}", key())));
    }
    let uses_cel = claim.spec.devices.constraints.iter().position(|constraint| constraint.cel.is_some());
    if let Some(index) = uses_cel.filter(|_| !devices.inventory.features().cel_constraints) {
        let detail = "device constraint CEL expressions require feature gate DRACELDeviceConstraint";
        return Err(Status::unresolvable(format!("resource claim {}, constraint #{index}: {detail}", key())));
    }
    let check_class = |class: &Text, request: String| {
        if class.is_empty() {
            return Err(Status::error(format!("request {request}: unsupported request type")));
        }
        if !cluster.objects.device_classes.contains_key(&(Text::default(), class.clone())) {
            return Err(Status::unresolvable(format!("request {request}: device class {class} does not exist")));
        }
        Ok(())
    };
    for request in &claim.spec.devices.requests {
        if let Some(exactly) = &request.exactly {
            check_class(&exactly.device_class_name, request.name.to_string())?;
        } else if request.first_available.is_empty() {
            let name = &request.name;
            return Err(Status::unresolvable(format!(
                "resource claim {}, request {name}: unknown request type",
                key()
            )));
        }
        for alternative in &request.first_available {
            check_class(&alternative.device_class_name, format!("{}/{}", request.name, alternative.name))?;
        }
    }
    Ok(())
}
