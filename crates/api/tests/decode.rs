//! Objects are converted to the form of the reference, and rejected with its texts.

use api::json::{self, Object, Text, Value};
use api::types;

fn type_of(object: &Value) -> Option<&'static types::Type> {
    types::by_api_version(object.str_at(&["apiVersion"])?, object.str_at(&["kind"])?)
}

#[test]
fn server_responses_are_in_normal_form() {
    let mut compared = 0;
    for line in include_str!("data/normal_forms.jsonl").lines() {
        let object = json::parse(line.as_bytes()).unwrap();
        let Some(it) = type_of(&object) else { continue };
        let decoded = types::decode(it, &object).unwrap_or_else(|error| panic!("{error}\n{line}"));
        assert_eq!(decoded.unknown_fields, [""; 0], "{line}");
        assert_eq!(json::to_string(&decoded.value), json::to_string(&object), "{line}");
        compared += 1;
    }
    assert!(compared > 250, "{compared}");
}

#[test]
fn normal_form_does_not_depend_on_the_order_of_the_text() {
    for line in include_str!("data/normal_forms.jsonl").lines() {
        let mut object = json::parse(line.as_bytes()).unwrap();
        let Some(it) = type_of(&object) else { continue };
        let expected = types::decode(it, &object).unwrap();
        object.sort_keys();
        assert_eq!(
            json::to_string(&types::decode(it, &object).unwrap().value),
            json::to_string(&expected.value),
            "{line}"
        );
    }
}

#[test]
fn mismatches_are_rejected_with_texts_of_go() {
    for line in include_str!("data/decode.jsonl").lines() {
        let case = json::parse(line.as_bytes()).unwrap();
        let object = case.get("object").unwrap();
        let Some(it) = type_of(object) else { continue };
        let expected = case.str_at(&["decodeError"]);
        match types::decode(it, object) {
            Err(error) => assert_eq!(expected, Some(error.as_str()), "{line}"),
            Ok(decoded) => {
                assert_eq!(expected, None, "{line}");
                let unknown: Vec<_> =
                    decoded.unknown_fields.iter().map(|it| format!("unknown field \"{it}\"")).collect();
                let recorded: Vec<String> = json::from_value(case.get("strictErrors").unwrap()).unwrap();
                assert_eq!(unknown, recorded, "{line}");
            }
        }
    }
}

/// The same document with its fields in another order.
fn reordered(value: &Value, seed: &mut u32) -> Value {
    *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    let choice = *seed >> 30;
    match value {
        Value::Array(items) => Value::Array(items.iter().map(|item| reordered(item, seed)).collect()),
        Value::Object(fields) => {
            let mut all: Vec<(Text, Value)> =
                fields.iter().map(|(key, value)| (Text::new(key), reordered(value, seed))).collect();
            match choice {
                0 => all.reverse(),
                1 if !all.is_empty() => all.rotate_left(1),
                _ => {}
            }
            Value::Object(Object::from_distinct(all))
        }
        _ => value.clone(),
    }
}

#[test]
fn changed_objects_come_back_into_normal_form() {
    let pod = json::parse(
        br#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","creationTimestamp":"2020-02-28T00:00:00Z","unknown":null,
        "labels":{"b":"c","a":"d"},"deletionTimestamp":"2021-03-04T05:06:07+01:00","finalizers":[],"generation":0,"uid":null},
        "spec":{"nodeName":"","hostNetwork":false,"containers":[{"name":"x","image":"i","resources":{"limits":{"cpu":"1000m",
        "memory":"1024Mi"}},"ports":[{"containerPort":80,"hostPort":0}],"livenessProbe":{"httpGet":{"port":"http","path":""}},
        "env":[{"name":"E","value":""},null]},null],"tolerations":[{"key":"a"}],"terminationGracePeriodSeconds":0,
        "securityContext":{},"nodeSelector":{},"nobodyKnows":{}},"status":{}}"#,
    )
    .unwrap();
    let expected = concat!(
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","creationTimestamp":"2020-02-28T00:00:00Z","#,
        r#""deletionTimestamp":"2021-03-04T04:06:07Z","labels":{"a":"d","b":"c"}},"spec":{"containers":[{"name":"x","#,
        r#""image":"i","ports":[{"containerPort":80}],"env":[{"name":"E"},{"name":""}],"resources":{"limits":{"cpu":"1","#,
        r#""memory":"1Gi"}},"livenessProbe":{"httpGet":{"port":"http"}}},{"name":"","resources":{}}],"#,
        r#""terminationGracePeriodSeconds":0,"securityContext":{},"tolerations":[{"key":"a"}]},"status":{}}"#
    );
    let of = types::by_api_version("v1", "Pod").unwrap();
    let mut seed = 7;
    for _ in 0..500 {
        let mut document = reordered(&pod, &mut seed);
        let decoded = types::decode(of, &document).unwrap();
        assert_eq!(json::to_string(&decoded.value), expected, "{}", json::to_string(&document));
        assert_eq!(decoded.unknown_fields.len(), 2);
        for _ in 0..2 {
            types::normalize(of, &mut document);
            assert_eq!(json::to_string(&document), expected);
        }
    }
}
