//! Recorded facts of the reference, checked against this crate.
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
extern crate celplane_api as api;

mod decode;
mod field_errors;
mod json_path;
mod names;
mod protobuf;
mod scalars;
mod selectors;
mod views;
mod x509;
