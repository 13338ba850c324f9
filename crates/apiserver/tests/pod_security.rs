//! Pod Security admission in a whole server: updates, relabeled namespaces, exemptions, metrics.

use std::sync::Arc;

use apiserver::{Options, Server};
use registry::pod_security::Configuration;
use serde_json::{Value, json};
use store::EmbeddedStore;

use crate::cluster::{Cluster, admin, pod};

fn labels(level: &str) -> Value {
    json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}})
}

fn header(text: &str) -> String {
    format!("299 - \"{}\"", text.replace('"', "\\\""))
}

/// A pod of the restricted level, or one that shares the process namespace of its node.
fn pod_with(name: &str, is_privileged: bool, controller: &str) -> Value {
    let mut pod = pod(name, "");
    pod["spec"]["hostPID"] = json!(is_privileged);
    if !controller.is_empty() {
        pod["metadata"]["ownerReferences"] = json!([
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": controller, "controller": true}
        ]);
    }
    pod
}

#[tokio::test]
async fn raised_level_warns_of_existing_pods() {
    let cluster = Cluster::start().await;
    for (name, is_privileged, controller) in [("c", true, "1"), ("b", true, "1"), ("a", true, ""), ("d", false, "")] {
        cluster.make("/api/v1/namespaces/ns/pods", pod_with(name, is_privileged, controller)).await;
    }
    cluster.0.settle().await.unwrap();
    let path = "/api/v1/namespaces/ns";
    assert_eq!(
        cluster.warnings("PATCH", path, labels("baseline")).await,
        [
            header("existing pods in namespace \"ns\" violate the new PodSecurity enforce level \"baseline:latest\""),
            header("a (and 2 other pods): host namespaces"),
        ]
    );
    cluster.0.settle().await.unwrap();
    assert!(cluster.warnings("PATCH", path, labels("baseline")).await.is_empty(), "nothing changes");
    assert!(cluster.warnings("PATCH", path, labels("privileged")).await.is_empty(), "the level is lowered");
    let warn = json!({"metadata": {"labels": {"pod-security.kubernetes.io/warn": "restricted"}}});
    assert!(cluster.warnings("PATCH", path, warn).await.is_empty(), "only enforcement is checked");
}

#[tokio::test]
async fn only_significant_updates_of_pods_are_evaluated() {
    let cluster = Cluster::start().await;
    let pods = "/api/v1/namespaces/ns/pods";
    cluster.make(pods, pod_with("p", true, "")).await;
    cluster.ask(&admin(), "PATCH", "/api/v1/namespaces/ns", labels("baseline")).await;
    cluster.0.settle().await.unwrap();
    let path = format!("{pods}/p");
    let (code, _) = cluster.ask(&admin(), "PATCH", &path, json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(code, 200, "labels do not matter");
    let image = json!({"spec": {"containers": [{"name": "c", "image": "other"}]}});
    let (code, answer) = cluster.ask(&admin(), "PATCH", &path, image).await;
    assert_eq!(code, 403);
    let text = "pods \"p\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces (hostPID=true)";
    assert_eq!(answer["message"], text);
    let (code, _) =
        cluster.ask(&admin(), "PATCH", &format!("{path}/status"), json!({"status": {"phase": "Failed"}})).await;
    assert_eq!(code, 200, "the status is not evaluated");
}

#[tokio::test]
async fn invalid_labels_are_refused_unless_they_stay() {
    let cluster = Cluster::start().await;
    let path = "/api/v1/namespaces/ns";
    let (code, answer) = cluster.ask(&admin(), "PATCH", path, labels("strict")).await;
    assert_eq!(code, 422);
    assert_eq!(answer["details"]["causes"][0]["field"], "metadata.labels[pod-security.kubernetes.io/enforce]");
    let (code, _) = cluster.ask(&admin(), "PATCH", &format!("{path}/status"), labels("strict")).await;
    assert_eq!(code, 200, "subresources are not evaluated");
}

async fn start_with(configuration: Value) -> Cluster {
    let document = api::json::parse(configuration.to_string().as_bytes()).unwrap();
    let pod_security = Configuration::read(&document).unwrap();
    let store = Arc::new(EmbeddedStore::in_memory(store::Options::default()).unwrap());
    let cluster =
        Cluster(Server::start(store, Options { pod_security, ..Options::without_controllers() }).await.unwrap());
    for name in ["ns", "free"] {
        cluster.make("/api/v1/namespaces", json!({"metadata": {"name": name}})).await;
    }
    cluster.0.settle().await.unwrap();
    cluster
}

#[tokio::test]
async fn configuration_sets_defaults_and_exemptions() {
    let cluster = start_with(json!({
        "apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration",
        "defaults": {"enforce": "baseline"},
        "exemptions": {"usernames": ["root"], "namespaces": ["free"], "runtimeClasses": ["kata"]}
    }))
    .await;
    let bad = || pod_with("p", true, "");
    let create = "/api/v1/namespaces/ns/pods?dryRun=All";
    assert_eq!(cluster.ask(&admin(), "POST", create, bad()).await.0, 403);
    let root = apiserver::identity::User::authenticated("root", &["system:masters"]);
    assert_eq!(cluster.ask(&root, "POST", create, bad()).await.0, 201, "the user is exempt");
    assert_eq!(cluster.ask(&admin(), "POST", "/api/v1/namespaces/free/pods?dryRun=All", bad()).await.0, 201);
    cluster.make("/apis/node.k8s.io/v1/runtimeclasses", json!({"metadata": {"name": "kata"}, "handler": "kata"})).await;
    cluster.0.settle().await.unwrap();
    let mut kata = bad();
    kata["spec"]["runtimeClassName"] = json!("kata");
    assert_eq!(cluster.ask(&admin(), "POST", create, kata).await.0, 201, "the runtime class is exempt");
    let warning =
        "namespace \"free\" is exempt from Pod Security, and the policy (enforce=restricted:latest) will be ignored";
    let found = cluster.warnings("PATCH", "/api/v1/namespaces/free", labels("restricted")).await;
    assert_eq!(found, [header(warning)]);
    let (_, _, metrics) = cluster.raw("GET", "/metrics", &[], Value::Null).await;
    let metrics = String::from_utf8(metrics.to_vec()).unwrap();
    for line in [
        "pod_security_evaluations_total{decision=\"deny\",policy_level=\"baseline\",policy_version=\"latest\",mode=\"enforce\",request_operation=\"create\",resource=\"pod\",subresource=\"\"} 1",
        "pod_security_exemptions_total{request_operation=\"create\",resource=\"pod\",subresource=\"\"} 3",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
}
