//! The node agent: one node, or a fleet of simulated ones in one process.
//!
//! Containers are not run: a [`runtime::Runtime`] says how they are doing, and the one that comes with this crate,
//! [`simulation`], plays them by rules. Everything else is as with Kubernetes' kubelet. In reading order:
//!
//! - [`template`]: what a node is like; [`node_status`]: what it says of itself; [`heartbeat`]: that it lives.
//! - [`admission`]: whether a pod that was bound to the node may run there; [`preemption`]: who gives way to critical ones.
//! - [`volumes`]: whether its volumes can be reached from there.
//! - [`runtime`] and [`simulation`]: how containers are doing; [`pod_status`]: what that means for the pod; [`logs`]: what
//!   containers have written; [`container_events`]: what users are told of them; [`deadline`]: how long they may run.
//! - [`slice_template`]: devices of a node that are not there, as drivers would publish them; [`prepare`]: what a driver
//!   says about them once a pod needs them.
//! - [`static_pods`]: pods from the node's own files.
//! - [`faults`]: nodes that stop or flap on demand.
//! - [`fleet`]: many nodes at work, with one informer of nodes and one of pods, each writing under its own name.
//!
//! All but the fleet are plain functions of what is seen and of the time.

pub mod admission;
pub mod clock;
pub mod container_events;
pub mod deadline;
pub mod faults;
pub mod fleet;
pub mod heartbeat;
pub mod logs;
pub mod node_status;
pub mod pod_addresses;
pub mod pod_status;
pub mod preemption;
pub mod prepare;
pub mod runtime;
pub mod simulation;
pub mod slice_template;
pub mod static_pods;
pub mod template;
pub mod volumes;

pub use fleet::{Fleet, Options};
