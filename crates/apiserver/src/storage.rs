//! How objects lie in the store, the watch cache in front of it, and what keeps the store small and well.

pub(crate) mod attributes;
pub mod cache;
pub(crate) mod compaction;
pub(crate) mod events;
pub(crate) mod health;
pub mod stored;
