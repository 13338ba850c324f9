//! The controllers of the control plane, one folder each.

pub mod daemonset;
pub mod node_lifecycle;
pub mod taint_eviction;
