//! Writes that must precede the binding of a pod.
//!
//! The core decides, the caller writes: each write is guarded by the resource version on which the decision was
//! based. When one fails, the caller reports it, and the core reverts the decision.

use std::sync::Arc;
use std::time::Duration;

use api::core::v1::ContainerExtendedResourceRequest;
use api::json::Text;
use api::resource::v1::{AllocationResult, ResourceClaim};

/// One write.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// Binds a volume to a claim: sets `spec.claimRef` of the volume.
    BindVolume {
        /// The volume.
        volume: Text,
        /// The claim's namespace.
        namespace: Text,
        /// The claim.
        claim: Text,
        /// Time limit for the binding of the claim.
        timeout: Duration,
    },
    /// Requests a new volume near a node: sets the annotation `volume.kubernetes.io/selected-node` of the
    /// claim.
    ProvisionVolume {
        /// The claim's namespace.
        namespace: Text,
        /// The claim.
        claim: Text,
        /// The node.
        node: Text,
        /// Time limit for the creation of the volume.
        timeout: Duration,
    },
    /// Allocates devices to a claim and reserves it for the pod: sets `status.allocation` if it is given, adds
    /// the pod to `status.reservedFor`, and the finalizer `resource.kubernetes.io/delete-protection` if it is
    /// missing.
    UseResourceClaim {
        /// The claim, as it was when the decision was made.
        claim: Arc<ResourceClaim>,
        /// The devices; `None` if they are already allocated to the claim.
        allocation: Option<Arc<AllocationResult>>,
        /// Time limit for the readiness of the devices.
        timeout: Duration,
    },
    /// Removes the devices from an unused claim: clears `status.allocation`, `status.reservedFor` and
    /// `status.devices`.
    FreeResourceClaim {
        /// The claim's namespace.
        namespace: Text,
        /// The claim.
        claim: Text,
        /// UID of the claim.
        uid: Text,
        /// The state that the decision was made on.
        resource_version: Text,
    },
    /// Creates a claim for the extended resources of the pod, with devices allocated to it and reserved for the
    /// pod, and names it in the pod's status.
    CreateResourceClaim {
        /// The claim to be; name and UID are placeholders.
        claim: Arc<ResourceClaim>,
        /// The devices.
        allocation: Arc<AllocationResult>,
        /// The device requests that serve the containers.
        mappings: Vec<ContainerExtendedResourceRequest>,
        /// Time limit for the readiness of the devices.
        timeout: Duration,
    },
    /// Deletes a claim that an earlier attempt created for the extended resources of the pod.
    DeleteResourceClaim {
        /// The claim's namespace.
        namespace: Text,
        /// The claim.
        claim: Text,
        /// UID of the claim.
        uid: Text,
    },
}
