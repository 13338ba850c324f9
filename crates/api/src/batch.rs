//! The group of `batch`.

pub mod v1;
