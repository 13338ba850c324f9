//! Both stores against the conformance suite, a model, and failing disks.
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
extern crate celplane_store as store;

mod embedded_conformance;
mod embedded_file;
mod embedded_model;
mod embedded_tools;
mod etcd;
mod etcd_stand_in;
mod power_loss;

#[path = "support/disk.rs"]
mod disk;
#[path = "support/etcd_server.rs"]
mod etcd_server;
#[path = "support/model.rs"]
mod model;
