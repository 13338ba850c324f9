//! The group of `policy`.

pub mod v1;
