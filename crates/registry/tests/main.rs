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

mod custom_resources;
mod kinds;
mod pod_certificate_requests;
mod proposals;
mod validation;
