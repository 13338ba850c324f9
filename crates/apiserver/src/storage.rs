//! How objects lie in the store, the watch cache in front of it, and forgetting old revisions.

pub mod cache;
pub(crate) mod compaction;
pub mod stored;
