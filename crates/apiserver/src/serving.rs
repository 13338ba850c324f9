//! Objects and documents that the server provides by itself: discovery, APIServices, its own address, and those that every
//! cluster has from the start.

pub(crate) mod api_services;
pub(crate) mod bootstrap;
pub(crate) mod discovery;
pub(crate) mod node_metrics;
pub mod presence;

pub use crate::certificates;
