//! The browser console: a loopback server with sessions, and the page that it serves.
//!
//! - [`Console`]: binds a loopback address and serves until it is dropped.
//! - [`Engine`]: explanations, simulations and expressions, computed by the program that embeds the console.
//!
//! Every read is sent to the API server with the user's own credentials, so the user's permissions decide everything. Only reads and the
//! user's own reviews are sent; values of Secrets never leave this process. A request is served only with the key of a session, which is
//! sent in a header: cookies are shared by all ports of a host, so they authorize nothing here.

mod assets;
mod engine;
mod guard;
mod map;
mod paths;
mod proxy;
mod responses;
mod secrets;
mod server;
mod sessions;

pub use engine::{Answer, Engine, Failure, Topic};
pub use map::NodeView;
pub use server::{Cluster, Console};
