//! The language against recorded answers, the conformance suite and its own properties.
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
    unreachable_pub,
    reason = "tests; shared parts are public for the other crate"
)]

// The short name by which the rest of the workspace knows the crate.
extern crate celplane_cel as cel;

mod conformance;
mod deep;
mod golden;
mod library;
mod partial_maps;
mod properties;
mod regex;
mod runaway;
mod syntax_golden;
