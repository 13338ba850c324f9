//! The messages of CRI v1 that the node agent uses, written by hand as for etcd: a compiler of `.proto` files takes longer
//! to build than the agent.
//!
//! Names and field numbers are those of `k8s.io/cri-api`, `runtime/v1/api.proto`; fields that the agent does not use are
//! left out, and the decoder skips them.

#![allow(missing_docs, reason = "fields keep the meaning that api.proto documents")]

mod container;
mod image;
mod runtime;
mod sandbox;

pub use container::*;
pub use image::*;
pub use runtime::*;
pub use sandbox::*;
