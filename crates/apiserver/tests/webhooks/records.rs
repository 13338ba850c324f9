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
