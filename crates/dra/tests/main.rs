//! Allocations against recorded answers, and searches against brute force.
//!
//! One binary for all: every test builds into it, and it is linked once.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests"
)]

// The short name of the crate in the rest of the workspace.
extern crate celplane_dra as dra;

mod alike;
mod allocator;
mod attempt;
mod oracle;
mod set_constraints;
mod setting;
