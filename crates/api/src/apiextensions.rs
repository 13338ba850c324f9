//! The group of `apiextensions`.

pub mod v1;
