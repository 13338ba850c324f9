//! The Kubernetes API over HTTPS.
//!
//! In the order in which a request meets them:
//!
//! - [`server`]: connections and TLS ([`certificates`]), limits, the way of a request.
//! - [`identity`] and [`authorization`]: who asks, and whether they may.
//! - [`request`], [`resources`], [`negotiation`], [`payload`]: what is asked for, on which resource, in which form.
//! - `verbs`: get, list, watch, create, update, patch, delete, and what stands below objects; with [`patch`],
//!   [`apply`], [`fields`] selectors, [`conversion`] between versions, [`meaning`] of kinds, and [`admission`].
//! - [`stored`] and [`cache`]: how objects lie in the store, and how they are served without decoding them.
//! - `custom`: resources that users define, served beside the built-in ones.
//! - [`discovery`](crate::server), [`openapi`], tables: what clients ask to know about all that.

pub mod admission;
mod answer;
pub mod apply;
pub mod authorization;
mod body;
mod bootstrap;
pub mod cache;
mod cbor;
pub mod certificates;
mod chance;
mod compaction;
pub mod conversion;
mod custom;
mod discovery;
pub mod fields;
pub mod identity;
pub mod meaning;
mod metadata;
mod metrics;
pub mod negotiation;
pub mod openapi;
pub mod patch;
pub mod payload;
pub mod request;
pub mod resources;
pub mod server;
pub mod services;
pub mod status;
pub mod stored;
mod tables;
mod verbs;
mod warnings;

pub use body::Body;
pub use server::{Options, Server};
