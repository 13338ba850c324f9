//! Group `discovery.k8s.io`.

pub mod v1;
