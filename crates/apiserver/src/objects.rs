//! The changes of one object between decoding and the store: strategies of kinds, addresses of services, selectors.

pub(crate) mod conversion;
pub mod services;
pub mod strategy;
