//! Conversion webhooks beyond the recording: batches, shared results, watches, and simulated backends.

use std::sync::Arc;

use apiserver::admission::SimulatedBackends;
use apiserver::{Options, Server};
use base64::Engine as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use store::EmbeddedStore;

use super::backend::Backend;
use super::{Answer, ask, tokens};

const V1: &str = "/apis/example.com/v1/namespaces/default/things";
const V2: &str = "/apis/example.com/v2/namespaces/default/things";

/// A server with a definition whose webhook is hook `c` of the case `0`.
struct Scene {
    server: Arc<Server>,
    backend: Backend,
}

impl Scene {
    async fn start() -> Self {
        Self::with(SimulatedBackends::Fail, None).await
    }

    /// With another place of the webhook than its URL.
    async fn with(simulated_backends: SimulatedBackends, service: Option<Value>) -> Self {
        let backend = Backend::start().await;
        let store = Arc::new(EmbeddedStore::in_memory(store::Options::default()).unwrap());
        let disabled_admission_plugins = vec!["ServiceAccount".to_owned()];
        let options =
            Options { tokens: tokens(), disabled_admission_plugins, simulated_backends, ..Options::default() };
        let scene = Self { server: Server::start(store, options).await.unwrap(), backend };
        scene.behave(&json!({"do": "convert"}));
        let authority = base64::engine::general_purpose::STANDARD.encode(&scene.backend.authority);
        let url = format!("https://{}/0/c", scene.backend.addresses["good"]);
        let client = match service {
            Some(service) => json!({"caBundle": authority, "service": service}),
            None => json!({"caBundle": authority, "url": url}),
        };
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object",
            "x-kubernetes-preserve-unknown-fields": true}}}});
        let version =
            |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": schema});
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
                "versions": [version("v1", true), version("v2", false)],
                "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}}
            }
        });
        scene.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await;
        scene
    }

    fn behave(&self, behavior: &Value) {
        self.backend.hooks.set("0", "c", behavior);
    }

    async fn ask(&self, verb: &str, path: &str, body: Value) -> Answer {
        let request = json!({"verb": verb, "path": path, "contentType": "application/json", "body": body});
        let answer = ask(&self.server, &request).await;
        self.server.settle().await.unwrap();
        answer
    }

    async fn make(&self, path: &str, body: Value) {
        let answer = self.ask("POST", path, body).await;
        assert_eq!(answer.code, 201, "{}", answer.body);
    }

    async fn make_thing(&self, name: &str) {
        let body = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}, "spec": {"hostPort": "h:80"}});
        self.make(V1, body).await;
    }

    /// The numbers of objects in the reviews since the last call.
    fn sizes(&self) -> Vec<usize> {
        let size = |it: &Value| it["review"]["request"]["objects"].as_array().unwrap().len();
        self.backend.hooks.take("0").iter().map(size).collect()
    }

    async fn watch(&self, path: &str) -> apiserver::Body {
        watch(&self.server, path).await
    }
}

pub(crate) async fn watch(server: &Arc<Server>, path: &str) -> apiserver::Body {
    let built = http::Request::builder().uri(path).header("authorization", "Bearer admin");
    server.handle(built.body(Full::new(Bytes::new())).unwrap(), None).await.into_body()
}

pub(crate) async fn event(body: &mut apiserver::Body) -> Value {
    let frame = body.frame().await.unwrap().unwrap();
    serde_json::from_slice(frame.data_ref().unwrap()).unwrap()
}

#[tokio::test]
async fn lists_are_converted_in_one_call_and_kept() {
    let scene = Scene::start().await;
    scene.behave(&json!({"do": "http", "code": 500}));
    for name in ["a", "b", "c"] {
        scene.make_thing(name).await;
    }
    scene.sizes();
    scene.behave(&json!({"do": "convert"}));
    let list = scene.ask("GET", V2, Value::Null).await;
    assert_eq!(list.body["items"][2]["spec"], json!({"host": "h", "port": "80"}));
    assert_eq!(scene.sizes(), [3]);
    let list = scene.ask("GET", V2, Value::Null).await;
    assert_eq!((list.body["items"].as_array().unwrap().len(), scene.sizes().len()), (3, 0));
    // A broken answer to a batch is no answer about each object.
    scene.behave(&json!([{"do": "convert", "drop": 1}, {"do": "convert"}]));
    let patch = json!({"spec": {"conversion": {"webhook": {"conversionReviewVersions": ["v1", "v1beta1"]}}}});
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com";
    let request = json!({"verb": "PATCH", "path": path, "contentType": "application/merge-patch+json", "body": patch});
    assert_eq!(ask(&scene.server, &request).await.code, 200);
    scene.server.settle().await.unwrap();
    let list = scene.ask("GET", V2, Value::Null).await;
    assert_eq!((list.code, scene.sizes()), (200, vec![3, 1, 1, 1]));
}

#[tokio::test]
async fn watches_share_one_conversion_per_event() {
    let scene = Scene::start().await;
    let path = format!("{V2}?watch=1");
    let (mut one, mut other) = (scene.watch(&path).await, scene.watch(&path).await);
    scene.make_thing("a").await;
    for body in [&mut one, &mut other] {
        let event = event(body).await;
        assert_eq!((&event["type"], &event["object"]["spec"]["port"]), (&json!("ADDED"), &json!("80")));
    }
    assert_eq!(scene.sizes(), [1]);
    assert_eq!(scene.ask("DELETE", &format!("{V1}/a"), Value::Null).await.code, 200);
    let event = event(&mut one).await;
    assert_eq!((&event["type"], &event["object"]["spec"]["port"]), (&json!("DELETED"), &json!("80")));
    assert_eq!(scene.sizes(), Vec::<usize>::new());
}

#[tokio::test]
async fn watch_ends_with_an_error_where_conversion_fails() {
    let scene = Scene::start().await;
    let mut body = scene.watch(&format!("{V2}?watch=1")).await;
    scene.behave(&json!({"do": "convert", "result": {"status": "Failure", "message": "no can do"}}));
    scene.make_thing("a").await;
    let event = event(&mut body).await;
    let message = "Internal error occurred: conversion webhook for example.com/v1, Kind=Thing failed: no can do";
    assert_eq!((&event["type"], &event["object"]["message"]), (&json!("ERROR"), &json!(message)));
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn selectors_see_converted_labels() {
    let scene = Scene::start().await;
    scene.behave(&json!({"do": "convert", "set": {"/metadata/labels": {"added": "yes"}}}));
    scene.make_thing("a").await;
    let count = |answer: Answer| answer.body["items"].as_array().unwrap().len();
    assert_eq!(count(scene.ask("GET", &format!("{V2}?labelSelector=added%3Dyes"), Value::Null).await), 1);
    assert_eq!(count(scene.ask("GET", &format!("{V1}?labelSelector=added%3Dyes"), Value::Null).await), 0);
}

#[tokio::test]
async fn simulated_converter_is_skipped_and_reported() {
    let service = json!({"namespace": "default", "name": "hook"});
    let scene = Scene::with(SimulatedBackends::Skip, Some(service)).await;
    let metadata = json!({"name": "hook", "labels": {"kubernetes.io/service-name": "hook"}});
    let spec = json!({"ports": [{"port": 443}]});
    scene.make("/api/v1/namespaces/default/services", json!({"metadata": metadata, "spec": spec})).await;
    scene.make("/api/v1/nodes", json!({"metadata": {"name": "n"}})).await;
    let status = json!({"metadata": {"name": "n"}, "status": {"nodeInfo": {"kernelVersion": "simulated"}}});
    assert_eq!(scene.ask("PUT", "/api/v1/nodes/n/status", status).await.code, 200);
    let slice = json!({
        "metadata": metadata, "addressType": "IPv4", "ports": [{"name": "", "port": 443}],
        "endpoints": [{"addresses": ["192.0.2.1"], "nodeName": "n", "conditions": {"ready": true}}]
    });
    scene.make("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice).await;
    scene.make_thing("a").await;
    let answer = scene.ask("GET", &format!("{V2}/a"), Value::Null).await;
    assert_eq!((answer.code, &answer.body["spec"]["hostPort"]), (200, &json!("h:80")));
    assert_eq!(answer.body["apiVersion"], "example.com/v2");
    assert!(
        answer.warnings[0].contains("conversion webhook of \\\"things.example.com\\\" was not called"),
        "{:?}",
        answer.warnings
    );
    let mut events = scene.watch("/api/v1/namespaces/default/events?watch=1").await;
    let event = event(&mut events).await;
    let object = &event["object"];
    assert_eq!(
        (&object["reason"], &object["involvedObject"]["name"]),
        (&json!("SimulatedBackend"), &json!("things.example.com"))
    );
    let metrics = scene.ask("GET", "/metrics", Value::Null).await.body;
    let skipped = "celplane_apiserver_simulated_converter_skipped_total{crd_name=\"things.example.com\"}";
    assert!(metrics.as_str().unwrap().contains(skipped));
}

#[tokio::test]
async fn metrics_of_conversions_are_as_recorded() {
    let scene = Scene::start().await;
    scene.make_thing("t").await;
    assert_eq!(scene.ask("GET", &format!("{V2}/t"), Value::Null).await.code, 200);
    assert_eq!(super::records::compare_metrics(&scene.server, "conversion_webhook").await, 3);
}
