//! Parts of documents that controllers write.

use api::json::{Text, Value, to_value};
use api::meta::v1::ObjectMeta;
use api::time::Timestamp;
use serde::Serialize;

/// Sets a number, or removes the field if the number is 0: Kubernetes omits such fields.
pub fn set_count(document: &mut Value, path: &[&str], count: i32) {
    document.set_or_remove_at(path, (count != 0).then_some(count));
}

/// The key that the object has in informers and queues.
#[must_use]
pub fn key(metadata: &ObjectMeta) -> client::informer::Key {
    client::informer::Key::new(metadata.namespace.clone(), metadata.name.clone())
}

/// A time as documents hold it.
#[must_use]
pub fn time(at: Timestamp) -> Value {
    Value::String(Text::from(at.to_string()))
}

/// A complete type as a document; null if it cannot be written, which types of this workspace always can.
#[must_use]
pub fn document<T: Serialize>(value: &T) -> Value {
    to_value(value).unwrap_or_default()
}
