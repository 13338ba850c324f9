//! Recorded facts about labels, annotations and names that only a whole server decides.

use serde_json::{Value, json};

use crate::cluster::{Cluster, admin};

fn cases(function: &str) -> Vec<Value> {
    let lines = include_str!("../../api/tests/data/scalars.jsonl").lines();
    let all = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
    let all: Vec<Value> = all.filter(|case| case["input"]["fn"] == function).collect();
    assert!(!all.is_empty(), "{function}");
    all
}

fn names(kind: &str) -> Vec<Value> {
    cases("name").into_iter().filter(|case| case["input"]["args"][0] == kind).collect()
}

/// The errors of an answer, as the recordings write them.
fn errors(answer: &Value) -> Vec<String> {
    let causes = answer["details"]["causes"].as_array().cloned().unwrap_or_default();
    causes.iter().map(|it| format!("{}: {}", it["field"].as_str().unwrap(), it["message"].as_str().unwrap())).collect()
}

/// The errors that a case expects, at the field that the server has for it.
fn expected(case: &Value, field: &str) -> Vec<String> {
    let errors = case["expected"]["errors"].as_array().unwrap().iter();
    errors
        .map(|it| {
            let text = it.as_str().unwrap();
            text.strip_prefix("f: ").map_or_else(|| text.to_owned(), |rest| format!("{field}: {rest}"))
        })
        .collect()
}

#[tokio::test]
async fn labels_and_annotations_are_complained_about() {
    let cluster = Cluster::start().await;
    for field in ["labels", "annotations"] {
        for case in cases(field) {
            let body = json!({"metadata": {"name": "a", field: case["input"]["map"]}});
            let path = "/api/v1/namespaces/ns/configmaps?dryRun=All";
            let (_, answer) = cluster.ask(&admin(), "POST", path, body).await;
            assert_eq!(errors(&answer), expected(&case, ""), "{case}");
        }
    }
}

#[tokio::test]
async fn generated_names_end_in_chance_and_fit_into_a_label() {
    let cluster = Cluster::start().await;
    for case in cases("generateName") {
        let stem = case["input"]["args"][0].as_str().unwrap();
        let body = json!({"metadata": {"generateName": stem}});
        let path = "/api/v1/namespaces/ns/configmaps?dryRun=All";
        let (_, answer) = cluster.ask(&admin(), "POST", path, body).await;
        // A name that does not fit its kind is named in the refusal.
        let name = answer["metadata"]["name"].as_str().or_else(|| answer["details"]["name"].as_str());
        let expected = &case["expected"];
        let (Some(name), Some(prefix)) = (name, expected["prefix"].as_str().filter(|it| !it.is_empty())) else {
            assert_eq!(stem, "", "{case}: {answer}");
            continue;
        };
        assert_eq!(name.len() as u64, expected["length"].as_u64().unwrap(), "{case}: {answer}");
        let suffix = name.strip_prefix(prefix).unwrap();
        assert_eq!(suffix.len() as u64, expected["suffixLength"].as_u64().unwrap(), "{case}");
        let alphabet = expected["alphabet"].as_str().unwrap();
        assert!(suffix.chars().all(|it| alphabet.contains(it)), "{name}");
    }
}

#[tokio::test]
async fn managers_of_fields_have_names_of_a_bounded_length() {
    let cluster = Cluster::start().await;
    for case in names("fieldManager") {
        let manager = case["input"]["args"][1].as_str().unwrap();
        let encoded: String = manager.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let body = json!({"metadata": {"name": "a"}});
        let path = format!("/api/v1/namespaces/ns/configmaps?dryRun=All&fieldManager={encoded}");
        let (_, answer) = cluster.ask(&admin(), "POST", &path, body).await;
        assert_eq!(errors(&answer), expected(&case, ""), "{case}");
    }
}

#[tokio::test]
async fn controllers_of_ingress_classes_are_paths_behind_domains() {
    let cluster = Cluster::start().await;
    for case in names("domainPrefixedPath") {
        let controller = &case["input"]["args"][1];
        let body = json!({"metadata": {"name": "a"}, "spec": {"controller": controller}});
        let path = "/apis/networking.k8s.io/v1/ingressclasses?dryRun=All";
        let (_, answer) = cluster.ask(&admin(), "POST", path, body).await;
        let mut found = errors(&answer);
        // The length of a controller has a separate limit.
        found.retain(|it| !it.contains("Too long"));
        assert_eq!(found, expected(&case, "spec.controller"), "{case}");
    }
}

#[tokio::test]
async fn webhooks_have_names_of_three_parts() {
    let cluster = Cluster::start().await;
    for case in names("fqdn") {
        let hook = json!({
            "name": case["input"]["args"][1], "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"url": "https://example.com/hook"}
        });
        let body = json!({"metadata": {"name": "a"}, "webhooks": [hook]});
        let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations?dryRun=All";
        let (_, answer) = cluster.ask(&admin(), "POST", path, body).await;
        assert_eq!(errors(&answer), expected(&case, "webhooks[0].name"), "{case}");
    }
}
