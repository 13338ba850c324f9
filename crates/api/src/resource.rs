//! The group of `resource`.

pub mod v1;
