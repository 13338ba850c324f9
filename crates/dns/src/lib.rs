//! The cluster's DNS server.
//!
//! - [`zone`]: names of Services, endpoints and pods: an index and a lookup, without I/O.
//! - [`message`]: reading of queries and writing of responses, with their limits.
//! - [`forward`]: other names, resolved by the servers of `resolv.conf`; [`cache`] keeps their answers.
//! - [`server`]: answers to queries; UDP and TCP.
//! - [`run`]: the server as a component that follows the API server.
//!
//! The messages are those of `hickory-proto`; no other part of Hickory is used. IPv6 addresses in objects have AAAA records, but the
//! project has no IPv6 pod network.

pub mod answer;
pub mod cache;
pub mod forward;
mod listen;
pub mod message;
pub mod metrics;
mod run;
pub mod server;
pub mod zone;

pub use listen::Sockets;
pub use run::{Options, run};
