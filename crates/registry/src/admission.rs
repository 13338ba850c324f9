//! Admission policies: matching of requests, and evaluation of expressions.
//!
//! Pure: the [`Catalog`] holds compiled policies, a [`Request`] comes in, a [`Cluster`] lends other objects, and an outcome
//! goes out. The API server and `celplane check` evaluate the same policies with it. In reading order:
//!
//! - [`request`]: a request as policies and webhooks see it.
//! - [`rules`]: rules and selectors, shared by policies and webhooks.
//! - [`policy`]: documents → compiled policies and bindings.
//! - [`index`]: rules by operation, group and resource.
//! - [`catalog`]: all policies with their bindings.
//! - [`cluster`]: queries to the cluster, and lookup of parameters.
//! - [`webhook`]: the filter of a webhook.
//! - [`validating`], [`mutating`]: evaluation. Order of evaluation is that of names, where Kubernetes has none.

pub mod catalog;
pub mod cluster;
mod evaluation;
pub mod index;
pub mod mutating;
pub mod policy;
pub mod request;
pub mod rules;
pub mod validating;
pub mod webhook;

pub use self::catalog::Catalog;
pub use self::cluster::{Cluster, ParamError, PatchError};
pub use self::policy::{Binding, MutatingBody, Policy, ValidatingBody};
pub use self::request::{GroupVersionKind, GroupVersionResource, Operation, Request};

#[cfg(test)]
mod tests;
