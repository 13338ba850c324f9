//! Documents read through their schema, in place.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

use api::json;
use api::structural_schema::{Schema, SchemaOrBool};
use cel::types::Type;
use cel::value::{EvalError, HostData, HostValue, List, ListShape, Map, MapShape, Str, Value};

use super::{Kind, ListMeaning, Property, Shape, identifier_of, scalar, with_resource_root};
use crate::names;

/// Returns the interpretation of a schema.
pub(super) fn of(schema: &Schema, is_resource_root: bool) -> Shape {
    let nullable = schema.nullable;
    let kind = if schema.x_int_or_string { Kind::IntOrString } else { kind_of(schema, is_resource_root) };
    Shape { kind, nullable }
}

fn kind_of(schema: &Schema, is_resource_root: bool) -> Kind {
    match schema.type_name.as_str() {
        "object" => object_kind(schema, is_resource_root),
        "array" => match schema.items_schema() {
            Some(items) => Kind::List(Box::new(of(items, items.x_embedded_resource)), meaning_of(schema)),
            None => Kind::ListWithoutItems,
        },
        "string" => match schema.format.as_str() {
            "duration" => Kind::Duration,
            "date" => Kind::Date,
            "date-time" => Kind::DateTime,
            "byte" => Kind::Octets,
            _ => Kind::Text,
        },
        "number" => Kind::Number,
        "integer" => Kind::Integer,
        "boolean" => Kind::Boolean,
        _ if schema.preserves_unknown_fields() => Kind::Preserved,
        other => Kind::Invalid(other.to_owned()),
    }
}

fn object_kind(schema: &Schema, is_resource_root: bool) -> Kind {
    let rooted;
    let schema = if is_resource_root || schema.x_embedded_resource {
        rooted = with_resource_root(schema);
        &rooted
    } else {
        schema
    };
    match &schema.additional_properties {
        Some(SchemaOrBool::Schema(values)) if schema.properties.is_empty() => {
            Kind::Map(Box::new(of(values, values.x_embedded_resource)))
        }
        _ => {
            let mut properties: Vec<_> = schema
                .properties
                .iter()
                .filter_map(|(name, property)| {
                    Some(Property {
                        identifier: identifier_of(name)?,
                        name: name.as_str().into(),
                        shape: of(property, property.x_embedded_resource),
                        place: AtomicUsize::new(0),
                    })
                })
                .collect();
            properties.sort_by(|a, b| a.identifier.cmp(&b.identifier));
            Kind::Object(properties)
        }
    }
}

fn meaning_of(schema: &Schema) -> ListMeaning {
    match schema.x_list_type.as_deref() {
        None | Some("" | "atomic") => ListMeaning::Atomic,
        Some("set") => ListMeaning::Set,
        Some("map") => ListMeaning::Map(
            schema
                .x_list_map_keys
                .iter()
                .map(|key| names::escape(key).map_or(key.as_str().into(), |escaped| escaped.as_ref().into()))
                .collect(),
        ),
        Some(other) => ListMeaning::Invalid(other.to_owned()),
    }
}

/// Among so few properties, comparing lengths first is faster than halving.
const SCANNED_MAX: usize = 12;

impl Shape {
    /// A document of this shape as a value.
    pub(crate) fn value<'v>(&'v self, document: &'v json::Value) -> Value<'v> {
        match (&self.kind, document) {
            (Kind::Text, json::Value::String(text)) => Value::str(text),
            (Kind::Object(_) | Kind::Map(_), json::Value::Object(_)) => Value::Map(Map::Shaped(document, self)),
            (Kind::List(_, ListMeaning::Atomic), json::Value::Array(_)) => Value::List(List::Shaped(document, self)),
            _ => self.other_value(document),
        }
    }

    #[inline(never)]
    fn other_value<'v>(&'v self, document: &'v json::Value) -> Value<'v> {
        if document.is_null() {
            return if self.nullable {
                Value::Null
            } else {
                failed("invalid data, got null for schema with nullable=false")
            };
        }
        match (&self.kind, document) {
            (Kind::Integer, json::Value::Int(number)) => Value::Int(*number),
            (Kind::Boolean, json::Value::Bool(truth)) => Value::Bool(*truth),
            (Kind::List(_, ListMeaning::Invalid(meaning)), json::Value::Array(_)) => {
                failed(&format!("invalid x-kubernetes-list-type, expected 'map', 'set' or 'atomic' but got {meaning}"))
            }
            (Kind::List(..), json::Value::Array(_)) => Value::List(List::Shaped(document, self)),
            (Kind::Number, json::Value::Int(number)) => Value::Double(*number as f64),
            (Kind::Number, json::Value::Float(number)) => Value::Double(number.get()),
            (Kind::IntOrString, json::Value::String(text)) => Value::str(text),
            (Kind::IntOrString, json::Value::Int(number)) => Value::Int(*number),
            (Kind::Duration, json::Value::String(text)) => scalar::duration(text),
            (Kind::Date, json::Value::String(text)) => scalar::date(text),
            (Kind::DateTime, json::Value::String(text)) => scalar::date_time(text),
            (Kind::Octets, json::Value::String(text)) => scalar::octets(text),
            (Kind::Preserved, _) => Value::opaque(PreservedValue(document.clone())),
            _ => failed(&self.mismatch(document)),
        }
    }

    fn mismatch(&self, document: &json::Value) -> String {
        let found = match document {
            json::Value::Null => "<nil>",
            json::Value::Bool(_) => "bool",
            json::Value::Int(_) => "int64",
            json::Value::Float(_) => "float64",
            json::Value::String(_) => "string",
            json::Value::Array(_) => "[]interface {}",
            json::Value::Object(_) => "map[string]interface {}",
        };
        match &self.kind {
            Kind::IntOrString => {
                "invalid data, expected XIntOrString value to be either a string or integer".to_owned()
            }
            Kind::Object(_) | Kind::Map(_) => {
                "invalid data, expected a map for the provided schema with type=object".to_owned()
            }
            Kind::List(..) => "invalid data, expected an array for the provided schema with type=array".to_owned(),
            Kind::ListWithoutItems => "invalid array type, expected Items with a non-empty Schema".to_owned(),
            Kind::Number => format!("invalid data, expected float, got {found}"),
            Kind::Integer => format!("invalid data, expected int, got {found}"),
            Kind::Boolean => format!("invalid data, expected bool, got {found}"),
            Kind::Invalid(kind) => format!(
                "invalid type, expected object, array, number, integer, boolean or string, or no type with x-kubernetes-int-or-string or x-kubernetes-preserve-unknown-fields is true, got {kind}"
            ),
            _ => format!("invalid data, expected string, got {found}"),
        }
    }

    /// Returns the value at the end of a path of keys, if no part of the path is missing or special.
    #[inline]
    fn walk<'v>(&'v self, document: &'v json::Value, path: &[Str<'_>]) -> Option<(&'v Shape, &'v json::Value)> {
        let mut at = (self, document);
        for key in path {
            let (shape, fields) = (at.0, at.1.as_object()?);
            at = match &shape.kind {
                Kind::Object(_) => {
                    let property = shape.property(key)?;
                    (&property.shape, property.of(fields).filter(|document| !document.is_null())?)
                }
                Kind::Map(values) => (&**values, fields.get(key)?),
                _ => return None,
            };
        }
        Some(at)
    }

    /// The property that an identifier selects.
    fn property(&self, identifier: &str) -> Option<&Property> {
        let Kind::Object(properties) = &self.kind else { return None };
        let found = if properties.len() <= SCANNED_MAX {
            properties.iter().find(|property| property.identifier.as_str() == identifier)
        } else {
            let found = properties.binary_search_by(|property| property.identifier.as_str().cmp(identifier));
            found.ok().and_then(|index| properties.get(index))
        };
        match found {
            Some(property) => Some(property),
            // The checker lets keywords pass unescaped.
            None => properties.iter().find(|property| *property.name == *identifier && names::is_keyword(identifier)),
        }
    }
}

impl Property {
    /// The property of a document. Documents of a schema have it in the same place, most often.
    #[inline]
    fn of<'v>(&self, fields: &'v json::Object) -> Option<&'v json::Value> {
        match fields.entry_at(self.place.load(Ordering::Relaxed)) {
            Some((name, value)) if *name == *self.name => Some(value),
            _ => self.look_for(fields),
        }
    }

    #[inline(never)]
    fn look_for<'v>(&self, fields: &'v json::Object) -> Option<&'v json::Value> {
        let place = fields.position(&self.name)?;
        self.place.store(place, Ordering::Relaxed);
        fields.entry_at(place).map(|(_, value)| value)
    }
}

fn failed(message: &str) -> Value<'static> {
    Value::Error(EvalError::other(message))
}

fn as_document(data: &HostData) -> &json::Value {
    let data: &dyn Any = data;
    data.downcast_ref().unwrap_or(&json::Value::Null)
}

/// Data without a type, kept as it is: expressions can compare it, and nothing else.
#[derive(Debug)]
struct PreservedValue(json::Value);

impl HostValue for PreservedValue {
    fn type_of(&self) -> Type {
        Type::opaque("unknown")
    }

    fn equals(&self, other: &dyn HostValue) -> bool {
        let other: &dyn Any = other;
        other.downcast_ref::<PreservedValue>().is_some_and(|other| self.0 == other.0)
    }

    fn text(&self) -> String {
        self.go_type_name().to_owned()
    }

    fn go_type_name(&self) -> &'static str {
        "*common.unknownPreserved"
    }
}

impl MapShape for Shape {
    fn len(&self, data: &HostData) -> usize {
        as_document(data).as_object().map_or(0, json::Object::len)
    }

    fn get<'v>(&'v self, data: &'v HostData, key: &Value<'_>) -> Option<Value<'v>> {
        let Value::String(key) = key else {
            return Some(Value::Error(EvalError::no_such_overload()));
        };
        let fields = as_document(data).as_object()?;
        match &self.kind {
            Kind::Object(_) => {
                let property = self.property(key)?;
                let document = property.of(fields)?;
                // Between properties, null is the same as absent.
                if document.is_null() { None } else { Some(property.shape.value(document)) }
            }
            Kind::Map(shape) => fields.get(key).map(|document| shape.value(document)),
            _ => None,
        }
    }

    fn read_path<'v>(&'v self, data: &'v HostData, path: &[Str<'_>], out: &mut Value<'v>) -> bool {
        match self.walk(as_document(data), path) {
            Some((shape, document)) => {
                *out = shape.value(document);
                true
            }
            None => false,
        }
    }

    fn text_at<'v>(&'v self, data: &'v HostData, path: &[Str<'_>]) -> Option<&'v str> {
        match self.walk(as_document(data), path)? {
            (Shape { kind: Kind::Text, .. }, json::Value::String(text)) => Some(text),
            _ => None,
        }
    }

    fn for_each<'v>(&'v self, data: &'v HostData, visit: &mut dyn FnMut(Value<'v>, Value<'v>) -> ControlFlow<()>) {
        let Some(fields) = as_document(data).as_object() else { return };
        match &self.kind {
            Kind::Object(properties) => {
                for property in properties {
                    let Some(document) = property.of(fields).filter(|document| !document.is_null()) else {
                        continue;
                    };
                    if visit(Value::str(&property.identifier), property.shape.value(document)).is_break() {
                        return;
                    }
                }
            }
            Kind::Map(shape) => {
                for (key, document) in fields.iter() {
                    if visit(Value::str(key), shape.value(document)).is_break() {
                        return;
                    }
                }
            }
            _ => {}
        }
    }
}

impl ListShape for Shape {
    fn len(&self, data: &HostData) -> usize {
        as_document(data).as_array().map_or(0, <[_]>::len)
    }

    fn get<'v>(&'v self, data: &'v HostData, index: usize) -> Option<Value<'v>> {
        match &self.kind {
            Kind::List(items, _) => as_document(data).as_array()?.get(index).map(|document| items.value(document)),
            _ => None,
        }
    }

    fn read<'v>(&'v self, data: &'v HostData, index: usize, out: &mut Value<'v>) -> bool {
        match (&self.kind, as_document(data)) {
            (Kind::List(items, _), json::Value::Array(documents)) if let Some(document) = documents.get(index) => {
                *out = items.value(document);
                true
            }
            _ => false,
        }
    }

    fn for_each<'v>(&'v self, data: &'v HostData, visit: &mut dyn FnMut(Value<'v>) -> ControlFlow<()>) {
        if let (Kind::List(items, _), Some(documents)) = (&self.kind, as_document(data).as_array()) {
            _ = documents.iter().try_for_each(|document| visit(items.value(document)));
        }
    }

    fn equals(&self, list: &List<'_>, other: &Value<'_>) -> Option<Result<bool, EvalError>> {
        let (Kind::List(_, meaning), Value::List(other)) = (&self.kind, other) else { return None };
        match meaning {
            ListMeaning::Set => Some(set_equals(list, other)),
            ListMeaning::Map(keys) => Some(map_list_equals(list, keys, other)),
            ListMeaning::Atomic | ListMeaning::Invalid(_) => None,
        }
    }

    fn concat<'v>(&self, list: &List<'v>, other: &Value<'v>) -> Option<Result<Vec<Value<'v>>, EvalError>> {
        let (Kind::List(_, meaning), Value::List(other)) = (&self.kind, other) else { return None };
        match meaning {
            ListMeaning::Set => Some(add_to_set(list.to_vec(), other)),
            ListMeaning::Map(keys) => Some(Ok(add_to_map_list(list.to_vec(), keys, other))),
            ListMeaning::Atomic | ListMeaning::Invalid(_) => None,
        }
    }
}

/// Identity of an element of a set.
fn set_key(element: &Value<'_>) -> Result<String, EvalError> {
    match element {
        Value::List(_) | Value::Map(_) => {
            Err(EvalError::other("listSet operations are only supported on lists of scalar values"))
        }
        Value::Error(error) => Err(error.clone()),
        Value::Unknown(_) => Err(EvalError::undetermined()),
        scalar => Ok(format!("{}:{scalar}", scalar.type_name())),
    }
}

fn set_equals(list: &List<'_>, other: &List<'_>) -> Result<bool, EvalError> {
    if list.len() != other.len() {
        return Ok(false);
    }
    let own = list.iter().map(|element| set_key(&element)).collect::<Result<HashSet<_>, _>>()?;
    let mut seen = HashSet::with_capacity(own.len());
    for element in other.iter() {
        let key = set_key(&element)?;
        if !own.contains(&key) {
            return Ok(false);
        }
        seen.insert(key);
    }
    Ok(seen.len() == own.len())
}

fn add_to_set<'v>(mut elements: Vec<Value<'v>>, other: &List<'v>) -> Result<Vec<Value<'v>>, EvalError> {
    let mut keys = elements.iter().map(set_key).collect::<Result<HashSet<_>, _>>()?;
    for element in other.iter() {
        if keys.insert(set_key(&element)?) {
            elements.push(element);
        }
    }
    Ok(elements)
}

/// Identity of an element of a list of objects: the values of its keys, as text.
fn element_key(element: &Value<'_>, keys: &[Box<str>]) -> String {
    let mut text = String::new();
    for key in keys {
        let value = match element {
            Value::Map(map) => map.get(&Value::str(key)),
            _ => None,
        };
        match value {
            Some(value) => text.push_str(&format!("{}:{value}\0", value.type_name())),
            None => text.push('\0'),
        }
    }
    text
}

/// Elements with known keys replace those that have them, and keep their place; others follow.
fn add_to_map_list<'v>(mut elements: Vec<Value<'v>>, keys: &[Box<str>], other: &List<'v>) -> Vec<Value<'v>> {
    let mut places: HashMap<String, usize> = HashMap::with_capacity(elements.len());
    for (place, element) in elements.iter().enumerate() {
        // Of elements with equal keys the first one is replaced.
        places.entry(element_key(element, keys)).or_insert(place);
    }
    for element in other.iter() {
        let place = *places.entry(element_key(&element, keys)).or_insert(elements.len());
        match elements.get_mut(place) {
            Some(earlier) => *earlier = element,
            None => elements.push(element),
        }
    }
    elements
}

fn map_list_equals(list: &List<'_>, keys: &[Box<str>], other: &List<'_>) -> Result<bool, EvalError> {
    if list.len() != other.len() {
        return Ok(false);
    }
    // Of elements with equal keys the last one counts.
    let own: HashMap<_, _> = list.iter().map(|element| (element_key(&element, keys), element)).collect();
    let is_document = matches!(list, List::Shaped(..));
    let mut seen = HashSet::with_capacity(own.len());
    for element in other.iter() {
        // To a list of a document, an object that an expression wrote has no identity: it equals none.
        if is_document && !matches!(element, Value::Map(Map::Shaped(..))) {
            return Ok(false);
        }
        let key = element_key(&element, keys);
        let Some(own) = own.get(&key) else { return Ok(false) };
        if !own.equals_in_evaluation(&element)? {
            return Ok(false);
        }
        seen.insert(key);
    }
    Ok(seen.len() == own.len())
}
