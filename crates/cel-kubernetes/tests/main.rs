//! Kubernetes' CEL against recorded answers.
//!
//! One binary for all: every test builds into it, and it is linked once.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::string_slice,
    clippy::unwrap_used,
    dead_code,
    reason = "tests"
)]

// The short name by which the rest of the workspace knows the crate.
extern crate celplane_cel_kubernetes as cel_kubernetes;

mod allocations;
mod conformance;
mod golden;
mod libraries;
mod partial;
mod seeds;
