//! The controllers of the control plane, one folder each.
//!
//! The rule of a controller is a pure function from the observed state (documents, typed views, the time) to a
//! list of [actions](action::Action). Everything else is shared, in reading order:
//!
//! - [`action`]: possible actions; [`executor`]: performs them through the API, and tracks which were observed
//!   since.
//! - [`expectations`]: a decision waits until the last one's writes are in the informers, so that no stale copy
//!   leads to an extra pod; [`refusals`]: rejected creations are retried rarely, by one object on behalf of
//!   all.
//! - [`ownership`]: controller references, adoption and release; [`pods`]: helpers for all owners of pods.
//! - [`edit`], [`hash`], [`history`]: small changes to whole documents, short names for them, and templates as they were.
//! - [`placement`]: shared parts of controllers that evaluate pods on nodes.
//! - [`manager`]: the list of controllers, and which of them run.
//! - [`settings`]: settings from the manager's flags.
//!
//! The controllers: [`deployment`], [`replicaset`], [`replicationcontroller`], [`statefulset`], [`job`], [`cronjob`],
//! [`ttl_after_finished`], [`daemonset`], [`node_lifecycle`], [`taint_eviction`], [`device_taint_eviction`].
//!
//! Other controllers: [`garbage_collector`], [`namespace`], [`service_account`], [`root_ca_publisher`],
//! [`endpoints`], [`endpointslice`], [`endpointslice_mirroring`], [`disruption`], [`pod_garbage_collector`],
//! [`volume_protection`], [`persistentvolume_binder`], [`ephemeral_volume`], [`resourceclaim`],
//! [`resourcequota`], [`certificate_requests`], [`clusterrole_aggregation`], [`token_cleaner`],
//! [`service_account_tokens`], [`horizontal_pod_autoscaler`], [`ttl`], [`policy_status`], [`service_cidr`],
//! [`trust_bundle_publisher`], [`bootstrap_signer`]; for simulated nodes: [`simulated_volumes`],
//! [`simulated_load_balancers`].

pub mod action;
pub mod bootstrap_signer;
pub mod certificate_requests;
pub mod clusterrole_aggregation;
mod conditions;
pub mod cronjob;
pub mod daemonset;
pub mod deployment;
pub mod device_taint_eviction;
pub mod disruption;
pub mod edit;
pub mod endpoints;
pub mod endpointslice;
pub mod endpointslice_mirroring;
pub mod ephemeral_volume;
pub mod executor;
pub mod expectations;
pub mod garbage_collector;
pub mod hash;
pub mod history;
pub mod horizontal_pod_autoscaler;
pub mod job;
pub mod manager;
mod metadata;
#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "tests"
)]
mod model;
pub mod namespace;
pub mod node_lifecycle;
mod outcome;
pub mod ownership;
pub mod persistentvolume_binder;
pub mod placement;
pub mod pod_garbage_collector;
pub mod pods;
pub mod policy_status;
pub mod refusals;
pub mod replicaset;
pub mod replicationcontroller;
pub mod resourceclaim;
pub mod resourcequota;
pub mod root_ca_publisher;
pub mod service_account;
pub mod service_account_tokens;
pub mod service_cidr;
mod services;
pub mod settings;
pub mod simulated_load_balancers;
pub mod simulated_volumes;
pub mod statefulset;
pub mod taint_eviction;
pub mod token_cleaner;
mod toleration_resolver;
pub mod trust_bundle_publisher;
pub mod ttl;
pub mod ttl_after_finished;
pub mod volume_protection;
