//! Node lifecycle: nodes that fall silent are told to be, and their pods are sent elsewhere.
//!
//! [`health`] says whether anything is heard of a node, [`taints`] which taints follow from its conditions, [`zones`] how
//! many nodes may be given up at a time, [`labels`] which old labels follow new ones; [`monitor`] puts them together.
//! Follows Kubernetes' `pkg/controller/nodelifecycle`.

pub mod health;
pub mod labels;
pub mod monitor;
pub mod taints;
pub mod zones;
