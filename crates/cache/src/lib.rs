//! Objects as the API server keeps them in memory: encoded once, indexed, and followed.
//!
//! Depends on the store and the resources, but neither on HTTP nor on users. In reading order:
//!
//! - [`stored`]: the form of objects in the store, and [`stored::ServedObject`], the form in which they are sent.
//! - [`attributes`]: labels and fields of an object, extracted once for selectors.
//! - [`encodings`]: forms of an object for lists, kept with it.
//! - [`field_selectors`]: selectors on fields, and the fields that each resource offers.
//! - [`background`]: background tasks, owned by the component that needs them.
//! - [`watch_cache`]: all objects of all resources, their last changes, and the followers of those.

pub mod attributes;
pub mod background;
mod conversions;
pub mod encodings;
pub mod field_selectors;
pub mod stored;
pub mod watch_cache;

pub use watch_cache::{
    Cache, Change, ChangeKind, Entry, Follower, FoundObjects, IndexKey, Interest, ROOT, ResourceCache, Snapshot,
    TooOld, View, event_line,
};

/// The prefix of the keys of events, of both groups.
pub const EVENTS_PREFIX: &str = "/registry/core/events/";
