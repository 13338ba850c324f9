//! The group of `storage`.

pub mod v1;
