//! Informers that keep only the metadata of objects, for controllers that process every kind.

use api::meta::v1::ObjectMeta;
use client::objects::Selection;
use client::{Informer, Informers, Resource};

/// Follows the metadata of all objects of a resource.
pub(crate) fn informer(informers: &Informers, resource: &Resource) -> Informer<ObjectMeta> {
    informers.decoding(resource, &Selection::default(), |object| ObjectMeta::of(&object))
}
