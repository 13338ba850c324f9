//! Recorded results of the reference for objects of custom resources, and their tables.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api::features::Features;
use api::json;
use api::json::Value;
use api::time::Timestamp;
use registry::admit::{self, AdmitError};
use registry::custom_resource::CustomResource;
use registry::custom_resource::printer_columns::{Columns, Request};
use registry::expressions::{Environments, Languages};
use registry::resources;
use registry::strategy::Context;

const NOW: &str = "2000-01-01T00:00:00Z";

fn context<'a>(environments: &'a Environments, features: Features) -> Context<'a> {
    Context {
        features,
        expressions: environments,
        namespace: "default",
        now: NOW,
        uid: "00000000-0000-4000-8000-000000000001",
        name_suffix: "bcdfg",
        namespace_allows_admin_access: false,
    }
}

/// A definition that was accepted, in its first version; or why it was not.
type DefinitionResult = Result<CustomResource, String>;

fn serve(definition: &Value, environments: &Environments, languages: &Languages) -> DefinitionResult {
    let resource = resources::find("apiextensions.k8s.io", "v1", "customresourcedefinitions").unwrap();
    let context = context(environments, Features::default());
    let accepted = admit::create(resource, definition, &context).map_err(|refused| refused.to_string())?;
    CustomResource::new(&accepted.object, "v1", languages)
}

#[test]
fn objects_are_decided_as_the_reference_decides() {
    let languages = Languages::default();
    let environments = Environments::sharing(&languages).unwrap();
    let mut definitions: HashMap<String, DefinitionResult> = HashMap::new();
    let mut table: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut wrong = Vec::new();
    for line in include_str!("data/custom_resources.jsonl").lines() {
        let case = json::parse(line.as_bytes()).unwrap();
        let id = case.str_at(&["id"]).unwrap().to_owned();
        let input = case.get("input").unwrap();
        let definition = input.get("crd").unwrap();
        let served = definitions.entry(definition.to_string());
        let served = served.or_insert_with(|| serve(definition, &environments, &languages));
        let expected = case.get("expected").unwrap();
        let difference = check(input, expected, served, &environments);
        let topic = id.split('/').next().unwrap().to_owned();
        let row = table.entry(topic).or_default();
        row.1 += 1;
        match difference {
            None => row.0 += 1,
            Some(difference) => wrong.push(format!("{id}: {difference}")),
        }
    }
    let mut total = (0, 0);
    for (topic, (passed, all)) in &table {
        println!("{topic:30} {passed:5} of {all}");
        total = (total.0 + passed, total.1 + all);
    }
    println!("{:30} {:5} of {}", "all", total.0, total.1);
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}

fn check(input: &Value, expected: &Value, served: &DefinitionResult, environments: &Environments) -> Option<String> {
    let resource = match served {
        Ok(resource) => resource,
        Err(message) => {
            return (Some(message.as_str()) != expected.str_at(&["crdError"]))
                .then(|| format!("definition refused: {message}\nexpected {expected}"));
        }
    };
    let context = context(environments, Features::default());
    let document = input.get("object").unwrap();
    let result = if input.str_at(&["op"]) == Some("create") {
        resource.create(document, &context)
    } else {
        let mut old = resource.read(input.get("old").unwrap()).unwrap().object;
        let metadata = old.get_mut("metadata").unwrap().as_object_mut().unwrap();
        if metadata.get("namespace").is_none() && input.str_at(&["crd", "spec", "scope"]) == Some("Namespaced") {
            metadata.insert("namespace", context.namespace);
        }
        resource.update(document, &old, input.str_at(&["subresource"]), &context)
    };
    match result {
        Ok(accepted) => {
            if accepted.strict_errors != texts(expected, "strictErrors") {
                return Some(format!("strict errors {:?}\nexpected {expected}", accepted.strict_errors));
            }
            if expected.get("object") != Some(&accepted.object) {
                return Some(format!("accepted {}\nexpected {expected}", accepted.object));
            }
            (accepted.warnings != texts(expected, "warnings"))
                .then(|| format!("warnings {:?}\nexpected {expected}", accepted.warnings))
        }
        Err(AdmitError::Decode(error)) => (expected.str_at(&["decodeError"]) != Some(&error))
            .then(|| format!("decode error {error}\nexpected {expected}")),
        Err(AdmitError::Invalid { message, errors, strict_errors }) => {
            let ours: Vec<String> = errors.iter().map(|it| format!("{} {it}", it.error_type.reason())).collect();
            let theirs = expected.get("errors").and_then(Value::as_array).unwrap_or_default().iter().map(|it| {
                let text = |key: &str| it.str_at(&[key]).unwrap();
                format!("{} {}: {}", text("type"), text("field"), text("body"))
            });
            let theirs: Vec<String> = theirs.collect();
            if ours != theirs {
                return Some(format!("errors\n  {}\nexpected\n  {}", ours.join("\n  "), theirs.join("\n  ")));
            }
            if strict_errors != texts(expected, "strictErrors") {
                return Some(format!("strict errors {strict_errors:?}\nexpected {expected}"));
            }
            (Some(message.as_str()) != expected.str_at(&["message"]))
                .then(|| format!("message {message}\nexpected {expected}"))
        }
        Err(other) => (expected.get("errors").is_some()
            || Some(other.to_string().as_str()) != expected.str_at(&["message"]))
        .then(|| format!("{other}\nexpected {expected}")),
    }
}

fn texts(expected: &Value, key: &str) -> Vec<String> {
    let list = expected.get(key).and_then(Value::as_array).unwrap_or_default();
    list.iter().map(|it| it.as_str().unwrap().to_owned()).collect()
}

/// The recorded cells are JSON, where a whole float reads as an integer.
fn same(actual: &Value, expected: &Value) -> bool {
    actual == expected || (actual.as_f64().is_some() && actual.as_f64() == expected.as_f64())
}

#[test]
fn tables_agree_with_the_reference() {
    let now = Timestamp::parse(NOW).unwrap();
    let mut compared = 0;
    for line in include_str!("../../api/tests/data/custom_tables.jsonl").lines() {
        let case = json::parse(line.as_bytes()).unwrap();
        let (input, expected) = (case.get("input").unwrap(), case.get("expected").unwrap());
        let definitions: Vec<&Value> =
            input.get("additionalPrinterColumns").and_then(Value::as_array).unwrap_or_default().iter().collect();
        let (columns, error) = Columns::new(&definitions, None, &Languages::default());
        assert_eq!(error.as_deref(), expected.str_at(&["newError"]), "{line}");
        let headers = expected.get("columns").and_then(Value::as_array).unwrap_or_default();
        let objects = input.get("objects").and_then(Value::as_array).unwrap();
        // One table was asked for without headers.
        if error.is_none() && !headers.is_empty() {
            assert_eq!(columns.columns().len() + 1, headers.len(), "{line}");
            let rows = expected.get("rows").and_then(Value::as_array).unwrap_or_default();
            assert_eq!(objects.len(), rows.len(), "{line}");
        }
        for (column, header) in columns.columns().iter().zip(headers.iter().skip(1)) {
            let shown = json!({
                "name": (column.name.as_str()), "type": (column.column_type.as_str()),
                "format": (column.format.as_str()), "description": (column.description.as_str()),
                "priority": (column.priority)
            });
            assert_eq!(&shown, header, "{line}");
        }
        let clock = || Duration::ZERO;
        let mut request = Request::new(now, 0, &clock);
        let rows = expected.get("rows").and_then(Value::as_array).unwrap_or_default();
        for (object, row) in objects.iter().zip(rows) {
            let cells = columns.cells(object, &mut request);
            let expected = row.get("cells").and_then(Value::as_array).unwrap();
            assert_eq!(cells.len() + 1, expected.len(), "{line}");
            for (cell, expected) in cells.iter().zip(&expected[1..]) {
                assert!(same(cell, expected), "{cell} {expected}\n{line}");
                compared += 1;
            }
        }
    }
    assert!(compared > 250, "{compared}");
}

/// A version of a definition with one column.
fn column(column_type: &str, expression: &str) -> Value {
    let schema = json!({
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {
            "text": {"type": "string"}, "number": {"type": "integer"}, "half": {"type": "number"},
            "when": {"type": "string", "format": "date-time"}, "nothing": {"type": "string", "nullable": true},
            "list": {"type": "array", "items": {"type": "string", "nullable": true}},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}}
        }}}
    });
    json!({"name": "v1", "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": [{"name": "C", "type": column_type, "expression": expression}]})
}

#[track_caller]
fn shows(column_type: &str, expression: &str, expected: Result<Value, &str>) {
    let object = json!({"metadata": {"name": "w"}, "spec": {
        "text": "a", "number": 7, "half": 2.5, "when": "1999-12-31T23:00:00Z", "nothing": null,
        "list": ["x", null, "y"], "map": {"b": 2, "a": 1}
    }});
    let (columns, error) = Columns::of_version(&column(column_type, expression), true, &Languages::default());
    assert_eq!(error, None);
    let clock = || Duration::ZERO;
    let mut request = Request::new(Timestamp::parse(NOW).unwrap(), 1_000_000, &clock);
    let cells = columns.cells(&object, &mut request);
    let tally = &request.tallies[0];
    assert_eq!(tally.evaluations, 1);
    match expected {
        Ok(cell) => assert_eq!((&cells[0], &tally.first_error), (&cell, &None), "{expression}"),
        Err(message) => {
            assert_eq!(cells[0], Value::Null, "{expression}");
            assert_eq!(tally.errors, 1);
            assert_eq!(tally.first_error.as_ref().map(|it| it.message.as_str()), Some(message), "{expression}");
        }
    }
}

#[test]
fn values_print_as_people_read_them() {
    shows("string", "self.spec.text", Ok("a".into()));
    shows("string", "self.spec.number", Ok("7".into()));
    shows("string", "[['a', 'b'], ['c']]", Ok("[[a, b], [c]]".into()));
    shows("string", "{'b': dyn([1]), 'a': dyn(2.5)}", Ok("{a: 2.5, b: [1]}".into()));
    shows("string", "self.spec.map", Ok("{a: 1, b: 2}".into()));
    shows("string", "self.spec.list", Ok("[x, null, y]".into()));
    shows("string", "b'hi'", Ok("aGk=".into()));
    shows("string", "1234567.0", Ok("1.234567e+06".into()));
    shows("string", "self.spec.half", Ok("2.5".into()));
    shows("string", "timestamp('2024-01-02T00:07:10Z') - timestamp('2024-01-01T00:00:00Z')", Ok("24h7m10s".into()));
    shows("string", "self.spec.when", Ok("1999-12-31T23:00:00Z".into()));
    shows("string", "null", Ok(Value::Null));
    shows("string", "self.spec.?text", Ok("a".into()));
    shows("string", "self.spec.?nothing", Ok(Value::Null));
    shows("string", "true", Ok("true".into()));
    shows("string", "type(1)", Ok("int".into()));
}

#[test]
fn cells_have_the_type_of_their_column() {
    shows("integer", "self.spec.number", Ok(7_i64.into()));
    shows("integer", "3u", Ok(3_i64.into()));
    shows("integer", "2.5", Err("a value of type double does not fit a column of type integer"));
    shows("integer", "'7'", Err("a value of type string does not fit a column of type integer"));
    shows("number", "2.5", Ok(2.5.into()));
    shows("number", "2", Ok(2_i64.into()));
    shows("boolean", "self.spec.number == 7", Ok(true.into()));
    shows("boolean", "1", Err("a value of type int does not fit a column of type boolean"));
    shows("date", "self.spec.when", Ok("60m".into()));
    shows("date", "'1999-12-31T00:00:00Z'", Ok("24h".into()));
    shows("date", "1", Err("a value of type int does not fit a column of type date"));
    shows("date", "null", Ok(Value::Null));
}

/// As in Kubernetes' CEL, an object has the fields of its schema, under the names that expressions use for them: other
/// fields do not exist, and a list without type shows the name of Go's type for them.
#[test]
fn objects_print_the_fields_that_expressions_see() {
    let kept = json!({"x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object",
    "x-kubernetes-preserve-unknown-fields": true,
    "properties": {
        "in": {"type": "string"}, "my-field": {"type": "integer"}, "any": (kept.clone()),
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "list": {"type": "array", "items": (kept)}
    }}}});
    let object = json!({"metadata": {"name": "w"}, "spec": {
        "in": "x", "my-field": 7, "any": {"a": 1}, "free": {"any-thing": [1, "two"]}, "list": [{"a": 1}],
        "unknown": true
    }});
    let mut cells = Vec::new();
    for expression in ["self.spec", "self.spec.free", "self.spec.my__dash__field", "self.spec.__in__"] {
        let version = json!({"name": "v1", "schema": {"openAPIV3Schema": (schema.clone())},
            "additionalPrinterColumns": [{"name": "C", "type": "string", "expression": expression}]});
        let (columns, error) = Columns::of_version(&version, true, &Languages::default());
        assert_eq!(error, None, "{expression}");
        let clock = || Duration::ZERO;
        let mut request = Request::new(Timestamp::parse(NOW).unwrap(), 1_000_000, &clock);
        cells.extend(columns.cells(&object, &mut request));
    }
    assert_eq!(
        Value::Array(cells).to_string(),
        r#"["{__in__: x, any: *common.unknownPreserved, free: {}, list: [*common.unknownPreserved], my__dash__field: 7}","{}","7","x"]"#
    );
}

#[test]
fn a_failure_leaves_the_cell_empty() {
    shows("string", "self.spec.list[7]", Err("index out of bounds: 7"));
    shows("string", "string(1 / (self.spec.number - 7))", Err("division by zero"));
}

#[test]
fn budgets_end_a_cell_and_a_request() {
    let heavy = "[0,1,2,3,4,5,6,7,8,9].map(a, [0,1,2,3,4,5,6,7,8,9].map(b, [0,1,2,3,4,5,6,7,8,9].map(c, [0,1,2,3,4,5,6,7,8,9].map(d, [0,1,2,3,4,5,6,7,8,9].map(e, [0,1,2,3,4,5,6,7,8,9].map(f, a + b + c + d + e + f)))))).size()";
    let (columns, error) = Columns::of_version(&column("string", heavy), true, &Languages::default());
    assert_eq!(error, None);
    let object = json!({"metadata": {"name": "w"}});
    let clock = || Duration::ZERO;
    let mut request = Request::new(Timestamp::parse(NOW).unwrap(), 2_500_000, &clock);
    for _ in 0..2 {
        assert_eq!(columns.cells(&object, &mut request), [Value::Null]);
        assert!(!request.budget.is_exceeded());
    }
    for _ in 0..3 {
        assert_eq!(columns.cells(&object, &mut request), [Value::Null]);
        assert!(request.budget.is_exceeded());
    }
    let tally = &request.tallies[0];
    assert_eq!((tally.evaluations, tally.errors, tally.skipped), (3, 3, 2));
    assert!(tally.cost <= 2_500_100, "{}", tally.cost);
}

#[test]
fn without_the_gate_columns_with_expressions_are_left_out() {
    let mut version = column("string", "self.spec.text");
    let names = |version: &Value, allowed: bool| -> Vec<String> {
        let (columns, error) = Columns::of_version(version, allowed, &Languages::default());
        assert_eq!(error, None);
        columns.columns().iter().map(|it| it.name.clone()).collect()
    };
    assert_eq!(names(&version, true), ["C"]);
    assert_eq!(names(&version, false), ["Age"]);
    let columns = version.get_mut("additionalPrinterColumns").and_then(Value::as_array_mut).unwrap();
    columns.push(json!({"name": "P", "type": "string", "jsonPath": ".spec.text"}));
    assert_eq!(names(&version, true), ["C", "P"]);
    assert_eq!(names(&version, false), ["P"]);
}

/// Definitions of the shape and size of well-known projects: they are accepted, their objects are decided about, and
/// all their columns print.
#[test]
fn large_definitions_load_validate_and_print() {
    let files = [
        (include_str!("data/definitions/certificates.jsonl"), CERTIFICATES),
        (include_str!("data/definitions/servicemonitors.jsonl"), MONITORS),
        (include_str!("data/definitions/gateways.jsonl"), GATEWAYS),
        (include_str!("data/definitions/workflows.jsonl"), WORKFLOWS),
        (include_str!("data/definitions/databases.jsonl"), DATABASES),
    ];
    let languages = Languages::default();
    let environments = Environments::sharing(&languages).unwrap();
    let features = Features::default().with(api::features::Gate::CRDAdditionalPrinterColumnCEL, true);
    let context = context(&environments, features);
    let row = resources::find("apiextensions.k8s.io", "v1", "customresourcedefinitions").unwrap();
    for (text, table) in files {
        let lines: Vec<Value> = text.lines().map(|line| json::parse(line.as_bytes()).unwrap()).collect();
        let definition = admit::create(row, lines[0].get("definition").unwrap(), &context).unwrap().object;
        let version = &definition.array_at(&["spec", "versions"]).unwrap()[0];
        let resource = CustomResource::new(&definition, version.str_at(&["name"]).unwrap(), &languages).unwrap();
        let (columns, error) = Columns::of_version(version, true, &languages);
        assert_eq!(error, None);
        let clock = || Duration::ZERO;
        let mut request = Request::new(Timestamp::parse(NOW).unwrap(), 100_000_000, &clock);
        let mut rows = vec![columns.columns().iter().map(|it| it.name.clone()).collect::<Vec<_>>().join(" | ")];
        for line in &lines[1..] {
            let object = line.get("object").unwrap();
            match (resource.create(object, &context), line.str_at(&["refused"])) {
                (Ok(accepted), None) => {
                    assert_eq!(accepted.strict_errors, Vec::<String>::new());
                    // The status is written separately if the definition has a status subresource.
                    let mut shown = accepted.object;
                    if let (Some(status), Some(fields)) = (object.get("status"), shown.as_object_mut()) {
                        fields.insert("status", status.clone());
                    }
                    let cells = columns.cells(&shown, &mut request);
                    let cells: Vec<String> =
                        cells.iter().map(|it| it.as_str().map_or_else(|| it.to_string(), str::to_owned)).collect();
                    rows.push(cells.join(" | "));
                }
                (Err(refused), Some(expected)) => {
                    let message = refused.to_string();
                    assert!(message.contains(expected), "{message}\nexpected {expected}");
                }
                (result, expected) => panic!("{result:?} instead of {expected:?}"),
            }
        }
        assert_eq!(rows.join("\n"), table.trim());
    }
}

const CERTIFICATES: &str = "
Ready | Secret | Issuer | Names | Valid | Age
True | web-tls | Issuer/ca | [www.example.com, example.com] | 2160h0m0s | 0s
Unknown | new-tls | ClusterIssuer/ca | [] | null | 0s";

const MONITORS: &str = "
Endpoints | Ports | Labels | First path | Age
2 | [metrics, 8080] | {app: web, tier: front} | /metrics | 0s";

const GATEWAYS: &str = "
Class | Address | Programmed | Routes | Listeners | Age
fast | [10.0.0.7] | True | 5 | [HTTP:80, HTTPS:443] | 0s";

const WORKFLOWS: &str = "
Status | Duration | Failed | Templates | Age
Failed | 2m5s | [build.b] | [main, run] | 0s
Pending | null | [] | [main] | 0s";

const DATABASES: &str = "
Ready | Version | Users | Lag | Replicas | Age
2/3 | 17 | [app, admin] | [1.5s] | 3 | 0s";

/// Columns over `spec.s` and `spec.l`.
fn wide_columns(definitions: &[Value]) -> Columns {
    let schema = json::parse(
        br#"{"type":"object","properties":{"spec":{"type":"object","properties":{
            "s":{"type":"string"},"l":{"type":"array","items":{"type":"integer"}}}}}}"#,
    );
    let definitions: Vec<&Value> = definitions.iter().collect();
    let (columns, error) = Columns::new(&definitions, Some(&schema.unwrap()), &Languages::default());
    assert_eq!(error, None);
    columns
}

#[test]
fn cells_of_expressions_are_cut_after_whole_characters() {
    let expression = |text: &str| api::json!({"name": "A", "type": "string", "expression": text});
    let columns = wide_columns(&[
        expression("self.spec.l.map(x, self.spec.s).join('')"),
        expression("self.spec.l.map(x, self.spec.s)"),
        expression("{'k': self.spec.l.map(x, self.spec.s)}"),
        expression("self.spec.s"),
        api::json!({"name": "B", "type": "string", "jsonPath": ".spec.l"}),
    ]);
    let items: Vec<Value> = (0..5000).map(Value::from).collect();
    let object = api::json!({"spec": {"s": ("ä€😀x".repeat(10)), "l": (Value::Array(items))}});
    let clock = || Duration::ZERO;
    let mut request = Request::new(Timestamp::parse(NOW).unwrap(), 100_000_000, &clock);
    let cells = columns.cells(&object, &mut request);
    for cell in &cells[..3] {
        let text = cell.as_str().unwrap();
        assert_eq!(text.chars().count(), 1025, "{text}");
        assert!(text.ends_with('…'), "{text}");
    }
    assert_eq!(cells[3].as_str().unwrap(), "ä€😀x".repeat(10));
    assert!(cells[4].as_str().unwrap().ends_with(",4999]"), "cells by path are shown whole");
}

#[test]
fn cells_of_a_table_have_a_limit_together() {
    let column = api::json!({"name": "A", "type": "string", "jsonPath": ".spec.s"});
    let columns = wide_columns(&[column.clone(), column]);
    let object = api::json!({"spec": {"s": ("x".repeat(1 << 20))}});
    let clock = || Duration::ZERO;
    let mut request = Request::new(Timestamp::parse(NOW).unwrap(), 100_000_000, &clock);
    let rows: Vec<Vec<Value>> = (0..10).map(|_| columns.cells(&object, &mut request)).collect();
    assert!(rows[..8].iter().flatten().all(|cell| cell.as_str().is_some()));
    assert!(rows[8..].iter().flatten().all(Value::is_null));
    assert!(request.budget.is_too_long() && !request.budget.is_exceeded());
}

#[test]
fn deferred_schema_is_compiled_on_first_use_only() {
    let schema = api::json!({"type": "object", "properties": {"n": {"type": "integer", "maximum": 5}}});
    let version = api::json!({"name": "v1", "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}});
    let spec = api::json!({"group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget"}, "versions": [(version.clone())]});
    let definition = api::json!({"metadata": {"name": "widgets.example.com"}, "spec": spec});
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = reads.clone();
    let source = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        Some(version.clone())
    };
    let resource = CustomResource::deferred(&definition, "v1", Arc::default(), source).unwrap();
    assert!(resource.has_status() && !resource.is_compiled() && !resource.take_use());
    assert_eq!(reads.load(Ordering::Relaxed), 0, "what needs no schema does not read it");
    let object = api::json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "default"}, "n": 7});
    for _ in 0..2 {
        assert_eq!(resource.validate_create(&object).errors.len(), 1);
    }
    assert_eq!(reads.load(Ordering::Relaxed), 1);
    assert!(resource.is_compiled() && resource.take_use() && !resource.take_use());
    let unreadable = api::json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": 7}}]}});
    assert!(CustomResource::deferred(&unreadable, "v1", Arc::default(), || None).is_err());
}
