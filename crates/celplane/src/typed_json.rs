//! Values as JSON that keeps their types: `{"int":"-1"}`, `{"list":[…]}`, `{"map":[[key,value],…]}`.
//!
//! The format of recorded evaluations: what `cel batch` reads and writes. Numbers are text, so that no reader rounds them.

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cel::types::Type;
use cel::value::{Bytes, Duration, Map, Timestamp, Value, double_text};
use serde_json::{Value as Json, json};

/// Writes a value. Maps are sorted by the text of their keys; objects of the host are maps of their fields.
pub(crate) fn encode(value: &Value<'_>) -> Json {
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
        Value::Unknown(unknown) => json!({ "unknown": unknown.names().collect::<Vec<_>>() }),
        Value::Error(error) => json!({ "error": error.message() }),
    }
}

/// Reads a value. Opaque values belong to libraries and cannot be read.
pub(crate) fn decode(json: &Json) -> anyhow::Result<Value<'static>> {
    let object = json.as_object().filter(|object| object.len() == 1);
    let (kind, content) = object.and_then(|object| object.iter().next()).with_context(|| misfit(json))?;
    let text = || content.as_str().with_context(|| misfit(json));
    Ok(match kind.as_str() {
        "null" => Value::Null,
        "bool" => Value::Bool(content.as_bool().with_context(|| misfit(json))?),
        "int" => Value::Int(text()?.parse().with_context(|| misfit(json))?),
        "uint" => Value::Uint(text()?.parse().with_context(|| misfit(json))?),
        "double" => Value::Double(text()?.parse().with_context(|| misfit(json))?),
        "string" => Value::string(text()?),
        "bytes" => Value::Bytes(Bytes::Shared(STANDARD.decode(text()?).with_context(|| misfit(json))?.into())),
        "duration" => Value::Duration(duration(text()?)?),
        "timestamp" => Value::Timestamp(timestamp(text()?)?),
        "list" => {
            let elements = content.as_array().with_context(|| misfit(json))?;
            Value::list(elements.iter().map(decode).collect::<anyhow::Result<_>>()?)
        }
        "map" => {
            let entries =
                content.as_array().with_context(|| misfit(json))?.iter().map(|entry| match entry.as_array() {
                    Some(pair) => match pair.as_slice() {
                        [key, value] => Ok((decode(key)?, decode(value)?)),
                        _ => bail!(misfit(json)),
                    },
                    None => bail!(misfit(json)),
                });
            Value::Map(Map::from_entries(entries.collect::<anyhow::Result<Vec<_>>>()?)?)
        }
        "type" => Value::Type(Type::parse(text()?).with_context(|| misfit(json))?),
        "optional" if content.is_null() => Value::NONE,
        "optional" => Value::some(decode(content)?),
        _ => bail!(misfit(json)),
    })
}

/// Reads a duration as Go does: `1h30m`, `1.5s`.
pub(crate) fn duration(text: &str) -> anyhow::Result<Duration> {
    Duration::parse(text).with_context(|| format!("`{text}` is no duration"))
}

/// Reads a point in time in the form of RFC 3339.
pub(crate) fn timestamp(text: &str) -> anyhow::Result<Timestamp> {
    Ok(Timestamp::parse(text).with_context(|| format!("`{text}` is no timestamp"))??)
}

fn misfit(json: &Json) -> String {
    format!("`{json}` is no typed value")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
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
    fn what_is_no_typed_value_is_shown() {
        for text in ["1", r#"{"int":1}"#, r#"{"int":"x"}"#, r#"{"map":[[{"int":"1"}]]}"#, r#"{"int":"1","uint":"1"}"#] {
            let error = decode(&serde_json::from_str(text).unwrap()).unwrap_err();
            assert_eq!(error.to_string(), format!("`{text}` is no typed value"));
        }
    }
}
