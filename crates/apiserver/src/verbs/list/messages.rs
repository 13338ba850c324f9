//! Long lists in protobuf.
//!
//! The length of the whole list precedes its items. So the objects are measured first; the length of each is
//! cached with it, and the next list measures only changed objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use api::json::Object;
use api::types::protobuf::{Writer, envelope_around};
use api::types::{self, Type};
use bytes::Bytes;

use super::super::{Call, convert};
use super::chunks::Chunks;
use super::writer::Filter;
use crate::resources::Resource;
use crate::wire::body::Body;
use crate::wire::listing::{Listing, Made, Measure, Parts, Work};
use crate::wire::protobuf::{item_type, put_item, put_item_of};
use cache::stored::Served;
use registry::conversion;

/// A long list.
struct Messages {
    shared: Arc<Shared>,
    unmeasured: Chunks,
    chunks: Chunks,
    /// The message of the list without items, until it has been sent.
    head: Option<Vec<u8>>,
    end: Vec<u8>,
}

struct Shared {
    resource: &'static Resource<'static>,
    version: String,
    /// Whether objects are shown in the version in which they are stored.
    is_stored: bool,
    number: u16,
    item: &'static Type,
    filter: Arc<Filter>,
    /// Total length of the measured items.
    bytes: AtomicUsize,
}

/// The body of a long list; none if the resource has no such form.
pub(super) fn long(
    call: &Call<'_>,
    metadata: &Object,
    chunks: &Chunks,
    filter: &Arc<Filter>,
    bytes: usize,
) -> Option<Body> {
    let (resource, version) = (call.row.built_in()?, &call.target.version);
    let (api_version, kind) = (resource.api_version(version), resource.list_kind());
    let list = types::by_api_version(&api_version, &kind)?;
    let (number, item) = item_type(list)?;
    let mut head = Vec::new();
    let document =
        api::json!({"kind": (kind.as_str()), "apiVersion": (api_version.as_str()), "metadata": (metadata.clone())});
    Writer::default().message(list, &document, &mut head);
    let shared = Shared {
        resource,
        version: version.clone(),
        is_stored: conversion::is_stored(resource, version),
        number,
        item,
        filter: filter.clone(),
        bytes: AtomicUsize::new(0),
    };
    let (_, end) = envelope_around(&api_version, &kind, 0);
    let (unmeasured, chunks) = (chunks.clone(), chunks.clone());
    let messages = Messages { shared: Arc::new(shared), unmeasured, chunks, head: Some(head), end };
    Some(Body::Listing(Box::new(Listing::new(messages, bytes))))
}

impl Shared {
    /// Appends an object as an item.
    fn put(&self, object: &Served, out: &mut Vec<u8>) {
        if self.is_stored && put_item(self.number, self.item, &object.json, out).is_some() {
            return;
        }
        let mut document = object.decode();
        convert(self.resource, &self.version, &mut document);
        put_item_of(self.number, self.item, &document, out);
    }

    /// Length of an object as an item.
    fn length(&self, object: &Served, room: &mut Vec<u8>) -> usize {
        let mut measure = || {
            room.clear();
            self.put(object, room);
            room.len()
        };
        if self.is_stored { object.message_bytes(measure) } else { measure() }
    }
}

impl Parts for Messages {
    fn measure(&mut self) -> Option<Measure> {
        let (fetch, shared) = (self.unmeasured.next()?, self.shared.clone());
        Some(Box::new(move || {
            let Some(objects) = fetch() else { return false };
            let mut room = Vec::new();
            let selected = objects.iter().filter(|(key, object)| shared.filter.selects(key, object));
            let bytes = selected.map(|(_, object)| shared.length(object, &mut room)).fold(0, usize::saturating_add);
            shared.bytes.fetch_add(bytes, Ordering::Relaxed);
            true
        }))
    }

    fn next(&mut self) -> Option<Work> {
        if let Some(head) = self.head.take() {
            let length = self.shared.bytes.load(Ordering::Relaxed).saturating_add(head.len());
            let api_version = self.shared.resource.api_version(&self.shared.version);
            let (mut start, _) = envelope_around(&api_version, &self.shared.resource.list_kind(), length);
            start.extend(head);
            return Some(Box::new(move || Some(Made::plain(start))));
        }
        let (fetch, shared) = (self.chunks.next()?, self.shared.clone());
        Some(Box::new(move || {
            let objects = fetch()?;
            let mut out = Vec::new();
            for (_, object) in objects.iter().filter(|(key, object)| shared.filter.selects(key, object)) {
                shared.put(object, &mut out);
            }
            Some(Made::plain(out))
        }))
    }

    fn ahead(&self) -> usize {
        self.chunks.ahead()
    }

    fn brackets(&self) -> [&'static [u8]; 3] {
        [b"", b"", b""]
    }

    fn tail(&self) -> Bytes {
        self.end.clone().into()
    }
}
