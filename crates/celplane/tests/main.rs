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
mod both_forms;
mod build_commit;
mod cel;
mod certificate_rotation;
mod child_clusters;
mod client;
mod closed_output;
mod cluster_dns;
mod console;
mod containers;
mod controllers;
mod cost_per_byte;
mod day_one;
mod device_drivers;
mod devices;
mod documents;
mod dry_run;
mod envtest;
mod etcd;
mod evictions;
mod existing_cluster;
mod expression_siege;
mod failover;
mod fake_runtime;
mod faults_on_demand;
mod first_light;
mod fleet;
mod fleet_load;
mod gates_on_etcd;
mod hostile_files;
mod hot_loop;
mod join;
mod json_schemas;
mod killed;
mod kube_rs;
mod kubectl;
mod kubectl_commands;
mod kubectl_identity;
mod kubectl_workloads;
mod kubelet_replay;
mod live;
mod metrics_adapter;
mod node_faults;
mod offline;
mod offline_check;
mod offline_policies;
mod one_verdict;
mod printer_columns;
mod python_client;
mod python_package;
mod scheduler;
mod service_proxy;
mod simulate;
mod skew;
mod static_pods;
mod store_commands;
mod stories;
mod up;
mod upgrades;
mod versions;

#[path = "support/browser.rs"]
mod browser;
#[path = "support/cluster.rs"]
mod cluster;
#[path = "support/paused.rs"]
mod paused;
#[path = "support/played_runtime.rs"]
mod played_runtime;
#[path = "support/shell.rs"]
mod shell;
