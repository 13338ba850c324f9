//! Tests of the DNS server: records by the specification, messages of any form, servers and forwarding on loopback.
//!
//! One binary for all: every test builds into it, and it is linked once.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests"
)]

// The short name of the crate in the rest of the workspace.
extern crate celplane_dns as dns;

mod forwarding;
mod robustness;
mod serving;
mod support;
mod zone;
