//! `meta/v1`: metadata, owners, label selectors, conditions.

mod selector;

pub use selector::{LabelSelector, LabelSelectorRequirement};

use crate::json::{ConvertError, Text, Value, from_value};
use crate::shared::Shareable;
use crate::sorted_map::SortedMap;
use crate::time::Timestamp;
use crate::view::{sharing_view, view};

/// Labels, annotations and the like.
pub type StringMap = SortedMap<Text, Text>;

sharing_view! {
    /// Standard metadata of an object.
    pub struct ObjectMeta shares ObjectMetaPart {
        pub name: Text,
        shared generate_name: Text,
        shared namespace: Text,
        pub uid: Text,
        pub resource_version: Text,
        shared generation: i64,
        pub creation_timestamp: Option<Timestamp>,
        shared deletion_timestamp: Option<Timestamp>,
        shared deletion_grace_period_seconds: Option<i64>,
        shared labels: StringMap,
        shared annotations: StringMap,
        shared owner_references: Vec<OwnerReference>,
        shared finalizers: Vec<Text>,
        shared managed_fields: Vec<Value>,
    }
}

view! {
    /// An object that this one belongs to.
    pub struct OwnerReference {
        pub api_version: Text,
        pub kind: Text,
        pub name: Text,
        pub uid: Text,
        pub controller: Option<bool>,
        pub block_owner_deletion: Option<bool>,
    }

    /// One aspect of an object's state.
    pub struct Condition {
        #[serde(rename = "type")]
        pub condition_type: Text,
        pub status: Text,
        pub observed_generation: i64,
        pub last_transition_time: Option<Timestamp>,
        pub reason: Text,
        pub message: Text,
    }
}

/// A typed view of a whole object.
pub trait Object: Clone + Shareable + serde::Serialize + serde::de::DeserializeOwned {
    /// The API group, empty for core.
    const GROUP: &'static str;
    /// The version.
    const VERSION: &'static str;
    /// The kind.
    const KIND: &'static str;

    /// Metadata of the object.
    fn metadata(&self) -> &ObjectMeta;

    /// Mutable metadata of the object.
    fn metadata_mut(&mut self) -> &mut ObjectMeta;

    /// Reads the view of an object. As [`from_value`], but compiled here and not once more in
    /// every crate that reads objects.
    ///
    /// # Errors
    /// Where the object does not fit the view.
    fn read(document: &Value) -> Result<Self, ConvertError>;

    /// `GROUP/VERSION`, or the version alone in core.
    #[must_use]
    fn api_version() -> String {
        if Self::GROUP.is_empty() { Self::VERSION.to_owned() } else { format!("{}/{}", Self::GROUP, Self::VERSION) }
    }
}

impl ObjectMeta {
    /// The metadata of an object; nothing where it has none.
    ///
    /// # Errors
    /// Where it does not have the expected form.
    pub fn of(document: &Value) -> Result<Self, ConvertError> {
        document.get("metadata").map_or_else(|| Ok(Self::default()), from_value)
    }

    /// `namespace/name`, or the name alone.
    #[must_use]
    pub fn key(&self) -> String {
        if self.namespace.is_empty() { self.name.to_string() } else { format!("{}/{}", self.namespace, self.name) }
    }

    /// The owner that controls this object.
    #[must_use]
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references.iter().find(|owner| owner.controller == Some(true))
    }

    /// Whether deletion has begun.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }
}
