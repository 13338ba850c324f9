//! Namespaces.

use crate::json::Text;
use crate::time::Timestamp;
use crate::view::{object, view};

object! {
    /// A scope for names.
    pub struct Namespace("", "v1") {
        pub spec: NamespaceSpec,
        pub status: NamespaceStatus,
    }
}

view! {
    /// Finalizers that delay the deletion of a namespace.
    pub struct NamespaceSpec {
        pub finalizers: Vec<Text>,
    }

    /// The status: in use or being deleted.
    pub struct NamespaceStatus {
        pub phase: Text,
        pub conditions: Vec<NamespaceCondition>,
    }

    /// One aspect of a namespace's state.
    pub struct NamespaceCondition {
        #[serde(rename = "type")]
        pub condition_type: Text,
        pub status: Text,
        pub last_transition_time: Option<Timestamp>,
        pub reason: Text,
        pub message: Text,
    }
}
