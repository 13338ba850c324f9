//! The client of Celplane's components for the API server.
//!
//! - [`Client`]: over the network from a kubeconfig, or straight into the server's service when both share a process.
//!   Either way each component has an identity and passes authentication, authorization and admission.
//! - [`kubeconfig`]: server address and identity.
//! - [`resources`] and [`objects`]: get, list, create, update, patch, apply and delete.
//! - [`Document`]: a whole object with a typed view. Views are read, whole objects are written.
//! - [`DecodedObjects`]: decoded objects shared by the components of one process.
//! - [`discovery`]: which resources there are, custom ones too.
//! - [`informer`]: a local copy of a collection that follows its changes, shared by all readers.
//! - [`queue`]: keys to work on, each once at a time, with back-off.
//! - [`controller`]: informers, a queue and workers combined: the base of every controller.
//! - [`costly`]: a thread for work that may take long.
//! - [`election`]: one leader among replicas, by a Lease.
//! - [`events`]: events about objects, aggregated and rate limited.
//! - [`complaints`]: reports about expressions without an answer.
//! - [`Health`] and [`Shutdown`]: whether a component works, and when it ends.
//!
//! Queues, elections and events follow client-go; nothing here depends on the server's internals.

mod client;
pub mod complaints;
pub mod controller;
pub mod costly;
pub mod decoded;
pub mod discovery;
mod document;
pub mod election;
mod error;
pub mod events;
mod health;
pub mod informer;
pub mod kubeconfig;
mod leadership;
mod lines;
pub mod objects;
pub mod queue;
pub mod resources;
mod shutdown;
mod transport;

pub use client::{Client, Rewrite};
pub use decoded::DecodedObjects;
pub use discovery::Discovery;
pub use document::{CompleteObject, Document, KeptForm};
pub use error::{Cause, Error, Status};
pub use health::Health;
pub use informer::{Informer, Informers, Key};
pub use objects::Objects;
pub use queue::Queue;
pub use resources::Resource;
pub use shutdown::{Shutdown, Stop};
pub use transport::insecure::unverified_tls;
