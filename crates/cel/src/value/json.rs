//! Conversion between CEL values and `serde_json` values (feature `serde_json`).
//!
//! A document is lent to an evaluation in place, without a copy. Its objects become maps, its arrays lists, and its numbers
//! `int` where they fit, `uint` above that, and `double` otherwise.
//!
//! A result becomes JSON as protocol buffers define it: bytes in base64, durations as `1.5s`, timestamps in RFC 3339, map keys
//! as text.

use std::ops::ControlFlow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;

use super::{HostData, List, ListShape, Map, MapShape, Value};

/// Nesting at which a conversion to JSON is given up. Readers of JSON commonly stop at 128.
const MAX_DEPTH: usize = 128;

/// The value has no form in JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToJsonError {
    /// A type without a JSON form, such as `type` or a type of the host.
    #[error("a value of type {0} has no JSON form")]
    UnsupportedType(String),
    /// A number that JSON cannot write: infinite or not a number.
    #[error("{0} is not a number in JSON")]
    NotFinite(String),
    /// Lists and maps nested too deep.
    #[error("nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// An element or entry that could not be evaluated.
    #[error("{0}")]
    Failed(String),
}

impl<'a> From<&'a Json> for Value<'a> {
    fn from(document: &'a Json) -> Self {
        match document {
            Json::Null => Value::Null,
            Json::Bool(truth) => Value::Bool(*truth),
            Json::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(int), _) => Value::Int(int),
                (None, Some(uint)) => Value::Uint(uint),
                (None, None) => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Value::str(text),
            Json::Array(_) => Value::List(List::Shaped(document, &Document)),
            Json::Object(_) => Value::Map(Map::Shaped(document, &Document)),
        }
    }
}

impl TryFrom<&Value<'_>> for Json {
    type Error = ToJsonError;

    fn try_from(value: &Value<'_>) -> Result<Self, ToJsonError> {
        to_json(value, 0)
    }
}

fn to_json(value: &Value<'_>, depth: usize) -> Result<Json, ToJsonError> {
    if depth > MAX_DEPTH {
        return Err(ToJsonError::TooDeep);
    }
    let below = depth.saturating_add(1);
    Ok(match value {
        Value::Null | Value::Optional(None) => Json::Null,
        Value::Bool(truth) => Json::Bool(*truth),
        Value::Int(number) => Json::from(*number),
        Value::Uint(number) => Json::from(*number),
        Value::Double(number) => match serde_json::Number::from_f64(*number) {
            Some(number) => Json::Number(number),
            None => return Err(ToJsonError::NotFinite(number.to_string())),
        },
        Value::String(text) => Json::from(&**text),
        Value::Bytes(bytes) => Json::from(STANDARD.encode(&**bytes)),
        Value::Duration(duration) => Json::from(duration.exact_text()),
        Value::Timestamp(timestamp) => Json::from(timestamp.rfc3339()),
        Value::List(list) => {
            Json::Array(list.iter().map(|element| to_json(&element, below)).collect::<Result<_, _>>()?)
        }
        Value::Map(map) => {
            let entries = map.entries();
            Json::Object(
                entries
                    .iter()
                    .map(|(key, value)| Ok((key_text(key)?, to_json(value, below)?)))
                    .collect::<Result<_, _>>()?,
            )
        }
        Value::Optional(Some(present)) => to_json(present, below)?,
        Value::Object(object) => {
            let mut fields = Ok(serde_json::Map::new());
            object.for_each(&mut |name, value| match (&mut fields, to_json(&value, below)) {
                (Ok(fields), Ok(value)) => {
                    fields.insert(name.to_owned(), value);
                    ControlFlow::Continue(())
                }
                (outcome, Err(error)) => {
                    *outcome = Err(error);
                    ControlFlow::Break(())
                }
                (Err(_), Ok(_)) => ControlFlow::Break(()),
            });
            Json::Object(fields?)
        }
        Value::Error(error) => return Err(ToJsonError::Failed(error.to_string())),
        Value::Type(_) | Value::Opaque(_) | Value::Unknown(_) => {
            return Err(ToJsonError::UnsupportedType(value.type_name().into_owned()));
        }
    })
}

fn key_text(key: &Value<'_>) -> Result<String, ToJsonError> {
    match key {
        Value::String(text) => Ok(text.to_string()),
        Value::Bool(_) | Value::Int(_) | Value::Uint(_) => Ok(key.to_string()),
        other => Err(ToJsonError::UnsupportedType(other.type_name().into_owned())),
    }
}

/// The shape of every document.
#[derive(Debug)]
struct Document;

fn document(data: &HostData) -> &Json {
    data.downcast_ref().unwrap_or(&Json::Null)
}

impl MapShape for Document {
    fn len(&self, data: &HostData) -> usize {
        document(data).as_object().map_or(0, serde_json::Map::len)
    }

    fn get<'v>(&'v self, data: &'v HostData, key: &Value<'_>) -> Option<Value<'v>> {
        document(data).get(key.as_str()?).map(Value::from)
    }

    fn for_each<'v>(&'v self, data: &'v HostData, visit: &mut dyn FnMut(Value<'v>, Value<'v>) -> ControlFlow<()>) {
        for (key, field) in document(data).as_object().into_iter().flatten() {
            if visit(Value::str(key), Value::from(field)).is_break() {
                return;
            }
        }
    }
}

impl ListShape for Document {
    fn len(&self, data: &HostData) -> usize {
        document(data).as_array().map_or(0, Vec::len)
    }

    fn get<'v>(&'v self, data: &'v HostData, index: usize) -> Option<Value<'v>> {
        document(data).as_array()?.get(index).map(Value::from)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::env::Env;
    use crate::library;
    use crate::program::{Bindings, Program};
    use crate::types::Type;

    #[track_caller]
    fn check(expression: &str, expected: Json) {
        let document =
            json!({"name": "a", "count": 3, "big": u64::MAX, "ratio": 0.5, "none": null, "list": [1, {"k": "v"}]});
        let env = Env::builder()
            .library(&library::standard())
            .library(&library::optionals(2))
            .variable("self", Type::Dyn)
            .build()
            .unwrap();
        let program = Program::new(&env.compile(expression).unwrap()).unwrap();
        let input = Bindings::new().bind("self", &document);
        let found = program.eval(&input).result.map_or_else(
            |error| json!({"error": error.to_string()}),
            |value| Json::try_from(&value).unwrap_or_else(|error| json!({"no form": error.to_string()})),
        );
        assert_eq!(found, expected, "{expression}");
    }

    #[test]
    fn documents_are_read_in_place() {
        check(
            "self",
            json!({"name": "a", "count": 3, "big": u64::MAX, "ratio": 0.5, "none": null, "list": [1, {"k": "v"}]}),
        );
        check("self.count + 1", json!(4));
        check("self.big == 18446744073709551615u", json!(true));
        check("self.list[1].k + self.name", json!("va"));
        check("has(self.none) && !has(self.nothing)", json!(true));
        check("self.nothing", json!({"error": "no such key: nothing"}));
    }

    #[test]
    fn results_become_json() {
        check("{1: b'ab', true: duration('90s')}", json!({"1": "YWI=", "true": "90s"}));
        check("timestamp('2024-01-01T00:00:00Z')", json!("2024-01-01T00:00:00Z"));
        check("[optional.none(), optional.of(2)]", json!([null, 2]));
        check("type(1)", json!({"no form": "a value of type type has no JSON form"}));
        check("1.0 / 0.0", json!({"no form": "inf is not a number in JSON"}));
    }

    #[test]
    fn nesting_is_bounded() {
        let mut value = Value::list(Vec::new());
        for _ in 0..200 {
            value = Value::list(vec![value]);
        }
        assert_eq!(Json::try_from(&value), Err(ToJsonError::TooDeep));
    }
}
