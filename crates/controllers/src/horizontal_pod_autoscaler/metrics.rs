//! What is told of metrics that cannot be had, in the words that Kubernetes has for it.
//!
//! Follows `computeReplicasForMetric` of Kubernetes' `pkg/controller/podautoscaler` where no server has metrics.

use api::autoscaling::v2::HorizontalPodAutoscaler;
use api::json::{Object, Value};

/// A metric that cannot be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Missing {
    /// The reason of the condition and of the event.
    pub(super) reason: &'static str,
    /// Why, in the condition and in the event.
    pub(super) cause: String,
    /// The same as a part of the whole computation.
    failure: String,
}

/// Every metric of an autoscaler, and why nothing could be computed.
pub(super) fn missing(autoscaler: &HorizontalPodAutoscaler) -> (Vec<Missing>, String) {
    let metrics = &autoscaler.spec.metrics;
    let all: Vec<Missing> = metrics.iter().map(|metric| of(metric, &autoscaler.metadata.namespace)).collect();
    let count = all.len();
    let first = all.first().map(|it| it.failure.as_str()).unwrap_or_default();
    let whole = format!("invalid metrics ({count} invalid out of {count}), first error is: {first}");
    (all, whole)
}

fn of(metric: &Value, namespace: &str) -> Missing {
    const CUSTOM: &str = "unable to fetch metrics from custom metrics API: no custom metrics API \
        (custom.metrics.k8s.io) registered";
    let text = |path: &[&str]| metric.str_at(path).unwrap_or_default();
    let has = |path: &[&str]| metric.at(path).is_some();
    match text(&["type"]) {
        "Pods" => {
            let cause = format!("unable to get metric {}: {CUSTOM}", text(&["pods", "metric", "name"]));
            let failure = format!("failed to get pods metric value: {cause}");
            Missing { reason: "FailedGetPodsMetric", cause, failure }
        }
        "Object" => {
            let (name, kind) = (text(&["object", "metric", "name"]), text(&["object", "describedObject", "kind"]));
            let object = text(&["object", "describedObject", "name"]);
            let cause = format!("unable to get metric {name} on {kind} {namespace}/{object}: {CUSTOM}");
            let is_average = text(&["object", "target", "type"]) == "AverageValue";
            let inner = if is_average { format!("failed to get {name} object metric: ") } else { String::new() };
            let failure = format!("failed to get object metric value: {inner}{cause}");
            Missing { reason: "FailedGetObjectMetric", cause, failure }
        }
        "External" => {
            let name = text(&["external", "metric", "name"]);
            let selector = selector(metric.at(&["external", "metric", "selector"]));
            let cause = format!(
                "unable to get external metric {namespace}/{name}/{selector}: unable to fetch metrics from external \
                 metrics API: the server could not find the requested resource (get {name}.external.metrics.k8s.io)"
            );
            let inner = if has(&["external", "target", "averageValue"]) {
                format!("failed to get {name} external metric")
            } else {
                format!("failed to get external metric {name}")
            };
            let failure = format!("failed to get {name} external metric value: {inner}: {cause}");
            Missing { reason: "FailedGetExternalMetric", cause, failure }
        }
        kind => {
            let is_container = kind == "ContainerResource";
            let field = if is_container { "containerResource" } else { "resource" };
            let name = text(&[field, "name"]);
            let what = if has(&[field, "target", "averageValue"]) { "usage" } else { "utilization" };
            let cause = format!(
                "failed to get {name} {what}: unable to get metrics for resource {name}: unable to fetch metrics from \
                 resource metrics API: the server could not find the requested resource (get pods.metrics.k8s.io)"
            );
            let (reason, failure) = if is_container {
                let container = text(&[field, "container"]);
                let failure = format!("failed to get {container} container metric value: {cause}");
                ("FailedGetContainerResourceMetric", failure)
            } else {
                ("FailedGetResourceMetric", format!("failed to get {name} resource metric value: {cause}"))
            };
            Missing { reason, cause, failure }
        }
    }
}

/// A selector of labels as Go prints it.
fn selector(selector: Option<&Value>) -> String {
    let Some(selector) = selector else { return "nil".to_owned() };
    let labels = selector.get("matchLabels").and_then(Value::as_object).into_iter().flat_map(Object::iter);
    let mut labels: Vec<String> =
        labels.map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or_default())).collect();
    labels.sort_unstable();
    let expressions = selector.get("matchExpressions").and_then(Value::as_array).unwrap_or_default();
    let expressions: String = expressions.iter().map(expression).collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}",
        labels.concat()
    )
}

fn expression(it: &Value) -> String {
    let text = |key: &str| it.str_at(&[key]).unwrap_or_default();
    let values = it.get("values").and_then(Value::as_array).unwrap_or_default();
    let values: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
    let (key, operator, values) = (text("key"), text("operator"), values.join(" "));
    format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn autoscaler(metrics: &str) -> HorizontalPodAutoscaler {
        let text = format!(r#"{{"metadata":{{"namespace":"ns"}},"spec":{{"metrics":[{metrics}]}}}}"#);
        api::json::from_value(&api::json::parse(text.as_bytes()).unwrap()).unwrap()
    }

    #[track_caller]
    fn check(metric: &str, reason: &str, cause: &str, before: &str) {
        let (all, whole) = missing(&autoscaler(metric));
        let [one] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!((one.reason, one.cause.as_str()), (reason, cause));
        assert_eq!(whole, format!("invalid metrics (1 invalid out of 1), first error is: {before}{cause}"));
    }

    const RESOURCE: &str = "unable to fetch metrics from resource metrics API: the server could not find the requested \
        resource (get pods.metrics.k8s.io)";
    const CUSTOM: &str = "unable to fetch metrics from custom metrics API: no custom metrics API \
        (custom.metrics.k8s.io) registered";

    #[test]
    fn each_kind_of_metric_has_its_words() {
        check(
            r#"{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":80}}}"#,
            "FailedGetResourceMetric",
            &format!("failed to get cpu utilization: unable to get metrics for resource cpu: {RESOURCE}"),
            "failed to get cpu resource metric value: ",
        );
        check(
            r#"{"type":"ContainerResource","containerResource":{"name":"memory","container":"c","target":{"averageValue":"1Gi"}}}"#,
            "FailedGetContainerResourceMetric",
            &format!("failed to get memory usage: unable to get metrics for resource memory: {RESOURCE}"),
            "failed to get c container metric value: ",
        );
        check(
            r#"{"type":"Pods","pods":{"metric":{"name":"rps"}}}"#,
            "FailedGetPodsMetric",
            &format!("unable to get metric rps: {CUSTOM}"),
            "failed to get pods metric value: ",
        );
        check(
            r#"{"type":"Object","object":{"metric":{"name":"rps"},"describedObject":{"kind":"Service","name":"web"},"target":{"type":"Value"}}}"#,
            "FailedGetObjectMetric",
            &format!("unable to get metric rps on Service ns/web: {CUSTOM}"),
            "failed to get object metric value: ",
        );
        check(
            r#"{"type":"External","external":{"metric":{"name":"q","selector":{"matchLabels":{"a":"b"}}},"target":{"averageValue":"3"}}}"#,
            "FailedGetExternalMetric",
            "unable to get external metric ns/q/&LabelSelector{MatchLabels:map[string]string{a: b,},\
             MatchExpressions:[]LabelSelectorRequirement{},}: unable to fetch metrics from external metrics API: the server \
             could not find the requested resource (get q.external.metrics.k8s.io)",
            "failed to get q external metric value: failed to get q external metric: ",
        );
        check(
            r#"{"type":"External","external":{"metric":{"name":"q"},"target":{"value":"3"}}}"#,
            "FailedGetExternalMetric",
            "unable to get external metric ns/q/nil: unable to fetch metrics from external metrics API: the server could \
             not find the requested resource (get q.external.metrics.k8s.io)",
            "failed to get q external metric value: failed to get external metric q: ",
        );
    }

    #[test]
    fn the_first_of_several_stands_for_all() {
        let pods = r#"{"type":"Pods","pods":{"metric":{"name":"rps"}}}"#;
        let cpu = r#"{"type":"Resource","resource":{"name":"cpu"}}"#;
        let (all, whole) = missing(&autoscaler(&format!("{pods},{cpu}")));
        assert_eq!(
            all.iter().map(|it| it.reason).collect::<Vec<_>>(),
            ["FailedGetPodsMetric", "FailedGetResourceMetric"]
        );
        assert!(
            whole
                .starts_with("invalid metrics (2 invalid out of 2), first error is: failed to get pods metric value: ")
        );
    }
}
