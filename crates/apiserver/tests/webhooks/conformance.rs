//! Behaviors that Kubernetes' conformance tests require of the configuration of admission, where no recording shows them.
//!
//! Follows `webhook.go`, `validatingadmissionpolicy.go` and `mutatingadmissionpolicy.go` of Kubernetes' `test/e2e/apimachinery`.

use std::sync::Arc;

use apiserver::{Options, Server};
use base64::Engine as _;
use serde_json::{Value, json};
use store::EmbeddedStore;

use super::backend::Backend;
use super::converters::{event, watch};
use super::{Answer, ask, tokens};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

struct Scene {
    server: Arc<Server>,
    backend: Backend,
}

impl Scene {
    async fn start() -> Self {
        let store = Arc::new(EmbeddedStore::in_memory(store::Options::default()).unwrap());
        let disabled_admission_plugins = vec!["ServiceAccount".to_owned()];
        let options = Options { tokens: tokens(), disabled_admission_plugins, ..Options::default() };
        Self { server: Server::start(store, options).await.unwrap(), backend: Backend::start().await }
    }

    async fn send(&self, verb: &str, path: &str, body: Value) -> Answer {
        let content_type = if verb == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let answer =
            ask(&self.server, &json!({"verb": verb, "path": path, "contentType": content_type, "body": body})).await;
        self.server.settle().await.unwrap();
        answer
    }

    #[track_caller]
    fn succeed(&self, verb: &str, path: &str, body: Value) -> impl Future<Output = Value> {
        let at = std::panic::Location::caller();
        let (verb, path) = (verb.to_owned(), path.to_owned());
        async move {
            let answer = self.send(&verb, &path, body).await;
            assert!((200..300).contains(&answer.code), "{at}: {}", answer.body);
            answer.body
        }
    }

    /// An entry of `webhooks` that is called for config maps.
    fn webhook(&self, operations: Value) -> Value {
        let authority = base64::engine::general_purpose::STANDARD.encode(&self.backend.authority);
        json!({
            "name": "a.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"caBundle": authority, "url": format!("https://{}/0/a", self.backend.addresses["good"])},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": operations, "resources": ["configmaps"]}]
        })
    }

    async fn creates_config_map(&self, name: &str, data: Value) -> Answer {
        self.send("POST", &format!("{CONFIG_MAPS}?dryRun=All"), json!({"metadata": {"name": name}, "data": data})).await
    }
}

fn rules() -> Value {
    json!({"resourceRules": [{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"]}]})
}

/// A valid object of each kind of configuration.
fn objects(scene: &Scene) -> Vec<(&'static str, Value)> {
    let binding = json!({"spec": {"policyName": "other", "validationActions": ["Deny"]}});
    let mutation = json!({"patchType": "ApplyConfiguration",
        "applyConfiguration": {"expression": "Object{metadata: Object.metadata{labels: {'a': 'b'}}}"}});
    vec![
        (
            "validatingadmissionpolicies",
            json!({"spec": {"matchConstraints": rules(), "validations": [{"expression": "true"}]}}),
        ),
        ("validatingadmissionpolicybindings", binding),
        (
            "mutatingadmissionpolicies",
            json!({"spec": {"matchConstraints": rules(), "mutations": [mutation], "reinvocationPolicy": "Never"}}),
        ),
        ("mutatingadmissionpolicybindings", json!({"spec": {"policyName": "other"}})),
        ("validatingwebhookconfigurations", json!({"webhooks": [scene.webhook(json!(["CREATE"]))]})),
        ("mutatingwebhookconfigurations", json!({"webhooks": [scene.webhook(json!(["CREATE"]))]})),
    ]
}

#[tokio::test]
async fn configuration_of_admission_has_all_api_operations() {
    let scene = Scene::start().await;
    let resources = scene.succeed("GET", GROUP, Value::Null).await["resources"].clone();
    let names: Vec<&str> = resources.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    scene.backend.hooks.set("0", "a", &json!({"do": "allow"}));
    for (plural, mut object) in objects(&scene) {
        assert!(names.contains(&plural), "{names:?}");
        let path = format!("{GROUP}/{plural}");
        let mut events = watch(&scene.server, &format!("{path}?watch=1&labelSelector=case%3D{plural}")).await;
        for name in ["one", "two"] {
            object["metadata"] = json!({"name": name, "labels": {"case": plural}});
            let made = scene.succeed("POST", &path, object.clone()).await;
            assert_eq!(made["metadata"]["name"], name);
            assert_eq!(event(&mut events).await["type"], "ADDED");
        }
        let one = format!("{path}/one");
        let mut stored = scene.succeed("GET", &one, Value::Null).await;
        let listed = scene.succeed("GET", &format!("{path}?labelSelector=case%3D{plural}"), Value::Null).await;
        assert_eq!(listed["items"].as_array().unwrap().len(), 2);
        let patch = json!({"metadata": {"annotations": {"patched": "true"}}});
        let patched = scene.succeed("PATCH", &one, patch).await;
        assert_eq!(patched["metadata"]["annotations"]["patched"], "true");
        assert_eq!(event(&mut events).await["type"], "MODIFIED");
        // An update on the basis of the object before the patch is a conflict.
        stored["metadata"]["annotations"] = json!({"updated": "true"});
        assert_eq!(scene.send("PUT", &one, stored.clone()).await.code, 409);
        stored["metadata"]["resourceVersion"] = patched["metadata"]["resourceVersion"].clone();
        let updated = scene.succeed("PUT", &one, stored).await;
        assert_eq!(updated["metadata"]["annotations"], json!({"updated": "true"}));
        assert_eq!(event(&mut events).await["type"], "MODIFIED");
        if plural == "validatingadmissionpolicies" {
            let condition = json!({"type": "Checked", "status": "True", "reason": "R", "message": "m",
                "lastTransitionTime": "2026-01-01T00:00:00Z"});
            let status = json!({"metadata": {"annotations": {"ofStatus": "1"}}, "status": {"conditions": [condition]}});
            let patched = scene.succeed("PATCH", &format!("{one}/status"), status).await;
            assert_eq!(patched["status"]["conditions"][0]["type"], "Checked");
            let read = scene.succeed("GET", &format!("{one}/status"), Value::Null).await;
            assert_eq!(read["status"], patched["status"]);
            assert_eq!(event(&mut events).await["type"], "MODIFIED");
        }
        scene.succeed("DELETE", &one, Value::Null).await;
        assert_eq!(event(&mut events).await["type"], "DELETED");
        assert_eq!(scene.send("GET", &one, Value::Null).await.code, 404);
        scene.succeed("DELETE", &format!("{path}?labelSelector=case%3D{plural}"), Value::Null).await;
        assert_eq!(event(&mut events).await["type"], "DELETED");
        let left = scene.succeed("GET", &format!("{path}?labelSelector=case%3D{plural}"), Value::Null).await;
        assert_eq!(left["items"], json!([]));
    }
}

#[tokio::test]
async fn changed_and_deleted_configurations_take_effect() {
    for (plural, denies) in [("validatingwebhookconfigurations", true), ("mutatingwebhookconfigurations", false)] {
        let scene = Scene::start().await;
        let path = format!("{GROUP}/{plural}");
        let patch = json!([{"op": "add", "path": "/data/mutated", "value": "yes"}]);
        let behavior = if denies { json!({"do": "deny"}) } else { json!({"do": "allow", "patch": patch}) };
        scene.backend.hooks.set("0", "a", &behavior);
        let configuration = |operations: Value| {
            let webhooks = [scene.webhook(operations)];
            json!({"metadata": {"name": "hook", "labels": {"a": "b"}}, "webhooks": webhooks})
        };
        let is_called = || async {
            let answer = scene.creates_config_map("c", json!({"k": "v"})).await;
            match denies {
                true => answer.code == 400,
                false => answer.body["data"]["mutated"] == "yes",
            }
        };
        scene.succeed("POST", &path, configuration(json!(["CREATE"]))).await;
        assert!(is_called().await);
        scene.succeed("PATCH", &format!("{path}/hook"), configuration(json!(["UPDATE"]))).await;
        assert!(!is_called().await);
        let mut stored = scene.succeed("GET", &format!("{path}/hook"), Value::Null).await;
        stored["webhooks"][0]["rules"][0]["operations"] = json!(["CREATE", "UPDATE"]);
        scene.succeed("PUT", &format!("{path}/hook"), stored).await;
        assert!(is_called().await);
        scene.succeed("DELETE", &format!("{path}?labelSelector=a%3Db"), Value::Null).await;
        assert!(!is_called().await);
    }
}

#[tokio::test]
async fn match_conditions_spare_the_config_maps_that_they_name() {
    let scene = Scene::start().await;
    let patch = json!([{"op": "add", "path": "/data/mutated", "value": "yes"}]);
    scene.backend.hooks.set("0", "a", &json!({"do": "allow", "patch": patch}));
    let mut webhook = scene.webhook(json!(["CREATE"]));
    webhook["matchConditions"] = json!([{"name": "skip-me", "expression": "object.metadata.name != 'skip-me'"}]);
    let configuration = json!({"metadata": {"name": "hook"}, "webhooks": [webhook.clone()]});
    let path = format!("{GROUP}/mutatingwebhookconfigurations");
    scene.succeed("POST", &path, configuration).await;
    assert_eq!(scene.creates_config_map("skip-me", json!({"k": "v"})).await.body["data"], json!({"k": "v"}));
    let changed = scene.creates_config_map("change-me", json!({"k": "v"})).await;
    assert_eq!(changed.body["data"], json!({"k": "v", "mutated": "yes"}));
    webhook["matchConditions"][0]["expression"] = json!("object.metadata.name !=");
    for plural in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
        let configuration = json!({"metadata": {"name": "invalid"}, "webhooks": [webhook]});
        let answer = scene.send("POST", &format!("{GROUP}/{plural}"), configuration).await;
        let message = answer.body["message"].as_str().unwrap();
        assert!(answer.code == 422 && message.contains("compilation failed"), "{message}");
    }
}

#[tokio::test]
async fn patched_pods_get_defaults() {
    let scene = Scene::start().await;
    let container = json!({"name": "added", "image": "i"});
    let patch = json!([{"op": "add", "path": "/spec/initContainers", "value": [container]}]);
    scene.backend.hooks.set("0", "a", &json!({"do": "allow", "patch": patch}));
    let mut webhook = scene.webhook(json!(["CREATE"]));
    webhook["rules"][0]["resources"] = json!(["pods"]);
    let configuration = json!({"metadata": {"name": "hook"}, "webhooks": [webhook]});
    scene.succeed("POST", &format!("{GROUP}/mutatingwebhookconfigurations"), configuration).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let made = scene.succeed("POST", "/api/v1/namespaces/default/pods", pod).await;
    let added = &made["spec"]["initContainers"][0];
    assert_eq!(
        (&added["name"], &added["terminationMessagePolicy"], &added["imagePullPolicy"]),
        (&json!("added"), &json!("File"), &json!("Always"))
    );
}

#[tokio::test]
async fn definitions_can_be_denied_by_label() {
    let scene = Scene::start().await;
    scene.backend.hooks.set("0", "a", &json!({"do": "deny", "status": {"message": "contains unwanted label"}}));
    let mut webhook = scene.webhook(json!(["CREATE"]));
    webhook["rules"][0]["apiGroups"] = json!(["apiextensions.k8s.io"]);
    webhook["rules"][0]["resources"] = json!(["customresourcedefinitions"]);
    webhook["objectSelector"] = json!({"matchLabels": {"crd": "denied"}});
    let configuration = json!({"metadata": {"name": "hook"}, "webhooks": [webhook]});
    scene.succeed("POST", &format!("{GROUP}/validatingwebhookconfigurations"), configuration).await;
    let definition = |labels: Value| {
        let schema = json!({"openAPIV3Schema": {"type": "object"}});
        json!({"metadata": {"name": "things.example.com", "labels": labels}, "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]
        }})
    };
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let answer = scene.send("POST", path, definition(json!({"crd": "denied"}))).await;
    let message = "admission webhook \"a.example.com\" denied the request: contains unwanted label";
    assert_eq!((answer.code, &answer.body["message"]), (400, &json!(message)));
    scene.succeed("POST", path, definition(json!({}))).await;
}
