//! The API server from outside: recorded traffic, hostile input, identities, custom resources, several servers.
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

mod admission;
mod apply;
mod authorization;
mod cbor;
mod cluster_state;
mod custom_resources;
mod details;
mod flow_control;
mod hostile;
mod identity;
mod logs;
mod long_lists;
mod nodes;
mod openapi;
mod operations;
mod over_network;
mod patches;
mod protobuf;
mod replay;
mod replicas;
mod rights;
mod scalars;
mod services;
mod siege;
mod soak;

#[path = "support/cluster.rs"]
mod cluster;
#[path = "support/network.rs"]
mod network;
