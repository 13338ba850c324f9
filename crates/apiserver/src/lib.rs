//! The Kubernetes API over HTTPS.
//!
//! In the order in which a request meets them:
//!
//! - [`server`]: connections and limits, the way of a request.
//! - [`identity`] and [`authorization`]: who asks, and whether they may; `flow_control`: and whether now.
//! - [`http`]: what is asked for, in which form, and what is answered; [`resources`]: on what.
//! - `verbs`: get, list, watch, create, update, patch, delete, and what stands below objects; with [`admission`].
//! - [`objects`]: what happens to one object: patches, apply, conversion, the strategy of its kind, selectors.
//! - [`storage`]: how objects lie in the store, and how they are served without decoding them.
//! - `custom`: resources that users define, served beside the built-in ones.
//! - [`serving`]: what the server says of itself and shows: discovery, OpenAPI, tables, certificates, bootstrap objects.

pub mod admission;
pub mod audit;
pub mod authorization;
mod clock;
mod custom;
mod flow_control;
pub mod http;
pub mod identity;
mod metrics;
pub mod objects;
mod random;
pub use registry::resources;
pub mod server;
pub mod serving;
pub mod storage;
mod verbs;

pub use http::body::Body;
pub use server::{Options, Server};
