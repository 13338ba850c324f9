//! Group `autoscaling`.

pub mod v2;
