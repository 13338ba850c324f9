//! The Kubernetes API over HTTPS.
//!
//! In the order in which a request passes them:
//!
//! - [`server`]: connections, limits, routes, and the life of the process; `state`: the parts that requests use.
//! - [`identity`], [`authorization`] and [`audit`]: authentication, permissions and the audit log; `flow_control`:
//!   the order of requests under load.
//! - [`wire`]: parsing of requests and encoding of responses; [`resources`]: the table of resources.
//! - `verbs`: get, list, watch, create, update, patch, delete, subresources and tables; [`admission`]: the chain of
//!   plugins that writes and connections pass.
//! - [`objects`]: one object between decoding and the store: conversion, the strategy of its kind, addresses.
//! - `custom`: resources that users define, served in addition to the built-in ones.
//! - `aggregator`: groups that other servers serve, to which requests are forwarded; [`outbound`]: connections to
//!   those and to webhooks.
//!
//! Independent of single requests:
//!
//! - [`storage`]: compaction, limits and health of the store, and events of the server itself. The stored form of
//!   objects and the watch cache are in the crate `cache`, patches in `patching`.
//! - [`serving`], `openapi` and `initial_objects`: discovery, API documents, and the objects that every cluster has.
//! - [`certificates`]: the server's certificates.
//!
//! The layers of these modules are in `docs/conventions.md`, section 2, and `cargo xtask tidy` checks them.

pub mod admission;
mod aggregator;
pub mod audit;
pub mod authorization;
pub mod certificates;
mod clock;
mod custom;
mod flow_control;
pub mod identity;
mod initial_objects;
mod metrics;
pub mod objects;
mod openapi;
mod random;
pub mod wire;
pub use registry::resources;
pub mod outbound;
pub mod server;
pub mod serving;
mod shutdown;
mod state;
pub mod storage;
mod verbs;

pub use server::{Options, Server};
pub use wire::body::Body;
