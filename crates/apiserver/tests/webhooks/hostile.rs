//! Webhooks that answer too much, too late or ask back, and the way out of a configuration that blocks everything.

use std::path::Path;
use std::sync::Arc;

use apiserver::admission::SimulatedBackends;
use apiserver::{Options, Server};
use base64::Engine as _;
use serde_json::{Value, json};
use store::EmbeddedStore;

use super::backend::Backend;
use super::{Answer, ask, tokens};

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn server(path: &Path, disabled: &[&str], simulated_backends: SimulatedBackends) -> Arc<Server> {
    let store = Arc::new(EmbeddedStore::open(path, store::Options::default()).unwrap());
    let disabled = disabled.iter().chain(&["ServiceAccount"]).map(|it| (*it).to_owned()).collect();
    let options =
        Options { tokens: tokens(), disabled_admission_plugins: disabled, simulated_backends, ..Options::default() };
    Server::start(store, options).await.unwrap()
}

async fn send(server: &Arc<Server>, verb: &str, path: &str, body: Value) -> Answer {
    let request = json!({"verb": verb, "path": path, "contentType": "application/json", "body": body});
    let answer = ask(server, &request).await;
    server.settle().await.unwrap();
    answer
}

async fn make_config_map(server: &Arc<Server>, name: &str) -> Answer {
    send(server, "POST", CONFIG_MAPS, json!({"metadata": {"name": name}})).await
}

/// Configures a webhook for all new config maps.
async fn configure(server: &Arc<Server>, client: Value, timeout_seconds: u64) {
    let configuration = json!({
        "metadata": {"name": "hook"},
        "webhooks": [{
            "name": "a.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": timeout_seconds,
            "clientConfig": client,
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]
        }]
    });
    let answer = send(server, "POST", CONFIGURATIONS, configuration).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
}

fn client(backend: &Backend) -> Value {
    let authority = base64::engine::general_purpose::STANDARD.encode(&backend.authority);
    json!({"caBundle": authority, "url": format!("https://{}/0/a", backend.addresses["good"])})
}

#[tokio::test]
async fn oversized_and_late_answers_are_failed_calls() {
    let (directory, backend) = (tempfile::tempdir().unwrap(), Backend::start().await);
    let server = server(&directory.path().join("store"), &[], SimulatedBackends::Fail).await;
    for (behavior, timeout_seconds, why) in [
        (json!({"do": "allow", "pad": 17 << 20}), 30, "the response is larger than 16777216 bytes"),
        // It would take 400 MB in memory.
        (
            json!({"do": "raw", "body": format!("[{}1]", "1,".repeat(1 << 18))}),
            30,
            "the response holds more than 262144 values",
        ),
        (json!({"do": "allow", "delay": 5}), 1, "context deadline exceeded"),
    ] {
        configure(&server, client(&backend), timeout_seconds).await;
        backend.hooks.set("0", "a", &behavior);
        let answer = make_config_map(&server, "x").await;
        assert_eq!(answer.code, 500);
        let start = "Internal error occurred: failed calling webhook \"a.example.com\": failed to call webhook: ";
        let message = answer.body["message"].as_str().unwrap();
        assert!(message.starts_with(start) && message.ends_with(why), "{message}");
        assert_eq!(send(&server, "DELETE", &format!("{CONFIGURATIONS}/hook"), Value::Null).await.code, 200);
    }
    configure(&server, client(&backend), 1).await;
    // Requests that no rule is about are not held up.
    let secret = json!({"metadata": {"name": "s"}});
    assert_eq!(send(&server, "POST", "/api/v1/namespaces/default/secrets", secret).await.code, 201);
}

#[tokio::test]
async fn self_signed_certificate_in_the_bundle_is_trusted() {
    let (directory, backend) = (tempfile::tempdir().unwrap(), Backend::start().await);
    let server = server(&directory.path().join("store"), &[], SimulatedBackends::Fail).await;
    let bundle = base64::engine::general_purpose::STANDARD.encode(&backend.self_signed);
    let address = backend.addresses["selfsigned"];
    backend.hooks.set("0", "a", &json!({"do": "allow"}));
    configure(&server, json!({"caBundle": bundle, "url": format!("https://{address}/0/a")}), 10).await;
    let answer = make_config_map(&server, "x").await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    let (path, host) = (format!("{CONFIGURATIONS}/hook"), format!("https://localhost:{}/0/a", address.port()));
    let patch = json!([{"op": "replace", "path": "/webhooks/0/clientConfig/url", "value": host}]);
    let request = json!({"verb": "PATCH", "path": path, "contentType": "application/json-patch+json", "body": patch});
    assert_eq!(ask(&server, &request).await.code, 200);
    server.settle().await.unwrap();
    assert_eq!(make_config_map(&server, "y").await.code, 500, "the certificate does not have this name");
}

#[tokio::test]
async fn expired_certificate_is_reported_with_its_time() {
    let (directory, backend) = (tempfile::tempdir().unwrap(), Backend::start().await);
    let server = server(&directory.path().join("store"), &[], SimulatedBackends::Fail).await;
    let mut client = client(&backend);
    client["url"] = json!(format!("https://{}/0/a", backend.addresses["expired"]));
    configure(&server, client, 10).await;
    let answer = make_config_map(&server, "x").await;
    let message = answer.body["message"].as_str().unwrap();
    let why = "x509: certificate has expired or is not yet valid: current time ";
    assert!(message.contains(why) && message.ends_with("Z is after 2021-01-01T00:00:00Z"), "{message}");
}

#[tokio::test]
async fn webhook_that_asks_the_server_is_answered() {
    let (directory, backend) = (tempfile::tempdir().unwrap(), Backend::start().await);
    let server = server(&directory.path().join("store"), &[], SimulatedBackends::Fail).await;
    configure(&server, client(&backend), 10).await;
    backend.hooks.set("0", "a", &json!({"do": "allow"}));
    let asked = server.clone();
    backend.hooks.on_call(Box::new(move || {
        let server = asked.clone();
        Box::pin(async move {
            let secret = json!({"metadata": {"name": "made-by-hook"}});
            send(&server, "POST", "/api/v1/namespaces/default/secrets", secret).await.code
        })
    }));
    assert_eq!(make_config_map(&server, "x").await.code, 201);
    assert_eq!(send(&server, "GET", "/api/v1/namespaces/default/secrets/made-by-hook", Value::Null).await.code, 200);
}

#[tokio::test]
async fn blocking_configuration_is_removed_after_a_restart() {
    let (directory, backend) = (tempfile::tempdir().unwrap(), Backend::start().await);
    let path = directory.path().join("store");
    let url = format!("https://{}/", backend.addresses["closed"]);
    let blocked = server(&path, &[], SimulatedBackends::Fail).await;
    configure(&blocked, json!({"url": url}), 10).await;
    assert_eq!(make_config_map(&blocked, "x").await.code, 500);
    blocked.stop().await.unwrap();
    drop(blocked);
    let plugins = ["MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"];
    let open = server(&path, &plugins, SimulatedBackends::Fail).await;
    assert_eq!(make_config_map(&open, "x").await.code, 201);
    assert_eq!(send(&open, "DELETE", &format!("{CONFIGURATIONS}/hook"), Value::Null).await.code, 200);
    open.stop().await.unwrap();
    drop(open);
    let recovered = server(&path, &[], SimulatedBackends::Fail).await;
    assert_eq!(make_config_map(&recovered, "y").await.code, 201);
}

#[tokio::test]
async fn skipped_webhook_is_reported_by_an_event() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(&directory.path().join("store"), &[], SimulatedBackends::Skip).await;
    let metadata = json!({"name": "hook", "labels": {"kubernetes.io/service-name": "hook"}});
    let slice = json!({
        "metadata": metadata, "addressType": "IPv4", "ports": [{"name": "", "port": 443}],
        "endpoints": [{"addresses": ["192.0.2.1"], "nodeName": "n", "conditions": {"ready": true}}]
    });
    for (verb, path, body) in [
        (
            "POST",
            "/api/v1/namespaces/default/services",
            json!({"metadata": metadata, "spec": {"ports": [{"port": 443}]}}),
        ),
        ("POST", "/api/v1/nodes", json!({"metadata": {"name": "n"}})),
        (
            "PUT",
            "/api/v1/nodes/n/status",
            json!({"metadata": {"name": "n"}, "status": {"nodeInfo": {"kernelVersion": "simulated"}}}),
        ),
        ("POST", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice),
    ] {
        let answer = send(&server, verb, path, body).await;
        assert!(answer.code < 300, "{}", answer.body);
    }
    configure(&server, json!({"service": {"namespace": "default", "name": "hook"}}), 10).await;
    let answer = make_config_map(&server, "x").await;
    assert_eq!((answer.code, answer.warnings.len()), (201, 1));
    let mut events = super::converters::watch(&server, "/api/v1/namespaces/default/events?watch=1").await;
    let event = super::converters::event(&mut events).await;
    let object = &event["object"];
    assert_eq!(object["involvedObject"]["kind"], "ValidatingWebhookConfiguration");
    assert_eq!((&object["reason"], &object["involvedObject"]["name"]), (&json!("SimulatedBackend"), &json!("hook")));
    // A simulated pod that is not ready is not called either.
    let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/hook";
    let patch = json!([{"op": "replace", "path": "/endpoints/0/conditions/ready", "value": false}]);
    let request = json!({"verb": "PATCH", "path": path, "contentType": "application/json-patch+json", "body": patch});
    assert_eq!(ask(&server, &request).await.code, 200);
    server.settle().await.unwrap();
    let answer = make_config_map(&server, "y").await;
    assert_eq!((answer.code, answer.warnings.len()), (201, 1), "{}", answer.body);
    let metrics = ask(&server, &json!({"verb": "GET", "path": "/metrics"})).await;
    let skipped = r#"celplane_apiserver_simulated_backend_skipped_total{name="a.example.com",type="validating"} 2"#;
    assert!(metrics.body.as_str().unwrap().lines().any(|line| line == skipped));
}

#[tokio::test]
async fn service_without_endpoints_is_a_failed_call() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(&directory.path().join("store"), &[], SimulatedBackends::Skip).await;
    let metadata = json!({"name": "hook", "labels": {"kubernetes.io/service-name": "hook"}});
    let service = json!({"metadata": metadata, "spec": {"ports": [{"port": 443}]}});
    assert_eq!(send(&server, "POST", "/api/v1/namespaces/default/services", service).await.code, 201);
    configure(&server, json!({"service": {"namespace": "default", "name": "hook"}}), 10).await;
    let why = "Internal error occurred: failed calling webhook \"a.example.com\": failed to call webhook: Post \"https://hook.default.svc:443/?timeout=10s\": no endpoints available for service \"hook\"";
    let answer = make_config_map(&server, "x").await;
    assert_eq!((answer.code, answer.body["message"].as_str()), (500, Some(why)));
    // One that no pod is behind yet, and one that none is ready of.
    for (verb, path, endpoints) in [
        ("POST", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", json!([])),
        (
            "PUT",
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/hook",
            json!([{"addresses": ["192.0.2.1"], "conditions": {"ready": false}}]),
        ),
    ] {
        let slice = json!({"metadata": metadata, "addressType": "IPv4", "ports": [{"name": "", "port": 443}], "endpoints": endpoints});
        let answer = send(&server, verb, path, slice).await;
        assert!(answer.code < 300, "{}", answer.body);
        let answer = make_config_map(&server, "x").await;
        assert_eq!((answer.code, answer.body["message"].as_str()), (500, Some(why)));
    }
}

#[tokio::test]
async fn connections_are_used_again_for_the_same_server() {
    let (directory, backend) = (tempfile::tempdir().unwrap(), Backend::start().await);
    let server = server(&directory.path().join("store"), &[], SimulatedBackends::Fail).await;
    configure(&server, client(&backend), 10).await;
    backend.hooks.set("0", "a", &json!({"do": "allow"}));
    for name in ["a", "b", "c", "d"] {
        assert_eq!(make_config_map(&server, name).await.code, 201);
    }
    assert_eq!(backend.hooks.connections(), 1);
    // Another name of the same server is another server: its certificate is verified for that name.
    let host = format!("https://localhost:{}/0/a", backend.addresses["good"].port());
    change(&server, "clientConfig/url", json!(host)).await;
    for name in ["e", "f"] {
        assert_eq!(make_config_map(&server, name).await.code, 201);
    }
    assert_eq!(backend.hooks.connections(), 2);
}

#[tokio::test]
async fn answers_of_failed_calls_are_shortened_and_not_logged() {
    crate::logs::listen();
    let (directory, backend) = (tempfile::tempdir().unwrap(), Backend::start().await);
    let server = server(&directory.path().join("store"), &[], SimulatedBackends::Fail).await;
    configure(&server, client(&backend), 10).await;
    let body = format!("top-secret-answer {}", "y".repeat(10_000));
    backend.hooks.set("0", "a", &json!({"do": "http", "code": 500, "body": body}));
    let answer = make_config_map(&server, "x").await;
    let message = answer.body["message"].as_str().unwrap();
    assert!(answer.code == 500 && message.contains("top-secret-answer") && message.len() < 2300, "{message}");
    // The text that a client sees may hold parts of its own object: logs have the code and the class of the failure.
    change(&server, "failurePolicy", json!("Ignore")).await;
    assert_eq!(make_config_map(&server, "x").await.code, 201);
    let status = json!({"kind": "Status", "message": "top-secret-answer", "code": 409}).to_string();
    backend.hooks.set("0", "a", &json!({"do": "http", "code": 409, "body": status}));
    assert_eq!(make_config_map(&server, "y").await.code, 201);
    backend.hooks.set("0", "a", &json!({"do": "raw", "body": "top-secret-answer"}));
    assert_eq!(make_config_map(&server, "z").await.code, 201);
    let failed = "Failed calling webhook, failing open";
    for words in [["code=500", "HTTPError"], ["code=409", "HTTPError"], ["code=503", "UnreadableReview"]] {
        assert!(!crate::logs::lines_with(&[failed, words[0], words[1]]).is_empty(), "{words:?}");
    }
    assert_eq!(crate::logs::lines_with(&["top-secret-answer"]), Vec::<String>::new());
}

/// Changes a field of the configured webhook.
async fn change(server: &Arc<Server>, field: &str, value: Value) {
    let (path, field) = (format!("{CONFIGURATIONS}/hook"), format!("/webhooks/0/{field}"));
    let patch = json!([{"op": "replace", "path": field, "value": value}]);
    let request = json!({"verb": "PATCH", "path": path, "contentType": "application/json-patch+json", "body": patch});
    assert_eq!(ask(server, &request).await.code, 200);
    server.settle().await.unwrap();
}
