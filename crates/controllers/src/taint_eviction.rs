//! Taint eviction: pods leave nodes whose `NoExecute` taints they do not tolerate, or no longer.
//!
//! [`plan`] decides when.
//! Follows Kubernetes' `pkg/controller/tainteviction`.

pub mod plan;
