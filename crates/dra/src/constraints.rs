//! What the devices of some requests must have in common.

pub mod first_set;
pub mod meter;
pub mod outlook;
