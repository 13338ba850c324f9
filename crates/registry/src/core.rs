//! Kinds of the core group, and what kinds of other groups share with them.

pub(crate) mod addresses;
pub(crate) mod config;
pub(crate) mod event;
pub(crate) mod expression_totals;
pub(crate) mod namespace;
pub(crate) mod node;
pub(crate) mod node_selector;
pub(crate) mod persistent_volume;
pub(crate) mod persistent_volume_claim;
pub(crate) mod pod;
pub(crate) mod quota;
pub(crate) mod replication_controller;
pub(crate) mod resource_names;
pub(crate) mod service;
pub(crate) mod service_given;
mod service_warnings;
pub(crate) mod volume_claim;
pub(crate) mod volume_sources;
