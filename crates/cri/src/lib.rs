//! Client for the Container Runtime Interface, by which a node agent runs containers.
//!
//! - [`messages`]: requests and responses.
//! - [`Client`]: calls over the runtime's Unix socket, each with a time limit.
//! - [`health`]: the gRPC health check, which probes use.
//! - [`plugins`]: registration and calls of device drivers.
//! - `server` (feature `server`): answers unary calls, for tests and example drivers.

mod client;
pub mod health;
pub mod messages;
pub mod plugins;
#[cfg(feature = "server")]
pub mod server;

pub use client::{Client, EndedCall, EndpointError};
pub use tonic::{Code, Status};
