//! Controllers of Services: endpoints, address ranges, simulated load balancers.

pub mod endpoints;
pub mod endpointslice;
pub mod endpointslice_mirroring;
pub mod service_cidr;
pub(crate) mod services;
pub mod simulated_load_balancers;
