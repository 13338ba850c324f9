//! Values as JSON that keeps their types, as recorded cases have them.

use cel::value::{Bytes, Duration, Map, Timestamp, Value, double_text};
use serde_json::{Value as Json, json};

/// The recorded form of a value.
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
        Value::Bytes(bytes) => json!({ "bytes": base64(bytes) }),
        Value::Duration(duration) => json!({ "duration": duration.exact_text() }),
        Value::Timestamp(timestamp) => json!({ "timestamp": timestamp.with_offset(0).rfc3339() }),
        Value::List(list) => json!({ "list": list.iter().map(|element| encode(&element)).collect::<Vec<_>>() }),
        Value::Map(map) => {
            let entries = map.entries();
            let mut entries: Vec<_> = entries.iter().map(|(key, value)| json!([encode(key), encode(value)])).collect();
            entries.sort_by_key(|entry| entry[0].to_string());
            json!({ "map": entries })
        }
        Value::Type(of) => json!({ "type": of.name() }),
        Value::Optional(None) => json!({ "optional": null }),
        Value::Optional(Some(value)) => json!({ "optional": encode(value) }),
        other => panic!("no case has such a value: {other:?}"),
    }
}

/// The value that was recorded.
pub(crate) fn decode(json: &Json) -> Value<'static> {
    let (kind, content) = json.as_object().unwrap().iter().next().unwrap();
    let text = || content.as_str().unwrap();
    match kind.as_str() {
        "null" => Value::Null,
        "bool" => Value::Bool(content.as_bool().unwrap()),
        "int" => Value::Int(text().parse().unwrap()),
        "uint" => Value::Uint(text().parse().unwrap()),
        "double" => Value::Double(text().parse().unwrap()),
        "string" => Value::string(text()),
        "bytes" => Value::Bytes(Bytes::Shared(base64_decoded(text()).into())),
        "duration" => Value::Duration(Duration::parse(text()).unwrap()),
        "timestamp" => Value::Timestamp(Timestamp::parse(text()).unwrap().unwrap()),
        "list" => Value::list(content.as_array().unwrap().iter().map(decode).collect()),
        "map" => {
            let entries = content.as_array().unwrap().iter().map(|entry| (decode(&entry[0]), decode(&entry[1])));
            Value::Map(Map::from_entries(entries).unwrap())
        }
        "optional" if content.is_null() => Value::NONE,
        "optional" => Value::some(decode(content)),
        other => panic!("no case has such an input: {other}"),
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0_u32, |group, byte| group << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = ALPHABET[(group >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

fn base64_decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (mut group, mut bits) = (0_u32, 0);
    for digit in text.bytes().filter(|digit| *digit != b'=') {
        group = group << 6 | u32::try_from(ALPHABET.iter().position(|known| *known == digit).unwrap()).unwrap();
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((group >> bits & 255) as u8);
        }
    }
    bytes
}
