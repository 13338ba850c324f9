//! The group `apps`: what keeps pods running.

pub mod v1;
