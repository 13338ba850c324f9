//! Lists as text: the envelope, and each item, in the form of the client.
//!
//! Short lists are written at once. Long ones are [`ListRendering`]s: some objects at a time, on any free
//! processor, from an immutable view.

use std::sync::Arc;

use api::json::{self, Object, Value};
use api::yaml;
use bytes::Bytes;

use super::super::{Call, Selection, convert, partial_metadata};
use super::chunks::{Chunks, PART_BYTES};
use crate::custom::rows::Row;
use crate::custom::serving::ServedVersion;
use crate::resources::Resource;
use crate::verbs::tables::{self, Rows};
use crate::wire::body::Body;
use crate::wire::listing::{Listing, Parts, ResponsePart, Work};
use crate::wire::negotiation::Form;
use cache::stored::ServedObject;
use registry::conversion;

/// Selection of the objects to show.
pub(in super::super) struct Filter {
    range: String,
    selection: Selection,
}

impl Filter {
    /// Selects objects whose keys start with `range`.
    pub(in super::super) fn new(range: String, selection: Selection) -> Self {
        Self { range, selection }
    }

    /// The selectors.
    pub(in super::super) fn selection(&self) -> &Selection {
        &self.selection
    }

    /// All of them.
    pub(super) fn none() -> Self {
        Self { range: String::new(), selection: Selection::default() }
    }

    pub(super) fn selects(&self, key: &str, object: &ServedObject) -> bool {
        key.starts_with(&self.range) && self.selection.matches_served(key, object)
    }
}

/// Encoding of a list.
pub(crate) struct Writer {
    item: Item,
    head: String,
    tail: String,
    /// Replacement of the items if there are none.
    empty: &'static str,
    is_yaml: bool,
}

enum Item {
    /// An object in its stored form, without kind and version, which a typed list does not repeat.
    Stored(String),
    /// An object of a built-in kind in another version than the stored one.
    Converted(Row, String),
    Custom(Arc<ServedVersion>),
    /// Only the metadata, with the version of `PartialObjectMetadata`. Of some objects, a part is hidden.
    Metadata {
        version: &'static str,
        is_partly_hidden: bool,
    },
    Row(Rows),
}

impl Writer {
    /// Creates the writer of a request. Tables of custom resources are written elsewhere.
    pub(super) fn of(call: &Call<'_>, mut metadata: Object) -> Self {
        let (resource, version) = (call.resource, &call.target.version);
        let form = call.accepted.version;
        let (item, head, empty) = match call.accepted.form {
            Form::Table => {
                let rows = Rows::of(call);
                let head = json::to_string(&tables::empty(resource, form, metadata));
                let empty = if rows.are_null_if_empty() { "null" } else { "[]" };
                (Item::Row(rows), head.strip_suffix("[]}").unwrap_or(&head).to_owned(), empty)
            }
            Form::Metadata | Form::MetadataList => {
                let api_version = format!("meta.k8s.io/{form}");
                let head = head("PartialObjectMetadataList", &api_version, metadata);
                let is_partly_hidden = resource.kind == "DaemonSet";
                (Item::Metadata { version: form, is_partly_hidden }, head, "null")
            }
            Form::Object | Form::GroupDiscovery => {
                let item = match call.custom() {
                    Some(custom) => Item::Custom(custom.clone()),
                    None if conversion::is_stored(resource, version) => {
                        Item::Stored(type_fields(resource.kind, &conversion::stored_api_version(resource)))
                    }
                    None => Item::Converted(call.row.clone(), version.clone()),
                };
                if call.custom().is_some() {
                    metadata.get_or_insert("continue", || "".into());
                }
                if call.accepted.yaml {
                    return Self::yaml(item, resource, version, metadata);
                }
                (item, head(&resource.list_kind(), &resource.api_version(version), metadata), "[]")
            }
        };
        Self { item, head, tail: "}\n".to_owned(), empty, is_yaml: false }
    }

    /// Keys are sorted, so that most fields of the list follow its items.
    fn yaml(item: Item, resource: &Resource<'_>, version: &str, metadata: Object) -> Self {
        let mut tail = api::json!({"kind": (resource.list_kind()), "metadata": metadata});
        tail.sort_keys();
        let mut version = yaml::to_string(&api::json!({"apiVersion": (resource.api_version(version))}));
        version.push_str("items:");
        Self { item, head: version, tail: yaml::to_string(&tail), empty: " []\n", is_yaml: true }
    }

    fn brackets(&self) -> [&'static [u8]; 3] {
        if self.is_yaml { [b"\n", b"", self.empty.as_bytes()] } else { [b"[", b"]", self.empty.as_bytes()] }
    }

    /// The whole list.
    pub(super) fn whole<'o>(&self, objects: impl Iterator<Item = &'o ServedObject>) -> Body {
        let mut text = self.head.clone().into_bytes();
        let [open, close, empty] = self.brackets();
        let start = text.len();
        let mut pieces = std::collections::VecDeque::new();
        let mut count = 0_usize;
        for object in objects {
            if count == 0 {
                text.extend_from_slice(open);
            } else if !self.is_yaml {
                text.push(b',');
            }
            count = count.saturating_add(1);
            self.write(&mut text, object);
            if text.len() > PART_BYTES {
                pieces.push_back(Bytes::from(std::mem::take(&mut text)));
            }
        }
        debug_assert!(count > 0 || text.len() == start);
        text.extend_from_slice(if count == 0 { empty } else { close });
        text.extend_from_slice(self.tail.as_bytes());
        pieces.push_back(text.into());
        Body::Pieces(pieces)
    }

    /// Appends an item.
    fn write(&self, text: &mut Vec<u8>, object: &ServedObject) {
        if self.is_yaml {
            let mut item = Vec::new();
            self.write_json(&mut item, object);
            // What was encoded here can be read again.
            let mut item = json::parse(&item).unwrap_or_default();
            item.sort_keys();
            text.extend_from_slice(yaml::to_string(&Value::Array(vec![item])).as_bytes());
        } else {
            self.write_json(text, object);
        }
    }

    fn write_json(&self, text: &mut Vec<u8>, object: &ServedObject) {
        match &self.item {
            Item::Stored(type_fields) => {
                text.push(b'{');
                let json: &Bytes = &object.json;
                let rest = json.strip_prefix(type_fields.as_bytes());
                text.extend_from_slice(rest.unwrap_or_else(|| json.get(1..).unwrap_or_default()));
            }
            Item::Custom(custom) => text.extend_from_slice(&custom.text(object)),
            Item::Converted(row, version) => {
                let mut value = object.decode();
                convert(&row.resource(), version, &mut value);
                if let Some(fields) = value.as_object_mut() {
                    fields.remove("kind");
                    fields.remove("apiVersion");
                }
                text.extend_from_slice(json::to_string(&value).as_bytes());
            }
            Item::Metadata { version, is_partly_hidden } => match object.metadata().filter(|_| !is_partly_hidden) {
                Some(metadata) => {
                    text.extend_from_slice(b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/");
                    text.extend_from_slice(version.as_bytes());
                    text.extend_from_slice(b"\",\"metadata\":");
                    text.extend_from_slice(metadata);
                    text.push(b'}');
                }
                None => {
                    let metadata = partial_metadata(&object.decode(), version);
                    text.extend_from_slice(json::to_string(&metadata).as_bytes());
                }
            },
            Item::Row(rows) => rows.write(text, object),
        }
    }

    /// A long list, which is made while it is sent.
    pub(super) fn long(self, chunks: Chunks, filter: Arc<Filter>, bytes: usize) -> Body {
        let head = Some(self.head.clone());
        let shared = Arc::new(SharedWriter { writer: self, filter });
        Body::Listing(Box::new(Listing::new(ListRendering { shared, chunks, head }, bytes)))
    }
}

fn head(kind: &str, api_version: &str, metadata: Object) -> String {
    let head = json::to_string(&api::json!({"kind": kind, "apiVersion": api_version, "metadata": metadata}));
    format!("{},\"items\":", head.strip_suffix('}').unwrap_or(&head))
}

fn type_fields(kind: &str, api_version: &str) -> String {
    format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",")
}

/// A long list.
struct ListRendering {
    shared: Arc<SharedWriter>,
    chunks: Chunks,
    head: Option<String>,
}

struct SharedWriter {
    writer: Writer,
    filter: Arc<Filter>,
}

impl Parts for ListRendering {
    fn next(&mut self) -> Option<Work> {
        if let Some(head) = self.head.take() {
            return Some(Box::new(move || Some(ResponsePart::plain(head))));
        }
        let (fetch, shared) = (self.chunks.next()?, self.shared.clone());
        Some(Box::new(move || {
            let mut text = Vec::with_capacity(PART_BYTES);
            for (key, object) in &fetch()? {
                if shared.filter.selects(key, object) {
                    if !shared.writer.is_yaml {
                        text.push(b',');
                    }
                    shared.writer.write(&mut text, object);
                }
            }
            let separator = usize::from(!shared.writer.is_yaml);
            let items = (!text.is_empty()).then_some(separator);
            Some(ResponsePart { bytes: text.into(), items })
        }))
    }

    fn ahead(&self) -> usize {
        self.chunks.ahead()
    }

    fn brackets(&self) -> [&'static [u8]; 3] {
        self.shared.writer.brackets()
    }

    fn tail(&self) -> Bytes {
        self.shared.writer.tail.clone().into()
    }
}
