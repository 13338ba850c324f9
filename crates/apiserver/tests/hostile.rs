//! What the listening server does with input that nobody should send: an error, never a panic or a leak.

mod bodies;
mod client;
mod connections;
mod paths;
mod running;
mod watches;
