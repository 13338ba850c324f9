//! Behavior of each resource: defaults, gated fields, create and update validation.
//!
//! The crate is pure: time, uids, features and the compiler of expressions are arguments. In reading order:
//!
//! - [`defaults`]: what is filled in, by type.
//! - [`resources`]: the table, one row per resource; [`strategy`]: what its functions may know; [`printers`]: what
//!   `kubectl get` shows; [`conversion`]: between the stored version and the others.
//! - [`pipeline`]: the steps of a write in order, for servers, tools and tests; [`admit`]: the rules of built-in kinds,
//!   run offline.
//! - [`custom_resource`]: the same for objects of kinds that users define.
//! - [`admission`]: admission policies, evaluated for a request.
//! - [`annotations`]: fields of the proposals on clusters whose API server does not have them.
//! - [`pod_security`]: the Pod Security Standards and the policies of namespaces.
//! - [`expressions`]: the interface through which validation compiles expressions.
//!
//! Each group has a module, in which a kind is a file or a folder. Texts, paths and order of errors are Kubernetes'.

pub mod admission;
mod admission_policies;
pub mod admit;
pub mod annotations;
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
mod go_url;
pub mod hints;
mod lost_expressions;
mod meta;
mod networking;
pub mod pipeline;
pub mod pod_security;
mod policy;
pub mod printers;
mod rbac;
mod render;
mod resource;
pub mod resources;
mod runtime_class;
mod scheduling;
mod seen;
mod selectors;
mod storage;
mod storage_migration;
pub mod strategy;
mod webhooks;
mod workload;

pub use self::core::service_given::init_families as init_service_families;
pub use apiextensions::{column_path, conversion_review, custom_resource, status as definition_status};
