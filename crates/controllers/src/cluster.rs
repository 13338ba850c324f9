//! Controllers of the cluster as a whole: garbage collection, namespaces, quota, the status of policies.

pub mod garbage_collector;
pub mod namespace;
pub mod policy_status;
pub mod resourcequota;
