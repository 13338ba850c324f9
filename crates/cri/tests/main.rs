//! Calls over a Unix socket.

#![allow(clippy::unwrap_used, reason = "tests")]

// The short name of the crate in the rest of the workspace.
extern crate celplane_cri as cri;

mod calls;
