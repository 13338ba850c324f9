//! The group of `coordination`.

pub mod v1;
