//! References to other objects.

use crate::json::Text;
use crate::view::view;

view! {
    /// An object, or a part of it.
    pub struct ObjectReference {
        pub kind: Text,
        pub namespace: Text,
        pub name: Text,
        pub uid: Text,
        pub api_version: Text,
        pub resource_version: Text,
        pub field_path: Text,
    }

    /// An object of the same namespace and a known kind.
    pub struct LocalObjectReference {
        pub name: Text,
    }

    /// An object of the same namespace.
    pub struct TypedLocalObjectReference {
        pub api_group: Option<Text>,
        pub kind: Text,
        pub name: Text,
    }

    /// An object of perhaps another namespace.
    pub struct TypedObjectReference {
        pub api_group: Option<Text>,
        pub kind: Text,
        pub name: Text,
        pub namespace: Option<Text>,
    }
}
