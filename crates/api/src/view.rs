//! Declaration of typed views.
//!
//! A view names the fields that a component reads, in the order of the type; what it does not name is not decoded. It
//! is read leniently (missing and null mean the default) and written without defaults. Whole objects are kept as JSON.
//!
//! Fields that are alike in many objects can be declared as `shared`: they are kept in a [part](crate::shared) of the
//! view, and read and set as the others are.

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

            crate::view::alike! { $name { $($field)* } }
        )*
    };
}

/// Implements [`Shareable`](crate::shared::Shareable) by fields.
macro_rules! alike {
    ($name:ident { $($field:ident)* }) => {
        impl crate::shared::Shareable for $name {
            fn feed<H: std::hash::Hasher>(&self, hasher: &mut H) {
                $(crate::shared::Shareable::feed(&self.$field, hasher);)*
            }

            fn is_alike(&self, other: &Self) -> bool {
                $(crate::shared::Shareable::is_alike(&self.$field, &other.$field))&&*
            }

            fn share(&mut self, parts: &mut crate::shared::Parts) {
                $(crate::shared::Shareable::share(&mut self.$field, parts);)*
            }
        }
    };
}

/// Like [`view!`], for one struct with fields that are declared as `shared` instead of `pub`: they are in
/// `part`, a struct of the second name.
macro_rules! sharing_view {
    ($(#[$meta:meta])* pub struct $name:ident shares $part:ident { $($fields:tt)* }) => {
        crate::view::sharing_view! { @sort { $(#[$meta])* $name $part } own {} shared {} all {} $($fields)* }
    };
    (@sort $head:tt own { $($own:tt)* } shared $shared:tt all { $($all:tt)* }
        $(#[$field_meta:meta])* pub $field:ident: $type:ty, $($rest:tt)*) => {
        crate::view::sharing_view! {
            @sort $head own { $($own)* $field: $type, } shared $shared
            all { $($all)* $(#[$field_meta])* $field: $type, } $($rest)*
        }
    };
    (@sort $head:tt own $own:tt shared { $($shared:tt)* } all { $($all:tt)* }
        $(#[$field_meta:meta])* shared $field:ident: $type:ty, $($rest:tt)*) => {
        crate::view::sharing_view! {
            @sort $head own $own shared { $($shared)* $field: $type, }
            all { $($all)* $(#[$field_meta])* $field: $type, } $($rest)*
        }
    };
    (@sort { $(#[$meta:meta])* $name:ident $part:ident } own { $($own:ident: $own_type:ty,)* }
        shared { $($shared:ident: $shared_type:ty,)* } all { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Default, PartialEq)]
        #[allow(missing_docs, reason = "the fields are Kubernetes' own")]
        pub struct $name {
            $(pub $own: $own_type,)*
            /// The other fields, which can be read and set without naming it.
            pub part: crate::shared::SharedPart<$part>,
        }

        #[doc = concat!("What many a [`", stringify!($name), "`] has in common with others.")]
        #[derive(Debug, Clone, Default, PartialEq)]
        #[allow(missing_docs, reason = "the fields are Kubernetes' own")]
        pub struct $part {
            $(pub $shared: $shared_type,)*
        }

        crate::view::alike! { $name { $($own)* part } }
        crate::view::alike! { $part { $($shared)* } }

        impl crate::shared::Part for $part {
            fn nothing() -> &'static Self {
                static NOTHING: std::sync::LazyLock<$part> = std::sync::LazyLock::new($part::default);
                &NOTHING
            }
        }

        impl From<$part> for $name {
            fn from(part: $part) -> Self {
                Self { part: part.into(), ..Self::default() }
            }
        }

        impl std::ops::Deref for $name {
            type Target = $part;

            fn deref(&self) -> &$part {
                &self.part
            }
        }

        impl std::ops::DerefMut for $name {
            fn deref_mut(&mut self) -> &mut $part {
                &mut self.part
            }
        }

        const _: () = {
            #[derive(Default, serde::Deserialize)]
            #[serde(default, rename_all = "camelCase")]
            struct ReadView {
                $($(#[$field_meta])* $field: $type,)*
            }

            #[derive(serde::Serialize)]
            #[serde(rename_all = "camelCase")]
            struct WrittenView<'a> {
                $(
                    #[serde(skip_serializing_if = "crate::view::is_default_at")]
                    $(#[$field_meta])*
                    $field: &'a $type,
                )*
            }

            impl<'de> serde::Deserialize<'de> for $name {
                fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    let read = ReadView::deserialize(deserializer)?;
                    let part = $part { $($shared: read.$shared,)* };
                    Ok(Self { $($own: read.$own,)* part: part.into() })
                }
            }

            impl serde::Serialize for $name {
                fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    WrittenView { $($field: &self.$field,)* }.serialize(serializer)
                }
            }
        };
    };
}

/// Like [`view!`], for objects: with `apiVersion`, `kind` and `metadata` in front.
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

                fn read(document: &crate::json::Value) -> Result<Self, crate::json::ConvertError> {
                    crate::json::from_value(document)
                }
            }
        )*
    };
}

pub(crate) use {alike, object, sharing_view, view};

/// Like [`is_default`], for a borrowed field.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference to the field")]
pub(crate) fn is_default_at<T: Default + PartialEq>(value: &&T) -> bool {
    is_default(*value)
}

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
