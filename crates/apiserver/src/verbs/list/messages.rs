//! Long lists in protobuf.
//!
//! The length of the whole list precedes its items. So the objects are measured first; the length of each is
//! cached with it, and so is its message as far as memory allows: the next list encodes only changed objects.

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
use crate::wire::listing::{Listing, Measure, Parts, ResponsePart, Work};
use crate::wire::protobuf::{item_type, put_item, put_item_of};
use cache::encodings::Budget;
use cache::stored::ServedObject;
use registry::conversion;

/// A long list.
struct Messages {
    shared: Arc<SharedContext>,
    unmeasured: Chunks,
    chunks: Chunks,
    /// The message of the list without items, until it has been sent.
    head: Option<Vec<u8>>,
    end: Vec<u8>,
}

struct SharedContext {
    resource: &'static Resource<'static>,
    version: String,
    /// Whether objects are shown in the version in which they are stored.
    is_stored: bool,
    number: u16,
    item: &'static Type,
    filter: Arc<Filter>,
    /// Limits the messages that are kept.
    budget: Arc<Budget>,
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
    let shared = SharedContext {
        resource,
        version: version.clone(),
        is_stored: conversion::is_stored(resource, version),
        number,
        item,
        filter: filter.clone(),
        budget: call.server.cache.encodings().clone(),
        bytes: AtomicUsize::new(0),
    };
    let (_, end) = envelope_around(&api_version, &kind, 0);
    let (unmeasured, chunks) = (chunks.clone(), chunks.clone());
    let messages = Messages { shared: Arc::new(shared), unmeasured, chunks, head: Some(head), end };
    Some(Body::Listing(Box::new(Listing::new(messages, bytes))))
}

impl SharedContext {
    /// Appends an object as an item.
    fn put(&self, object: &ServedObject, out: &mut Vec<u8>) {
        if !self.is_stored {
            return self.encode(object, out);
        }
        if let Some(message) = object.message() {
            return out.extend_from_slice(message);
        }
        let start = out.len();
        self.encode(object, out);
        object.keep_message(out.get(start..).unwrap_or_default(), &self.budget);
    }

    fn encode(&self, object: &ServedObject, out: &mut Vec<u8>) {
        if self.is_stored && put_item(self.number, self.item, &object.json, out).is_some() {
            return;
        }
        let mut document = object.decode();
        convert(self.resource, &self.version, &mut document);
        put_item_of(self.number, self.item, &document, out);
    }

    /// Length of an object as an item.
    fn length(&self, object: &ServedObject) -> usize {
        let encode = || {
            let mut message = Vec::with_capacity(object.json.len());
            self.encode(object, &mut message);
            message
        };
        if self.is_stored { object.message_bytes(&self.budget, encode) } else { encode().len() }
    }
}

impl Parts for Messages {
    fn measure(&mut self) -> Option<Measure> {
        let (fetch, shared) = (self.unmeasured.next()?, self.shared.clone());
        Some(Box::new(move || {
            let Some(objects) = fetch() else { return false };
            let selected = objects.iter().filter(|(key, object)| shared.filter.selects(key, object));
            let bytes = selected.map(|(_, object)| shared.length(object)).fold(0, usize::saturating_add);
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
            return Some(Box::new(move || Some(ResponsePart::plain(start))));
        }
        let (fetch, shared) = (self.chunks.next()?, self.shared.clone());
        Some(Box::new(move || {
            let objects = fetch()?;
            let length = objects.iter().map(|(_, object)| object.json.len()).fold(0, usize::saturating_add);
            let mut out = Vec::with_capacity(length);
            for (_, object) in objects.iter().filter(|(key, object)| shared.filter.selects(key, object)) {
                shared.put(object, &mut out);
            }
            Some(ResponsePart::plain(out))
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
