//! Metadata alone: the types of `PartialObjectMetadata` and of lists of it, which every kind can be shown as.
//!
//! No kind is stored in these forms, so they are not in the table; only their encoding matters.

use super::super::{FIELD, Field, Kind, Type};
use super::meta_v1::{LIST_META, OBJECT_META};

const PACKAGE: &str = "k8s.io/apimachinery/pkg/apis/meta/v1";

static ONE: Type = Type::new(
    PACKAGE,
    "PartialObjectMetadata",
    false,
    &[KIND, API_VERSION, Field { kind: Kind::Struct(&OBJECT_META), number: 1, ..METADATA }],
);

static LIST: Type = Type::new(
    PACKAGE,
    "PartialObjectMetadataList",
    false,
    &[KIND, API_VERSION, Field { kind: Kind::Struct(&LIST_META), number: 1, ..METADATA }, Field { number: 2, ..ITEMS }],
);

/// Kubernetes: in the old version the numbers are reversed.
static LIST_V1BETA1: Type = Type::new(
    "k8s.io/apimachinery/pkg/apis/meta/v1beta1",
    "PartialObjectMetadataList",
    false,
    &[KIND, API_VERSION, Field { kind: Kind::Struct(&LIST_META), number: 2, ..METADATA }, Field { number: 1, ..ITEMS }],
);

const KIND: Field = Field { name: "kind", go_name: "Kind", go_type: "string", kind: Kind::String, ..FIELD };
const API_VERSION: Field =
    Field { name: "apiVersion", go_name: "APIVersion", go_type: "string", kind: Kind::String, ..FIELD };
const METADATA: Field = Field { name: "metadata", go_name: "ObjectMeta", go_type: "v1.ObjectMeta", ..FIELD };
const ITEMS: Field = Field {
    name: "items",
    go_name: "Items",
    go_type: "[]v1.PartialObjectMetadata",
    kind: Kind::List(&Kind::Struct(&ONE)),
    ..FIELD
};

/// The type of this `apiVersion` and `kind`, if it is one of these.
#[must_use]
pub fn partial(api_version: &str, kind: &str) -> Option<&'static Type> {
    match (api_version, kind) {
        ("meta.k8s.io/v1" | "meta.k8s.io/v1beta1", "PartialObjectMetadata") => Some(&ONE),
        ("meta.k8s.io/v1", "PartialObjectMetadataList") => Some(&LIST),
        ("meta.k8s.io/v1beta1", "PartialObjectMetadataList") => Some(&LIST_V1BETA1),
        _ => None,
    }
}
