//! Permitted contents of a place in an object: the only query of the engine to a schema.
//!
//! A [`Shape`] comes from the table of built-in types or from the structural schema of a custom resource;
//! without either it is deduced from the value. [`Shape::atom`] returns the permitted values. Follows
//! `schema.Atom` of structured-merge-diff and the conversion from OpenAPI in kube-openapi's `schemaconv`.

use api::json::Value;
use api::structural_schema::{Kind as SchemaKind, ListType as SchemaListType, Schema, SchemaOrBool};
use api::types::{Field, Kind, ListType, Type};

/// The schema of a place.
#[derive(Debug, Clone, Copy)]
pub enum Shape<'s> {
    /// A field of a built-in type.
    Field(&'static Field),
    /// A built-in type, an item of a list, or a value of a map.
    Kind(Kind),
    /// A place in a custom resource. Below a place that preserves unknown fields, all others do.
    Custom {
        /// Schema of its definition.
        schema: &'s Schema,
        /// Whether a place above preserves unknown fields.
        preserves: bool,
        /// Whether this is a whole object, with kind, version and metadata.
        object: bool,
    },
    /// Anything: objects are merged field by field, lists replaced.
    Deduced,
    /// Anything, replaced as a whole.
    Untyped,
}

/// Permitted kinds of a value; several if the schema does not decide.
#[derive(Debug, Clone, Copy, Default)]
pub struct Atom<'s> {
    /// A scalar.
    pub scalar: Option<Scalar>,
    /// A list.
    pub list: Option<List<'s>>,
    /// An object.
    pub map: Option<Map<'s>>,
}

/// The kinds of scalars.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Scalar {
    Numeric,
    String,
    Boolean,
    Untyped,
}

/// Merge rules of a list.
#[derive(Debug, Clone, Copy)]
pub struct List<'s> {
    /// Shape of the items.
    pub element: Shape<'s>,
    /// Identity of the items.
    pub relation: Relation<'s>,
}

/// Identity of the items of a list.
#[derive(Debug, Clone, Copy)]
pub enum Relation<'s> {
    /// None: the list is replaced as a whole.
    Atomic,
    /// Their value.
    Set,
    /// By some of their fields.
    Map(Keys<'s>),
}

/// Names of fields.
#[derive(Debug, Clone, Copy)]
pub enum Keys<'s> {
    /// Keys of a built-in type.
    Static(&'static [&'static str]),
    /// Key of a strategic merge patch.
    One(&'static str),
    /// Keys of a custom resource.
    Custom(&'s [String]),
}

impl<'s> Keys<'s> {
    /// The names.
    pub fn names(self) -> impl Iterator<Item = &'s str> {
        let (fixed, one, custom): (&[&'static str], _, &'s [String]) = match self {
            Keys::Static(names) => (names, None, &[]),
            Keys::One(name) => (&[], Some(name), &[]),
            Keys::Custom(names) => (&[], None, names),
        };
        fixed.iter().copied().chain(one).chain(custom.iter().map(String::as_str))
    }
}

/// Merge rules of an object.
#[derive(Debug, Clone, Copy)]
pub struct Map<'s> {
    fields: Fields<'s>,
    /// Shape of fields without a declaration; `None` if there may not be any.
    pub element: Option<Shape<'s>>,
    /// Whether it is replaced as a whole.
    pub atomic: bool,
}

#[derive(Debug, Clone, Copy)]
enum Fields<'s> {
    None,
    Type(&'static Type),
    Custom { schema: &'s Schema, preserves: bool, object: bool },
}

const DEDUCED_LIST: List<'static> = List { element: Shape::Untyped, relation: Relation::Atomic };

impl<'s> Shape<'s> {
    /// Objects of a built-in type.
    #[must_use]
    pub fn of_type(object_type: &'static Type) -> Self {
        Shape::Kind(Kind::Struct(object_type))
    }

    /// Objects of a custom resource with a structural schema.
    ///
    /// A resource without one, or one that preserves all unknown fields without naming any, is [`Shape::Deduced`].
    #[must_use]
    pub fn of_custom_resource(schema: &'s Schema) -> Self {
        Shape::Custom { schema, preserves: false, object: true }
    }

    /// Returns the permitted kinds of a value.
    #[must_use]
    pub fn atom(self) -> Atom<'s> {
        match self {
            Shape::Field(field) => field_atom(field),
            Shape::Kind(kind) => kind_atom(kind, Relation::Atomic, false),
            Shape::Custom { schema, preserves, object } => custom_atom(schema, preserves, object),
            Shape::Deduced => open(Map { fields: Fields::None, element: Some(Shape::Deduced), atomic: false }),
            Shape::Untyped => open(Map { fields: Fields::None, element: Some(Shape::Untyped), atomic: true }),
        }
    }
}

fn open(map: Map<'_>) -> Atom<'_> {
    Atom { scalar: Some(Scalar::Untyped), list: Some(DEDUCED_LIST), map: Some(map) }
}

fn scalar(scalar: Scalar) -> Atom<'static> {
    Atom { scalar: Some(scalar), ..Atom::default() }
}

fn field_atom(field: &'static Field) -> Atom<'static> {
    let relation = match (field.list, field.patch) {
        (Some(ListType::Map), _) => Relation::Map(Keys::Static(field.keys)),
        (Some(ListType::Set), _) => Relation::Set,
        (None, Some("merge" | "merge,retainKeys")) => match field.merge_key {
            Some(key) => Relation::Map(Keys::One(key)),
            None => Relation::Set,
        },
        (Some(ListType::Atomic) | None, _) => Relation::Atomic,
    };
    let mut atom = match field.kind {
        Kind::Any if field.go_type.ends_with("RawExtension") => Shape::Untyped.atom(),
        kind => kind_atom(kind, relation, field.atomic),
    };
    if let (Some(map), true) = (&mut atom.map, field.granular) {
        map.atomic = false;
    }
    atom
}

fn kind_atom(kind: Kind, relation: Relation<'static>, atomic: bool) -> Atom<'static> {
    match kind {
        Kind::Bool => scalar(Scalar::Boolean),
        Kind::Int32 | Kind::Int64 | Kind::Float64 => scalar(Scalar::Numeric),
        Kind::String | Kind::Bytes | Kind::Duration => scalar(Scalar::String),
        Kind::Quantity | Kind::Time | Kind::MicroTime => scalar(Scalar::Untyped),
        // OpenAPI gives these no type.
        Kind::IntOrString | Kind::Any | Kind::SchemaOrList | Kind::SchemaOrBool => Shape::Deduced.atom(),
        Kind::Struct(of) => {
            // A struct without fields is a free form.
            let element = of.fields.is_empty().then_some(Shape::Deduced);
            let map = Map { fields: Fields::Type(of), element, atomic: atomic || of.atomic && !of.fields.is_empty() };
            Atom { map: Some(map), ..Atom::default() }
        }
        Kind::List(inner) => {
            let list = List { element: Shape::Kind(*inner), relation };
            Atom { list: Some(list), ..Atom::default() }
        }
        Kind::Map(inner) => {
            let map = Map { fields: Fields::None, element: Some(Shape::Kind(*inner)), atomic };
            Atom { map: Some(map), ..Atom::default() }
        }
    }
}

fn custom_atom(schema: &Schema, preserves: bool, object: bool) -> Atom<'_> {
    let preserves = preserves || schema.preserves_unknown_fields();
    let below = |schema| Shape::Custom { schema, preserves, object: false };
    let object = object || schema.x_embedded_resource;
    let has_fields = !schema.properties.is_empty() || object;
    let map = || Map {
        fields: Fields::Custom { schema, preserves, object },
        element: match &schema.additional_properties {
            None if preserves || !has_fields => Some(Shape::Deduced),
            None | Some(SchemaOrBool::Bool(false)) => None,
            Some(SchemaOrBool::Schema(schema)) => Some(below(schema)),
            Some(SchemaOrBool::Bool(true)) => Some(Shape::Deduced),
        },
        atomic: schema.is_atomic_map(),
    };
    let list = || List {
        element: schema.items_schema().map_or(Shape::Untyped, below),
        relation: match schema.list_type() {
            SchemaListType::Atomic => Relation::Atomic,
            SchemaListType::Set => Relation::Set,
            SchemaListType::Map => Relation::Map(Keys::Custom(&schema.x_list_map_keys)),
        },
    };
    match schema.kind() {
        Some(SchemaKind::Object) => Atom { map: Some(map()), ..Atom::default() },
        Some(SchemaKind::Array) => Atom { list: Some(list()), ..Atom::default() },
        Some(SchemaKind::Integer | SchemaKind::Number) => scalar(Scalar::Numeric),
        Some(SchemaKind::Boolean) => scalar(Scalar::Boolean),
        Some(SchemaKind::String) => match schema.format.as_str() {
            "" | "byte" => scalar(Scalar::String),
            _ => scalar(Scalar::Untyped),
        },
        Some(SchemaKind::Unspecified) | None => {
            Atom { scalar: Some(Scalar::Untyped), list: Some(list()), map: Some(map()) }
        }
    }
}

impl<'s> Map<'s> {
    /// The field of this name, if the schema names it.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Shape<'s>> {
        match self.fields {
            Fields::None => None,
            Fields::Type(of) => of.field(name).map(Shape::Field),
            Fields::Custom { schema, preserves, object } => {
                if object {
                    match name {
                        "apiVersion" | "kind" => return Some(Shape::Kind(Kind::String)),
                        // All kinds have the same metadata.
                        "metadata" => {
                            let metadata = api::types::by_kind("", "v1", "Pod").and_then(|of| of.field("metadata"));
                            return Some(metadata.map_or(Shape::Deduced, Shape::Field));
                        }
                        _ => {}
                    }
                }
                let schema = schema.properties.get(name)?;
                Some(Shape::Custom { schema, preserves, object: false })
            }
        }
    }

    /// The field of this name, whether or not the schema names it.
    #[must_use]
    pub fn field_or_element(&self, name: &str) -> Option<Shape<'s>> {
        self.field(name).or(self.element)
    }

    /// Like [`Map::field_or_element`], for fields that are requested in the order of the type: `hint` is the
    /// position of the last one.
    pub(super) fn next_field_or_element(&self, name: &str, hint: &mut usize) -> Option<Shape<'s>> {
        let Fields::Type(of) = self.fields else { return self.field_or_element(name) };
        let (before, after) = of.fields.split_at_checked(*hint).unwrap_or((of.fields, &[]));
        let mut later = after.iter().enumerate();
        match later.find(|(_, field)| field.name == name) {
            Some((index, field)) => {
                *hint = hint.saturating_add(index);
                Some(Shape::Field(field))
            }
            None => before.iter().find(|field| field.name == name).map(Shape::Field).or(self.element),
        }
    }

    /// Whether the schema names nothing, so that there is nothing to hold against it.
    #[must_use]
    pub fn is_deduced(&self) -> bool {
        let names_none = match self.fields {
            Fields::None => true,
            Fields::Type(of) => of.fields.is_empty(),
            Fields::Custom { schema, object, .. } => schema.properties.is_empty() && !object,
        };
        names_none
            && match self.element {
                Some(Shape::Deduced) => true,
                Some(element @ Shape::Custom { .. }) => element.atom().scalar == Some(Scalar::Untyped),
                _ => false,
            }
    }

    /// The value that a key of a list's item has where the item leaves it out.
    #[must_use]
    pub fn key_default(&self, name: &str) -> Option<Value> {
        match self.fields {
            Fields::None => None,
            Fields::Custom { schema, .. } => schema.properties.get(name)?.default.clone(),
            Fields::Type(of) => {
                let field = of.field(name)?;
                if let Some(default) = field.default {
                    return api::json::parse(default.as_bytes()).ok();
                }
                // OpenAPI shows the zero value as default of scalars that are always written.
                if field.pointer || field.omit_empty {
                    return None;
                }
                match field.kind {
                    Kind::Bool => Some(Value::Bool(false)),
                    Kind::Int32 | Kind::Int64 => Some(Value::Int(0)),
                    Kind::String => Some(Value::String("".into())),
                    _ => None,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape_at(kind: (&str, &str, &str), path: &[&str]) -> Atom<'static> {
        let of = api::types::by_kind(kind.0, kind.1, kind.2).unwrap();
        Shape::Field(of.field_at(path).unwrap()).atom()
    }

    #[test]
    fn built_in_types_have_the_semantics_of_the_table() {
        let containers = shape_at(("", "v1", "Pod"), &["spec", "containers"]).list.unwrap();
        let Relation::Map(keys) = containers.relation else { panic!("{containers:?}") };
        assert_eq!(keys.names().collect::<Vec<_>>(), ["name"]);
        let container = containers.element.atom().map.unwrap();
        assert_eq!(container.key_default("name"), Some("".into()));
        assert!(container.field("image").is_some() && container.field("nope").is_none());
        assert!(container.field_or_element("nope").is_none());
        let ports = shape_at(("", "v1", "Service"), &["spec", "ports"]).list.unwrap();
        assert_eq!(ports.element.atom().map.unwrap().key_default("protocol"), Some("TCP".into()));
        assert!(shape_at(("apps", "v1", "Deployment"), &["spec", "selector"]).map.unwrap().atomic);
        assert!(!shape_at(("", "v1", "PersistentVolume"), &["spec", "claimRef"]).map.unwrap().atomic);
        let finalizers = shape_at(("", "v1", "Pod"), &["metadata", "finalizers"]).list.unwrap();
        assert!(matches!(finalizers.relation, Relation::Set));
        let data = shape_at(("", "v1", "ConfigMap"), &["data"]).map.unwrap();
        assert!(!data.atomic && data.field("a").is_none() && data.field_or_element("a").is_some());
        let target = shape_at(("", "v1", "Service"), &["spec", "ports", "targetPort"]);
        assert_eq!(target.scalar, Some(Scalar::Untyped));
    }

    #[test]
    fn custom_resources_have_the_semantics_of_their_schema() {
        let text = r#"{"type":"object","properties":{"spec":{"type":"object","properties":{"l":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","properties":{"k":{"type":"string","default":"d"}}}},"any":{"x-kubernetes-preserve-unknown-fields":true},"free":{"type":"object"},"when":{"type":"string","format":"date-time"}}}}}"#;
        let schema = Schema::from_value(&api::json::parse(text.as_bytes()).unwrap()).unwrap();
        let root = Shape::of_custom_resource(&schema).atom().map.unwrap();
        assert!(root.field("nope").is_none() && root.element.is_none());
        let metadata = root.field("metadata").unwrap().atom().map.unwrap();
        assert!(metadata.field("labels").is_some());
        let spec = root.field("spec").unwrap().atom().map.unwrap();
        let list = spec.field("l").unwrap().atom().list.unwrap();
        assert_eq!(list.element.atom().map.unwrap().key_default("k"), Some("d".into()));
        let any = spec.field("any").unwrap().atom();
        assert!(any.scalar.is_some() && any.list.is_some() && any.map.unwrap().element.is_some());
        assert!(spec.field("free").unwrap().atom().map.unwrap().element.is_some());
        assert_eq!(spec.field("when").unwrap().atom().scalar, Some(Scalar::Untyped));
    }
}
