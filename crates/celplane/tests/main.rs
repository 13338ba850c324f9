//! The binary as users run it, with real clients.
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

mod bad_input;
mod cel;
mod client;
mod controllers;
mod devices;
mod documents;
mod dry_run;
mod etcd;
mod evictions;
mod failover;
mod faults_on_demand;
mod first_light;
mod fleet;
mod fleet_load;
mod gates_on_etcd;
mod hot_loop;
mod killed;
mod kube_rs;
mod kubectl;
mod kubectl_commands;
mod kubectl_identity;
mod kubectl_workloads;
mod live;
mod offline;
mod one_verdict;
mod printer_columns;
mod python_client;
mod scheduler;
mod simulate;
mod skew;
mod static_pods;
mod store_commands;
mod stories;
mod up;
mod versions;

#[path = "support/cluster.rs"]
mod cluster;
#[path = "support/paused.rs"]
mod paused;
#[path = "support/shell.rs"]
mod shell;
