//! The group of `scheduling`.

pub mod v1;
