//! The types for mutations: `Object{…}`, `Object.spec{…}` and `JSONPatch{…}`.
//!
//! Objects are not checked against a schema before they are applied: any field may have any value. Follows Kubernetes
//! `apiserver/pkg/cel/mutation`.

use api::json;
use cel::env::FieldType;
use cel::syntax::ast::Name;
use cel::types::Type;
use cel::value::{EvalError, HostValue, Value};

/// The type of whole objects; those of their fields are named after the path, `Object.spec.containers`.
pub(super) const OBJECT: &str = "Object";
/// The type of operations of a JSON patch.
pub(super) const JSON_PATCH: &str = "JSONPatch";

fn is_object(name: &str) -> bool {
    name.strip_prefix(OBJECT).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

pub(super) fn find_type(name: &str) -> Option<Type> {
    (name == JSON_PATCH || is_object(name)).then(|| Type::object(name))
}

pub(super) fn find_field(type_name: &str, field: &str) -> Option<FieldType> {
    let field_type = match (type_name, field) {
        (JSON_PATCH, "op" | "from" | "path") => Type::String,
        (JSON_PATCH, "value") => Type::Dyn,
        (name, _) if is_object(name) => Type::Dyn,
        _ => return None,
    };
    Some(FieldType { field_type })
}

pub(super) fn construct<'v>(type_name: &str, fields: Vec<(Name, Value<'v>)>) -> Result<Value<'v>, EvalError> {
    if type_name == JSON_PATCH {
        return operation(fields);
    }
    let fields = fields.into_iter().map(|(name, value)| Ok((name, value.into_owned_in_evaluation()?)));
    Ok(Value::opaque(ObjectValue { type_name: type_name.into(), fields: fields.collect::<Result<_, EvalError>>()? }))
}

fn operation<'v>(fields: Vec<(Name, Value<'v>)>) -> Result<Value<'v>, EvalError> {
    let mut operation = Operation::default();
    for (name, value) in fields {
        let slot = match name.as_str() {
            "op" => &mut operation.op,
            "path" => &mut operation.path,
            "from" => &mut operation.from,
            _ => {
                operation.value = Some(value.into_owned_in_evaluation()?);
                continue;
            }
        };
        let Some(text) = value.as_str() else {
            let found = value.go_type_name();
            return Err(EvalError::other(format!("unexpected type {found} for JSONPatchType '{name}' field")));
        };
        text.clone_into(slot);
    }
    Ok(Value::opaque(operation))
}

/// An object, or a part of one, that an expression made.
#[derive(Debug)]
pub(super) struct ObjectValue {
    type_name: Name,
    fields: Vec<(Name, Value<'static>)>,
}

impl ObjectValue {
    /// Finds parts whose type is named after another path than the one they are at; the text of all of them.
    pub(super) fn misplaced(&self) -> Option<String> {
        let mut found = Vec::new();
        misplaced(&self.type_name, self, &mut found);
        (!found.is_empty()).then(|| found.join("\n"))
    }

    /// The object as a document.
    ///
    /// # Errors
    /// A key of a map is not text, or a value has no form in JSON.
    pub(super) fn to_json(&self) -> Result<json::Value, String> {
        let mut object = json::Object::with_capacity(self.fields.len());
        for (name, value) in &self.fields {
            let value = to_json(value).map_err(|why| format!("fail to convert field {}: {why}", quote(name)))?;
            object.insert(name.as_str(), value);
        }
        Ok(json::Value::Object(object))
    }
}

fn quote(text: &str) -> String {
    api::go_text::quote(text)
}

fn misplaced(expected: &str, object: &ObjectValue, found: &mut Vec<String>) {
    if object.type_name.as_str() != expected {
        let (is, expected) = (quote(&object.type_name), quote(expected));
        found.push(format!(
            "unexpected type name {is}, expected {expected}, which matches field name path from root Object type"
        ));
    }
    for (name, value) in &object.fields {
        misplaced_in(&format!("{expected}.{name}"), value, found);
    }
}

/// Lists and maps in between are unnamed.
fn misplaced_in(expected: &str, value: &Value<'static>, found: &mut Vec<String>) {
    match value {
        Value::List(list) => list.iter().for_each(|element| misplaced_in(expected, &element, found)),
        Value::Map(map) => map.entries().iter().for_each(|(_, value)| misplaced_in(expected, value, found)),
        other => {
            if let Some(object) = other.as_opaque::<ObjectValue>() {
                misplaced(expected, object, found);
            }
        }
    }
}

impl HostValue for ObjectValue {
    fn type_of(&self) -> Type {
        Type::object(self.type_name.clone())
    }

    fn equals(&self, other: &dyn HostValue) -> bool {
        let other: &dyn std::any::Any = other;
        other.downcast_ref::<ObjectValue>().is_some_and(|other| {
            self.type_name == other.type_name && matches!((self.to_json(), other.to_json()), (Ok(a), Ok(b)) if a == b)
        })
    }

    fn text(&self) -> String {
        self.to_json().map_or_else(|why| why, |object| json::to_string(&object))
    }

    fn is_hashable(&self) -> bool {
        false
    }

    fn is_zero(&self) -> bool {
        self.fields.is_empty()
    }
}

/// One operation of a JSON patch that an expression made.
#[derive(Debug, Default)]
pub(super) struct Operation {
    op: String,
    path: String,
    from: String,
    value: Option<Value<'static>>,
}

impl Operation {
    /// The operation as a document.
    ///
    /// # Errors
    /// Its value has no form in JSON.
    pub(super) fn to_json(&self) -> Result<json::Value, String> {
        let mut operation = json::Object::new();
        operation.insert("op", self.op.as_str());
        operation.insert("path", self.path.as_str());
        if !self.from.is_empty() {
            operation.insert("from", self.from.as_str());
        }
        if let Some(value) = &self.value {
            if let Some(why) = value.as_opaque::<ObjectValue>().and_then(ObjectValue::misplaced) {
                return Err(format!("type mismatch: {why}"));
            }
            let value = to_json(value).map_err(|why| {
                format!("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {why}")
            })?;
            operation.insert("value", value);
        }
        Ok(json::Value::Object(operation))
    }
}

impl HostValue for Operation {
    fn type_of(&self) -> Type {
        Type::object(JSON_PATCH)
    }

    fn equals(&self, other: &dyn HostValue) -> bool {
        let other: &dyn std::any::Any = other;
        other
            .downcast_ref::<Operation>()
            .is_some_and(|other| matches!((self.to_json(), other.to_json()), (Ok(a), Ok(b)) if a == b))
    }

    fn text(&self) -> String {
        self.to_json().map_or_else(|why| why, |operation| json::to_string(&operation))
    }

    fn is_hashable(&self) -> bool {
        false
    }
}

/// Numbers beyond this are written as text, as protobuf does.
const INTEGER_MAX: i64 = (1 << 53) - 1;

/// The document of a value.
fn to_json(value: &Value<'_>) -> Result<json::Value, String> {
    Ok(match value {
        Value::Null => json::Value::Null,
        Value::Bool(truth) => json::Value::Bool(*truth),
        Value::Int(number) if number.unsigned_abs() <= INTEGER_MAX.unsigned_abs() => json::Value::Int(*number),
        Value::Int(number) => json::Value::String(number.to_string().into()),
        Value::Uint(number) => match i64::try_from(*number) {
            Ok(number) if number <= INTEGER_MAX => json::Value::Int(number),
            _ => json::Value::String(number.to_string().into()),
        },
        Value::Double(number) if number.fract() == 0.0 && number.abs() <= INTEGER_MAX as f64 => {
            json::Value::Int(*number as i64)
        }
        Value::Double(number) => json::Value::Float(json::Float::new(*number)),
        Value::String(text) => json::Value::String(text.as_str().into()),
        Value::Bytes(octets) => json::Value::String(api::base64::encode(octets).into()),
        Value::Duration(_) | Value::Timestamp(_) => match value.to_text() {
            Ok(text) => json::Value::String(text.as_str().unwrap_or_default().into()),
            Err(error) => return Err(error.to_string()),
        },
        Value::List(list) => json::Value::Array(list.iter().map(|it| to_json(&it)).collect::<Result<_, _>>()?),
        Value::Map(map) => {
            let mut object = json::Object::new();
            for (key, value) in map.entries() {
                let Some(name) = key.as_str() else {
                    return Err(format!(
                        "map key {} is of type {}, not string",
                        quote(&key.to_string()),
                        key.type_name()
                    ));
                };
                object.insert(name, to_json(&value)?);
            }
            json::Value::Object(object)
        }
        other => match other.as_opaque::<ObjectValue>() {
            Some(object) => object.to_json()?,
            None => return Err(format!("unsupported type conversion from '{}'", other.type_name())),
        },
    })
}
