//! Allocation of devices to claims.
//!
//! In reading order:
//!
//! - [`Features`] lists the enabled parts; the use of others is rejected by name, never ignored.
//! - [`Catalog`] holds the ResourceSlices, read once when they change; [`expressions`] the programs over devices.
//! - [`pools`] are the devices that one node can use, in the order in which they are tried.
//! - [`AllocatedState`] tracks allocated devices; [`claims`] are the requests.
//! - [`search`] finds the first set of devices that satisfies all claims of a pod; [`constraints`] cut it short.
//! - [`allocation`] converts the result to the status of the claims.
//! - [`narration`] records the steps of a search, for logs; [`explain`] explains its result, for people.
//! - [`Inventory`] combines them for a scheduler, including decisions that are not written yet; [`attempt`]
//!   searches nodes, once for all equivalent ones; `answers` caches the results, [`deferred`] are searches in
//!   the background.
//!
//! Follows `structured/internal/experimental` of Kubernetes' `dynamic-resource-allocation`, the variant with
//! every feature; expressions over sets of devices follow KEP-5254.

pub mod allocated;
pub mod allocation;
mod answers;
pub mod attempt;
mod capacity;
pub mod catalog;
pub mod claims;
mod compatibility;
pub mod constraints;
mod counters;
pub mod deferred;
pub mod device;
mod error;
pub mod explain;
pub mod expressions;
mod features;
mod ids;
pub mod inventory;
pub mod narration;
pub mod pools;
pub mod search;
mod shape;
pub mod taints;

pub use allocated::AllocatedState;
pub use attempt::Attempt;
pub use catalog::Catalog;
pub use claims::Claims;
pub use deferred::{DeferredSearch, SearchOutcome};
pub use device::DeviceId;
pub use error::{ConstraintProblem, Error, RequestProblem};
pub use expressions::Expressions;
pub use features::Features;
pub use inventory::Inventory;
pub use narration::Narration;
pub use search::{Budget, Effort, Search};

/// Maximum number of devices of a claim.
pub const RESULTS_MAX: usize = 32;
