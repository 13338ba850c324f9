//! The node agent: one node, or a fleet of simulated ones in one process.
//!
//! Containers belong to a [`runtime::Runtime`]: [`simulation`] plays them by rules, [`containers`] runs them
//! through CRI.
//! Everything else is as with Kubernetes' kubelet. In reading order:
//!
//! - [`template`]: manifest of a node; [`node_status`]: its status; [`heartbeat`]: its lease.
//! - [`admission`]: whether a pod that was bound to the node may run there; [`preemption`]: eviction of pods
//!   for critical ones.
//! - [`volumes`]: whether its volumes can be reached from there.
//! - [`runtime`] and [`simulation`]: states of containers; [`pod_status`]: the resulting pod status; [`logs`]:
//!   output of containers; [`container_events`]: their events; [`deadline`]: the active deadline.
//! - [`slice_template`]: simulated devices of a node, in the form that drivers publish; [`prepare`]: the
//!   reports of drivers when a pod needs them.
//! - [`usage`]: processor time and memory of containers.
//! - [`static_pods`]: pods from the node's own files.
//! - [`annotations`]: the names of annotations that change the simulation of nodes and pods.
//! - [`faults`]: nodes that stop or flap on demand.
//! - [`fleet`]: many nodes at work, with one informer of nodes and one of pods, each writing under its own name.
//!
//! All but the fleet are plain functions of the observed state and of the time.

pub mod admission;
pub mod annotations;
pub mod container_events;
pub mod containers;
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
pub mod usage;
pub mod volumes;

pub use fleet::{Fleet, Options};
