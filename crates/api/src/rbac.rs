//! Group `rbac.authorization.k8s.io`.

pub mod v1;
