//! CEL as Kubernetes speaks it: libraries, environments, schemas, limits, compile cache.

pub mod declared;
pub mod libraries;
pub mod names;
pub mod schema;
