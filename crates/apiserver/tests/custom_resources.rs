//! Custom resources on a server: what appears when, in which version, with which columns, and how it goes.

use std::sync::Arc;

use api::features::{Features, Gate};
use apiserver::identity::Authenticator;
use apiserver::{Options, Server};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use store::{EmbeddedStore, Store};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

fn memory() -> Arc<dyn Store> {
    Arc::new(EmbeddedStore::in_memory(store::Options::default()).unwrap())
}

fn options(expressions: bool) -> Options {
    let tokens = Authenticator::parse_tokens("admin,admin,1,system:masters\n").unwrap();
    let features = Features::default().with(Gate::CRDAdditionalPrinterColumnCEL, expressions);
    Options { tokens, features, ..Options::without_controllers() }
}

async fn start(store: &Arc<dyn Store>, expressions: bool) -> Arc<Server> {
    Server::start(store.clone(), options(expressions)).await.unwrap()
}

struct Answer {
    status: u16,
    warnings: Vec<String>,
    body: Value,
}

async fn send(server: &Arc<Server>, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
    let mut request = Request::builder().method(method).uri(path).header("Authorization", "Bearer admin");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let bytes = if body.is_null() { Bytes::new() } else { serde_json::to_vec(body).unwrap().into() };
    let response = server.handle(request.body(Full::new(bytes)).unwrap(), None).await;
    let status = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.map(|it| it.to_str().unwrap().to_owned()).collect();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into_owned().into());
    Answer { status, warnings, body }
}

async fn get(server: &Arc<Server>, path: &str) -> Answer {
    send(server, "GET", path, &[], &Value::Null).await
}

#[track_caller]
fn ok(answer: Answer) -> Answer {
    assert!(answer.status < 300, "{} {}", answer.status, answer.body);
    answer
}

async fn post(server: &Arc<Server>, path: &str, body: Value) -> Answer {
    send(server, "POST", path, &[], &body).await
}

async fn merge(server: &Arc<Server>, path: &str, body: Value) -> Answer {
    send(server, "PATCH", path, &[("Content-Type", "application/merge-patch+json")], &body).await
}

/// A definition of widgets with one version.
fn definition(columns: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "additionalPrinterColumns": columns,
                "schema": {"openAPIV3Schema": schema()},
            }]
        }
    })
}

fn schema() -> Value {
    json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "size": {"type": "integer", "default": 1},
            "tags": {"type": "array", "items": {"type": "string"}}
        }},
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}}
    }})
}

fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

async fn cells(server: &Arc<Server>) -> (Vec<String>, Vec<Vec<Value>>, Vec<String>) {
    let answer = ok(send(server, "GET", WIDGETS, &[("Accept", TABLE)], &Value::Null).await);
    let columns = answer.body["columnDefinitions"].as_array().unwrap();
    let names = columns.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect();
    let rows = answer.body["rows"].as_array().unwrap().iter();
    (names, rows.map(|row| row["cells"].as_array().unwrap().clone()).collect(), answer.warnings)
}

#[tokio::test]
async fn a_definition_is_served_as_soon_as_it_is_written() {
    let server = start(&memory(), true).await;
    assert_eq!(get(&server, WIDGETS).await.status, 404);
    ok(post(&server, DEFINITIONS, definition(json!([]))).await);
    let list = ok(get(&server, WIDGETS).await).body;
    assert_eq!((&list["kind"], &list["items"]), (&json!("WidgetList"), &json!([])));
    let group = ok(get(&server, "/apis/example.com").await).body;
    assert_eq!(group["preferredVersion"]["groupVersion"], "example.com/v1");
    let resources = ok(get(&server, "/apis/example.com/v1").await).body;
    assert_eq!(resources["resources"][0]["name"], "widgets");
    assert_eq!(resources["resources"][0]["shortNames"], json!(["wd"]));
    assert_eq!(resources["resources"][0]["categories"], json!(["all"]));
    let aggregated = [("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")];
    let all = ok(send(&server, "GET", "/apis", &aggregated, &Value::Null).await).body;
    let last = all["items"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["metadata"]["name"], "example.com");
    assert_eq!(last["versions"][0]["resources"][0]["responseKind"]["kind"], "Widget");
    let document = ok(get(&server, "/openapi/v3/apis/example.com/v1").await).body;
    let schema = &document["components"]["schemas"]["com.example.v1.Widget"];
    assert_eq!(schema["properties"]["spec"]["properties"]["size"]["type"], "integer");
    assert_eq!(schema["x-kubernetes-group-version-kind"][0]["kind"], "Widget");
    let index = ok(get(&server, "/openapi/v3").await).body;
    let index: Value = index.as_str().map_or(index.clone(), |text| serde_json::from_str(text).unwrap());
    assert!(index["paths"].get("apis/example.com/v1").is_some());
    let stored = ok(get(&server, &format!("{DEFINITIONS}/widgets.example.com")).await).body;
    assert_eq!(stored["status"]["conditions"][1]["status"], "True");
    assert_eq!(stored["status"]["acceptedNames"]["listKind"], "WidgetList");
    assert_eq!(stored["status"]["storedVersions"], json!(["v1"]));
}

#[tokio::test]
async fn servers_on_one_store_agree() {
    let store = memory();
    let (first, second) = (start(&store, true).await, start(&store, true).await);
    ok(post(&first, DEFINITIONS, definition(json!([]))).await);
    ok(post(&second, WIDGETS, widget("a", json!({}))).await);
    assert_eq!(ok(get(&first, &format!("{WIDGETS}/a")).await).body["spec"]["size"], 1);
    ok(send(&second, "DELETE", &format!("{DEFINITIONS}/widgets.example.com"), &[], &Value::Null).await);
    for server in [&first, &second] {
        for _ in 0..200 {
            if get(server, WIDGETS).await.status == 404 {
                break;
            }
            server.settle().await.unwrap();
        }
        assert_eq!(get(server, WIDGETS).await.status, 404);
        assert_eq!(get(server, "/apis/example.com").await.status, 404);
    }
}

#[tokio::test]
async fn versions_are_rewritten_and_defaults_fill_in_on_read() {
    let store = memory();
    let server = start(&store, true).await;
    let mut definition = definition(json!([]));
    let beta = json!({
        "name": "v1beta1", "served": true, "storage": false, "deprecated": true,
        "schema": {"openAPIV3Schema": schema()}
    });
    definition["spec"]["versions"].as_array_mut().unwrap().push(beta);
    ok(post(&server, DEFINITIONS, definition).await);
    let beta = WIDGETS.replace("/v1/", "/v1beta1/");
    let mut old = widget("old", json!({"size": 2}));
    old["apiVersion"] = json!("example.com/v1beta1");
    let answer = ok(post(&server, &beta, old).await);
    assert_eq!(answer.body["apiVersion"], "example.com/v1beta1");
    assert_eq!(answer.warnings, ["299 - \"example.com/v1beta1 Widget is deprecated; use example.com/v1 Widget\""]);
    assert_eq!(ok(get(&server, &format!("{WIDGETS}/old")).await).body["apiVersion"], "example.com/v1");
    let wrong = post(
        &server,
        WIDGETS,
        json!({"apiVersion": "example.com/v1beta1", "kind": "Widget", "metadata": {"name": "x"}}),
    )
    .await;
    assert_eq!(wrong.status, 400);
    // The schema gains a default and loses a field; the storage version moves.
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let mut stored = ok(get(&server, &path).await).body;
    for (index, is_storage) in [(0, false), (1, true)] {
        let version = &mut stored["spec"]["versions"][index];
        version["storage"] = json!(is_storage);
        let spec = &mut version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        spec["color"] = json!({"type": "string", "default": "red"});
        spec.as_object_mut().unwrap().remove("size");
    }
    let answer = ok(send(&server, "PUT", &path, &[], &stored).await);
    assert_eq!(answer.body["status"]["storedVersions"], json!(["v1", "v1beta1"]));
    server.settle().await.unwrap();
    let shown = ok(get(&server, &format!("{WIDGETS}/old")).await).body;
    assert_eq!(shown["spec"], json!({"color": "red"}));
    let listed = ok(get(&server, WIDGETS).await).body;
    assert_eq!(listed["items"][0]["spec"], json!({"color": "red"}));
    ok(merge(&server, &format!("{WIDGETS}/old"), json!({"spec": {"color": "blue"}})).await);
    assert_eq!(ok(get(&server, &format!("{beta}/old")).await).body["spec"], json!({"color": "blue"}));
}

#[tokio::test]
async fn columns_of_both_kinds_stand_side_by_side() {
    let server = start(&memory(), true).await;
    let columns = json!([
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Tags", "type": "string", "expression": "self.spec.tags.map(t, t.upperAscii())"},
        {"name": "Big", "type": "boolean", "expression": "self.spec.size > 3", "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
    ]);
    ok(post(&server, DEFINITIONS, definition(columns)).await);
    ok(post(&server, WIDGETS, widget("a", json!({"size": 5, "tags": ["x", "y"]}))).await);
    ok(post(&server, WIDGETS, widget("b", json!({}))).await);
    let (names, rows, warnings) = cells(&server).await;
    assert_eq!(names, ["Name", "Size", "Tags", "Big", "Age"]);
    assert_eq!(rows[0][..4], [json!("a"), json!(5), json!("[X, Y]"), json!(true)]);
    // The second object has no tags: the expression fails, and its cell is empty.
    assert_eq!(rows[1][..4], [json!("b"), json!(1), Value::Null, json!(false)]);
    assert!(rows.iter().all(|row| row[4].as_str().is_some_and(|age| age.ends_with('s'))), "{rows:?}");
    assert!(warnings.is_empty());
    let metrics = get(&server, "/metrics").await.body;
    let metrics = metrics.as_str().unwrap();
    let series = |what: &str| {
        let name =
            format!("apiextensions_apiserver_printer_column_cel_{what}{{crd=\"widgets.example.com\",column=\"Tags\"}}");
        metrics.lines().find_map(|line| line.strip_prefix(&name)?.trim().parse::<f64>().ok())
    };
    assert_eq!((series("evaluations_total"), series("errors_total")), (Some(2.0), Some(1.0)), "{metrics}");
    assert!(series("cost_total").unwrap() > 0.0);
    let watch = format!("{WIDGETS}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Da");
    let events = send(&server, "GET", &watch, &[("Accept", TABLE)], &Value::Null).await.body;
    let first: Value = match events {
        Value::String(text) => serde_json::from_str(text.lines().next().unwrap()).unwrap(),
        one => one,
    };
    assert_eq!(first["object"]["rows"][0]["cells"][2], "[X, Y]");
    assert_eq!(first["object"]["columnDefinitions"][2]["name"], "Tags");
}

#[tokio::test]
async fn with_the_gate_off_expressions_are_kept_and_not_printed() {
    let store = memory();
    let columns = json!([{"name": "Double", "type": "integer", "expression": "self.spec.size * 2"}]);
    let on = start(&store, true).await;
    ok(post(&on, DEFINITIONS, definition(columns)).await);
    ok(post(&on, WIDGETS, widget("a", json!({"size": 4}))).await);
    assert_eq!(cells(&on).await.1, [[json!("a"), json!(8)]]);
    let off = start(&store, false).await;
    assert_eq!(cells(&off).await.0, ["Name", "Age"]);
    // An unrelated update passes and keeps the field; a new use is refused.
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let patched = ok(merge(&off, &path, json!({"metadata": {"labels": {"a": "b"}}})).await).body;
    assert_eq!(patched["spec"]["versions"][0]["additionalPrinterColumns"][0]["expression"], "self.spec.size * 2");
    // The stored column stays; further and changed expressions are refused, while other columns can be added.
    let columns = |columns: Value| {
        let mut version = patched["spec"]["versions"][0].clone();
        version["additionalPrinterColumns"] = columns;
        json!({"spec": {"versions": [version]}})
    };
    let double = json!({"name": "Double", "type": "integer", "expression": "self.spec.size * 2"});
    let more = json!({"name": "More", "type": "integer", "expression": "self.spec.size * 3"});
    let mut changed = double.clone();
    changed["expression"] = json!("self.spec.size * 4");
    for (place, list) in [(1, json!([double, more])), (0, json!([changed]))] {
        let refused = merge(&off, &path, columns(list)).await;
        let expected = format!(
            "CustomResourceDefinition.apiextensions.k8s.io \"widgets.example.com\" is invalid: spec.additionalPrinterColumns[{place}].expression: \
             Forbidden: CEL printer columns require feature gate CRDAdditionalPrinterColumnCEL"
        );
        assert_eq!((refused.status, refused.body["message"].as_str()), (422, Some(expected.as_str())));
    }
    let size = json!({"name": "Size", "type": "integer", "jsonPath": ".spec.size"});
    ok(merge(&off, &path, columns(json!([size, double]))).await);
    off.settle().await.unwrap();
    assert_eq!(cells(&off).await.1, [[json!("a"), json!(4)]]);
    ok(merge(&off, &path, columns(json!([double]))).await);
    off.settle().await.unwrap();
    let mut other = definition(json!([{"name": "X", "type": "string", "expression": "self.kind"}]));
    other["metadata"]["name"] = json!("gadgets.example.com");
    other["spec"]["names"] = json!({"plural": "gadgets", "kind": "Gadget"});
    let refused = post(&off, DEFINITIONS, other).await;
    assert_eq!(refused.status, 422);
    assert_eq!(
        refused.body["message"],
        "CustomResourceDefinition.apiextensions.k8s.io \"gadgets.example.com\" is invalid: spec.additionalPrinterColumns[0].expression: Forbidden: CEL printer columns require feature gate CRDAdditionalPrinterColumnCEL"
    );
    ok(post(&off, WIDGETS, widget("b", json!({}))).await);
    let again = start(&store, true).await;
    assert_eq!(cells(&again).await.1, [[json!("a"), json!(8)], [json!("b"), json!(2)]]);
}

#[tokio::test]
async fn a_request_has_a_budget_for_its_cells() {
    let store = memory();
    let heavy = "self.spec.tags.map(a, self.spec.tags.map(b, self.spec.tags.map(c, a + b + c))).size()";
    let columns = json!([
        {"name": "Heavy", "type": "integer", "expression": heavy},
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"}
    ]);
    let options = Options { table_cost_max: 500_000, ..options(true) };
    let server = Server::start(store.clone(), options).await.unwrap();
    let created = ok(post(&server, DEFINITIONS, definition(columns)).await);
    assert_eq!(created.warnings.len(), 1, "{:?}", created.warnings);
    assert!(created.warnings[0].contains("spec.additionalPrinterColumns[0].expression: estimated cost"));
    let tags: Vec<String> = (0..20).map(|number| format!("tag-{number}")).collect();
    for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        ok(post(&server, WIDGETS, widget(name, json!({"tags": tags}))).await);
    }
    let (_, rows, warnings) = cells(&server).await;
    assert_eq!(rows[0], [json!("a"), json!(20), json!(1)]);
    assert_eq!(rows[7], [json!("h"), Value::Null, json!(1)], "paths go on");
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("exceeded the cost budget of this request"), "{}", warnings[0]);
}

#[tokio::test]
async fn a_definition_waits_for_objects_with_finalizers() {
    let server = start(&memory(), true).await;
    ok(post(&server, DEFINITIONS, definition(json!([]))).await);
    let mut held = widget("held", json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    ok(post(&server, WIDGETS, held).await);
    ok(post(&server, WIDGETS, widget("free", json!({}))).await);
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let deleted = ok(send(&server, "DELETE", &path, &[], &Value::Null).await).body;
    assert_eq!(deleted["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    assert_eq!(deleted["status"]["conditions"][2]["reason"], "InstanceDeletionPending");
    server.settle().await.unwrap();
    let left = ok(get(&server, WIDGETS).await).body;
    assert_eq!(left["items"].as_array().unwrap().len(), 1);
    assert!(left["items"][0]["metadata"]["deletionTimestamp"].is_string());
    let refused = post(&server, WIDGETS, widget("new", json!({}))).await;
    assert_eq!(refused.status, 403);
    assert_eq!(
        refused.body["message"],
        "widgets.example.com \"new\" is forbidden: create not allowed while custom resource definition is terminating"
    );
    assert_eq!(ok(get(&server, &path).await).body["status"]["conditions"][2]["reason"], "InstanceDeletionInProgress");
    ok(merge(&server, &format!("{WIDGETS}/held"), json!({"metadata": {"finalizers": null}})).await);
    let mut gone = false;
    for _ in 0..100 {
        gone = get(&server, &path).await.status == 404;
        if gone {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert!(gone);
    assert_eq!(get(&server, WIDGETS).await.status, 404);
}

#[tokio::test]
async fn protobuf_and_strategic_patches_are_not_for_custom_resources() {
    let server = start(&memory(), true).await;
    ok(post(&server, DEFINITIONS, definition(json!([]))).await);
    ok(post(&server, WIDGETS, widget("a", json!({}))).await);
    let strategic = [("Content-Type", "application/strategic-merge-patch+json")];
    let answer = send(&server, "PATCH", &format!("{WIDGETS}/a"), &strategic, &json!({"spec": {"size": 2}})).await;
    assert_eq!(answer.status, 415);
    let protobuf = [("Content-Type", "application/vnd.kubernetes.protobuf")];
    assert_eq!(send(&server, "POST", WIDGETS, &protobuf, &json!({})).await.status, 415);
}

#[tokio::test]
async fn unchanged_values_that_break_a_rule_only_warn() {
    let server = start(&memory(), true).await;
    let mut definition = definition(json!([]));
    ok(post(&server, DEFINITIONS, definition.clone()).await);
    ok(post(&server, WIDGETS, widget("a", json!({"size": 9}))).await);
    let path = format!("{DEFINITIONS}/widgets.example.com");
    definition = ok(get(&server, &path).await).body;
    let size =
        &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["size"];
    size["x-kubernetes-validations"] = json!([{"rule": "self < 5", "message": "too large"}]);
    ok(send(&server, "PUT", &path, &[], &definition).await);
    server.settle().await.unwrap();
    let patched = ok(merge(&server, &format!("{WIDGETS}/a"), json!({"spec": {"tags": ["x"]}})).await);
    assert_eq!(patched.warnings, ["299 - \"spec.size: Invalid value: 9: too large\""]);
    let refused = merge(&server, &format!("{WIDGETS}/a"), json!({"spec": {"size": 10}})).await;
    assert_eq!(refused.body["message"], "Widget.example.com \"a\" is invalid: spec.size: Invalid value: 10: too large");
}
