//! What has to be written before a pod can be bound.
//!
//! The core decides, the caller writes: each guarded by the resource version that the decision was made on. When one fails,
//! the caller says so, and the core takes the decision back.

use std::sync::Arc;
use std::time::Duration;

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
        /// How long the pod waits until the claim is bound.
        timeout: Duration,
    },
    /// Asks for a volume to be made near a node: sets the annotation `volume.kubernetes.io/selected-node` of the claim.
    ProvisionVolume {
        /// The claim's namespace.
        namespace: Text,
        /// The claim.
        claim: Text,
        /// The node.
        node: Text,
        /// How long the pod waits for the volume.
        timeout: Duration,
    },
    /// Gives devices to a claim and reserves it for the pod: sets `status.allocation` where it is given, adds the pod to
    /// `status.reservedFor`, and the finalizer `resource.kubernetes.io/delete-protection` where it is missing.
    UseResourceClaim {
        /// The claim, as it was when the decision was made.
        claim: Arc<ResourceClaim>,
        /// The devices; nothing where the claim has them already.
        allocation: Option<Arc<AllocationResult>>,
        /// How long the pod waits until its devices are ready.
        timeout: Duration,
    },
    /// Takes devices from a claim that nobody uses: clears `status.allocation`, `status.reservedFor` and `status.devices`.
    FreeResourceClaim {
        /// The claim's namespace.
        namespace: Text,
        /// The claim.
        claim: Text,
        /// Which claim of that name it is.
        uid: Text,
        /// The state that the decision was made on.
        resource_version: Text,
    },
}
