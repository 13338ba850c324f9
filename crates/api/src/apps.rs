//! The group `apps`: workloads.

pub mod v1;
