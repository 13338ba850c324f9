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

// The short name of the crate in the rest of the workspace.
extern crate celplane_apiserver as apiserver;

mod admission;
mod aggregation;
mod authorization;
mod bootstrap_tokens;
mod cbor;
mod cluster_state;
mod container_streams;
mod custom_resources;
mod details;
mod flow_control;
mod hostile;
mod identity;
mod list_fields;
mod logs;
mod long_lists;
mod nodes;
mod openapi;
mod operations;
mod over_network;
mod pod_security;
mod policies;
mod protobuf;
mod proxies;
mod recorded;
mod reference;
mod replay;
mod replicas;
mod resource_metrics;
mod rights;
mod scalars;
mod services;
mod siege;
mod soak;
mod unread_answers;
mod webhooks;

#[path = "support/cluster.rs"]
mod cluster;
#[path = "support/network.rs"]
mod network;
