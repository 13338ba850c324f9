//! Behavior of the listening server with invalid input: an error, never a panic or a leak.

mod bodies;
mod client;
mod connections;
mod paths;
mod running;
mod watches;
