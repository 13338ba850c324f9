//! Variables from the command line: `NAME[:TYPE]=VALUE`.
//!
//! Without a type the value is JSON, or else a string: `x=1`, `l=[1,2]`, `s=hello`. With one, it is read as that type, in the
//! notation of function signatures: `u:uint=1`, `t:timestamp=2026-01-01T00:00:00Z`, `a:dyn=[1, "x"]`.

use std::str::FromStr;

use anyhow::{Context, anyhow, bail};
use api::json;
use base64::Engine;
use cel::types::Type;
use cel::value::{Duration, Map, Timestamp, Value};
use serde_json::Value as Json;

/// A variable: its name, type and value.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    /// The name.
    pub(crate) name: String,
    /// The declared or inferred type.
    pub(crate) of: Type,
    /// The value.
    pub(crate) value: Value<'static>,
    /// The type was given.
    pub(crate) is_declared: bool,
    /// Text behind `=`.
    pub(crate) text: String,
}

impl FromStr for Variable {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (declaration, value) = text.split_once('=').context("expected NAME=VALUE or NAME:TYPE=VALUE")?;
        let (name, of) = match declaration.split_once(':') {
            Some((name, notation)) => {
                let of = Type::parse(notation).filter(is_of_the_language);
                let of = of.ok_or_else(|| anyhow!("`{notation}` is not a type"))?;
                (name, Some(of))
            }
            None => (declaration, None),
        };
        if !is_name(name) {
            bail!("`{name}` is not a name");
        }
        let (text, is_declared) = (value.to_owned(), of.is_some());
        let value = from_text(value, of.as_ref().unwrap_or(&Type::Dyn))?;
        let of = of.unwrap_or_else(|| infer(&value));
        Ok(Variable { name: name.to_owned(), of, value, is_declared, text })
    }
}

impl Variable {
    /// The text as a document.
    pub(crate) fn document(&self) -> json::Value {
        json::parse(self.text.as_bytes()).unwrap_or_else(|_| json::Value::from(self.text.as_str()))
    }

    /// A variable of a file: its type follows from its value.
    pub(crate) fn of_file(name: &str, document: &json::Value) -> anyhow::Result<Variable> {
        let value = from_document(document, &Type::Dyn).with_context(|| format!("input `{name}`"))?;
        let (of, text) = (infer(&value), String::new());
        Ok(Variable { name: name.to_owned(), of, value, is_declared: false, text })
    }
}

/// Parses a text as a value of a type.
pub(crate) fn from_text(text: &str, value_type: &Type) -> anyhow::Result<Value<'static>> {
    // What is not JSON is text, so that quotes are seldom needed.
    let json = serde_json::from_str(text).unwrap_or_else(|_| Json::String(text.to_owned()));
    match value_type {
        // The text of a string is what was written, even if it looks like JSON.
        Type::String if !json.is_string() => Ok(Value::string(text)),
        value_type => from_json(&json, value_type),
    }
}

/// Reads a document as a value of a type.
pub(crate) fn from_document(document: &json::Value, value_type: &Type) -> anyhow::Result<Value<'static>> {
    from_json(&serde_json::from_str(&json::to_string(document))?, value_type)
}

/// Whether values of the type can be written: not for type parameters and the types of libraries.
fn is_of_the_language(value_type: &Type) -> bool {
    match value_type {
        Type::List(element) => is_of_the_language(element),
        Type::Map(types) => is_of_the_language(&types.0) && is_of_the_language(&types.1),
        Type::Opaque(_) | Type::Object(_) | Type::Param(_) => false,
        _ => true,
    }
}

/// Dots are allowed: a variable can stand in a namespace.
fn is_name(text: &str) -> bool {
    text.split('.').all(|part| {
        let mut bytes = part.bytes();
        bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

/// Reads JSON as a value of a type. Where the type leaves it open, whole numbers are `int`.
fn from_json(json: &Json, value_type: &Type) -> anyhow::Result<Value<'static>> {
    Ok(match (json, value_type) {
        (Json::Null, _) => Value::Null,
        (Json::Bool(truth), Type::Bool | Type::Dyn | Type::Any) => Value::Bool(*truth),
        (Json::Number(number), Type::Uint) => Value::Uint(number.as_u64().context("not an unsigned integer")?),
        (Json::Number(number), Type::Double) => Value::Double(number.as_f64().context("not a number")?),
        (Json::Number(number), Type::Int) => Value::Int(number.as_i64().context("not a 64-bit integer")?),
        (Json::Number(number), Type::Dyn | Type::Any) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(number), _, _) => Value::Int(number),
            (_, Some(number), _) => Value::Uint(number),
            (_, _, number) => Value::Double(number.context("not a number")?),
        },
        (Json::String(text), Type::String | Type::Dyn | Type::Any) => Value::string(text.as_str()),
        (Json::String(text), Type::Bytes) => {
            let bytes =
                base64::engine::general_purpose::STANDARD.decode(text).context("bytes are written in Base64")?;
            Value::Bytes(cel::value::Bytes::Shared(bytes.into()))
        }
        (Json::String(text), Type::Timestamp) => Value::Timestamp(timestamp(text)?),
        (Json::String(text), Type::Duration) => Value::Duration(duration(text)?),
        (Json::Array(elements), Type::List(element)) => list(elements, element)?,
        (Json::Array(elements), Type::Dyn | Type::Any) => list(elements, &Type::Dyn)?,
        (Json::Object(entries), Type::Map(types)) => map(entries, &types.0, &types.1)?,
        (Json::Object(entries), Type::Dyn | Type::Any) => map(entries, &Type::String, &Type::Dyn)?,
        _ => bail!("`{json}` is not of type {value_type}"),
    })
}

/// Reads a duration as Go does: `1h30m`, `1.5s`.
fn duration(text: &str) -> anyhow::Result<Duration> {
    Duration::parse(text).with_context(|| format!("`{text}` is not a duration"))
}

/// Reads a point in time in the form of RFC 3339.
fn timestamp(text: &str) -> anyhow::Result<Timestamp> {
    Ok(Timestamp::parse(text).with_context(|| format!("`{text}` is not a timestamp"))??)
}

fn list(elements: &[Json], of: &Type) -> anyhow::Result<Value<'static>> {
    Ok(Value::list(elements.iter().map(|element| from_json(element, of)).collect::<anyhow::Result<_>>()?))
}

fn map(entries: &serde_json::Map<String, Json>, key: &Type, value_type: &Type) -> anyhow::Result<Value<'static>> {
    let entries = entries.iter().map(|(name, value)| Ok((map_key(name, key)?, from_json(value, value_type)?)));
    let entries = entries.collect::<anyhow::Result<Vec<_>>>()?;
    Ok(Value::Map(Map::from_entries(entries)?))
}

/// Parses the key of a map. JSON has only strings as keys, so that keys of other types are parsed from their text.
fn map_key(text: &str, value_type: &Type) -> anyhow::Result<Value<'static>> {
    match value_type {
        Type::String | Type::Dyn | Type::Any => Ok(Value::string(text)),
        _ => from_json(
            &serde_json::from_str(text).with_context(|| format!("`{text}` is not of type {value_type}"))?,
            value_type,
        ),
    }
}

/// The type of a value, of its elements too, where they all have one.
fn infer(value: &Value<'_>) -> Type {
    match value {
        Value::List(list) => Type::list(common(list.iter())),
        Value::Map(map) => {
            let entries = map.entries();
            let keys = common(entries.iter().map(|(key, _)| key.clone()));
            Type::map(keys, common(entries.into_iter().map(|(_, value)| value)))
        }
        other => other.type_of(),
    }
}

fn common<'v>(values: impl Iterator<Item = Value<'v>>) -> Type {
    let mut types = values.map(|value| infer(&value));
    match types.next() {
        Some(first) if types.all(|other| other == first) => first,
        _ => Type::Dyn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(argument: &str, of: &str, literal: &str) {
        let variable: Variable = argument.parse().unwrap();
        assert_eq!((variable.of.to_string().as_str(), crate::literal::text(&variable.value).as_str()), (of, literal));
    }

    #[test]
    fn types_are_inferred_from_json() {
        check("x=1", "int", "1");
        check("x=18446744073709551615", "uint", "18446744073709551615u");
        check("x=1.5", "double", "1.5");
        check("x=hello world", "string", r#""hello world""#);
        check(r#"x="true""#, "string", r#""true""#);
        check("x=[1, 2]", "list(int)", "[1, 2]");
        check(r#"x=[1, "a"]"#, "list(dyn)", r#"[1, "a"]"#);
        check(r#"x={"a": [true]}"#, "map(string, list(bool))", r#"{"a": [true]}"#);
        check("x=[]", "list(dyn)", "[]");
        check("x=null", "null_type", "null");
        check("a.b=1=2", "string", r#""1=2""#);
    }

    #[test]
    fn declared_types_decide_how_a_value_is_read() {
        check("x:uint=1", "uint", "1u");
        check("x:double=1", "double", "1.0");
        check("x:string=1", "string", r#""1""#);
        check("x:bytes=AAE=", "bytes", r#"b"\x00\x01""#);
        check("x:duration=90s", "google.protobuf.Duration", r#"duration("90s")"#);
        check("x:map(int, list(double))={\"1\": [2]}", "map(int, list(double))", "{1: [2.0]}");
        check("x:dyn=[1]", "dyn", "[1]");
    }

    #[test]
    fn mistakes_are_named() {
        for (argument, message) in [
            ("x", "expected NAME=VALUE or NAME:TYPE=VALUE"),
            ("1x=1", "`1x` is not a name"),
            ("x:list(int=1", "`list(int` is not a type"),
            ("x:int=a", "`\"a\"` is not of type int"),
            ("x:uint=-1", "not an unsigned integer"),
        ] {
            assert_eq!(argument.parse::<Variable>().unwrap_err().to_string(), message);
        }
    }
}
