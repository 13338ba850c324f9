//! Group `certificates.k8s.io`.

pub mod v1;
