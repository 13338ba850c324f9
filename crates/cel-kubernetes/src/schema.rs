//! Custom resources in CEL: a structural schema defines types, sizes, and the interpretation of documents in
//! place.
//!
//! Follows `SchemaDeclType` and `UnstructuredToVal` of Kubernetes' `apiserver/pkg/cel/common`: null counts as
//! absent, fields without a schema are invisible, and the metadata has only name and generateName.

mod scalar;
mod shape;
mod sizes;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use api::json;
use api::structural_schema::Schema;
use cel::syntax::ast::Name;
use cel::types::Type;
use cel::value::Value;

use crate::declared::{DeclaredType, ElementTypes};
use crate::names;

/// A schema that is ready to type expressions and to read documents.
#[derive(Debug, Clone)]
pub struct TypedSchema {
    declared: Arc<DeclaredType>,
    shape: Arc<Shape>,
}

/// Interpretation of documents by a schema.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) kind: Kind,
    pub(crate) nullable: bool,
}

#[derive(Debug)]
pub(crate) enum Kind {
    /// Properties, by their escaped names, with the name in the document.
    Object(Vec<Property>),
    /// `additionalProperties` with a schema.
    Map(Box<Shape>),
    /// `items`, and the semantics of the list.
    List(Box<Shape>, ListMeaning),
    /// A list without a schema for its items.
    ListWithoutItems,
    IntOrString,
    Text,
    Duration,
    Date,
    DateTime,
    Octets,
    Number,
    Integer,
    Boolean,
    /// Data without a type, kept as it is: only equality sees it.
    Preserved,
    /// Not a type that a structural schema can have.
    Invalid(String),
}

#[derive(Debug)]
pub(crate) struct Property {
    pub(crate) identifier: Name,
    pub(crate) name: Box<str>,
    pub(crate) shape: Shape,
    /// Position of the field in the last document: only a hint.
    pub(crate) place: AtomicUsize,
}

#[derive(Debug)]
pub(crate) enum ListMeaning {
    /// An ordered list.
    Atomic,
    /// Without order or repetition.
    Set,
    /// Objects distinguished by these keys.
    Map(Vec<Box<str>>),
    /// Not a meaning that there is.
    Invalid(String),
}

impl TypedSchema {
    /// Types a schema under a name for its root; the root of a resource has metadata.
    ///
    /// Returns `None` if the schema gives no type, such as an object that only preserves unknown fields.
    pub fn new(schema: &Schema, is_resource_root: bool, type_name: &str) -> Option<TypedSchema> {
        let mut declared = sizes::declare(schema, is_resource_root)?;
        assign_names(&mut declared, type_name);
        let shape = Arc::new(shape::of(schema, is_resource_root));
        Some(TypedSchema { declared: Arc::new(declared), shape })
    }

    /// The declared type of the root.
    pub fn declared(&self) -> &Arc<DeclaredType> {
        &self.declared
    }

    /// A document, read in place.
    pub fn value<'v>(&'v self, document: &'v json::Value) -> Value<'v> {
        self.shape.value(document)
    }
}

/// The name that objects have until they are given one.
pub(crate) const UNNAMED: &str = "object";

/// Names the object types inside a type by their path: `selfType.spec.list.@idx`.
fn assign_names(declared: &mut DeclaredType, name: &str) {
    match &mut declared.inside {
        ElementTypes::Scalar => {}
        ElementTypes::List(element) => {
            let element = Arc::make_mut(element);
            assign_names(element, &format!("{name}.@idx"));
            declared.cel_type = Type::list(element.cel_type.clone());
        }
        ElementTypes::Map(key, value) => {
            let value = Arc::make_mut(value);
            assign_names(value, &format!("{name}.@elem"));
            declared.cel_type = Type::map(key.cel_type.clone(), value.cel_type.clone());
        }
        ElementTypes::Object(fields) => {
            for (field, of) in fields.iter_mut() {
                assign_names(Arc::make_mut(of), &format!("{name}.{field}"));
            }
            declared.cel_type = Type::object(name);
        }
    }
}

/// The longest name of an object.
const NAME_LENGTH_MAX: i64 = 253;

/// The schema's properties at the root of a resource: type, name, and the part of the metadata that rules may
/// read.
pub(crate) fn with_resource_root(schema: &Schema) -> Schema {
    let is_text = |schema: Option<&Schema>| schema.is_some_and(|schema| schema.type_name == "string");
    let declared = schema.properties.get("metadata");
    let names = declared.map(|metadata| &metadata.properties);
    let name = |field: &str| names.and_then(|names| names.get(field));
    if ["kind", "apiVersion"].iter().all(|field| is_text(schema.properties.get(*field)))
        && declared.is_some_and(|metadata| metadata.type_name == "object")
        && is_text(name("name"))
        && is_text(name("generateName"))
    {
        return schema.clone();
    }
    let text = Schema { type_name: "string".to_owned(), ..Schema::default() };
    let mut metadata = Schema { type_name: "object".to_owned(), ..Schema::default() };
    // A generated name gets a suffix of at least one character.
    for (field, length_max) in [("name", NAME_LENGTH_MAX), ("generateName", NAME_LENGTH_MAX - 1)] {
        let max_length = name(field).and_then(|it| it.max_length).map_or(length_max, |own| own.min(length_max));
        let capped = Schema { max_length: Some(max_length), ..text.clone() };
        metadata.properties.insert(field.to_owned(), capped);
    }
    let mut root = schema.clone();
    root.properties.insert("kind".to_owned(), text.clone());
    root.properties.insert("apiVersion".to_owned(), text);
    root.properties.insert("metadata".to_owned(), metadata);
    root
}

/// The name that a property has in expressions, if it can have one.
pub(crate) fn identifier_of(property: &str) -> Option<Name> {
    names::escape(property).map(|identifier| identifier.as_ref().into())
}
