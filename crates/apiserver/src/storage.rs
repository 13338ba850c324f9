//! How objects lie in the store, the watch cache in front of it, and forgetting old revisions.

pub(crate) mod attributes;
pub mod cache;
pub(crate) mod compaction;
pub mod stored;
