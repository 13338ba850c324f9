//! `metrics.k8s.io`: usage of simulated and of real nodes, its discovery, and its replacement by another server.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use apiserver::Options;
use apiserver::identity::User;
use apiserver::server::{ConnectFuture, ContainerUsage, Kubelets, Logs, LogsFailure, Usage};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::cluster::{Cluster, admin, pod};

const METRICS: &str = "/apis/metrics.k8s.io/v1beta1";
const TABLE: (&str, &str) = ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json");

/// Agents: pods whose names start with `sim` are simulated, and nodes named `real` answer over a connection.
#[derive(Default)]
struct Agents {
    /// Seconds on the clock of the node named `real`. The server samples in the background, too: samples of the same moment
    /// are the same, so those of the background change nothing.
    seconds: AtomicI64,
}

impl Kubelets for Agents {
    fn logs(&self, _: Logs) -> Pin<Box<dyn Future<Output = Result<Bytes, LogsFailure>> + Send>> {
        Box::pin(async { Err(LogsFailure::Refused(String::new())) })
    }

    fn simulated_pod(&self, _: &str, name: &str) -> Option<Vec<ContainerUsage>> {
        let usage = Usage { cpu_nanocores: 250_000_000, memory_bytes: 64 << 20 };
        let container = |name: &str| ContainerUsage { name: name.to_owned(), usage };
        name.starts_with("sim").then(|| vec![container("c"), container("d")])
    }

    fn simulated_nodes(&self) -> HashMap<String, Usage> {
        HashMap::from([("a".to_owned(), Usage { cpu_nanocores: 1_234_567, memory_bytes: 2048 })])
    }

    fn connect(&self, _: Option<api::json::Value>, name: String) -> ConnectFuture {
        let seconds = self.seconds.load(Ordering::Relaxed);
        Box::pin(async move {
            if name != "real" {
                return Err(apiserver::server::StreamFailure::Unreachable("no".to_owned()));
            }
            let (near, mut far) = tokio::io::duplex(64 << 10);
            tokio::spawn(async move {
                let mut head = [0; 4096];
                let length = far.read(&mut head).await.unwrap();
                assert!(head[..length].starts_with(b"GET /metrics/resource HTTP/1.1\r\n"));
                let (at, labels) = (seconds * 1000, "{container=\"c\",namespace=\"ns\",pod=\"runs\"}");
                let body = format!(
                    "container_cpu_usage_seconds_total{labels} {} {at}\n\
                     container_memory_working_set_bytes{labels} 2048 {at}\n\
                     node_cpu_usage_seconds_total {} {at}\nnode_memory_working_set_bytes 4096 {at}\n",
                    seconds / 2,
                    seconds * 2,
                );
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                far.write_all(head.as_bytes()).await.unwrap();
            });
            Ok(Box::new(near) as _)
        })
    }
}

async fn start() -> Cluster {
    start_with(Arc::new(Agents::default())).await
}

async fn start_with(agents: Arc<Agents>) -> Cluster {
    let cluster = Cluster::with(Options { resource_metrics: true, ..Options::without_controllers() }).await;
    cluster.0.set_kubelets(agents);
    for name in ["a", "real"] {
        cluster.make("/api/v1/nodes", json!({"metadata": {"name": name, "labels": {"of": name}}})).await;
    }
    for (name, node) in [("sim-1", "a"), ("sim-2", "a"), ("runs", "real"), ("idle", "a")] {
        let mut pod = pod(name, node);
        pod["metadata"]["labels"] = json!({"app": name});
        cluster.make("/api/v1/namespaces/ns/pods", pod).await;
    }
    // A list is answered once the cache, which samples are taken by, has all earlier writes.
    for path in ["/api/v1/nodes", "/api/v1/pods"] {
        cluster.ask(&admin(), "GET", path, Value::Null).await;
    }
    cluster
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|it| it["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn simulated_pods_and_nodes_have_metrics() {
    let cluster = start().await;
    let get = async |path: &str| cluster.ask(&admin(), "GET", &format!("{METRICS}{path}"), Value::Null).await;
    let (code, mut one) = get("/namespaces/ns/pods/sim-1").await;
    assert_eq!(code, 200, "{one}");
    let times = [one["timestamp"].take(), one["metadata"]["creationTimestamp"].take()];
    assert!(times.iter().all(|it| it.as_str().unwrap().ends_with('Z')), "{times:?}");
    let usage = json!({"cpu": "250m", "memory": "64Mi"});
    let expected = json!({
        "kind": "PodMetrics", "apiVersion": "metrics.k8s.io/v1beta1",
        "metadata": {"name": "sim-1", "namespace": "ns", "creationTimestamp": null, "labels": {"app": "sim-1"}},
        "timestamp": null, "window": "15s",
        "containers": [{"name": "c", "usage": usage}, {"name": "d", "usage": usage}]
    });
    assert_eq!(one, expected);
    let (_, all) = get("/pods").await;
    assert_eq!((all["kind"].as_str(), names(&all)), (Some("PodMetricsList"), vec!["sim-1", "sim-2"]));
    assert_eq!(names(&get("/namespaces/ns/pods?labelSelector=app%3Dsim-2").await.1), ["sim-2"]);
    assert_eq!(names(&get("/namespaces/ns/pods?fieldSelector=metadata.name%3Dsim-1").await.1), ["sim-1"]);
    assert_eq!(names(&get("/namespaces/other/pods").await.1), [""; 0]);
    let (_, nodes) = get("/nodes").await;
    assert_eq!(names(&nodes), ["a"]);
    assert_eq!(nodes["items"][0]["usage"], json!({"cpu": "1234567n", "memory": "2Ki"}));
    assert_eq!(names(&get("/nodes?labelSelector=of%3Dreal").await.1), [""; 0]);
}

#[tokio::test]
async fn bad_requests_for_metrics_are_rejected() {
    let cluster = start().await;
    for (method, path, code, message) in [
        ("GET", "/namespaces/ns/pods/none", 404, "pods \"none\" not found"),
        ("GET", "/namespaces/ns/pods/idle", 404, "pods.metrics.k8s.io \"ns/idle\" not found"),
        ("GET", "/nodes/real", 404, "nodes.metrics.k8s.io \"real\" not found"),
        ("GET", "/nodes/a/status", 404, "the server could not find the requested resource"),
        ("GET", "/things", 404, "the server could not find the requested resource"),
        ("GET", "/pods?labelSelector=%3D%3D", 400, "found '=='"),
        ("GET", "/pods?watch=1", 405, "the server does not allow this method on the requested resource"),
        ("POST", "/nodes", 405, "the server does not allow this method on the requested resource"),
        ("DELETE", "/nodes/a", 405, "the server does not allow this method on the requested resource"),
        ("POST", "", 405, "the server does not allow this method on the requested resource"),
    ] {
        let (status, answer) = cluster.ask(&admin(), method, &format!("{METRICS}{path}"), Value::Null).await;
        let found = answer["message"].as_str().unwrap_or_default();
        assert!(status == code && found.contains(message), "{method} {path}: {status} {answer}");
    }
    let stranger = User::authenticated("eve", &[]);
    assert_eq!(cluster.ask(&stranger, "GET", &format!("{METRICS}/nodes"), Value::Null).await.0, 403);
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:aggregated-metrics-reader";
    let (_, role) = cluster.ask(&admin(), "GET", roles, Value::Null).await;
    assert_eq!(role["rules"][0]["apiGroups"], json!(["metrics.k8s.io"]));
}

#[tokio::test]
async fn metrics_are_shown_as_tables() {
    let cluster = start().await;
    let (_, table) =
        cluster.ask_as(&admin(), "GET", &format!("{METRICS}/namespaces/ns/pods"), &[TABLE], Value::Null).await;
    let columns: Vec<&str> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(columns, ["Name", "cpu", "memory", "Window"]);
    assert_eq!(table["rows"][0]["cells"], json!(["sim-1", "500m", "128Mi", "15s"]));
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let (_, table) = cluster.ask_as(&admin(), "GET", &format!("{METRICS}/nodes/a"), &[TABLE], Value::Null).await;
    assert_eq!(table["rows"][0]["cells"], json!(["a", "1234567n", "2Ki", "15s"]));
}

#[tokio::test]
async fn usage_of_real_nodes_is_the_difference_of_samples() {
    let agents = Arc::new(Agents::default());
    let cluster = start_with(agents.clone()).await;
    cluster.0.sample_nodes().await;
    let path = format!("{METRICS}/namespaces/ns/pods/runs");
    assert_eq!(cluster.ask(&admin(), "GET", &path, Value::Null).await.0, 404, "one sample is not enough");
    agents.seconds.store(20, Ordering::Relaxed);
    cluster.0.sample_nodes().await;
    let (_, one) = cluster.ask(&admin(), "GET", &path, Value::Null).await;
    assert_eq!(
        (&one["window"], &one["containers"][0]["usage"]),
        (&json!("20s"), &json!({"cpu": "500m", "memory": "2Ki"}))
    );
    let (_, node) = cluster.ask(&admin(), "GET", &format!("{METRICS}/nodes/real"), Value::Null).await;
    assert_eq!(node["usage"], json!({"cpu": "2", "memory": "4Ki"}));
}

#[tokio::test]
async fn discovery_and_openapi_have_the_group() {
    let cluster = start().await;
    let get = async |path: &str| cluster.ask(&admin(), "GET", path, Value::Null).await.1;
    let groups = get("/apis").await;
    let last = groups["groups"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["preferredVersion"]["groupVersion"], "metrics.k8s.io/v1beta1");
    let list = get(METRICS).await;
    let resources = list["resources"].as_array().unwrap().iter().map(|it| (&it["name"], &it["kind"], &it["verbs"]));
    let verbs = json!(["get", "list"]);
    let expected = [(json!("nodes"), json!("NodeMetrics")), (json!("pods"), json!("PodMetrics"))];
    assert!(resources.eq(expected.iter().map(|(name, kind)| (name, kind, &verbs))), "{list}");
    let accept = [("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")];
    let (_, all) = cluster.ask_as(&admin(), "GET", "/apis", &accept, Value::Null).await;
    let group = all["items"].as_array().unwrap().last().unwrap();
    assert_eq!(group["versions"][0]["freshness"], "Current");
    assert_eq!(group["versions"][0]["resources"][1]["responseKind"]["kind"], "PodMetrics");
    let openapi = get("/openapi/v3/apis/metrics.k8s.io/v1beta1").await;
    let schema = &openapi["components"]["schemas"]["io.k8s.metrics.pkg.apis.metrics.v1beta1.PodMetrics"];
    assert_eq!(schema["x-kubernetes-group-version-kind"][0]["kind"], "PodMetrics");
    let service = get("/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io").await;
    assert_eq!(service["status"]["conditions"][0]["reason"], "Local");
}

#[tokio::test]
async fn an_api_service_replaces_the_own_api_until_it_is_deleted() {
    let cluster = start().await;
    let path = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io";
    let service = json!({"spec": {"service": {"namespace": "kube-system", "name": "metrics-server"},
        "insecureSkipTLSVerify": true}});
    assert_eq!(cluster.ask(&admin(), "PATCH", path, service).await.0, 200);
    let nodes = format!("{METRICS}/nodes");
    // There is no such Service.
    while cluster.raw("GET", &nodes, &[], Value::Null).await.0 != 503 {
        tokio::task::yield_now().await;
    }
    let (_, changed) = cluster.ask(&admin(), "GET", path, Value::Null).await;
    assert!(changed["spec"]["service"].is_object(), "{changed}");
    assert_eq!(cluster.ask(&admin(), "DELETE", path, Value::Null).await.0, 200);
    // The cache follows the store.
    while cluster.raw("GET", &nodes, &[], Value::Null).await.0 != 200 {
        tokio::task::yield_now().await;
    }
    assert_eq!(names(&cluster.ask(&admin(), "GET", &nodes, Value::Null).await.1), ["a"]);
}

#[tokio::test]
async fn server_without_the_option_has_no_metrics() {
    let cluster = Cluster::start().await;
    assert_eq!(cluster.raw("GET", METRICS, &[], Value::Null).await.0, 404);
}
