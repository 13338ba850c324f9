//! Addresses and ports of services, against whole servers without a network.

use std::collections::BTreeSet;
use std::sync::Arc;

use apiserver::identity::User;
use apiserver::{Options, Server};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use store::{EmbeddedStore, Store, Write};

const SERVICES: &str = "/api/v1/namespaces/default/services";

async fn server(store: &Arc<EmbeddedStore>, addresses: &str, ports: &str) -> Arc<Server> {
    let options = Options {
        service_addresses: addresses.parse().unwrap(),
        service_ports: ports.parse().unwrap(),
        ..Options::without_controllers()
    };
    Server::start(store.clone(), options).await.unwrap()
}

fn store() -> Arc<EmbeddedStore> {
    Arc::new(EmbeddedStore::in_memory(store::Options::default()).unwrap())
}

async fn ask(server: &Arc<Server>, method: &str, path: &str, body: Value) -> (u16, Value) {
    let user = User { name: "admin".to_owned(), groups: vec!["system:masters".to_owned()], ..User::default() };
    let content = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("content-type", content);
    let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    let response = server.handle(request.body(Full::new(body)).unwrap(), Some(&user)).await;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

fn service(name: &str, spec: Value) -> Value {
    let mut spec = spec;
    if spec["type"] != "ExternalName" {
        spec["ports"] = spec.get("ports").cloned().unwrap_or(json!([{"port": 80}]));
        spec["selector"] = spec.get("selector").cloned().unwrap_or(json!({"app": "a"}));
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

async fn make(server: &Arc<Server>, name: &str, spec: Value) -> Value {
    let (status, made) = ask(server, "POST", SERVICES, service(name, spec)).await;
    assert_eq!(status, 201, "{made}");
    made["spec"].clone()
}

async fn refused(server: &Arc<Server>, name: &str, spec: Value) -> String {
    let (status, answer) = ask(server, "POST", SERVICES, service(name, spec)).await;
    assert!(status >= 400, "{answer}");
    answer["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn each_service_type_gets_its_allocations() {
    let server = server(&store(), "10.96.0.0/12", "30000-32767").await;
    let plain = make(&server, "plain", json!({})).await;
    let address = plain["clusterIP"].as_str().unwrap();
    assert!(address.starts_with("10."), "{address}");
    assert_eq!(plain["clusterIPs"], json!([address]));
    assert_eq!((&plain["ipFamilies"], &plain["ipFamilyPolicy"]), (&json!(["IPv4"]), &json!("SingleStack")));
    // The address is an object that names its owner.
    let (status, object) =
        ask(&server, "GET", &format!("/apis/networking.k8s.io/v1/ipaddresses/{address}"), Value::Null).await;
    assert_eq!((status, &object["spec"]["parentRef"]["name"]), (200, &json!("plain")));

    let headless = make(&server, "headless", json!({"clusterIP": "None"})).await;
    assert_eq!((&headless["clusterIPs"], &headless["ipFamilies"]), (&json!(["None"]), &json!(["IPv4"])));
    let open = json!({"clusterIP": "None", "selector": {}, "ports": []});
    let open = make(&server, "open", open).await;
    assert_eq!(open["ipFamilyPolicy"], "RequireDualStack");
    let named = make(&server, "named", json!({"type": "ExternalName", "externalName": "example.com"})).await;
    assert_eq!((named.get("clusterIP"), named.get("ipFamilies")), (None, None));

    let ports =
        json!([{"name": "a", "port": 80}, {"name": "b", "port": 80, "protocol": "UDP"}, {"name": "c", "port": 81}]);
    let node_port = make(&server, "node-port", json!({"type": "NodePort", "ports": ports})).await;
    let given: Vec<i64> =
        node_port["ports"].as_array().unwrap().iter().map(|it| it["nodePort"].as_i64().unwrap()).collect();
    assert!(given.iter().all(|it| (30000..=32767).contains(it)), "{given:?}");
    assert!(given[0] == given[1] && given[1] != given[2], "{given:?}");

    let balanced = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"});
    let balanced = make(&server, "balanced", balanced).await;
    assert_ne!(balanced["healthCheckNodePort"], balanced["ports"][0]["nodePort"]);
    let spared = make(&server, "spared", json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false})).await;
    assert_eq!(spared["ports"][0].get("nodePort"), None);

    // The server's own service has the first address.
    let (_, own) = ask(&server, "GET", &format!("{SERVICES}/kubernetes"), Value::Null).await;
    assert_eq!(own["spec"]["clusterIP"], "10.96.0.1");
}

#[tokio::test]
async fn used_or_out_of_range_values_are_rejected() {
    let server = server(&store(), "10.96.0.0/16", "30000-30003").await;
    make(&server, "a", json!({"clusterIP": "10.96.0.7"})).await;
    assert_eq!(
        refused(&server, "b", json!({"clusterIP": "10.96.0.7"})).await,
        "Service \"b\" is invalid: spec.clusterIPs: Invalid value: [\"10.96.0.7\"]: failed to allocate IP 10.96.0.7: provided IP is already allocated"
    );
    assert_eq!(
        refused(&server, "b", json!({"clusterIP": "10.97.0.1"})).await,
        "Service \"b\" is invalid: spec.clusterIPs: Invalid value: [\"10.97.0.1\"]: failed to allocate IP 10.97.0.1: the provided IP (10.97.0.1) is not in the valid range. The range of valid IPs is 10.96.0.0/16"
    );
    make(&server, "c", json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30001}]})).await;
    assert_eq!(
        refused(&server, "d", json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30001}]})).await,
        "Service \"d\" is invalid: spec.ports[0].nodePort: Invalid value: 30001: provided port is already allocated"
    );
    assert_eq!(
        refused(&server, "d", json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]})).await,
        "Service \"d\" is invalid: spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-30003"
    );
    assert_eq!(
        refused(&server, "d", json!({"ports": []})).await,
        "Service \"d\" is invalid: spec.ports: Required value"
    );
    let two = json!({"type": "ClusterIP", "ports": [{"port": 80, "nodePort": 30002}, {"port": 81}]});
    let message = refused(&server, "d", two).await;
    for part in [
        "spec.ports[0].name: Required value",
        "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
    ] {
        assert!(message.contains(part), "{message}");
    }
    // Three of four are left; a refused service keeps none of them.
    for name in ["e", "f"] {
        make(&server, name, json!({"type": "NodePort"})).await;
    }
    let both = json!({"type": "NodePort", "ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]});
    let message = refused(&server, "g", both).await;
    assert_eq!(message, "Internal error occurred: failed to allocate a nodePort: range is full");
    make(&server, "g", json!({"type": "NodePort"})).await;
}

#[tokio::test]
async fn released_values_can_be_reused() {
    let server = server(&store(), "10.96.0.0/16", "30000-30000").await;
    let spec = json!({"clusterIP": "10.96.0.7", "type": "NodePort"});
    make(&server, "a", spec.clone()).await;
    // The same again, without what was given.
    let again = service("a", json!({"type": "NodePort"}));
    let (status, answer) = ask(&server, "PUT", &format!("{SERVICES}/a"), again).await;
    assert_eq!((status, &answer["spec"]["clusterIP"]), (200, &json!("10.96.0.7")));
    assert_eq!(answer["spec"]["ports"][0]["nodePort"], 30000);
    // A type that needs no port frees it; a dry run does not.
    let plain = json!({"spec": {"type": "ClusterIP"}});
    let (status, answer) = ask(&server, "PATCH", &format!("{SERVICES}/a?dryRun=All"), plain.clone()).await;
    assert_eq!((status, answer["spec"]["ports"][0].get("nodePort")), (200, None));
    assert!(refused(&server, "b", json!({"type": "NodePort"})).await.contains("range is full"));
    assert_eq!(ask(&server, "PATCH", &format!("{SERVICES}/a"), plain).await.0, 200);
    make(&server, "b", json!({"type": "NodePort"})).await;
    // No address for a name, and another one back.
    let external = json!({"spec": {"type": "ExternalName", "externalName": "example.com"}});
    let (status, answer) = ask(&server, "PATCH", &format!("{SERVICES}/a"), external).await;
    assert_eq!((status, answer["spec"].get("clusterIP")), (200, None), "{answer}");
    make(&server, "c", json!({"clusterIP": "10.96.0.7"})).await;
    let back = json!({"spec": {"type": "ClusterIP", "externalName": null}});
    let (status, answer) = ask(&server, "PATCH", &format!("{SERVICES}/a"), back).await;
    assert_eq!(status, 200, "{answer}");
    assert_ne!(answer["spec"]["clusterIP"], "10.96.0.7");
    // An address stays as long as its service.
    let (status, answer) =
        ask(&server, "PATCH", &format!("{SERVICES}/c"), json!({"spec": {"clusterIP": "10.96.0.9"}})).await;
    assert_eq!(status, 422);
    assert!(answer["message"].as_str().unwrap().contains("may not change once set"), "{answer}");
    for name in ["b", "c"] {
        assert_eq!(ask(&server, "DELETE", &format!("{SERVICES}/{name}"), Value::Null).await.0, 200);
    }
    make(&server, "d", spec).await;
}

#[tokio::test]
async fn two_servers_never_give_the_same() {
    let store = store();
    // Six addresses, of which the servers' own service has one.
    let servers =
        [server(&store, "10.9.0.0/29", "30000-30063").await, server(&store, "10.9.0.0/29", "30000-30063").await];
    let mut tasks = Vec::new();
    for index in 0..24 {
        let server = servers[index % 2].clone();
        let spec = json!({"type": "NodePort"});
        tasks.push(tokio::spawn(
            async move { ask(&server, "POST", SERVICES, service(&format!("s{index}"), spec)).await },
        ));
    }
    let (mut addresses, mut ports, mut full) = (BTreeSet::new(), BTreeSet::new(), 0);
    for task in tasks {
        let (status, answer) = task.await.unwrap();
        if status == 201 {
            assert!(addresses.insert(answer["spec"]["clusterIP"].as_str().unwrap().to_owned()), "{answer}");
            assert!(ports.insert(answer["spec"]["ports"][0]["nodePort"].as_i64().unwrap()), "{answer}");
        } else {
            let message = answer["message"].as_str().unwrap();
            assert!(
                message.contains("failed to allocate a serviceIP for Service") && message.ends_with("range is full")
            );
            full += 1;
        }
    }
    assert_eq!((addresses.len(), ports.len(), full), (5, 5, 19));
    assert!(!addresses.contains("10.9.0.1"));
}

#[tokio::test]
async fn allocations_leaked_by_a_crash_are_repaired() {
    let store = store();
    let server = server(&store, "10.96.0.0/16", "30000-32767").await;
    make(&server, "user", json!({"clusterIP": "10.96.0.9"})).await;
    let leave = async |address: &str, name: &str, time: &str| {
        let text = format!(
            r#"{{"kind":"IPAddress","apiVersion":"networking.k8s.io/v1","metadata":{{"name":"{address}","creationTimestamp":"{time}"}},"spec":{{"parentRef":{{"resource":"services","namespace":"default","name":"{name}"}}}}}}"#
        );
        let mut object = api::json::parse(text.as_bytes()).unwrap();
        let key = format!("/registry/networking.k8s.io/ipaddresses/{address}");
        let _ = store.write(Write::create(key, cache::stored::encode(&mut object).unwrap())).await.unwrap();
    };
    leave("10.96.0.5", "nobody", "2020-01-01T00:00:00Z").await;
    leave("10.96.0.6", "nobody", "2999-01-01T00:00:00Z").await;
    leave("10.96.0.8", "user", "2020-01-01T00:00:00Z").await;
    make(&server, "a", json!({"clusterIP": "10.96.0.5"})).await;
    make(&server, "b", json!({"clusterIP": "10.96.0.8"})).await;
    // Someone may be about to use what is new, and what is used stays.
    for taken in ["10.96.0.6", "10.96.0.9"] {
        assert!(refused(&server, "c", json!({"clusterIP": taken})).await.ends_with("provided IP is already allocated"));
    }
}
