//! The parts that controllers share, in reading order.
//!
//! - [`action`]: possible actions; [`executor`]: performs them through the API, and tracks which were observed
//!   since.
//! - [`expectations`]: a decision waits until the last one's writes are in the informers, so that no stale copy
//!   leads to an extra pod; [`refusals`]: rejected creations are retried rarely, by one object on behalf of
//!   all.
//! - [`ownership`]: controller references, adoption and release; [`pods`]: helpers for all owners of pods.
//! - [`edit`], [`hash`], [`history`]: small changes to whole documents, short names for them, and templates as they were.
//! - [`placement`]: shared parts of controllers that evaluate pods on nodes.

pub mod action;
pub(crate) mod conditions;
pub mod edit;
pub mod executor;
pub mod expectations;
pub mod hash;
pub mod history;
pub(crate) mod metadata;
#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "tests"
)]
pub(crate) mod model;
pub(crate) mod outcome;
pub mod ownership;
pub mod placement;
pub mod pods;
pub mod refusals;
