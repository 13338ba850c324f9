//! What the listening server does with input that nobody should send: an error, never a panic or a leak.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::arithmetic_side_effects,
    reason = "tests"
)]

mod bodies;
mod client;
mod connections;
mod paths;
mod running;
mod watches;
