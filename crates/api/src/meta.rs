//! Types common to all objects.

pub mod v1;
