//! DaemonSets: a pod on every node that fits.
//!
//! [`placement`] decides on which nodes.
//! Follows Kubernetes' `pkg/controller/daemon`.

pub mod placement;
