//! The controllers of the control plane, one folder each.
//!
//! The rule of a controller is a pure function from what is seen (documents, typed views, the time) to what is to be
//! done: a list of [actions](action::Action). Everything else is shared, in reading order:
//!
//! - [`action`]: what can be done; [`executor`]: does it through the API, and knows what of it has been seen since.
//! - [`expectations`]: a decision waits until the last one's writes are in the local copies, so that no stale copy makes
//!   a pod too many; [`refusals`]: what the server refuses is tried again rarely, by one for all.
//! - [`ownership`]: who controls what, adoption and release; [`pods`]: what all who own pods ask of them.
//! - [`edit`], [`hash`]: small changes to whole documents, and short names for them.
//! - [`manager`]: the list of controllers, and which of them run.
//!
//! The controllers: [`deployment`], [`replicaset`], [`replicationcontroller`].

pub mod action;
pub mod deployment;
pub mod edit;
pub mod executor;
pub mod expectations;
pub mod hash;
pub mod manager;
pub mod ownership;
pub mod pods;
pub mod refusals;
pub mod replicaset;
pub mod replicationcontroller;
