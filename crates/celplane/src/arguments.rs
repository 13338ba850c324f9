//! Flags that several commands share, and the settings that they stand for.

pub(crate) mod node_certificates;
pub(crate) mod node_lifecycle;
pub(crate) mod node_network;
pub(crate) mod nodes;
pub(crate) mod real_node;
pub(crate) mod registration;
pub(crate) mod scheduler;
pub(crate) mod second_scheduler;
