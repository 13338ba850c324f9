//! What all objects share.

pub mod v1;
