//! Prices of literals that create containers. The estimate, the running program and the libraries read them here.

/// Cost of creating a list.
pub(crate) const LIST_CREATION: u64 = 10;
/// Cost of creating a map.
pub(crate) const MAP_CREATION: u64 = 30;
/// Cost of creating a message.
pub(crate) const STRUCT_CREATION: u64 = 40;
