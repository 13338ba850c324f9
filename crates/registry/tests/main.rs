//! Validation, defaults and gated fields against recorded answers.
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
extern crate celplane_registry as registry;

mod annotations;
mod custom_resources;
mod expression_totals;
mod kinds;
mod pod_certificate_requests;
mod pod_security;
mod proposals;
mod validation;
