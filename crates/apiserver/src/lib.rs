//! The Kubernetes API over HTTPS.
//!
//! In the order in which a request meets them:
//!
//! - [`server`]: connections and limits, the way of a request.
//! - [`identity`] and [`authorization`]: authentication and authorization; `flow_control`: admission of
//!   requests under load.
//! - [`wire`]: parsing of requests and encoding of responses; [`resources`]: the table of resources.
//! - `verbs`: get, list, watch, create, update, patch, delete, and what stands below objects; with [`admission`].
//! - [`objects`]: what happens to one object: conversion, the strategy of its kind, selectors.
//! - [`storage`]: how objects lie in the store, and how they are served without decoding them.
//! - `custom`: resources that users define, served beside the built-in ones.
//! - `aggregator`: groups that other servers serve, to which requests are passed on.
//! - [`serving`]: discovery, OpenAPI, tables, certificates, bootstrap objects.

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
