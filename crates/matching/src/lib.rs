//! One verdict for all: tolerations, node affinity, selectors; pod resources, ports, volumes.
//!
//! Scheduler, controllers, node agent and offline tools share these rules, so that they cannot disagree. In
//! reading order:
//!
//! - [`Features`] lists the enabled features; a disabled gate fails closed.
//! - `CompileCache` compiles text into `expressions::Expression`s and keeps them, each with its cached
//!   verdicts. Its owner shares it between all pods.
//! - [`tolerations`], [`node_selector`], [`node_affinity`]: requirements of a pod or volume on a node.
//! - [`PodMatcher`] combines these for one pod: built once, evaluated for many [`Node`]s. [`explain`] gives the
//!   reasons.
//! - [`resources`], [`host_ports`], [`volumes`], [`topology`]: other rules that scheduler, node agent and
//!   controllers share.

pub mod complaints;
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

pub use expressions::{CompileCache, Meter};
pub use features::Features;
pub use matcher::Matcher;
pub use node::Node;
pub use pod::{PodMatcher, TaintVerdict};
