//! Storage format of objects, and serving them without decoding.
//!
//! A stored value is the object's JSON without `metadata.resourceVersion`, preceded by an outline of it: the
//! position of the version, which is the revision of the write and known only after it, and the positions of
//! `metadata` and its `managedFields`, which are often read alone or skipped. [`ServedObject`] is the text with the
//! version in place, created once per change and shared by all readers and watchers of the object. Values of
//! the first format, which had no outline, are also read.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use api::json::{self, Value};
use api::types::{self, Type};
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use super::attributes::Attributes;
use super::conversions::Conversions;
use super::encodings::{Budget, Encodings, Row};

/// Positions of the parts of an object in its text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Outline {
    /// Position of the version.
    version: u32,
    /// The value of `metadata`.
    metadata: (u32, u32),
    /// The field `managedFields` with the comma before it; empty if there is none.
    managed_fields: (u32, u32),
}

/// The length of an outline in front of a stored value.
const HEADER: usize = 20;
/// Header of values of the first format: only the position of the version.
const FIRST_HEADER: usize = 4;

impl Outline {
    fn write(&self, out: &mut BytesMut) {
        let Self { version, metadata, managed_fields } = *self;
        for position in [version, metadata.0, metadata.1, managed_fields.0, managed_fields.1] {
            out.put_u32_le(position);
        }
    }

    fn read(mut stored: &[u8]) -> Option<Self> {
        let mut next = || stored.try_get_u32_le().ok();
        Some(Self { version: next()?, metadata: (next()?, next()?), managed_fields: (next()?, next()?) })
    }

    /// The outline of a text in which the field of the version takes `after` bytes instead of `before`.
    fn resized(self, before: usize, after: usize) -> Option<Self> {
        let moved = |position: u32| {
            let position = usize::try_from(position).ok()?.checked_add(after)?.checked_sub(before)?;
            u32::try_from(position).ok()
        };
        Some(Self {
            version: self.version,
            metadata: (self.metadata.0, moved(self.metadata.1)?),
            managed_fields: (moved(self.managed_fields.0)?, moved(self.managed_fields.1)?),
        })
    }
}

/// An object as it is sent: compact JSON with its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedObject {
    /// The revision of its last change.
    pub revision: u64,
    /// The text.
    pub json: Bytes,
    outline: Outline,
    attributes: OnceLock<Arc<Attributes>>,
    /// Name of its node, cached after the first lookup by node.
    node_name: OnceLock<NodeName>,
    /// Length as an item of a protobuf list, cached after the first use.
    message_bytes: OnceLock<u32>,
    conversions: Conversions,
    encodings: Encodings,
}

/// Value of `spec.nodeName`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NodeName {
    value: Arc<str>,
    /// Length of the text behind the metadata that contains it; 0 if that is unknown.
    said_in: usize,
}

const NODE_NAME: &[&str] = &["spec", "nodeName"];

/// Encodes an object for the store; none if it has no metadata to hold a version.
#[must_use]
pub fn encode(object: &mut Value) -> Option<Bytes> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    metadata.remove("resourceVersion");
    metadata.sort_by_rank(rank);
    let mut outline = None;
    let mut text = String::with_capacity(4096);
    text.push('{');
    for (key, value) in object.as_object()?.iter() {
        if text.len() > 1 {
            text.push(',');
        }
        json::write_string(&mut text, key);
        text.push(':');
        match value {
            Value::Object(metadata) if key == "metadata" => outline = Some(write_metadata(&mut text, metadata)?),
            value => json::write_value(&mut text, value),
        }
    }
    text.push('}');
    let mut stored = BytesMut::with_capacity(text.len().saturating_add(HEADER));
    outline?.write(&mut stored);
    stored.put_slice(text.as_bytes());
    Some(stored.freeze())
}

/// The document of a stored value; none if it is not an object.
#[must_use]
pub fn document(stored: &[u8]) -> Option<Value> {
    let header = if has_outline(stored) { HEADER } else { FIRST_HEADER };
    json::parse(stored.get(header..)?).ok().filter(|document| document.as_object().is_some())
}

/// Whether a value has an outline in front. Values of the first form have a letter of their text at that place.
fn has_outline(stored: &[u8]) -> bool {
    stored.get(HEADER) == Some(&b'{')
}

/// Position of a metadata field in Go's order; fields that were added later have none.
fn rank(field: &str) -> usize {
    static METADATA: OnceLock<Option<&'static Type>> = OnceLock::new();
    // All kinds have the same.
    let of = || types::by_kind("", "v1", "Pod")?.field("metadata")?.kind.struct_type();
    let found = METADATA.get_or_init(of).and_then(|of| of.find_from(0, field));
    found.map_or(usize::MAX, |(index, _)| index)
}

/// Writes metadata, which is in order. The version must be followed by another field.
fn write_metadata(text: &mut String, metadata: &json::Object) -> Option<Outline> {
    let position = |text: &String| u32::try_from(text.len()).ok();
    let mut outline = Outline { metadata: (position(text)?, 0), ..Outline::default() };
    let mut version = None;
    let version_rank = rank("resourceVersion");
    text.push('{');
    for (index, (key, value)) in metadata.iter().enumerate() {
        let before = position(text)?;
        if index > 0 {
            text.push(',');
        }
        if version.is_none() && rank(key) > version_rank {
            version = Some(position(text)?);
        }
        json::write_string(text, key);
        text.push(':');
        json::write_value(text, value);
        if key == "managedFields" && index > 0 {
            outline.managed_fields = (before, position(text)?);
        }
    }
    text.push('}');
    outline.version = version?;
    outline.metadata.1 = position(text)?;
    if outline.managed_fields.1 == 0 {
        outline.managed_fields = (outline.metadata.1, outline.metadata.1);
    }
    Some(outline)
}

impl ServedObject {
    /// The object that a stored value holds since `revision`; none if the value is damaged.
    #[must_use]
    pub fn new(stored: &[u8], revision: u64) -> Option<Self> {
        if !has_outline(stored) {
            return Self::new(&encode(&mut document(stored)?)?, revision);
        }
        let outline = Outline::read(stored)?;
        let (before, after) = stored.get(HEADER..)?.split_at_checked(usize::try_from(outline.version).ok()?)?;
        let version = version_field(revision);
        let outline = outline.resized(0, version.len())?;
        let json = splice(before, &version, after);
        let (attributes, node_name, message_bytes) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let (conversions, encodings) = (Conversions::default(), Encodings::default());
        Some(Self { revision, json, outline, attributes, node_name, message_bytes, conversions, encodings })
    }

    /// The same object at another revision, for deletions.
    #[must_use]
    pub fn at_revision(&self, revision: u64) -> Self {
        let at = usize::try_from(self.outline.version).unwrap_or(usize::MAX);
        let (old, new) = (version_field(self.revision), version_field(revision));
        let after = self.json.get(at.saturating_add(old.len())..).unwrap_or_default();
        let before = self.json.get(..at).unwrap_or_default();
        let outline = self.outline.resized(old.len(), new.len()).unwrap_or(self.outline);
        let json = splice(before, &new, after);
        let (attributes, node_name) = (self.attributes.clone(), self.node_name.clone());
        let (message_bytes, conversions) = (OnceLock::new(), self.conversions.clone());
        let encodings = Encodings::default();
        Self { revision, json, outline, attributes, node_name, message_bytes, conversions, encodings }
    }

    /// The object that a webhook made of another version; none if the value is damaged.
    #[must_use]
    pub fn of_conversion(stored: &[u8], revision: u64) -> Option<Self> {
        Some(Self { conversions: Conversions::of_result(), ..Self::new(stored, revision)? })
    }

    /// Whether a webhook made it of another version.
    #[must_use]
    pub fn is_converted(&self) -> bool {
        self.conversions.is_result()
    }

    /// The object in another version, if it has been converted under this edition of its definition.
    #[must_use]
    pub fn conversion(&self, edition: u64, version: &str) -> Option<Arc<Self>> {
        self.conversions.get(edition, version)
    }

    /// Keeps the object in another version. Forms of other editions go.
    pub fn keep_conversion(&self, edition: u64, version: &str, object: Arc<Self>) {
        self.conversions.keep(edition, version, object);
    }

    /// Whether the text holds this. Keys and values are written without spaces between them.
    #[must_use]
    pub fn contains(&self, part: &[u8]) -> bool {
        memchr::memmem::find(&self.json, part).is_some()
    }

    /// The text of `metadata`.
    #[must_use]
    pub fn metadata(&self) -> Option<&[u8]> {
        self.json.get(range(self.outline.metadata)?)
    }

    /// The text of the labels, empty if there are none.
    pub fn labels(&self) -> &[u8] {
        self.metadata().and_then(|metadata| json::value_at(metadata, &["labels"])).unwrap_or_default()
    }

    /// The value of a label, without decoding the object. Labels have nothing that would be escaped.
    pub fn label(&self, key: &str) -> Option<&str> {
        let text = json::value_at(self.labels(), &[key])?;
        std::str::from_utf8(text.strip_prefix(b"\"")?.strip_suffix(b"\"")?).ok()
    }

    /// The text before and behind `managedFields`: together they are the object without it.
    #[must_use]
    pub fn around_managed_fields(&self) -> (&[u8], &[u8]) {
        let range = range(self.outline.managed_fields).unwrap_or(self.json.len()..self.json.len());
        (self.json.get(..range.start).unwrap_or(&self.json), self.json.get(range.end..).unwrap_or_default())
    }

    /// Inputs of selectors, with the fields that the resource offers.
    pub fn attributes(&self, offered: &'static [&'static str]) -> &Attributes {
        self.attributes.get_or_init(|| Arc::new(Attributes::of(&self.decode(), offered)))
    }

    /// Returns the length of the message of the object, which `encode` writes unless the length is known. The message is
    /// kept if the budget allows.
    pub fn message_bytes(&self, budget: &Arc<Budget>, encode: impl FnOnce() -> Vec<u8>) -> usize {
        let measured = self.message_bytes.get_or_init(|| {
            let message = encode();
            self.encodings.keep_message(&message, budget);
            u32::try_from(message.len()).unwrap_or(u32::MAX)
        });
        usize::try_from(*measured).unwrap_or(usize::MAX)
    }

    /// The message of the object, if it is kept.
    #[must_use]
    pub fn message(&self) -> Option<&[u8]> {
        self.encodings.message()
    }

    /// Keeps the message of the object if the budget allows.
    pub fn keep_message(&self, message: &[u8], budget: &Arc<Budget>) {
        self.encodings.keep_message(message, budget);
    }

    /// The row of the object in tables of its resource, if it is kept.
    #[must_use]
    pub fn row(&self) -> Option<&Row> {
        self.encodings.row()
    }

    /// Keeps the row of the object, unless it is longer than the object.
    pub fn keep_row(&self, row: Row) {
        self.encodings.keep_row(row, self.json.len());
    }

    /// The node that the object is on, which is found once, without decoding the object; empty if it is on none.
    pub fn node_name(&self) -> &Arc<str> {
        let find = || NodeName {
            value: self.text_at(NODE_NAME).unwrap_or_default().into(),
            said_in: self.said_in(NODE_NAME).unwrap_or_default(),
        };
        &self.node_name.get_or_init(find).value
    }

    /// Takes the node over from the version before if that has been found and the text around it is the same: nothing is
    /// found again when only metadata or status changes.
    pub fn inherit_node_name(&self, before: &Self) {
        let Some(known) = before.node_name.get().filter(|known| known.said_in > 0) else { return };
        let said = before.behind_metadata().get(..known.said_in);
        if said.is_some_and(|said| self.behind_metadata().starts_with(said)) {
            // If it was computed already, the value is the same.
            let _ = self.node_name.set(known.clone());
        }
    }

    fn behind_metadata(&self) -> &[u8] {
        let end = usize::try_from(self.outline.metadata.1).unwrap_or(usize::MAX);
        self.json.get(end..).unwrap_or_default()
    }

    /// Returns the length of the text behind the metadata up to the end of the top-level field that a path
    /// leads into.
    fn said_in(&self, path: &[&str]) -> Option<usize> {
        let field = json::value_at(&self.json, path.get(..1)?)?;
        let start = field.as_ptr().addr().checked_sub(self.json.as_ptr().addr())?;
        start.checked_add(field.len())?.checked_sub(usize::try_from(self.outline.metadata.1).ok()?)
    }

    /// Returns the content of a field without decoding the object: a string as it is, anything else as its
    /// text; `None` if it is absent.
    pub fn text_at(&self, path: &[&str]) -> Option<Cow<'_, str>> {
        let text = json::value_at(&self.json, path).filter(|text| *text != b"null")?;
        match text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")) {
            Some(plain) if !plain.contains(&b'\\') => Some(String::from_utf8_lossy(plain)),
            Some(_) => match json::parse(text) {
                Ok(Value::String(text)) => Some(Cow::Owned(text.as_str().to_owned())),
                _ => None,
            },
            None => Some(String::from_utf8_lossy(text)),
        }
    }

    /// The document.
    #[must_use]
    pub fn decode(&self) -> Value {
        // Encoded objects can be decoded again; the store checks for damage.
        json::parse(&self.json).unwrap_or_default()
    }
}

fn range((start, end): (u32, u32)) -> Option<std::ops::Range<usize>> {
    Some(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
}

fn version_field(revision: u64) -> String {
    format!("\"resourceVersion\":\"{revision}\",")
}

fn splice(before: &[u8], version: &str, after: &[u8]) -> Bytes {
    let length = before.len().saturating_add(version.len()).saturating_add(after.len());
    let mut text = Vec::with_capacity(length);
    text.extend_from_slice(before);
    text.extend_from_slice(version.as_bytes());
    text.extend_from_slice(after);
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_put_where_go_puts_them() {
        let text = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","creationTimestamp":"t","uid":"u"},"data":{"resourceVersion":"","b":"c"}}"#;
        let mut object = json::parse(text.as_bytes()).unwrap();
        let stored = encode(&mut object).unwrap();
        let served = ServedObject::new(&stored, 42).unwrap();
        let expected = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","uid":"u","resourceVersion":"42","creationTimestamp":"t"},"data":{"resourceVersion":"","b":"c"}}"#;
        assert_eq!(served.json, expected.as_bytes());
        assert_eq!(served.at_revision(1234).json, expected.replace("42", "1234").as_bytes());
        let metadata = r#"{"name":"a","uid":"u","resourceVersion":"42","creationTimestamp":"t"}"#;
        assert_eq!(served.metadata(), Some(metadata.as_bytes()));
        assert_eq!(served.at_revision(1234).metadata(), Some(metadata.replace("42", "1234").as_bytes()));
        assert_eq!(ServedObject::new(&[0xFF; HEADER + 2], 1), None);
        assert_eq!(ServedObject::new(&[0; HEADER - 1], 1), None);
    }

    #[test]
    fn values_of_the_first_form_are_read() {
        let text = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","uid":"u","creationTimestamp":"t","managedFields":[{"manager":"m"}]},"spec":{}}"#;
        let stored = encode(&mut json::parse(text.as_bytes()).unwrap()).unwrap();
        let first = [&stored[..FIRST_HEADER], &stored[HEADER..]].concat();
        assert_eq!(ServedObject::new(&first, 42), ServedObject::new(&stored, 42));
        assert_eq!(document(&first), document(&stored));
        assert!(document(&first).is_some());
        for length in 0..first.len() {
            assert_eq!(ServedObject::new(&first[..length], 42), None, "cut off at {length}");
        }
    }

    #[test]
    fn labels_are_read_where_they_stand() {
        let served = |text: &str| {
            let mut object = json::parse(text.as_bytes()).unwrap();
            ServedObject::new(&encode(&mut object).unwrap(), 42).unwrap()
        };
        let labeled = served(
            r#"{"metadata":{"name":"a","creationTimestamp":"t","annotations":{"labels":"no"},"labels":{"a":"1","x/b":""}}}"#,
        );
        assert_eq!((labeled.label("a"), labeled.label("x/b"), labeled.label("b")), (Some("1"), Some(""), None));
        let plain = served(r#"{"metadata":{"name":"a","creationTimestamp":"t"},"labels":{"a":"1"}}"#);
        assert_eq!((plain.labels(), plain.label("a")), (&b""[..], None));
    }

    #[test]
    fn the_node_is_found_again_only_when_its_part_changes() {
        let pod = |node: &str, phase: &str, label: &str| {
            let mut object = api::json!({"metadata": {"name": "a", "creationTimestamp": "t", "labels": {"l": label}},
                "spec": {"containers": [{"name": "nodeName"}], "nodeName": node}, "status": {"phase": phase}});
            ServedObject::new(&encode(&mut object).unwrap(), 7).unwrap()
        };
        let (first, same) = (pod("n1", "Pending", "x"), pod("n1", "Running", "a much longer one"));
        same.inherit_node_name(&first);
        // The node name is not computed yet.
        assert!(same.node_name.get().is_none());
        assert_eq!(&**first.node_name(), "n1");
        same.inherit_node_name(&first);
        assert!(Arc::ptr_eq(same.node_name(), first.node_name()));
        assert!(Arc::ptr_eq(same.at_revision(1_000_000).node_name(), first.node_name()));
        for node in ["n2", "n", "n12", "", "n\"1"] {
            let other = pod(node, "Pending", "x");
            other.inherit_node_name(&same);
            assert_eq!(&**other.node_name(), node);
            let next = pod("n1", "Pending", "x");
            next.inherit_node_name(&other);
            assert_eq!(&**next.node_name(), "n1");
        }
        // Missing fields can be added.
        let mut object = api::json!({"metadata": {"name": "a", "creationTimestamp": "t"}});
        let nothing = ServedObject::new(&encode(&mut object).unwrap(), 7).unwrap();
        assert_eq!(&**nothing.node_name(), "");
        let next = pod("n1", "Pending", "x");
        next.inherit_node_name(&nothing);
        assert_eq!(&**next.node_name(), "n1");
    }

    #[test]
    fn managed_fields_can_be_passed_over() {
        let text =
            r#"{"metadata":{"managedFields":[{"fieldsV1":{"f:a":{}}}],"name":"a","generation":1},"spec":{"b":"c"}}"#;
        let mut object = json::parse(text.as_bytes()).unwrap();
        let served = ServedObject::new(&encode(&mut object).unwrap(), 42).unwrap().at_revision(100);
        let (before, after) = served.around_managed_fields();
        let expected = r#"{"metadata":{"name":"a","resourceVersion":"100","generation":1},"spec":{"b":"c"}}"#;
        assert_eq!([before, after].concat(), expected.as_bytes());
        let (_, without) = text.split_once("}}}],").unwrap();
        let mut object = json::parse(format!("{{\"metadata\":{{{without}").as_bytes()).unwrap();
        let served = ServedObject::new(&encode(&mut object).unwrap(), 100).unwrap();
        let (before, after) = served.around_managed_fields();
        assert_eq!([before, after].concat(), expected.as_bytes());
    }
}
