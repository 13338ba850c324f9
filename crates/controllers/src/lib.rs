//! The controllers of the control plane, one folder each.
//!
//! The rule of a controller is a pure function from what is seen (documents, typed views, the time) to what is to be
//! done: a list of [actions](action::Action). Everything else is shared, in reading order:
//!
//! - [`action`]: what can be done; [`executor`]: does it through the API, and knows what of it has been seen since.
//! - [`expectations`]: a decision waits until the last one's writes are in the local copies, so that no stale copy makes
//!   a pod too many; [`refusals`]: what the server refuses is tried again rarely, by one for all.
//! - [`ownership`]: who controls what, adoption and release; [`pods`]: what all who own pods ask of them.
//! - [`edit`], [`hash`], [`history`]: small changes to whole documents, short names for them, and templates as they were.
//! - [`placement`]: what those share that look at pods on nodes.
//! - [`manager`]: the list of controllers, and which of them run; [`settings`]: what its flags say beyond that.
//!
//! The controllers: [`daemonset`], [`deployment`], [`node_lifecycle`], [`replicaset`], [`replicationcontroller`],
//! [`taint_eviction`].

pub mod action;
pub mod daemonset;
pub mod deployment;
pub mod edit;
pub mod executor;
pub mod expectations;
pub mod hash;
pub mod history;
pub mod manager;
pub mod node_lifecycle;
pub mod ownership;
pub mod placement;
pub mod pods;
pub mod refusals;
pub mod replicaset;
pub mod replicationcontroller;
pub mod settings;
pub mod taint_eviction;
