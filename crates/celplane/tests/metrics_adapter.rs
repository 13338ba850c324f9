//! Autoscaling by custom and external metrics of an adapter: an aggregated API server behind APIServices.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use apiserver::certificates::{Authority, Pair};
use apiserver::server::listen;
use http::header::CONTENT_TYPE;
use http::{Response, StatusCode};

use crate::cluster::Cluster;

/// Two groups of one adapter, with the certificate of its authority, and one Deployment with an autoscaler for each kind of metric.
const OBJECTS: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: monitoring}
---
apiVersion: v1
kind: Service
metadata: {name: adapter, namespace: monitoring}
spec: {ports: [{port: 443}]}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta2.custom.metrics.k8s.io}
spec:
  group: custom.metrics.k8s.io
  version: v1beta2
  groupPriorityMinimum: 100
  versionPriority: 200
  service: {namespace: monitoring, name: adapter}
  caBundle: AUTHORITY
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.external.metrics.k8s.io}
spec:
  group: external.metrics.k8s.io
  version: v1beta1
  groupPriorityMinimum: 100
  versionPriority: 100
  service: {namespace: monitoring, name: adapter}
  caBundle: AUTHORITY
---
apiVersion: v1
kind: Service
metadata: {name: shop}
spec: {ports: [{port: 80}]}
"#;

const AUTOSCALED: &str = r#"
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME}
spec:
  selector: {matchLabels: {app: NAME}}
  template: {metadata: {labels: {app: NAME}}, spec: {containers: [{name: c, image: "app:1"}]}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: NAME}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: NAME}
  maxReplicas: 9
  behavior: {scaleDown: {stabilizationWindowSeconds: 0}}
  metrics: [METRIC]
"#;

const OBJECT_METRIC: &str = "{type: Object, object: {describedObject: {apiVersion: v1, kind: Service, name: shop}, \
    metric: {name: requests}, target: {type: Value, value: '10'}}}";
const EXTERNAL_METRIC: &str = "{type: External, external: {metric: {name: queue, selector: {matchLabels: {queue: orders}}}, \
    target: {type: AverageValue, averageValue: '10'}}}";

/// The adapter: both metrics have the same value, in the forms of their APIs.
#[derive(Default)]
struct Adapter {
    value: AtomicI64,
    /// Paths of metrics, with the users that read them.
    reads: Mutex<Vec<(String, String)>>,
}

impl Adapter {
    fn respond(&self, path: &str, user: &str) -> (StatusCode, String) {
        let value = self.value.load(Ordering::SeqCst);
        let at = "2026-01-01T00:00:00Z";
        let resources = |version: &str| {
            format!(
                r#"{{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "{version}", "resources": []}}"#
            )
        };
        let list = |version: &str, kind: &str, item: &str| {
            format!(r#"{{"kind": "{kind}", "apiVersion": "{version}", "metadata": {{}}, "items": [{item}]}}"#)
        };
        let (custom, external) = ("custom.metrics.k8s.io/v1beta2", "external.metrics.k8s.io/v1beta1");
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let body = match path.trim_start_matches("/apis/") {
            it if it == custom => resources(custom),
            it if it == external => resources(external),
            "custom.metrics.k8s.io/v1beta2/namespaces/default/services/shop/requests" => {
                let object = r#"{"kind": "Service", "namespace": "default", "name": "shop", "apiVersion": "v1"}"#;
                let metric = r#"{"name": "requests"}"#;
                let item = format!(
                    r#"{{"describedObject": {object}, "metric": {metric}, "timestamp": "{at}", "value": "{value}"}}"#
                );
                list(custom, "MetricValueList", &item)
            }
            "external.metrics.k8s.io/v1beta1/namespaces/default/queue" if query.contains("orders") => {
                let item = format!(
                    r#"{{"metricName": "queue", "metricLabels": {{}}, "timestamp": "{at}", "value": "{value}"}}"#
                );
                list(external, "ExternalMetricValueList", &item)
            }
            _ => return (StatusCode::NOT_FOUND, "{}".to_owned()),
        };
        if path.contains("/namespaces/") {
            self.reads.lock().unwrap().push((path.to_owned(), user.to_owned()));
        }
        (StatusCode::OK, body)
    }
}

/// The path of a request and the user that the API server names.
fn question<B>(request: &http::Request<B>) -> (String, String) {
    let path = request.uri().path_and_query().map(ToString::to_string);
    let user = request.headers().get("x-remote-user").and_then(|it| it.to_str().ok());
    (path.unwrap_or_default(), user.unwrap_or_default().to_owned())
}

/// Serves an adapter to clients with a certificate of an authority.
async fn serve(adapter: Arc<Adapter>, listener: std::net::TcpListener, own: Pair, clients: String) {
    listener.set_nonblocking(true).unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    let tls = listen::tls_from_pem(&own.certificate, &own.key, &clients).unwrap();
    let page: listen::Page = Arc::new(move |request, _| {
        let (path, user) = question(&request);
        let (code, body) = adapter.respond(&path, &user);
        Box::pin(async move {
            let mut response = Response::new(listen::PageBody::from(body));
            *response.status_mut() = code;
            response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
            response
        })
    });
    listen::serve_pages(page, listener, Some(tls)).await;
}

#[test]
fn autoscalers_read_metrics_of_an_adapter() {
    if Cluster::is_missing() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let adapter = Arc::new(Adapter::default());
    adapter.value.store(40, Ordering::SeqCst);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let backend = format!("monitoring/adapter:443={}", listener.local_addr().unwrap());
    let cluster = Cluster::up(tempfile::tempdir().unwrap(), &["--nodes", "1", "--backend", &backend]);
    // The API server shows a certificate of its own authority.
    let clients = std::fs::read_to_string(cluster.directory.path().join("data/pki/front-proxy-ca.crt")).unwrap();
    let authority = Authority::generate().unwrap();
    let own = authority.service(&["adapter.monitoring.svc".to_owned()]).unwrap();
    runtime.spawn(serve(adapter.clone(), listener, own, clients));
    let authority = authority.certificate();
    cluster.apply(&OBJECTS.replace("AUTHORITY", &api::base64::encode(authority.as_bytes())));
    for service in ["v1beta2.custom.metrics.k8s.io", "v1beta1.external.metrics.k8s.io"] {
        let service = format!("apiservice/{service}");
        cluster.kubectl(&["wait", &service, "--for=condition=Available", "--timeout=90s"], "");
    }
    let names = ["by-object", "by-queue"];
    for (name, metric) in names.into_iter().zip([OBJECT_METRIC, EXTERNAL_METRIC]) {
        cluster.apply(&AUTOSCALED.replace("NAME", name).replace("METRIC", metric));
    }
    let has_replicas = |count: u32| {
        for name in names {
            let (deployment, condition) =
                (format!("deployment/{name}"), format!("--for=jsonpath={{.spec.replicas}}={count}"));
            cluster.kubectl(&["wait", &deployment, &condition, "--timeout=120s"], "");
        }
    };
    // One replica and four times the target, then less than one target for each replica.
    has_replicas(4);
    adapter.value.store(5, Ordering::SeqCst);
    has_replicas(1);
    let path = "jsonpath={.status.conditions[?(@.type==\"ScalingActive\")].reason}";
    for name in names {
        assert_eq!(cluster.kubectl(&["get", "hpa", name, "-o", path], ""), "ValidMetricFound");
    }
    // The adapter knows the controller by name, and only that one has read metrics.
    let reads = adapter.reads.lock().unwrap();
    let user = "system:serviceaccount:kube-system:horizontal-pod-autoscaler";
    assert!(!reads.is_empty() && reads.iter().all(|(_, it)| it == user), "{reads:?}");
}
