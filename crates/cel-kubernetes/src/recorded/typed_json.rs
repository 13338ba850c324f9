//! Values as JSON that keeps their types: `{"int":"-1"}`, `{"list":[…]}`, `{"map":[[key,value],…]}`.
//!
//! Numbers are text, so that no reader rounds them. This file depends only on the language, because the tests
//! of the crate `cel` include it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cel::types::Type;
use cel::value::{Bytes, Duration, Map, Timestamp, Value, double_text};
use serde_json::{Value as Json, json};

/// Writes a value. Maps are sorted by the text of their keys; objects of the host are maps of their fields.
pub fn encode(value: &Value<'_>) -> Json {
    match value {
        Value::Null => json!({ "null": null }),
        Value::Bool(truth) => json!({ "bool": truth }),
        Value::Int(number) => json!({ "int": number.to_string() }),
        Value::Uint(number) => json!({ "uint": number.to_string() }),
        Value::Double(number) if number.is_infinite() => {
            json!({ "double": if *number > 0.0 { "+Infinity" } else { "-Infinity" } })
        }
        Value::Double(number) => json!({ "double": double_text(*number) }),
        Value::String(text) => json!({ "string": text.as_str() }),
        Value::Bytes(bytes) => json!({ "bytes": STANDARD.encode(bytes.as_slice()) }),
        Value::Duration(duration) => json!({ "duration": duration.exact_text() }),
        Value::Timestamp(timestamp) => json!({ "timestamp": timestamp.with_offset(0).rfc3339() }),
        Value::List(list) => json!({ "list": list.iter().map(|element| encode(&element)).collect::<Vec<_>>() }),
        Value::Map(map) => {
            let entries = map.entries().into_iter().map(|(key, value)| (encode(&key), encode(&value)));
            let mut entries: Vec<(String, Json)> =
                entries.map(|(key, value)| (key.to_string(), json!([key, value]))).collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            json!({ "map": entries.into_iter().map(|(_, entry)| entry).collect::<Vec<_>>() })
        }
        Value::Type(of) => json!({ "type": of.name() }),
        Value::Optional(None) => json!({ "optional": null }),
        Value::Optional(Some(value)) => json!({ "optional": encode(value) }),
        Value::Object(_) => encode(&value.clone().into_owned()),
        Value::Opaque(opaque) => json!({ "opaque": { "type": opaque.type_of().name(), "text": opaque.text() } }),
        Value::Unknown(unknown) => json!({ "unknown": unknown.inputs().collect::<Vec<_>>() }),
        Value::Error(error) => json!({ "error": error.message() }),
    }
}

/// Text that is not a value in this form.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a typed value")]
pub struct Misfit(String);

/// Reads a value. Opaque values belong to libraries and cannot be read.
pub fn decode(json: &Json) -> Result<Value<'static>, Misfit> {
    let misfit = || Misfit(json.to_string());
    let object = json.as_object().filter(|object| object.len() == 1);
    let (kind, content) = object.and_then(|object| object.iter().next()).ok_or_else(misfit)?;
    if let ("list" | "map" | "optional", false) = (kind.as_str(), content.is_null()) {
        return decode_parts(kind, content)?.ok_or_else(misfit);
    }
    decode_scalar(kind, content).ok_or_else(misfit)
}

fn decode_parts(kind: &str, content: &Json) -> Result<Option<Value<'static>>, Misfit> {
    if kind == "optional" {
        return Ok(Some(Value::some(decode(content)?)));
    }
    let Some(parts) = content.as_array() else { return Ok(None) };
    if kind == "list" {
        return Ok(Some(Value::list(parts.iter().map(decode).collect::<Result<_, _>>()?)));
    }
    let mut entries = Vec::with_capacity(parts.len());
    for part in parts {
        let Some([key, value]) = part.as_array().map(Vec::as_slice) else { return Ok(None) };
        entries.push((decode(key)?, decode(value)?));
    }
    Ok(Map::from_entries(entries).ok().map(Value::Map))
}

fn decode_scalar(kind: &str, content: &Json) -> Option<Value<'static>> {
    Some(match kind {
        "null" => Value::Null,
        "bool" => Value::Bool(content.as_bool()?),
        "optional" => Value::NONE,
        _ => {
            let text = content.as_str()?;
            match kind {
                "int" => Value::Int(text.parse().ok()?),
                "uint" => Value::Uint(text.parse().ok()?),
                "double" => Value::Double(text.parse().ok()?),
                "string" => Value::string(text),
                "bytes" => Value::Bytes(Bytes::Shared(STANDARD.decode(text).ok()?.into())),
                "duration" => Value::Duration(Duration::parse(text)?),
                "timestamp" => Value::Timestamp(Timestamp::parse(text)?.ok()?),
                "type" => Value::Type(Type::parse(text)?),
                _ => return None,
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_values_round_trip() {
        for text in [
            r#"{"null":null}"#,
            r#"{"int":"-9223372036854775808"}"#,
            r#"{"uint":"18446744073709551615"}"#,
            r#"{"double":"1e+300"}"#,
            r#"{"double":"-0"}"#,
            r#"{"double":"NaN"}"#,
            r#"{"double":"-Infinity"}"#,
            r#"{"bytes":"AAH/"}"#,
            r#"{"duration":"-9223372036.854775808s"}"#,
            r#"{"timestamp":"2024-02-29T12:34:56.789Z"}"#,
            r#"{"map":[[{"bool":true},{"optional":null}],[{"string":"k"},{"list":[{"type":"int"}]}]]}"#,
            r#"{"optional":{"optional":{"string":"x"}}}"#,
        ] {
            let value = decode(&serde_json::from_str(text).unwrap()).unwrap();
            assert_eq!(encode(&value).to_string(), text);
        }
    }

    #[test]
    fn invalid_typed_value_is_shown() {
        for text in ["1", r#"{"int":1}"#, r#"{"int":"x"}"#, r#"{"map":[[{"int":"1"}]]}"#, r#"{"int":"1","uint":"1"}"#] {
            let error = decode(&serde_json::from_str(text).unwrap()).unwrap_err();
            assert_eq!(error.to_string(), format!("`{text}` is not a typed value"));
        }
    }
}
