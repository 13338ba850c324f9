//! What happens to one object between decoding and the store: patches, apply, strategies of kinds.

pub mod apply;
pub mod field_selectors;
pub(crate) mod metadata;
pub mod patch;
pub mod services;
pub mod strategy;
