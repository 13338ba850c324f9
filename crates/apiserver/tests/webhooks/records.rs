//! Metrics and audit events of webhook calls.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use apiserver::audit::Audit;
use apiserver::audit::log::{Log, Rotation};
use apiserver::audit::policy::Policy;
use apiserver::{Options, Server};
use base64::Engine as _;
use serde_json::{Value, json};
use store::EmbeddedStore;

use super::backend::Backend;
use super::{Answer, ask, tokens};

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

async fn send(server: &Arc<Server>, verb: &str, path: &str, body: Value) -> Answer {
    let request = json!({"verb": verb, "path": path, "contentType": "application/json", "body": body});
    let answer = ask(server, &request).await;
    server.settle().await.unwrap();
    answer
}

async fn start(audit: Option<Arc<Audit>>) -> Arc<Server> {
    let store = Arc::new(EmbeddedStore::in_memory(store::Options::default()).unwrap());
    let disabled_admission_plugins = vec!["ServiceAccount".to_owned()];
    let options = Options { tokens: tokens(), disabled_admission_plugins, audit, ..Options::default() };
    Server::start(store, options).await.unwrap()
}

/// Configures a mutating webhook for new objects of a resource.
async fn configure(server: &Arc<Server>, backend: &Backend, resource: &str, webhook: Value) {
    let authority = base64::engine::general_purpose::STANDARD.encode(&backend.authority);
    let mut whole = json!({
        "name": "a.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"caBundle": authority, "url": format!("https://{}/0/a", backend.addresses["good"])},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource]}]
    });
    for (field, value) in webhook.as_object().unwrap() {
        whole[field] = value.clone();
    }
    let configuration = json!({"metadata": {"name": "hook"}, "webhooks": [whole]});
    let answer = send(server, "POST", CONFIGURATIONS, configuration).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
}

/// The counters of webhooks, without labels that are the same everywhere.
async fn counts(server: &Arc<Server>) -> BTreeSet<String> {
    let answer = ask(server, &json!({"verb": "GET", "path": "/metrics"})).await;
    let text = answer.body.as_str().unwrap().to_owned();
    let lines = text.lines().filter_map(|line| line.strip_prefix("apiserver_admission_webhook_"));
    let lines = lines.filter(|line| !line.starts_with("admission_duration_seconds"));
    lines
        .map(|line| line.replace(r#"name="a.example.com",operation="CREATE","#, "").replace(r#",type="admit""#, ""))
        .collect()
}

#[tokio::test]
async fn calls_are_counted_by_their_outcome() {
    let (backend, server) = (Backend::start().await, start(None).await);
    let patch = |text: &str| json!({"do": "allow", "patchText": text});
    for (name, webhook, behavior, code) in [
        ("allowed", json!({}), json!({"do": "allow"}), 201),
        ("denied", json!({}), json!({"do": "deny", "status": {"code": 418}}), 418),
        ("missing", json!({}), json!({"do": "http", "code": 404}), 500),
        ("missing-ignored", json!({"failurePolicy": "Ignore"}), json!({"do": "http", "code": 404}), 201),
        ("garbage", json!({}), json!({"do": "raw", "body": "x"}), 500),
        ("undecodable-ignored", json!({"failurePolicy": "Ignore"}), patch("{}"), 201),
        ("inapplicable-ignored", json!({"failurePolicy": "Ignore"}), patch(r#"[{"op":"remove","path":"/none"}]"#), 500),
    ] {
        configure(&server, &backend, "configmaps", webhook).await;
        backend.hooks.set("0", "a", &behavior);
        let map = json!({"metadata": {"name": name}});
        let answer = send(&server, "POST", "/api/v1/namespaces/default/configmaps", map).await;
        assert_eq!(answer.code, code, "{name}: {}", answer.body);
        assert_eq!(send(&server, "DELETE", &format!("{CONFIGURATIONS}/hook"), Value::Null).await.code, 200);
    }
    let expected = [
        r#"fail_open_count{name="a.example.com"} 2"#,
        r#"rejection_count{error_type="apiserver_internal_error",rejection_code="0"} 1"#,
        r#"rejection_count{error_type="calling_webhook_error",rejection_code="404"} 1"#,
        r#"rejection_count{error_type="calling_webhook_error",rejection_code="503"} 1"#,
        r#"rejection_count{error_type="no_error",rejection_code="418"} 1"#,
        r#"request_total{code="0",rejected="true"} 1"#,
        r#"request_total{code="200",rejected="false"} 1"#,
        r#"request_total{code="404",rejected="false"} 1"#,
        r#"request_total{code="404",rejected="true"} 1"#,
        r#"request_total{code="418",rejected="true"} 1"#,
        r#"request_total{code="503",rejected="false"} 1"#,
        r#"request_total{code="503",rejected="true"} 1"#,
    ];
    assert_eq!(counts(&server).await, expected.map(str::to_owned).into());
}

/// The audit events of a secret that a webhook changes, at a level.
async fn events(level: &str) -> String {
    let (directory, backend) = (tempfile::tempdir().unwrap(), Backend::start().await);
    let file = directory.path().join("audit.log");
    let policy = format!("{{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{{level: {level}}}]}}");
    let log = Log::open(&file, Rotation { file_bytes_max: 0, files_max: 0, age_max: Duration::ZERO }).unwrap();
    let server = start(Some(Audit::new(Policy::parse(&policy).unwrap(), log))).await;
    configure(&server, &backend, "secrets", json!({})).await;
    let patch = json!([{"op": "add", "path": "/data", "value": {"key": "c2VjcmV0"}}]);
    backend.hooks.set("0", "a", &json!({"do": "allow", "patch": patch}));
    let secret = json!({"metadata": {"name": "s"}});
    assert_eq!(send(&server, "POST", "/api/v1/namespaces/default/secrets", secret).await.code, 201);
    server.stop().await.unwrap();
    std::fs::read_to_string(file).unwrap()
}

#[tokio::test]
async fn patches_are_absent_from_events_without_objects() {
    let (short, long) = (events("Metadata").await, events("Request").await);
    assert!(short.contains(r#"\"mutated\":true"#) && !short.contains("c2VjcmV0"), "{short}");
    assert!(long.contains("patch.webhook.admission.k8s.io/round_0_index_0") && long.contains("c2VjcmV0"), "{long}");
}

/// Metrics of Kubernetes that this server does not have.
const ABSENT: [&str; 6] = [
    "apiserver_admission_step_admission_duration_seconds_summary",
    "apiserver_cel_evaluation_duration_seconds",
    "apiserver_kube_aggregator_x509_insecure_sha1_total",
    "apiserver_kube_aggregator_x509_missing_san_total",
    "apiserver_webhooks_x509_insecure_sha1_total",
    "apiserver_webhooks_x509_missing_san_total",
];

/// Compares the metrics of a server with those of Kubernetes whose names contain `part`: type, help, labels and buckets.
/// Returns the number of metrics compared.
pub(crate) async fn compare_metrics(server: &Arc<Server>, part: &str) -> usize {
    let answer = ask(server, &json!({"verb": "GET", "path": "/metrics"})).await;
    let text = answer.body.as_str().unwrap();
    let recorded = include_str!("../data/webhooks/metrics.jsonl").lines();
    let recorded = recorded.map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut compared = 0;
    for metric in recorded.filter(|it| it["name"].as_str().unwrap().contains(part)) {
        let name = metric["name"].as_str().unwrap();
        let help = format!("# HELP {name} {}", metric["help"].as_str().unwrap());
        let kind = format!("# TYPE {name} {}", metric["type"].as_str().unwrap());
        let has = |wanted: &str| text.lines().any(|line| line == wanted);
        if ABSENT.contains(&name) {
            assert!(!has(&kind), "{name} exists now, take it off the list");
            continue;
        }
        assert!(has(&help), "{help}");
        assert!(has(&kind), "{kind}");
        let samples = text.lines().filter_map(|line| line.strip_prefix(name)).filter(|rest| {
            ["{", " ", "_bucket{", "_sum{", "_sum ", "_count{", "_count "].iter().any(|start| rest.starts_with(start))
        });
        let mut buckets = Vec::new();
        for sample in samples {
            let labels = sample.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}'));
            let labels = labels.map(|(labels, _)| labels).unwrap_or_default();
            let pairs = labels.split("\",").filter_map(|label| label.split_once("=\""));
            let mut names: Vec<&str> = Vec::new();
            for (label, value) in pairs {
                match label {
                    "le" if buckets.contains(&value.trim_end_matches('"')) => {}
                    "le" => buckets.push(value.trim_end_matches('"')),
                    label => names.push(label),
                }
            }
            names.sort_unstable();
            assert_eq!(json!(names), metric["labels"], "{name}{sample}");
        }
        assert_eq!(json!(buckets), metric.get("buckets").cloned().unwrap_or_else(|| json!([])), "{name}");
        compared += 1;
    }
    compared
}

#[tokio::test]
async fn metrics_of_admission_are_as_recorded() {
    let (backend, server) = (Backend::start().await, start(None).await);
    let condition = |expression: &str| json!([{"name": "c", "expression": expression}]);
    let group = "/apis/admissionregistration.k8s.io/v1";
    let constraints = json!({"resourceRules": [
        {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
    ]});
    let validations = json!([{"expression": "object.metadata.name != 'refused'"}]);
    let mutations =
        json!([{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{data: {'a': 'b'}}"}}]);
    for (kind, field, rules) in [("validating", "validations", validations), ("mutating", "mutations", mutations)] {
        let mut policy = json!({"metadata": {"name": "p"}, "spec": {"matchConstraints": constraints}});
        policy["spec"][field] = rules;
        if kind == "mutating" {
            policy["spec"]["reinvocationPolicy"] = json!("Never");
        }
        let mut binding = json!({"metadata": {"name": "p"}, "spec": {"policyName": "p"}});
        if kind == "validating" {
            binding["spec"]["validationActions"] = json!(["Deny"]);
        }
        for (plural, object) in [("policies", policy), ("policybindings", binding)] {
            let answer = send(&server, "POST", &format!("{group}/{kind}admission{plural}"), object).await;
            assert_eq!(answer.code, 201, "{}", answer.body);
        }
    }
    for (name, webhook, behavior, code) in [
        ("allowed", json!({}), json!({"do": "allow"}), 201),
        ("refused", json!({}), json!({"do": "allow"}), 422),
        ("denied", json!({}), json!({"do": "deny"}), 400),
        ("open", json!({"failurePolicy": "Ignore"}), json!({"do": "http", "code": 500}), 201),
        ("excluded", json!({"matchConditions": condition("false")}), json!({"do": "deny"}), 201),
        ("failing", json!({"matchConditions": condition("object.none == 1")}), json!({"do": "deny"}), 403),
    ] {
        configure(&server, &backend, "configmaps", webhook).await;
        backend.hooks.set("0", "a", &behavior);
        let map = json!({"metadata": {"name": name}});
        let answer = send(&server, "POST", "/api/v1/namespaces/default/configmaps", map).await;
        assert_eq!(answer.code, code, "{name}: {}", answer.body);
        assert_eq!(send(&server, "DELETE", &format!("{CONFIGURATIONS}/hook"), Value::Null).await.code, 200);
    }
    assert_eq!(compare_metrics(&server, "apiserver_admission_").await, 9);
    assert_eq!(compare_metrics(&server, "_admission_policy_").await, 4);
    assert_eq!(compare_metrics(&server, "apiserver_cel_").await, 1);
    assert_eq!(compare_metrics(&server, "x509").await, 0);
}
