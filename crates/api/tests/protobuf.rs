//! Objects mean the same in protobuf and in JSON, byte for byte where Go wrote both.

use api::json::Value;
use api::types::protobuf::{self, Envelope, ProtobufError};
use api::types::{self, Type};
use api::{base64, json};

fn type_of(api_version: &str, kind: &str) -> &'static Type {
    let found = types::by_api_version(api_version, kind).or_else(|| types::by_kind("meta.k8s.io", "v1", kind));
    found.unwrap_or_else(|| panic!("no type {api_version} {kind}"))
}

/// The object in an envelope, in normal form.
fn decode(envelope: &Envelope<'_>) -> Value {
    let it = type_of(&envelope.api_version, &envelope.kind);
    let mut value = protobuf::read(it, envelope.raw).unwrap_or_else(|error| panic!("{error}: {envelope:?}"));
    let fields = value.as_object_mut().unwrap();
    fields.insert("kind", envelope.kind.as_str());
    fields.insert("apiVersion", envelope.api_version.as_str());
    let decoded = types::decode(it, &value).unwrap();
    assert_eq!(decoded.unknown_fields, [""; 0]);
    decoded.value
}

fn recorded() -> impl Iterator<Item = Value> {
    include_str!("data/protobuf.jsonl").lines().map(|line| json::parse(line.as_bytes()).unwrap())
}

#[test]
fn recorded_pairs_are_equal_in_both_directions() {
    let mut compared = 0;
    for row in recorded() {
        let Some(expected) = row.get("json") else { continue };
        let bytes = base64::decode(row.str_at(&["protobuf"]).unwrap()).unwrap();
        let envelope = Envelope::read(&bytes).unwrap();
        assert_eq!(json::to_string(&decode(&envelope)), json::to_string(expected));
        let it = type_of(&envelope.api_version, &envelope.kind);
        let written = protobuf::write_envelope(&envelope.api_version, &envelope.kind, &protobuf::write(it, expected));
        assert_eq!(base64::encode(&written), base64::encode(&bytes), "{}", envelope.kind);
        let mut from_text = Vec::new();
        protobuf::Writer::default().text(it, json::to_string(expected).as_bytes(), &mut from_text).unwrap();
        assert_eq!(from_text, protobuf::write(it, expected), "{}", envelope.kind);
        compared += 1;
    }
    assert_eq!(compared, 8);
}

#[test]
fn text_of_another_form_is_not_written() {
    let it = type_of("v1", "ConfigMap");
    let mut writer = protobuf::Writer::default();
    for text in [
        r#"{"metadata": {}}"#,
        r#"{"metadata":{"name":"a"},"data":{"b":"","a":""}}"#,
        r#"{"metadata":{"name":"a"}"#,
        r#"{"metadata":{"name":"a"}}x"#,
        r#"{"metadata":{"generation":"7"}}"#,
        r#"{"metadata":7}"#,
        "",
    ] {
        let mut out = vec![1, 2];
        assert_eq!(writer.text(it, text.as_bytes(), &mut out), None, "{text}");
        assert_eq!(out, [1, 2], "{text}");
    }
    let text = r#"{"metadata":{"name":"a\"<\u00fc","labels":{"a":"b","c":"d"}},"data":{"x":"1\n"},"unheard":[{}]}"#;
    let mut out = Vec::new();
    writer.text(it, text.as_bytes(), &mut out).unwrap();
    assert_eq!(out, protobuf::write(it, &json::parse(text.as_bytes()).unwrap()));
}

#[test]
fn kubectl_messages_are_read_without_loss() {
    let mut compared = 0;
    for row in recorded() {
        let Some(sent) = row.str_at(&["sent"]) else { continue };
        let bytes = base64::decode(sent).unwrap();
        let envelope = Envelope::read(&bytes).unwrap();
        let value = decode(&envelope);
        let it = type_of(&envelope.api_version, &envelope.kind);
        let written = protobuf::write_envelope(&envelope.api_version, &envelope.kind, &protobuf::write(it, &value));
        assert_eq!(base64::encode(&written), sent, "{}", json::to_string(&value));
        compared += 1;
    }
    assert_eq!(compared, 22);
}

#[test]
fn objects_in_normal_form_survive_the_way_there_and_back() {
    let (mut compared, mut from_texts) = (0, 0);
    let mut writer = protobuf::Writer::default();
    for line in include_str!("data/normal_forms.jsonl").lines() {
        let object = json::parse(line.as_bytes()).unwrap();
        let (Some(api_version), Some(kind)) = (object.str_at(&["apiVersion"]), object.str_at(&["kind"])) else {
            continue;
        };
        let Some(it) = types::by_api_version(api_version, kind) else { continue };
        let bytes = protobuf::write_envelope(api_version, kind, &protobuf::write(it, &object));
        let envelope = Envelope::read(&bytes).unwrap();
        // An empty list is the same as none.
        let shown = |value: &Value| json::to_string(value).replace(":[]", ":null");
        assert_eq!(shown(&decode(&envelope)), shown(&object), "{line}");
        // Written from the text it is the same, if its maps are sorted.
        let mut from_text = Vec::new();
        if writer.text(it, json::to_string(&object).as_bytes(), &mut from_text).is_some() {
            assert!(from_text == envelope.raw, "{line}");
            from_texts += 1;
        }
        compared += 1;
    }
    assert!(compared > 250, "{compared}");
    assert!(from_texts * 10 > compared * 9, "{from_texts} of {compared}");
}

#[test]
fn every_field_of_every_type_survives() {
    for (group, version, kind, it) in types::kinds() {
        let object = sample(types::Kind::Struct(it), "", 0);
        let normal = types::decode(it, &object).unwrap_or_else(|error| panic!("{group}/{version} {kind}: {error}"));
        let read = protobuf::read(it, &protobuf::write(it, &normal.value)).unwrap();
        let back = types::decode(it, &read).unwrap().value;
        assert_eq!(json::to_string(&back), json::to_string(&normal.value), "{group}/{version} {kind}");
    }
}

/// A value with everything set.
fn sample(kind: types::Kind, go_type: &str, depth: usize) -> Value {
    use types::Kind;
    match kind {
        Kind::Bool => true.into(),
        Kind::Int32 => (-7_i64).into(),
        Kind::Int64 => i64::MAX.into(),
        Kind::Float64 => json::parse(b"1.5").unwrap(),
        Kind::String => "a\u{e9}".into(),
        Kind::Bytes => "AAEC".into(),
        Kind::Quantity => "1500m".into(),
        Kind::IntOrString => "25%".into(),
        Kind::Time => "2026-01-02T03:04:05Z".into(),
        Kind::MicroTime => "2026-01-02T03:04:05.678901Z".into(),
        Kind::Duration => "1h2m3.5s".into(),
        Kind::SchemaOrBool => false.into(),
        Kind::SchemaOrList => json!([{"type": "string"}, {"type": "object", "properties": {"a": {"minimum": 2}}}]),
        Kind::Any if go_type.contains("v1alpha3.") => Value::Null,
        Kind::Any if go_type.ends_with("JSONSchemaDependencies") => json!(["a"]),
        Kind::Any => json!({"a": [1, 2.5, null, "x"]}),
        Kind::List(inner) => match sample(*inner, go_type, depth) {
            Value::Null => Value::Null,
            item => Value::Array(vec![item.clone(), item]),
        },
        Kind::Map(inner) => json!({"k": (sample(*inner, go_type, depth)), "": (sample(*inner, go_type, depth))}),
        Kind::Struct(it) => {
            // Schemas are recursive.
            let fields = it.fields.iter().filter(|field| depth < 7 || field.kind.struct_type().is_none());
            let fields = fields.filter(|field| {
                let deep = matches!(field.kind, Kind::SchemaOrBool | Kind::SchemaOrList);
                it.name != "JSONSchemaProps" || !(deep || field.kind.struct_type() == Some(it))
            });
            // Kind and version of an object travel in the envelope.
            let fields = fields.filter(|field| field.number != 0);
            let fields = fields.map(|field| (field.name, sample(field.kind, field.go_type, depth + 1)));
            Value::Object(fields.filter(|(_, value)| !value.is_null()).collect())
        }
    }
}

#[track_caller]
fn refused(kind: &str, bytes: &[u8], expected: &str) {
    let error = protobuf::read(type_of("v1", kind), bytes).unwrap_err();
    assert_eq!(error, ProtobufError::Malformed(expected.to_owned()));
}

#[test]
fn broken_messages_are_refused_in_the_words_of_go() {
    let envelope = |bytes: &[u8]| Envelope::read(bytes).unwrap_err().to_string();
    assert_eq!(envelope(b""), "empty data");
    assert_eq!(envelope(b"k8s\0"), "empty body");
    assert_eq!(
        envelope(b"{}"),
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
    );
    assert_eq!(envelope(b"k8s\0garbage"), "proto: illegal wireType 7");
    assert_eq!(envelope(b"k8s\0\x08\x01"), "proto: wrong wireType = 0 for field TypeMeta");
    refused("ConfigMap", &[0x0a, 0x05, 0x0a], "unexpected EOF");
    refused("ConfigMap", &[0x0a, 0x02, 0x0a, 0x05], "unexpected EOF");
    refused("ConfigMap", &[0xff; 12], "proto: integer overflow");
    refused("ConfigMap", &[0x00], "proto: ConfigMap: illegal tag 0 (wire type 0)");
    refused("ConfigMap", &[0x0c], "proto: ConfigMap: wiretype end group for non-group");
    refused("ConfigMap", &[0x08, 0x01], "proto: wrong wireType = 0 for field ObjectMeta");
    let negative = [0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    refused("ConfigMap", &negative, "proto: negative length found during unmarshaling");
}

#[test]
fn unknown_fields_are_passed_over_and_parts_merged() {
    let read = |bytes: &[u8]| json::to_string(&protobuf::read(type_of("v1", "ConfigMap"), bytes).unwrap());
    // Number 100 as varint, fixed, text and group; the name in two parts of the metadata, the last one wins.
    let unknown: &[u8] = &[0xa0, 0x06, 0x01, 0xa5, 0x06, 0, 0, 0, 0, 0xa3, 0x06, 0x08, 0x01, 0xa4, 0x06];
    assert_eq!(read(unknown), "{}");
    assert_eq!(
        read(&[0x0a, 3, 0x0a, 1, b'a', 0x0a, 6, 0x1a, 1, b'n', 0x0a, 1, b'b']),
        r#"{"metadata":{"name":"b","namespace":"n"}}"#
    );
    // Entries of a map: twice the same key, one without a value.
    let data = [0x12, 6, 0x0a, 1, b'k', 0x12, 1, b'1', 0x12, 6, 0x0a, 1, b'k', 0x12, 1, b'2', 0x12, 3, 0x0a, 1, b'e'];
    assert_eq!(read(&data), r#"{"data":{"e":"","k":"2"}}"#);
}

#[test]
fn a_damaged_message_is_read_as_another_or_refused() {
    let (mut read, mut refused) = (0, 0);
    for row in recorded() {
        let text = row.str_at(&["sent"]).or_else(|| row.str_at(&["protobuf"])).unwrap();
        let mut bytes = base64::decode(text).unwrap();
        for at in (0..bytes.len()).step_by(3) {
            let before = bytes[at];
            for damage in [before ^ 1, before.wrapping_add(8), 0xff] {
                bytes[at] = damage;
                match Envelope::read(&bytes) {
                    Err(_) => refused += 1,
                    Ok(envelope) => {
                        let Some(it) = types::by_api_version(&envelope.api_version, &envelope.kind) else { continue };
                        let value = protobuf::read(it, envelope.raw).ok();
                        let normal = value.and_then(|value| types::decode(it, &value).ok());
                        match normal {
                            None => refused += 1,
                            Some(normal) => {
                                let again = protobuf::read(it, &protobuf::write(it, &normal.value)).unwrap();
                                let again = types::decode(it, &again).unwrap();
                                let shown = |value: &Value| json::to_string(value).replace(":[]", ":null");
                                assert_eq!(shown(&again.value), shown(&normal.value));
                                read += 1;
                            }
                        }
                    }
                }
            }
            bytes[at] = before;
        }
    }
    assert!(read > 1000 && refused > 1000, "{read} {refused}");
}

#[test]
fn depth_is_bounded() {
    // spec.versions[0].schema.openAPIV3Schema.not.not…
    let it = type_of("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let not = u64::from(it.field_at(&["spec", "versions", "schema", "openAPIV3Schema", "not"]).unwrap().number);
    let nest = |levels: usize| {
        let mut message = Vec::new();
        let wrap = |number: u64, message: &[u8]| {
            let mut out = Vec::new();
            for mut value in [number << 3 | 2, message.len() as u64] {
                while value >= 0x80 {
                    out.push((value & 0x7f) as u8 | 0x80);
                    value >>= 7;
                }
                out.push(value as u8);
            }
            out.extend(message);
            out
        };
        for _ in 0..levels {
            message = wrap(not, &message);
        }
        for path in [&["spec", "versions", "schema", "openAPIV3Schema"][..], &["spec", "versions", "schema"]] {
            message = wrap(u64::from(it.field_at(path).unwrap().number), &message);
        }
        message = wrap(u64::from(it.field_at(&["spec", "versions"]).unwrap().number), &message);
        wrap(u64::from(it.field_at(&["spec"]).unwrap().number), &message)
    };
    assert!(protobuf::read(it, &nest(100)).is_ok());
    let error = protobuf::read(it, &nest(5000)).unwrap_err();
    assert_eq!(error.to_string(), "proto: message nested too deep");
}

#[test]
fn objects_in_lists_are_bounded() {
    // Empty owners of the metadata: two bytes each.
    let message = |count: usize| {
        let owners = [0x6a, 0].repeat(count);
        let mut length = owners.len();
        let mut message = vec![0x0a];
        while length > 0x7f {
            message.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        message.push(length as u8);
        message.extend(owners);
        message
    };
    let read = |count: usize| protobuf::read(type_of("v1", "ConfigMap"), &message(count));
    assert_eq!(read(json::ELEMENTS_MAX).unwrap().list_at(&["metadata", "ownerReferences"]).len(), json::ELEMENTS_MAX);
    let error = read(json::ELEMENTS_MAX + 1).unwrap_err();
    assert_eq!(error.to_string(), json::TOO_MANY_ELEMENTS);
}
