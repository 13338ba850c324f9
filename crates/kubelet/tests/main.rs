//! The node agent's rules against recorded answers of Kubernetes' kubelet.
//!
//! One binary for all: every test builds into it, and it is linked once.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::string_slice,
    clippy::unwrap_used,
    reason = "tests"
)]

// The short name of the crate in the rest of the workspace.
extern crate celplane_kubelet as kubelet;

mod admission;
