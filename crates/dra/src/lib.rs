//! Which devices satisfy which claims.
//!
//! In reading order:
//!
//! - [`Features`] says what may be used; what may not is refused by name, never ignored.
//! - [`Catalog`] holds the ResourceSlices, read once when they change; [`expressions`] the programs over devices.
//! - [`pools`] is what of them can be used from one node, in the order in which devices are tried.
//! - [`AllocatedState`] knows which devices are taken; [`claims`] what is asked for.
//! - [`search`] finds the first set of devices that satisfies all claims of a pod; [`constraints`] cut it short.
//! - [`allocation`] writes what was found as the status of the claims.
//! - [`narration`] is what a search did, for logs; [`explain`] why there are devices or not, for people.
//! - [`Inventory`] is all of that for a scheduler, decisions that are not written included; [`attempt`] asks it about nodes,
//!   once for all that look alike; `answers` is what is remembered of that, [`deferred`] what takes too long to wait for.
//!
//! Follows `structured/internal/experimental` of Kubernetes' `dynamic-resource-allocation`, the variant that knows every
//! feature; expressions over sets of devices follow KEP-5254.

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
pub use deferred::{Deferred, Searched};
pub use device::DeviceId;
pub use error::{ConstraintProblem, Error, RequestProblem};
pub use expressions::Expressions;
pub use features::Features;
pub use inventory::Inventory;
pub use narration::Narration;
pub use search::{Budget, Effort, Search};

/// How many devices a claim can have at most.
pub const RESULTS_MAX: usize = 32;
