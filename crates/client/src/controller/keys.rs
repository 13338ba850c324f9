//! Keys to reconcile when an object changes.

use crate::document::HasMetadata;
use crate::informer::Key;

/// The object itself.
pub fn own<T: HasMetadata>(object: &T) -> Option<Key> {
    let metadata = object.metadata();
    Some(Key::new(metadata.namespace.clone(), metadata.name.clone()))
}

/// The object of this kind that controls it, in the same namespace.
pub fn controlled_by<T: HasMetadata>(kind: &'static str) -> impl Fn(&T) -> Option<Key> {
    move |object| {
        let metadata = object.metadata();
        let owner = metadata.controller().filter(|owner| owner.kind == kind)?;
        Some(Key::new(metadata.namespace.clone(), owner.name.clone()))
    }
}
