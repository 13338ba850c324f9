//! What each resource means: defaults, gated fields, create and update validation.
//!
//! The crate is pure: time, uids, features and the compiler of expressions are arguments. In reading order:
//!
//! - [`defaults`]: what is filled in, by type.
//! - [`resources`]: the table, one row per resource; [`strategy`]: what its functions may know; [`printers`]: what
//!   `kubectl get` shows; [`conversion`]: between the stored version and the others.
//! - [`admit`]: the steps in order, for servers, tools and tests.
//! - [`custom_resource`]: the same for objects of kinds that users define.
//! - [`expressions`]: how validation asks for the compilation of expressions.
//!
//! Each group has a module, in which a kind is a file or a folder. Texts, paths and order of errors are Kubernetes'.

mod admission_policies;
pub mod admit;
mod api_service;
mod apiextensions;
mod apps;
mod autoscaling;
mod batch;
pub mod certificates;
mod conditions;
pub mod conversion;
mod coordination;
mod core;
pub mod defaults;
mod document;
mod endpoints;
pub mod expressions;
mod flowcontrol;
mod generic;
mod meta;
mod networking;
mod policy;
pub mod printers;
mod rbac;
mod render;
mod resource;
pub mod resources;
mod runtime_class;
mod scheduling;
mod selectors;
mod storage;
mod storage_migration;
pub mod strategy;
mod webhooks;
mod workload;

pub use self::core::service_given::init_families as init_service_families;
pub use apiextensions::{custom_resource, status as definition_status};
