//! Replays recorded requests about admission policies against a whole server: validation and defaults of policies, and
//! what policies do to requests.
//!
//! The cases are in `tests/data/policies/`. Every case has its own namespaces; all set-ups come first. A case
//! that differs is listed in `policies/known_gaps.txt` with the reason; one that is listed and agrees fails as
//! well.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use apiserver::{Options, Server};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use store::EmbeddedStore;

use crate::authorization::{ask, difference, make_account, steps_of, tokens};
use crate::cluster::{Cluster, admin, pod};

fn cases(file: &str) -> Vec<Value> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/policies");
    let text = std::fs::read_to_string(root.join(file)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Whether a case shares its object with others: it is recreated.
fn is_alone(case: &Value) -> bool {
    case["id"].as_str().is_some_and(|id| id.starts_with("vap/update/") || id.starts_with("vap/status/"))
}

async fn set_up(server: &Arc<Server>, case: &Value) {
    for request in case["setup"].as_array().into_iter().flatten() {
        if is_alone(case) && request["verb"] == "POST" {
            let (path, name) =
                (request["path"].as_str().unwrap(), request["body"]["metadata"]["name"].as_str().unwrap());
            ask(server, &json!({"verb": "DELETE", "path": format!("{path}/{name}")})).await;
        }
        let answer = ask(server, request).await;
        assert!((200..300).contains(&answer.code), "{}: {answer:?}", case["id"]);
        make_account(server, request).await;
    }
}

/// Plays the cases whose names start so.
async fn replay(prefixes: &[&str]) {
    let cases: Vec<Value> = cases("policies.jsonl")
        .into_iter()
        .filter(|case| prefixes.iter().any(|prefix| case["id"].as_str().unwrap().starts_with(prefix)))
        .collect();
    let gaps =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/policies/known_gaps.txt")).unwrap();
    let gaps: BTreeMap<&str, &str> =
        gaps.lines().filter(|line| !line.starts_with('#')).map(|line| line.split_once(" # ").unwrap()).collect();
    let store = Arc::new(EmbeddedStore::in_memory(store::Options::default()).unwrap());
    let server = Server::start(store, Options { tokens: tokens(&cases), ..Options::default() }).await.unwrap();
    for case in cases.iter().filter(|case| !is_alone(case)) {
        set_up(&server, case).await;
    }
    server.settle().await.unwrap();
    let mut wrong = Vec::new();
    for case in &cases {
        let id = case["id"].as_str().unwrap();
        let mut differences = Vec::new();
        if is_alone(case) {
            set_up(&server, case).await;
        }
        for step in steps_of(case) {
            let mut answer = ask(&server, &step["request"]).await;
            if id.starts_with("vap/update/") && answer.code == 200 {
                // The recording leaves it out: a controller wrote it meanwhile.
                answer.body.as_object_mut().unwrap().remove("status");
            }
            differences.extend(difference(answer, &step["expect"]));
            server.settle().await.unwrap();
        }
        match gaps.get(id) {
            Some(_) if differences.is_empty() => wrong.push(format!("{id}: agrees now, take it off the list")),
            Some(_) => {}
            None => wrong.extend(differences.iter().map(|it| format!("{id}: {it}"))),
        }
    }
    server.stop().await.unwrap();
    assert!(wrong.is_empty(), "{} of {} are not as recorded:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[tokio::test]
async fn policies_are_validated_and_defaulted_as_recorded() {
    replay(&["vap/spec/", "map/spec/", "vap/update/", "vap/status/"]).await;
}

#[tokio::test]
async fn validating_policies_are_enforced_as_recorded() {
    replay(&["vap/enforce/"]).await;
}

#[tokio::test]
async fn mutating_policies_are_enforced_as_recorded() {
    replay(&["map/enforce/"]).await;
}

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

fn policy(name: &str, resources: &str, expression: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "matchConstraints": {"resourceRules": [
            {"apiGroups": ["*"], "apiVersions": ["*"], "resources": [resources], "operations": ["*"]}
        ]},
        "validations": [{"expression": expression}]
    }})
}

fn binding(name: &str, policy: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"policyName": policy, "validationActions": ["Deny"]}})
}

#[tokio::test]
async fn policies_that_refuse_everything_can_be_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let open = || Arc::new(EmbeddedStore::open(&path, store::Options::default()).unwrap());
    let cluster = Cluster(Server::start(open(), Options::default()).await.unwrap());
    let config_map = json!({"metadata": {"name": "c"}});
    let config_maps = "/api/v1/namespaces/default/configmaps";
    cluster.make(&format!("{GROUP}/validatingadmissionpolicies"), policy("never", "*", "false")).await;
    cluster.make(&format!("{GROUP}/validatingadmissionpolicybindings"), binding("never", "never")).await;
    cluster.0.settle().await.unwrap();
    let (code, answer) = cluster.ask(&admin(), "POST", config_maps, config_map.clone()).await;
    assert_eq!((code, &answer["reason"]), (422, &json!("Invalid")), "{answer}");
    // Reads and policies themselves are free.
    assert_eq!(cluster.ask(&admin(), "GET", config_maps, Value::Null).await.0, 200);
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    let own = format!("{GROUP}/validatingadmissionpolicies/never");
    assert_eq!(cluster.ask(&admin(), "PATCH", &own, patch).await.0, 200);
    cluster.0.stop().await.unwrap();
    drop(cluster);
    // The policy outlives a restart, and the plugin can be switched off.
    let cluster = Cluster(Server::start(open(), Options::default()).await.unwrap());
    assert_eq!(cluster.ask(&admin(), "POST", config_maps, config_map.clone()).await.0, 422);
    cluster.0.stop().await.unwrap();
    drop(cluster);
    let disabled_admission_plugins = vec!["ValidatingAdmissionPolicy".to_owned()];
    let options = Options { disabled_admission_plugins, ..Options::default() };
    let cluster = Cluster(Server::start(open(), options).await.unwrap());
    assert_eq!(cluster.ask(&admin(), "POST", config_maps, config_map).await.0, 201);
    cluster.0.stop().await.unwrap();
}

#[tokio::test]
async fn a_thousand_policies_are_compiled_once_and_found_by_resource() {
    let cluster = Cluster::start().await;
    let pods = "/api/v1/namespaces/ns/pods";
    for index in 0..1000 {
        let expression = format!("object.spec.containers.all(c, c.name != 'forbidden-{index}')");
        let mut policy = policy(&format!("p{index}"), "pods", &expression);
        let rule = &mut policy["spec"]["matchConstraints"]["resourceRules"][0];
        rule["apiGroups"] = json!([""]);
        rule["operations"] = json!(["CREATE", "UPDATE"]);
        cluster.make(&format!("{GROUP}/validatingadmissionpolicies"), policy).await;
        let binding = binding(&format!("b{index}"), &format!("p{index}"));
        cluster.make(&format!("{GROUP}/validatingadmissionpolicybindings"), binding).await;
    }
    cluster.0.settle().await.unwrap();
    assert_eq!(cluster.ask(&admin(), "POST", pods, pod("good", "")).await.0, 201);
    let mut bad = pod("bad", "");
    bad["spec"]["containers"][0]["name"] = json!("forbidden-77");
    let (code, answer) = cluster.ask(&admin(), "POST", pods, bad).await;
    assert_eq!(code, 422);
    let text = answer["message"].as_str().unwrap();
    assert!(text.contains("ValidatingAdmissionPolicy 'p77' with binding 'b77' denied request"), "{text}");
    // Both requests evaluated what was compiled once.
    let compiled = "apiserver_cel_compilation_duration_seconds_count 1000";
    let before = metrics(&cluster).await;
    assert!(before.lines().any(|line| line == compiled), "{before}");
    // Requests for other resources and operations do not reach the plugin.
    let map = json!({"metadata": {"name": "c"}});
    assert_eq!(cluster.ask(&admin(), "POST", "/api/v1/namespaces/ns/configmaps", map).await.0, 201);
    assert_eq!(cluster.ask(&admin(), "DELETE", &format!("{pods}/good"), Value::Null).await.0, 200);
    let after = metrics(&cluster).await;
    assert_eq!(evaluations(&after), evaluations(&before));
    assert!(after.lines().any(|line| line == compiled), "{after}");
}

/// The numbers of requests that ValidatingAdmissionPolicies decided on.
fn evaluations(metrics: &str) -> Vec<&str> {
    let start = r#"apiserver_admission_controller_admission_duration_seconds_count{name="ValidatingAdmissionPolicy","#;
    let lines: Vec<&str> = metrics.lines().filter_map(|line| line.strip_prefix(start)).collect();
    assert!(!lines.is_empty());
    lines
}

#[tokio::test]
async fn parameters_are_selected_by_labels() {
    let cluster = Cluster::start().await;
    let path = "/api/v1/namespaces/ns/configmaps";
    for index in 0..50 {
        let labels = json!({"limits": if index % 25 == 7 { "yes" } else { "no" }});
        let map =
            json!({"metadata": {"name": format!("m{index}"), "labels": labels}, "data": {"most": index.to_string()}});
        cluster.make(path, map).await;
    }
    let mut policy = policy("most", "secrets", "object.data.size() < int(params.data.most)");
    policy["spec"]["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    policy["spec"]["validations"][0]["messageExpression"] = json!("'less than ' + params.data.most");
    cluster.make(&format!("{GROUP}/validatingadmissionpolicies"), policy).await;
    for (name, selector) in [
        ("a", json!({"matchLabels": {"limits": "yes"}})),
        ("b", json!({"matchExpressions": [{"key": "limits", "operator": "In", "values": ["yes", "maybe"]}]})),
    ] {
        let mut binding = binding(name, "most");
        binding["spec"]["paramRef"] = json!({"selector": selector, "parameterNotFoundAction": "Deny"});
        cluster.make(&format!("{GROUP}/validatingadmissionpolicybindings"), binding).await;
    }
    cluster.0.settle().await.unwrap();
    let secret = |size: usize| {
        let data: serde_json::Map<_, _> = (0..size).map(|index| (format!("k{index}"), json!(""))).collect();
        json!({"metadata": {"name": format!("s{size}")}, "data": data})
    };
    let secrets = "/api/v1/namespaces/ns/secrets";
    assert_eq!(cluster.ask(&admin(), "POST", secrets, secret(6)).await.0, 201);
    let (code, answer) = cluster.ask(&admin(), "POST", secrets, secret(7)).await;
    let text = answer["message"].as_str().unwrap();
    assert!(code == 422 && text.ends_with("with binding 'a' denied request: less than 7"), "{code} {text}");
}

#[tokio::test]
async fn parameters_can_be_custom_resources() {
    let cluster = Cluster::start().await;
    let definition = json!({"metadata": {"name": "limits.example.com"}, "spec": {
        "group": "example.com", "scope": "Cluster",
        "names": {"plural": "limits", "singular": "limit", "kind": "Limit", "listKind": "LimitList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"most": {"type": "integer"}}
        }}}]
    }});
    cluster.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await;
    cluster.0.settle().await.unwrap();
    let limit = json!({"apiVersion": "example.com/v1", "kind": "Limit", "metadata": {"name": "l"}, "most": 1});
    cluster.make("/apis/example.com/v1/limits", limit).await;
    let mut policy = policy("most", "configmaps", "object.data.size() <= params.most");
    policy["spec"]["paramKind"] = json!({"apiVersion": "example.com/v1", "kind": "Limit"});
    cluster.make(&format!("{GROUP}/validatingadmissionpolicies"), policy).await;
    let mut binding = binding("most", "most");
    binding["spec"]["paramRef"] = json!({"name": "l", "parameterNotFoundAction": "Deny"});
    cluster.make(&format!("{GROUP}/validatingadmissionpolicybindings"), binding).await;
    cluster.0.settle().await.unwrap();
    let path = "/api/v1/namespaces/ns/configmaps";
    let map = |name: &str, data: Value| json!({"metadata": {"name": name}, "data": data});
    assert_eq!(cluster.ask(&admin(), "POST", path, map("one", json!({"a": ""}))).await.0, 201);
    assert_eq!(cluster.ask(&admin(), "POST", path, map("two", json!({"a": "", "b": ""}))).await.0, 422);
}

async fn metrics(cluster: &Cluster) -> String {
    let request = http::Request::builder().uri("/metrics").body(Full::new(Bytes::new())).unwrap();
    let body = cluster.0.handle(request, Some(&admin())).await.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

/// The lines of the metrics about match conditions, without their buckets and times.
async fn condition_metrics(cluster: &Cluster) -> Vec<String> {
    let text = metrics(cluster).await;
    let is_wanted =
        |line: &&str| line.starts_with("apiserver_admission_match_condition_") && !line.contains("_seconds_bucket");
    let lines = text.lines().filter(is_wanted).filter(|line| !line.contains("_seconds_sum")).map(str::to_owned);
    lines.collect()
}

#[tokio::test]
async fn match_conditions_of_policies_are_counted() {
    let cluster = Cluster::start().await;
    let failing = "object.data.absent == 'a'";
    for (name, expressions) in [
        ("holds", &["true"][..]),
        ("excludes", &["true", "false"]),
        ("fails", &[failing, "true", failing]),
        ("fails-first", &[failing, "false", failing]),
    ] {
        let mut policy = policy(name, "configmaps", "true");
        let condition = |(index, it): (usize, &&str)| json!({"name": format!("c{index}"), "expression": it});
        policy["spec"]["matchConditions"] = expressions.iter().enumerate().map(condition).collect();
        policy["spec"]["failurePolicy"] = json!("Ignore");
        cluster.make(&format!("{GROUP}/validatingadmissionpolicies"), policy).await;
        cluster.make(&format!("{GROUP}/validatingadmissionpolicybindings"), binding(name, name)).await;
    }
    cluster.0.settle().await.unwrap();
    let (path, map) = ("/api/v1/namespaces/ns/configmaps", json!({"metadata": {"name": "c"}, "data": {}}));
    assert_eq!(cluster.ask(&admin(), "POST", path, map).await.0, 201);
    let line = |metric: &str, name: &str, count: usize| {
        let labels = format!(r#"kind="policy",name="{name}",operation="CREATE",type="validate""#);
        format!("apiserver_admission_match_condition_evaluation_{metric}{{{labels}}} {count}")
    };
    // Kubernetes counts neither conditions that all hold nor exclusions of policies.
    let mut expected = vec![
        line("errors_total", "fails", 2),
        line("errors_total", "fails-first", 1),
        line("seconds_count", "excludes", 1),
        line("seconds_count", "fails", 1),
        line("seconds_count", "fails-first", 1),
    ];
    let mut found = condition_metrics(&cluster).await;
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    let text = metrics(&cluster).await;
    assert!(text.contains("apiserver_cel_compilation_duration_seconds_count 4\n"), "{text}");
}

/// A policy that costs the whole budget is a refusal, and other requests pass. The search for a long text costs much and
/// takes little time, so that the result does not depend on the speed of the machine.
#[tokio::test]
async fn policy_that_uses_up_the_budget_is_a_refusal() {
    let cluster = Cluster::start().await;
    let map = |length: usize| json!({"metadata": {"name": "c"}, "data": {"text": "a".repeat(length), "wanted": "b".repeat(1_000)}});
    let path = "/api/v1/namespaces/ns/configmaps?dryRun=All";
    let expression = "!object.data.text.contains(object.data.wanted)";
    let together = "validation failed due to running out of cost budget, no further validation rules will be run";
    // One expression that costs too much, and many that do so together.
    for (count, length, wanted) in
        [(1, 200_000, "operation cancelled: actual cost limit exceeded"), (30, 50_000, together)]
    {
        let mut costly = policy("costly", "configmaps", expression);
        let validation = costly["spec"]["validations"][0].clone();
        costly["spec"]["validations"] = json!(vec![validation; count]);
        cluster.make(&format!("{GROUP}/validatingadmissionpolicies"), costly).await;
        cluster.make(&format!("{GROUP}/validatingadmissionpolicybindings"), binding("costly", "costly")).await;
        cluster.0.settle().await.unwrap();
        assert_eq!(cluster.ask(&admin(), "POST", path, map(10)).await.0, 201);
        let (code, answer) = cluster.ask(&admin(), "POST", path, map(length)).await;
        let text = answer["message"].as_str().unwrap();
        assert!(code == 422 && text.ends_with(wanted), "{code} {text}");
        for plural in ["validatingadmissionpolicies", "validatingadmissionpolicybindings"] {
            let own = format!("{GROUP}/{plural}/costly");
            assert_eq!(cluster.ask(&admin(), "DELETE", &own, Value::Null).await.0, 200);
        }
    }
    assert_eq!(cluster.ask(&admin(), "GET", "/api/v1/namespaces/ns/configmaps", Value::Null).await.0, 200);
}
