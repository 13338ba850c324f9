//! Objects that the server maintains itself, and the versions it serves.

use std::sync::Arc;

use apiserver::serving::presence::Presence;
use apiserver::{Options, Server};
use serde_json::{Value, json};
use store::{EmbeddedStore, Store};

use crate::cluster::{Cluster, admin};

fn presence(address: &str) -> Presence {
    Presence {
        address: address.parse().unwrap(),
        hostname: "host".to_owned(),
        client_authorities: "authority".to_owned(),
        cluster_info: None,
    }
}

/// Repeats the request until the response is as expected.
async fn eventually(cluster: &Cluster, path: &str, is_it: impl Fn(&Value) -> bool) -> Value {
    let wait = async {
        loop {
            let (_, answer) = cluster.ask(&admin(), "GET", path, Value::Null).await;
            if is_it(&answer) {
                return answer;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), wait).await.unwrap_or_else(|_| panic!("{path}"))
}

const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints/kubernetes";
const SLICE: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";

#[tokio::test]
async fn leases_of_servers_that_are_gone_are_removed() {
    let cluster = Cluster::start().await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let lease = |name: &str, label: &str| {
        json!({"metadata": {"name": name, "labels": {label: "kube-apiserver"}},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 3600, "renewTime": "2020-01-01T00:00:00.000000Z"}})
    };
    cluster.make(leases, lease("gone", "apiserver.kubernetes.io/identity")).await;
    cluster.make(leases, lease("other", "app")).await;
    let announced = cluster.0.announce(presence("192.0.2.1:7443"));
    let is_gone = |list: &Value| list["items"].as_array().unwrap().iter().all(|it| it["metadata"]["name"] != "gone");
    let left = eventually(&cluster, leases, is_gone).await;
    assert!(left["items"].as_array().unwrap().iter().any(|it| it["metadata"]["name"] == "other"));
    cluster.0.end_watches();
    announced.gone().await;
}

#[tokio::test]
async fn a_server_says_that_it_is_there() {
    let cluster = Cluster::start().await;
    let announced = cluster.0.announce(presence("192.0.2.1:7443"));
    let lease = |list: &Value| list["items"].as_array().is_some_and(|it| !it.is_empty());
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases?labelSelector=apiserver.kubernetes.io%2Fidentity%3Dkube-apiserver";
    let leases = eventually(&cluster, leases, lease).await;
    let lease = &leases["items"][0];
    assert!(lease["metadata"]["name"].as_str().unwrap().starts_with("apiserver-"));
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 3600);
    assert_eq!(lease["metadata"]["labels"]["kubernetes.io/hostname"], "host");
    assert_eq!(lease["metadata"]["annotations"]["kubernetes.io/peer-advertise-address"], "192.0.2.1:7443");
    let (_, endpoints) = cluster.ask(&admin(), "GET", ENDPOINTS, Value::Null).await;
    let subsets = json!([{
        "addresses": [{"ip": "192.0.2.1"}], "ports": [{"name": "https", "port": 7443, "protocol": "TCP"}]
    }]);
    assert_eq!(endpoints["subsets"], subsets);
    assert_eq!(endpoints["metadata"]["labels"], json!({"endpointslice.kubernetes.io/skip-mirror": "true"}));
    let (_, slice) = cluster.ask(&admin(), "GET", SLICE, Value::Null).await;
    assert_eq!(slice["endpoints"], json!([{"addresses": ["192.0.2.1"], "conditions": {"ready": true}}]));
    assert_eq!((&slice["addressType"], &slice["metadata"]["generation"]), (&json!("IPv4"), &json!(1)));
    let (_, service) =
        cluster.ask(&admin(), "GET", "/api/v1/namespaces/default/services/kubernetes", Value::Null).await;
    assert_eq!(
        (&service["spec"]["ports"][0]["port"], &service["spec"]["ports"][0]["targetPort"]),
        (&json!(443), &json!(7443))
    );
    let map = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let (_, map) = cluster.ask(&admin(), "GET", map, Value::Null).await;
    assert_eq!(map["data"], json!({"client-ca-file": "authority"}));
    cluster.0.end_watches();
    announced.gone().await;
    let gone = eventually(&cluster, ENDPOINTS, |it| it["subsets"].is_null()).await;
    assert_eq!(gone["metadata"]["name"], "kubernetes");
}

#[tokio::test]
async fn essential_objects_are_recreated() {
    let cluster = Cluster::start().await;
    let service = "/api/v1/namespaces/default/services/kubernetes";
    let (_, before) = cluster.ask(&admin(), "GET", service, Value::Null).await;
    let namespace = "/api/v1/namespaces/kube-node-lease";
    for path in [service, namespace] {
        assert_eq!(cluster.ask(&admin(), "DELETE", path, Value::Null).await.0, 200, "{path}");
    }
    // No controller empties the namespace here.
    let finalized = json!({"metadata": {"name": "kube-node-lease"}, "spec": {"finalizers": []}});
    assert_eq!(cluster.ask(&admin(), "PUT", &format!("{namespace}/finalize"), finalized).await.0, 200);
    assert_eq!(cluster.ask(&admin(), "GET", namespace, Value::Null).await.0, 404);
    let announced = cluster.0.announce(presence("192.0.2.1:7443"));
    let found = eventually(&cluster, service, |it| it["kind"] == "Service").await;
    assert_eq!(found["spec"]["clusterIP"], before["spec"]["clusterIP"]);
    assert_ne!(found["metadata"]["uid"], before["metadata"]["uid"]);
    let address = before["spec"]["clusterIP"].as_str().unwrap();
    let address = format!("/apis/networking.k8s.io/v1/ipaddresses/{address}");
    let (code, holder) = cluster.ask(&admin(), "GET", &address, Value::Null).await;
    assert_eq!((code, &holder["spec"]["parentRef"]["name"]), (200, &json!("kubernetes")));
    eventually(&cluster, namespace, |it| it["status"]["phase"] == "Active").await;
    cluster.0.end_watches();
    announced.gone().await;
}

#[tokio::test]
async fn a_server_that_is_dead_leaves_the_endpoints() {
    let store: Arc<dyn Store> = Arc::new(EmbeddedStore::in_memory(store::Options::default()).unwrap());
    let server = Server::start(store.clone(), Options::without_controllers()).await.unwrap();
    // Another server wrote its entry and was killed: it is not renewed.
    let dead = store::Change::Put { value: "x".into(), ttl: Some(std::time::Duration::from_millis(1)) };
    let write =
        store::Write { key: "/masterleases/192.0.2.9:7443".to_owned(), guard: store::Guard::Absent, change: dead };
    assert!(matches!(store.write(write).await, Ok(store::Outcome::Done { .. })));
    let alive = store::Change::Put { value: "x".into(), ttl: Some(std::time::Duration::from_secs(600)) };
    let write =
        store::Write { key: "/masterleases/192.0.2.2:7443".to_owned(), guard: store::Guard::Absent, change: alive };
    assert!(matches!(store.write(write).await, Ok(store::Outcome::Done { .. })));
    let gone = async {
        while store.get("/masterleases/192.0.2.9:7443", 0).await.unwrap().entry.is_some() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), gone).await.unwrap();
    let cluster = Cluster(server);
    let announced = cluster.0.announce(presence("192.0.2.1:7443"));
    let endpoints = eventually(&cluster, ENDPOINTS, |it| it["subsets"].is_array()).await;
    let addresses = json!([{"ip": "192.0.2.1"}, {"ip": "192.0.2.2"}]);
    assert_eq!(endpoints["subsets"][0]["addresses"], addresses);
    cluster.0.end_watches();
    announced.gone().await;
    let rest =
        eventually(&cluster, ENDPOINTS, |it| it["subsets"][0]["addresses"].as_array().is_some_and(|it| it.len() == 1))
            .await;
    assert_eq!(rest["subsets"][0]["addresses"], json!([{"ip": "192.0.2.2"}]));
}

#[tokio::test]
async fn every_group_that_is_served_here_has_its_service() {
    let cluster = Cluster::start().await;
    let (_, services) = cluster.ask(&admin(), "GET", "/apis/apiregistration.k8s.io/v1/apiservices", Value::Null).await;
    let find =
        |name: &str| services["items"].as_array().unwrap().iter().find(|it| it["metadata"]["name"] == name).cloned();
    let core = find("v1.").unwrap();
    assert_eq!(core["spec"], json!({"version": "v1", "groupPriorityMinimum": 18000, "versionPriority": 1}));
    assert_eq!(core["status"]["conditions"][0]["reason"], "Local");
    let apps = json!({"group": "apps", "version": "v1", "groupPriorityMinimum": 17800, "versionPriority": 15});
    assert_eq!(find("v1.apps").unwrap()["spec"], apps);
    assert!(find("v2.autoscaling").is_some() && find("v1.storagemigration.k8s.io").is_some());
    assert!(find("v1beta1.resource.k8s.io").is_some() && find("v1alpha3.resource.k8s.io").is_none());
}

#[tokio::test]
async fn alpha_versions_are_served_where_they_are_turned_on() {
    for (config, code) in [("", 404), ("resource.k8s.io/v1alpha3=true", 200)] {
        let store = Arc::new(EmbeddedStore::in_memory(store::Options::default()).unwrap());
        let options = Options { runtime_config: config.parse().unwrap(), ..Options::without_controllers() };
        let cluster = Cluster(Server::start(store, options).await.unwrap());
        for path in ["/apis/resource.k8s.io/v1alpha3", "/apis/resource.k8s.io/v1alpha3/devicetaintrules"] {
            assert_eq!(cluster.ask(&admin(), "GET", path, Value::Null).await.0, code, "{config} {path}");
        }
        for version in ["v1", "v1beta1", "v1beta2"] {
            let path = format!("/apis/resource.k8s.io/{version}/resourceslices");
            assert_eq!(cluster.ask(&admin(), "GET", &path, Value::Null).await.0, 200, "{path}");
        }
        let (_, group) = cluster.ask(&admin(), "GET", "/apis/resource.k8s.io", Value::Null).await;
        let shown = group["versions"].as_array().unwrap().iter().any(|it| it["version"] == "v1alpha3");
        assert_eq!(shown, code == 200);
    }
}

#[tokio::test]
async fn migrations_of_storage_can_be_asked_for() {
    let cluster = Cluster::start().await;
    let path = "/apis/storagemigration.k8s.io/v1/storageversionmigrations";
    let migration = |resource: &str| json!({"metadata": {"name": "m"}, "spec": {"resource": {"group": "apps", "resource": resource}}});
    let (code, answer) = cluster.ask(&admin(), "POST", path, migration("")).await;
    assert_eq!(code, 422);
    let why = "StorageVersionMigration.storagemigration.k8s.io \"m\" is invalid: spec.resource.resource: Required value: resource is required to be set";
    assert_eq!(answer["message"], why);
    cluster.make(path, migration("deployments")).await;
    let change = json!({"spec": {"resource": {"resource": "pods"}}});
    assert_eq!(cluster.ask(&admin(), "PATCH", &format!("{path}/m"), change).await.0, 422);
    let running = json!({"status": {"conditions": [{
        "type": "Running", "status": "True", "reason": "r", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"
    }]}});
    assert_eq!(cluster.ask(&admin(), "PATCH", &format!("{path}/m/status"), running).await.0, 200);
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let (_, _, table) = cluster.raw("GET", path, &accept, Value::Null).await;
    let table: Value = serde_json::from_slice(&table).unwrap();
    assert_eq!(table["rows"][0]["cells"], json!(["m", "deployments.apps", "Running"]));
}

#[tokio::test]
async fn slices_of_endpoints_count_their_changes() {
    let cluster = Cluster::start().await;
    let path = "/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices";
    let slice = json!({"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}]});
    let made = cluster.make(path, slice).await;
    assert_eq!(made["metadata"]["generation"], 1);
    let one = format!("{path}/s");
    for (patch, generation) in [
        (json!({"metadata": {"annotations": {"a": "b"}}}), 1),
        (json!({"metadata": {"labels": {"a": "b"}}}), 2),
        (json!({"endpoints": [{"addresses": ["10.0.0.2"]}]}), 3),
        (json!({"endpoints": [{"addresses": ["10.0.0.2"]}]}), 3),
        (json!({"metadata": {"generation": 9}}), 3),
    ] {
        let (code, answer) = cluster.ask(&admin(), "PATCH", &one, patch.clone()).await;
        assert_eq!((code, &answer["metadata"]["generation"]), (200, &json!(generation)), "{patch}");
    }
}

#[tokio::test]
async fn groups_of_custom_resources_are_services_while_they_are_defined() {
    let cluster = Cluster::start().await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object"}}});
    let names = json!({"plural": "widgets", "kind": "Widget"});
    let versions = json!([version("v1", true), version("v1beta1", false)]);
    let spec = json!({"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions});
    cluster.make(definitions, json!({"metadata": {"name": "widgets.example.com"}, "spec": spec})).await;
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let path = format!("{services}/v1.example.com");
    let is_there = |it: &Value| it["kind"] == "APIService";
    let is_gone = |it: &Value| it["reason"] == "NotFound";
    let service = eventually(&cluster, &path, is_there).await;
    let wanted = json!({"group": "example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 100});
    assert_eq!(service["spec"], wanted);
    assert_eq!(service["metadata"]["labels"], json!({"kube-aggregator.kubernetes.io/automanaged": "true"}));
    assert_eq!(service["status"]["conditions"][0]["reason"], "Local");
    eventually(&cluster, &format!("{services}/v1beta1.example.com"), is_there).await;
    // The object of a version that is no longer served is deleted; a deleted one of a served version is
    // recreated.
    let patch = json!({"spec": {"versions": [version("v1", true)]}});
    let path_of_definition = format!("{definitions}/widgets.example.com");
    let (code, answer) = cluster.ask(&admin(), "PATCH", &path_of_definition, patch).await;
    assert_eq!(code, 200, "{answer}");
    eventually(&cluster, &format!("{services}/v1beta1.example.com"), is_gone).await;
    let uid = service["metadata"]["uid"].clone();
    assert_eq!(cluster.ask(&admin(), "DELETE", &path, Value::Null).await.0, 200);
    eventually(&cluster, &path, |it| is_there(it) && it["metadata"]["uid"] != uid).await;
    assert_eq!(cluster.ask(&admin(), "DELETE", &path_of_definition, Value::Null).await.0, 200);
    eventually(&cluster, &path, is_gone).await;
}
