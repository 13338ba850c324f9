//! How typed views are declared.
//!
//! A view names the fields that a component reads, in the order of the type; what it does not name is not decoded. It
//! is read leniently (missing and null mean the default) and written without defaults. Whole objects are kept as JSON.

/// Declares a struct with Kubernetes' field names, read and written through serde.
macro_rules! view {
    ($($(#[$meta:meta])* pub struct $name:ident { $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$meta])*
            #[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
            #[serde(default, rename_all = "camelCase")]
            #[allow(missing_docs, reason = "the fields are Kubernetes' own")]
            pub struct $name {
                $(
                    #[serde(skip_serializing_if = "crate::view::is_default")]
                    $(#[$field_meta])*
                    pub $field: $type,
                )*
            }
        )*
    };
}

/// As [`view!`], for objects: with `apiVersion`, `kind` and `metadata` in front.
macro_rules! object {
    ($($(#[$meta:meta])* pub struct $name:ident ($group:literal, $version:literal) { $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)* })*) => {
        $(
            crate::view::view! {
                $(#[$meta])*
                pub struct $name {
                    pub api_version: crate::json::Text,
                    pub kind: crate::json::Text,
                    pub metadata: crate::meta::v1::ObjectMeta,
                    $($(#[$field_meta])* pub $field: $type,)*
                }
            }

            impl crate::meta::v1::Object for $name {
                const GROUP: &'static str = $group;
                const VERSION: &'static str = $version;
                const KIND: &'static str = stringify!($name);

                fn metadata(&self) -> &crate::meta::v1::ObjectMeta {
                    &self.metadata
                }

                fn metadata_mut(&mut self) -> &mut crate::meta::v1::ObjectMeta {
                    &mut self.metadata
                }
            }
        )*
    };
}

pub(crate) use {object, view};

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
