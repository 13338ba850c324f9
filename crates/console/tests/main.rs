//! The server's security without a browser: sessions, Host and Origin, methods, paths, Secrets.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests"
)]

mod page;
mod security;
