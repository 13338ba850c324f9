//! What has to be written before a pod can be bound.
//!
//! The core decides, the caller writes: each guarded by the resource version that the decision was made on. When one fails,
//! the caller says so, and the core takes the decision back.

use api::json::Text;

/// One write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Binds a volume to a claim: sets `spec.claimRef` of the volume.
    BindVolume {
        /// The volume.
        volume: Text,
        /// The claim's namespace.
        namespace: Text,
        /// The claim.
        claim: Text,
    },
    /// Asks for a volume to be made near a node: sets the annotation `volume.kubernetes.io/selected-node` of the claim.
    ProvisionVolume {
        /// The claim's namespace.
        namespace: Text,
        /// The claim.
        claim: Text,
        /// The node.
        node: Text,
    },
}
