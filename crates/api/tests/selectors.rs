//! Label selectors and names are judged as the reference judges them, on its recorded answers.

use api::json::{self, Value};
use api::labels::{Selector, SelectorError};
use api::meta::v1::LabelSelector;
use api::names;

fn cases(kind: &str) -> Vec<(Value, Value, String)> {
    let lines = include_str!("data/selectors.jsonl").lines();
    let cases = lines.map(|line| (json::parse(line.as_bytes()).unwrap(), line.to_owned()));
    let cases = cases.filter(|(case, _)| case.str_at(&["input", "type"]) == Some(kind));
    let cases: Vec<_> = cases
        .map(|(case, line)| (case.get("input").unwrap().clone(), case.get("expected").unwrap().clone(), line))
        .collect();
    assert!(!cases.is_empty());
    cases
}

#[track_caller]
fn check(selector: Result<Selector, SelectorError>, input: &Value, expected: &Value, line: &str) {
    let selector = match selector {
        Err(error) => {
            assert_eq!(expected.str_at(&["error"]), Some(error.to_string().as_str()), "{line}");
            return;
        }
        Ok(selector) => selector,
    };
    assert_eq!(expected.get("error"), None, "{line}");
    assert_eq!(expected.str_at(&["string"]), Some(selector.to_string().as_str()), "{line}");
    let requirements: Vec<Value> = selector
        .requirements()
        .iter()
        .map(|it| {
            // The recording shows the values as a set.
            let values: std::collections::BTreeSet<_> = it.values.iter().cloned().collect();
            let values = Value::Array(values.into_iter().map(Value::String).collect());
            api::json!({"key": (it.key.clone()), "operator": (it.operator.name()), "values": values})
        })
        .collect();
    let recorded = expected.get("requirements").and_then(Value::as_array).unwrap_or_default();
    assert_eq!(recorded, requirements, "{line}");
    let labels = input.get("labels").and_then(Value::as_array).unwrap();
    let matches: Vec<Value> = labels.iter().map(|it| selector.matches(it.as_object().unwrap()).into()).collect();
    assert_eq!(expected.get("match").and_then(Value::as_array).unwrap(), matches, "{line}");
}

#[test]
fn selectors_of_queries() {
    for (input, expected, line) in cases("labelString") {
        check(Selector::parse(input.str_at(&["selector"]).unwrap()), &input, &expected, &line);
    }
}

#[test]
fn selectors_of_objects() {
    for (input, expected, line) in cases("labelSelector") {
        let selector: Option<LabelSelector> = json::from_value(input.get("selector").unwrap()).unwrap();
        let Some(selector) = selector else { continue };
        check(selector.to_selector(), &input, &expected, &line);
    }
}

#[test]
fn selectors_by_fields() {
    use api::field_selector::FieldSelector;
    for (input, expected, line) in cases("fieldString") {
        let selector = match FieldSelector::parse(input.str_at(&["selector"]).unwrap()) {
            Err(error) => {
                assert_eq!(expected.str_at(&["error"]), Some(error.to_string().as_str()), "{line}");
                continue;
            }
            Ok(selector) => selector,
        };
        assert_eq!(expected.str_at(&["string"]), Some(selector.to_string().as_str()), "{line}");
        let terms: Vec<Value> = selector
            .terms()
            .iter()
            .map(|it| {
                let operator = if it.negated { "!=" } else { "=" };
                api::json!({"field": (it.field.as_str()), "operator": operator, "value": (it.value.as_str())})
            })
            .collect();
        assert_eq!(expected.get("requirements").and_then(Value::as_array).unwrap(), terms, "{line}");
        let objects = input.get("fields").and_then(Value::as_array).unwrap();
        let matches: Vec<Value> =
            objects.iter().map(|it| selector.matches(|field| it.get(field).and_then(Value::as_str)).into()).collect();
        assert_eq!(expected.get("match").and_then(Value::as_array).unwrap(), matches, "{line}");
    }
}

#[test]
fn names_have_their_shapes() {
    let mut compared = 0;
    for line in include_str!("data/scalars.jsonl").lines() {
        let case = json::parse(line.as_bytes()).unwrap();
        if case.str_at(&["input", "fn"]) != Some("name") {
            continue;
        }
        let arguments = case.array_at(&["input", "args"]).unwrap();
        let (kind, name) = (arguments[0].as_str().unwrap(), arguments[1].as_str().unwrap());
        let complaints = match kind {
            "cIdentifier" => names::c_identifier(name),
            "configMapKey" => names::config_map_key(name),
            "dns1035Label" => names::dns1035_label(name),
            "dns1123Label" => names::dns1123_label(name),
            "dns1123LabelPrefix" => names::as_prefix(names::dns1123_label, name),
            "dns1123Subdomain" => names::dns1123_subdomain(name),
            "dns1123SubdomainPrefix" => names::as_prefix(names::dns1123_subdomain, name),
            "envVarName" => names::env_var_name(name),
            "relaxedEnvVarName" => names::relaxed_env_var_name(name),
            "httpHeaderName" => names::http_header_name(name),
            "labelValue" => names::label_value(name),
            "pathSegment" => names::path_segment(name),
            "portName" => names::port_name(name),
            "qualifiedName" => names::qualified_name(name),
            "wildcardSubdomain" => names::wildcard_dns1123_subdomain(name),
            // These give field errors, which is the registry's matter.
            "domainPrefixedPath" | "fieldManager" | "fqdn" => continue,
            _ => panic!("{line}"),
        };
        let recorded: Vec<String> = json::from_value(case.at(&["expected", "errors"]).unwrap()).unwrap();
        assert_eq!(complaints, recorded, "{line}");
        compared += 1;
    }
    assert!(compared > 300, "{compared}");
}
