//! Controllers of nodes: life cycle, eviction by taints of nodes and devices, resolved tolerations.

pub mod device_taint_eviction;
pub mod node_ipam;
pub mod node_lifecycle;
pub mod taint_eviction;
pub(crate) mod toleration_resolver;
pub mod ttl;
