//! Proposals and failures of every kind of metric, with answers of a server that exists in the test only.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use api::core::v1::Pod;
use api::time::Timestamp;
use bytes::Bytes;
use client::Client;
use http::{Request, Response};
use http_body_util::Full;
use locks::Mutex;

use super::super::calculator::Tolerances;
use super::*;

/// Answers by path: all others are not found. Paths with their queries are kept.
#[derive(Clone, Default)]
struct Answers {
    answers: Vec<(&'static str, u16, String)>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl tower_service::Service<Request<Full<Bytes>>> for Answers {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        self.asked.lock().push(request.uri().to_string());
        let found = self.answers.iter().find(|(path, ..)| *path == request.uri().path());
        let (code, body) =
            found.map_or((404, "404 page not found\n".to_owned()), |(_, code, body)| (*code, body.clone()));
        ready(Ok(Response::builder().status(code).body(Full::from(body)).unwrap()))
    }
}

const NOW: Timestamp = Timestamp { seconds: 1_800_000_000, nanos: 0 };
const USAGE: &str = "/apis/metrics.k8s.io/v1beta1/namespaces/ns/pods";
const GROUP: &str = "/apis/custom.metrics.k8s.io";

fn pods() -> Vec<Arc<Pod>> {
    let pod = |name: &str| {
        let document = api::json!({
            "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "100Mi"}}}]},
            "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z",
                "conditions": [{"type": "Ready", "status": "True"}]}
        });
        Arc::new(api::json::from_value(&document).unwrap())
    };
    vec![pod("a"), pod("b")]
}

fn list(items: Value) -> String {
    api::json::to_string(&api::json!({"items": items}))
}

fn group(version: &str) -> (&'static str, u16, String) {
    let group = api::json!({"preferredVersion": {"version": version}, "versions": [{"version": version}]});
    (GROUP, 200, api::json::to_string(&group))
}

/// Evaluates a metric; gives the requests as well.
async fn evaluate(
    metric: &str,
    answers: Vec<(&'static str, u16, String)>,
) -> (Result<Proposal, MissingMetrics>, Vec<String>) {
    let service = Answers { answers, ..Answers::default() };
    let (asked, client) = (service.asked.clone(), Client::in_process(service, "test"));
    let (pods, discovery) = (pods(), Discovery::default());
    let calculator = Calculator {
        pods: &pods,
        now: NOW,
        tolerances: Tolerances { down: 0.1, up: 0.1 },
        cpu_initialization: Duration::from_secs(300),
        initial_readiness_delay: Duration::from_secs(30),
    };
    let source = Source { client: &client, namespace: "ns" };
    let mut evaluation = Evaluation::new(source, calculator, Replicas { spec: 2, status: 2 }, "app=web", &discovery);
    let result = evaluation.evaluate(&api::json::parse(metric.as_bytes()).unwrap()).await;
    let asked = asked.lock().clone();
    (result, asked)
}

#[track_caller]
fn check_missing(found: Result<Proposal, MissingMetrics>, reason: &str, cause: &str, before: &str) {
    let missing = found.unwrap_err();
    assert_eq!((missing.reason, missing.cause.as_str()), (reason, cause));
    assert_eq!(missing.failure, format!("{before}{cause}"));
}

const RESOURCE: &str = "unable to fetch metrics from resource metrics API: the server could not find the requested \
    resource (get pods.metrics.k8s.io)";
const CUSTOM: &str =
    "unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered";
const CPU: &str =
    r#"{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":80}}}"#;

#[tokio::test]
async fn metrics_without_a_server_have_their_texts() {
    let missing = async |metric: &str| evaluate(metric, Vec::new()).await.0;
    check_missing(
        missing(CPU).await,
        "FailedGetResourceMetric",
        &format!("failed to get cpu utilization: unable to get metrics for resource cpu: {RESOURCE}"),
        "failed to get cpu resource metric value: ",
    );
    let memory = r#"{"type":"ContainerResource","containerResource":{"name":"memory","container":"c","target":{"averageValue":"1Gi"}}}"#;
    check_missing(
        missing(memory).await,
        "FailedGetContainerResourceMetric",
        &format!("failed to get memory usage: unable to get metrics for resource memory: {RESOURCE}"),
        "failed to get c container metric value: ",
    );
    check_missing(
        missing(r#"{"type":"Pods","pods":{"metric":{"name":"rps"}}}"#).await,
        "FailedGetPodsMetric",
        &format!("unable to get metric rps: {CUSTOM}"),
        "failed to get pods metric value: ",
    );
    let object = r#"{"type":"Object","object":{"metric":{"name":"rps"},"describedObject":{"kind":"Service","name":"web"},"target":{"type":"Value","value":"1"}}}"#;
    check_missing(
        missing(object).await,
        "FailedGetObjectMetric",
        &format!("unable to get metric rps on Service ns/web: {CUSTOM}"),
        "failed to get object metric value: ",
    );
    let external = r#"{"type":"External","external":{"metric":{"name":"q","selector":{"matchLabels":{"a":"b"}}},"target":{"averageValue":"3"}}}"#;
    check_missing(
        missing(external).await,
        "FailedGetExternalMetric",
        "unable to get external metric ns/q/&LabelSelector{MatchLabels:map[string]string{a: b,},\
         MatchExpressions:[]LabelSelectorRequirement{},}: unable to fetch metrics from external metrics API: the server \
         could not find the requested resource (get q.external.metrics.k8s.io)",
        "failed to get q external metric value: failed to get q external metric: ",
    );
    check_missing(
        missing(r#"{"type":"External","external":{"metric":{"name":"q"},"target":{"value":"3"}}}"#).await,
        "FailedGetExternalMetric",
        "unable to get external metric ns/q/nil: unable to fetch metrics from external metrics API: the server could \
         not find the requested resource (get q.external.metrics.k8s.io)",
        "failed to get q external metric value: failed to get external metric q: ",
    );
}

#[tokio::test]
async fn server_that_fails_is_reported() {
    let (found, _) = evaluate(CPU, vec![(USAGE, 503, "service unavailable\n".to_owned())]).await;
    let cause = "failed to get cpu utilization: unable to get metrics for resource cpu: unable to fetch metrics from \
        resource metrics API: the server is currently unable to handle the request (get pods.metrics.k8s.io)";
    assert_eq!(found.unwrap_err().cause, cause);
    let (found, _) = evaluate(CPU, vec![(USAGE, 200, list(api::json!([])))]).await;
    assert!(found.unwrap_err().cause.ends_with("no metrics returned from resource metrics API"));
    let (found, _) = evaluate(CPU, vec![(USAGE, 200, "no JSON".to_owned())]).await;
    assert!(found.unwrap_err().cause.contains("the response is not JSON"));
    let none = r#"{"type":"External","external":{"metric":{"name":"q"},"target":{}}}"#;
    assert!(evaluate(none, Vec::new()).await.0.unwrap_err().cause.starts_with("invalid external metric source"));
}

#[tokio::test]
async fn usage_of_pods_is_compared_with_their_requests() {
    let usage = |name: &str, cpu: &str| {
        api::json!({"metadata": {"name": name}, "timestamp": "2027-01-01T00:00:00Z", "window": "15s",
            "containers": [{"name": "c", "usage": {"cpu": cpu, "memory": "50Mi"}}]})
    };
    let answer = || vec![(USAGE, 200, list(Value::Array(vec![usage("a", "1500m"), usage("b", "1700m")])))];
    let (found, asked) = evaluate(CPU, answer()).await;
    assert_eq!(asked, [format!("{USAGE}?labelSelector=app%3Dweb")]);
    let status = api::json!({"type": "Resource", "resource": {"name": "cpu",
        "current": {"averageValue": "1600m", "averageUtilization": 160}}});
    let name = "cpu resource utilization (percentage of request)".to_owned();
    assert_eq!(found, Ok(Proposal { replicas: 4, name, status }));
    let memory = r#"{"type":"ContainerResource","containerResource":{"name":"memory","container":"c","target":{"averageValue":"100Mi"}}}"#;
    let (found, _) = evaluate(memory, answer()).await;
    let status = api::json!({"type": "ContainerResource", "containerResource": {"name": "memory", "container": "c",
        "current": {"averageValue": "50Mi"}}});
    assert_eq!(found, Ok(Proposal { replicas: 1, name: "memory resource".to_owned(), status }));
}

#[tokio::test]
async fn custom_metrics_are_read_from_the_preferred_version() {
    let values = list(api::json!([
        {"describedObject": {"name": "a"}, "timestamp": "2027-01-01T00:00:00Z", "value": "30"},
        {"describedObject": {"name": "b"}, "timestamp": "2027-01-01T00:00:00Z", "value": "10"}]));
    let path = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/ns/pods/*/rps";
    let metric = r#"{"type":"Pods","pods":{"metric":{"name":"rps","selector":{"matchLabels":{"x":"y"}}},"target":{"averageValue":"10"}}}"#;
    let (found, asked) = evaluate(metric, vec![group("v1beta1"), (path, 200, values)]).await;
    assert_eq!(asked[1], format!("{path}?labelSelector=app%3Dweb&metricLabelSelector=x%3Dy"));
    let found = found.unwrap();
    assert_eq!((found.replicas, found.name.as_str()), (4, "pods metric rps"));
    let current = found.status.at(&["pods", "current"]);
    assert_eq!(current, Some(&api::json!({"averageValue": "20"})));
    let path = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/ns/metrics/rps";
    let metric = r#"{"type":"Object","object":{"metric":{"name":"rps"},"describedObject":{"kind":"Namespace","name":"ns","apiVersion":"v1"},"target":{"type":"AverageValue","averageValue":"10"}}}"#;
    let one = list(api::json!([{"describedObject": {"name": "ns"}, "value": "50"}]));
    let (found, _) = evaluate(metric, vec![group("v1beta2"), (path, 200, one)]).await;
    let found = found.unwrap();
    assert_eq!((found.replicas, found.name.as_str()), (5, "external metric rps(nil)"));
    assert_eq!(found.status.at(&["object", "current"]), Some(&api::json!({"averageValue": "25"})));
}

#[tokio::test]
async fn external_values_are_summed() {
    let path = "/apis/external.metrics.k8s.io/v1beta1/namespaces/ns/q";
    let values = || list(api::json!([{"value": "40"}, {"value": "20"}]));
    let average = r#"{"type":"External","external":{"metric":{"name":"q","selector":{"matchLabels":{"a":"b"}}},"target":{"averageValue":"10"}}}"#;
    let (found, asked) = evaluate(average, vec![(path, 200, values())]).await;
    assert_eq!(asked, [format!("{path}?labelSelector=a%3Db")]);
    let found = found.unwrap();
    assert_eq!(found.replicas, 6);
    assert_eq!(found.status.at(&["external", "current"]), Some(&api::json!({"averageValue": "30"})));
    let whole = r#"{"type":"External","external":{"metric":{"name":"q"},"target":{"value":"40"}}}"#;
    let (found, _) = evaluate(whole, vec![(path, 200, values())]).await;
    assert_eq!(found.unwrap().replicas, 3);
}
