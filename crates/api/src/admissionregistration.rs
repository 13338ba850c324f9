//! Group `admissionregistration.k8s.io`.

pub mod v1;
