//! How objects lie in the store, and how they are served without decoding them.
//!
//! A stored value is the object's JSON without `metadata.resourceVersion`, behind the position where that belongs: the
//! version is the revision of the write and known only after it. [`Served`] is the text with the version in place, made
//! once per change and shared by everyone who reads or watches the object.

use api::json::{self, Value};
use bytes::{BufMut, Bytes, BytesMut};

/// The field as it is written before it is cut out.
const EMPTY_VERSION: &str = "\"resourceVersion\":\"\",";

/// The length of the position in front of a stored value.
const HEADER: usize = 4;

/// An object as it is sent: compact JSON with its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// The revision of its last change.
    pub revision: u64,
    /// The text.
    pub json: Bytes,
    /// Where the version stands in it.
    version_at: u32,
}

/// Encodes an object for the store; none if it has no metadata to hold a version.
///
/// `kind`, `apiVersion` and `metadata` come first, so that no other field can be taken for the version.
#[must_use]
pub fn encode(object: &mut Value) -> Option<Bytes> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    metadata.insert("resourceVersion", "");
    order_metadata(metadata);
    let mut text = String::with_capacity(1024);
    json::write_value(&mut text, object);
    let at = text.find(EMPTY_VERSION)?;
    let header = u32::try_from(at).ok()?;
    let end = at.checked_add(EMPTY_VERSION.len())?;
    let mut stored = BytesMut::with_capacity(text.len().saturating_add(HEADER));
    stored.put_u32_le(header);
    stored.put_slice(text.as_bytes().get(..at)?);
    stored.put_slice(text.as_bytes().get(end..)?);
    Some(stored.freeze())
}

/// Brings metadata into Go's order: fields that were added later stand at the end otherwise.
fn order_metadata(metadata: &mut json::Object) {
    const ORDER: [&str; 15] = [
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "labels",
        "annotations",
        "ownerReferences",
        "finalizers",
        "managedFields",
    ];
    metadata.sort_by_rank(|key| ORDER.iter().position(|it| *it == key).unwrap_or(ORDER.len()));
}

impl Served {
    /// The object that a stored value holds since `revision`; none if the value is damaged.
    #[must_use]
    pub fn new(stored: &[u8], revision: u64) -> Option<Self> {
        let (header, text) = stored.split_at_checked(HEADER)?;
        let at = u32::from_le_bytes(header.try_into().ok()?);
        let (before, after) = text.split_at_checked(usize::try_from(at).ok()?)?;
        Some(Self { revision, json: splice(before, revision, after), version_at: at })
    }

    /// The same object at another revision: what a deletion leaves behind.
    #[must_use]
    pub fn at_revision(&self, revision: u64) -> Self {
        let at = usize::try_from(self.version_at).unwrap_or(usize::MAX);
        let old = version_field(self.revision).len();
        let after = self.json.get(at.saturating_add(old)..).unwrap_or_default();
        let before = self.json.get(..at).unwrap_or_default();
        Self { revision, json: splice(before, revision, after), version_at: self.version_at }
    }

    /// Whether the text holds this. Keys and values are written without spaces between them.
    #[must_use]
    pub fn contains(&self, part: &[u8]) -> bool {
        self.json.windows(part.len()).any(|window| window == part)
    }

    /// The text of `metadata`.
    #[must_use]
    pub fn metadata(&self) -> Option<&[u8]> {
        // Only kind and version stand before it.
        const FIELD: &[u8] = b"\"metadata\":";
        let at = self.json.windows(FIELD.len()).position(|window| window == FIELD)?.checked_add(FIELD.len())?;
        let rest = self.json.get(at..)?;
        rest.get(..json::value_length(rest))
    }

    /// The document.
    #[must_use]
    pub fn decode(&self) -> Value {
        // What was encoded here can be read again; the store checks for damage.
        json::parse(&self.json).unwrap_or_default()
    }
}

fn version_field(revision: u64) -> String {
    format!("\"resourceVersion\":\"{revision}\",")
}

fn splice(before: &[u8], revision: u64, after: &[u8]) -> Bytes {
    let version = version_field(revision);
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
        let served = Served::new(&stored, 42).unwrap();
        let expected = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","uid":"u","resourceVersion":"42","creationTimestamp":"t"},"data":{"resourceVersion":"","b":"c"}}"#;
        assert_eq!(served.json, expected.as_bytes());
        assert_eq!(served.at_revision(1234).json, expected.replace("42", "1234").as_bytes());
        let metadata = br#"{"name":"a","uid":"u","resourceVersion":"42","creationTimestamp":"t"}"#;
        assert_eq!(served.metadata(), Some(metadata.as_slice()));
        assert_eq!(Served::new(b"\xff\0\0\0{}", 1), None);
    }
}
