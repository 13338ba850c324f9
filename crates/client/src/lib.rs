//! How Celplane's own components speak to the API server: [kube-rs](https://kube.rs) with Celplane's types.
//!
//! - [`Client`]: over the network from a kubeconfig, or straight into the server's service when both share a process.
//!   Either way each component has an identity and passes authentication, authorization and admission.
//! - [`resources`] and [`objects`]: get, list, create, update, patch and delete, with typed views or plain documents.
//! - [`discovery`]: which resources there are, custom ones too.
//! - [`informer`]: a local copy of a collection that follows its changes, shared by all who read it.
//! - [`queue`]: keys to work on, each once at a time, with back-off.
//! - [`election`]: one leader among replicas, by a Lease.
//! - [`events`]: what happened to an object, aggregated and rationed.
//!
//! The last three follow client-go in what they do; the server's insides are unknown here.

mod client;
pub mod discovery;
pub mod election;
mod error;
pub mod events;
pub mod informer;
mod lines;
pub mod objects;
pub mod queue;
pub mod resources;

pub use client::Client;
pub use discovery::Discovery;
pub use error::{Error, Status};
pub use informer::Informer;
pub use objects::Objects;
pub use queue::Queue;
pub use resources::Resource;
