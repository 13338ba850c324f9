//! Care for the store: compaction, a bound on events, its health, and the events that the server itself writes.

pub(crate) mod compaction;
pub(crate) mod events;
pub(crate) mod health;
pub(crate) mod recorder;
