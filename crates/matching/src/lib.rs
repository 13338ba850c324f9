//! One verdict for all: tolerations, node affinity, selectors; pod resources, ports, volumes.
//!
//! Scheduler, controllers, node agent and offline tools ask here, so that they cannot disagree. In reading order:
//!
//! - [`Features`] says what is allowed; a gate that is off fails closed.
//! - [`CompileCache`] turns text into [`expressions::Expression`]s and remembers them, each with the verdicts it has given.
//!   Its owner shares it between all pods.
//! - [`tolerations`], [`node_selector`], [`node_affinity`]: what a pod or volume asks of a node.
//! - [`PodMatcher`] is all of that for one pod: built once, asked about many [`Node`]s. [`explain`] gives the reasons.
//! - [`resources`], [`host_ports`], [`volumes`], [`topology`]: what else scheduler, node agent and controllers share.

pub mod explain;
pub mod expressions;
mod features;
pub mod host_ports;
mod matcher;
pub mod node;
pub mod node_affinity;
pub mod node_selector;
mod pod;
pub mod pod_affinity;
pub mod resources;
pub mod taints;
pub mod tolerations;
pub mod topology;
pub mod topology_spread;
pub mod volumes;

pub use expressions::CompileCache;
pub use features::Features;
pub use matcher::Matcher;
pub use node::Node;
pub use pod::{PodMatcher, TaintVerdict};
