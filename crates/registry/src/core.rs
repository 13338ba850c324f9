//! Kinds of the core group.

pub(crate) mod addresses;
pub(crate) mod node_selector;
pub(crate) mod pod;
pub(crate) mod resource_names;
pub(crate) mod volume_sources;
pub(crate) mod volume_claim;
