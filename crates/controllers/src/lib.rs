//! The controllers of the control plane, one file or folder each, grouped by their objects.
//!
//! The rule of a controller is a pure function from the observed state (documents, typed views, the time) to a
//! list of [actions](machinery::action::Action). Everything else is shared, in [`machinery`].
//!
//! - [`manager`]: the list of controllers, and which of them run; [`settings`]: settings from the manager's flags.
//! - [`workloads`], [`nodes`], [`storage`], [`network`], [`identity`], [`cluster`]: the controllers.

pub mod manager;
pub mod settings;

pub mod cluster;
pub mod identity;
pub mod machinery;
pub mod network;
pub mod nodes;
pub mod storage;
pub mod workloads;
