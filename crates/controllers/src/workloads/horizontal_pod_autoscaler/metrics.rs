//! The proposal of each metric of an autoscaler, or the condition and event that say why there is none.
//!
//! Follows `computeReplicasForMetric` of Kubernetes' `pkg/controller/podautoscaler/horizontal.go`, with its texts.

use api::autoscaling::v2::CrossVersionObjectReference;
use api::json::{Object, Value};
use api::meta::v1::LabelSelector;
use api::quantity::{Format, Quantity};
use client::discovery::Discovery;

use super::calculator::Calculator;
use super::source::{PodUsage, Source, usage_of};

/// A number of replicas, the name of its metric, and the metric's status.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Proposal {
    pub(super) replicas: i32,
    pub(super) name: String,
    pub(super) status: Value,
}

/// A metric without a proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MissingMetrics {
    /// The reason of the condition and of the event.
    pub(super) reason: &'static str,
    /// Cause, for the condition and the event.
    pub(super) cause: String,
    /// The failure as a part of the whole computation.
    pub(super) failure: String,
}

/// The numbers of replicas of a target's scale.
#[derive(Debug, Clone, Copy)]
pub(super) struct Replicas {
    pub(super) spec: i32,
    pub(super) status: i32,
}

/// Evaluates the metrics of one autoscaler. The usage of its pods is read once.
pub(super) struct Evaluation<'a> {
    source: Source<'a>,
    calculator: Calculator<'a>,
    replicas: Replicas,
    /// The target's selector.
    selector: &'a str,
    discovery: &'a Discovery,
    usage: Option<Result<Vec<PodUsage>, String>>,
}

impl<'a> Evaluation<'a> {
    pub(super) fn new(
        source: Source<'a>,
        calculator: Calculator<'a>,
        replicas: Replicas,
        selector: &'a str,
        discovery: &'a Discovery,
    ) -> Self {
        Self { source, calculator, replicas, selector, discovery, usage: None }
    }

    /// The proposal of a metric.
    pub(super) async fn evaluate(&mut self, metric: &Value) -> Result<Proposal, MissingMetrics> {
        match metric.str_at(&["type"]).unwrap_or_default() {
            "Pods" => self.pods(metric).await,
            "Object" => self.object(metric).await,
            "External" => self.external(metric).await,
            "Resource" => self.resource(metric, "resource").await,
            "ContainerResource" => self.resource(metric, "containerResource").await,
            kind => {
                let cause = format!("unknown metric source type {}", api::go_text::quote(kind));
                Err(MissingMetrics { reason: "InvalidMetricSourceType", failure: cause.clone(), cause })
            }
        }
    }

    async fn resource(&mut self, metric: &Value, field: &str) -> Result<Proposal, MissingMetrics> {
        let text = |path: &str| metric.str_at(&[field, path]).unwrap_or_default();
        let (name, container) = (text("name"), text("container"));
        let is_container = field == "containerResource";
        let computed = self.resource_value(metric.at(&[field, "target"]), name, container).await;
        match computed {
            Ok((replicas, current)) => {
                let shown = match (current.get("averageUtilization"), is_container) {
                    (None, _) => format!("{name} resource"),
                    (_, false) => format!("{name} resource utilization (percentage of request)"),
                    (_, true) => format!("{name} container resource utilization (percentage of request)"),
                };
                let mut status = Object::new();
                status.insert("name", name);
                if is_container {
                    status.insert("container", container);
                }
                status.insert("current", current);
                let kind = if is_container { "ContainerResource" } else { "Resource" };
                Ok(Proposal { replicas, name: shown, status: typed(kind, field, status) })
            }
            Err(cause) if is_container => {
                let failure = format!("failed to get {container} container metric value: {cause}");
                Err(MissingMetrics { reason: "FailedGetContainerResourceMetric", cause, failure })
            }
            Err(cause) => {
                let failure = format!("failed to get {name} resource metric value: {cause}");
                Err(MissingMetrics { reason: "FailedGetResourceMetric", cause, failure })
            }
        }
    }

    async fn resource_value(
        &mut self,
        target: Option<&Value>,
        name: &str,
        container: &str,
    ) -> Result<(i32, Value), String> {
        let current = self.replicas.spec;
        let format = if name == "memory" { Format::BinarySi } else { Format::DecimalSi };
        let shown = |value: i64| Quantity::new_milli(value, format).to_string();
        if let Some(target) = target.and_then(|it| quantity(it, "averageValue")) {
            let usage = self.usage(name, container).await;
            let computed = usage.and_then(|usage| self.calculator.by_average(current, target, name, usage));
            let (replicas, average) = computed.map_err(|why| format!("failed to get {name} usage: {why}"))?;
            return Ok((replicas, api::json!({"averageValue": (shown(average))})));
        }
        let Some(percent) = target.and_then(|it| it.get("averageUtilization")).and_then(Value::as_i64) else {
            let why = "invalid resource metric source: neither an average utilization target nor an average value \
                (usage) target was set";
            return Err(why.to_owned());
        };
        let percent = i32::try_from(percent).unwrap_or(i32::MAX);
        let usage = self.usage(name, container).await;
        let computed = usage.and_then(|usage| self.calculator.by_utilization(current, percent, name, container, usage));
        let found = computed.map_err(|why| format!("failed to get {name} utilization: {why}"))?;
        let status = api::json!({"averageValue": (shown(found.average)), "averageUtilization": (found.percent)});
        Ok((found.replicas, status))
    }

    async fn usage(&mut self, name: &str, container: &str) -> Result<super::calculator::PodMetrics, String> {
        if self.usage.is_none() {
            self.usage = Some(self.source.usage(self.selector).await);
        }
        match &self.usage {
            Some(Ok(pods)) => Ok(usage_of(pods, name, container)),
            Some(Err(why)) => Err(format!("unable to get metrics for resource {name}: {why}")),
            None => Err(String::new()),
        }
    }

    async fn pods(&self, metric: &Value) -> Result<Proposal, MissingMetrics> {
        let identifier = Identifier::of(metric, "pods");
        let missing = |cause: String| {
            let failure = format!("failed to get pods metric value: {cause}");
            MissingMetrics { reason: "FailedGetPodsMetric", cause, failure }
        };
        let labels = identifier.labels().map_err(missing)?;
        let (name, target) = (identifier.name, metric.at(&["pods", "target"]));
        let target = target.and_then(|it| quantity(it, "averageValue")).unwrap_or_default();
        let values = self.source.of_pods(name, self.selector, &labels).await;
        let values = values.map_err(|why| missing(format!("unable to get metric {name}: {why}")))?;
        let computed = self.calculator.by_average(self.replicas.spec, target, "", values);
        let (replicas, average) = computed.map_err(missing)?;
        let mut status = identifier.status();
        status.insert("current", api::json!({"averageValue": (decimal(average))}));
        Ok(Proposal { replicas, name: format!("pods metric {name}"), status: typed("Pods", "pods", status) })
    }

    async fn object(&self, metric: &Value) -> Result<Proposal, MissingMetrics> {
        let identifier = Identifier::of(metric, "object");
        let missing = |cause: String, before: &str| {
            let failure = format!("failed to get object metric value: {before}{cause}");
            MissingMetrics { reason: "FailedGetObjectMetric", cause, failure }
        };
        let labels = identifier.labels().map_err(|why| missing(why, ""))?;
        let name = identifier.name;
        let described = metric.at(&["object", "describedObject"]);
        let object: CrossVersionObjectReference =
            described.and_then(|it| api::json::from_value(it).ok()).unwrap_or_default();
        let target = metric.at(&["object", "target"]);
        let amount = |kind: &str, field: &str| {
            target.filter(|it| it.str_at(&["type"]) == Some(kind)).and_then(|it| quantity(it, field))
        };
        let (value, average) = (amount("Value", "value"), amount("AverageValue", "averageValue"));
        if value.or(average).is_none() {
            let why = "invalid object metric source: neither a value target nor an average value target was set";
            return Err(missing(why.to_owned(), ""));
        }
        let before = match value {
            Some(_) => String::new(),
            None => format!("failed to get {name} object metric: "),
        };
        let read = self.source.of_object(name, &object, &labels, self.discovery).await;
        let read = read.map_err(|why| {
            let (kind, namespace) = (&object.kind, self.source.namespace);
            format!("unable to get metric {name} on {kind} {namespace}/{}: {why}", object.name)
        });
        let read = read.map_err(|why| missing(why, &before))?;
        let mut status = Object::new();
        status.insert("metric", identifier.metric());
        let (replicas, shown, current) = match (value, average) {
            (Some(target), _) => {
                let replicas = self.calculator.by_value(self.replicas.spec, target, read);
                let replicas = replicas.map_err(|why| missing(why, ""))?;
                let shown = format!("{} metric {name}", object.kind);
                (replicas, shown, api::json!({"value": (decimal(read))}))
            }
            (None, target) => {
                let target = target.unwrap_or_default();
                let (replicas, usage) = self.calculator.by_value_per_pod(self.replicas.status, target, read);
                (replicas, identifier.external_name(), api::json!({"averageValue": (decimal(usage))}))
            }
        };
        status.insert("current", current);
        status.insert("describedObject", described.cloned().unwrap_or_default());
        Ok(Proposal { replicas, name: shown, status: typed("Object", "object", status) })
    }

    async fn external(&self, metric: &Value) -> Result<Proposal, MissingMetrics> {
        let identifier = Identifier::of(metric, "external");
        let name = identifier.name;
        let missing = |cause: String, before: &str| {
            let failure = format!("failed to get {name} external metric value: {before}{cause}");
            MissingMetrics { reason: "FailedGetExternalMetric", cause, failure }
        };
        let target = metric.at(&["external", "target"]);
        let amount = |field: &str| target.and_then(|it| quantity(it, field));
        let (average, value) = (amount("averageValue"), amount("value"));
        let before = match (average, value) {
            (Some(_), _) => format!("failed to get {name} external metric: "),
            (None, Some(_)) => format!("failed to get external metric {name}: "),
            (None, None) => {
                let why = "invalid external metric source: neither a value target nor an average value target was set";
                return Err(missing(why.to_owned(), ""));
            }
        };
        let labels = identifier.labels().map_err(|why| missing(why, &before))?;
        let read = self.source.external(name, &labels).await.map_err(|why| {
            let (namespace, selector) = (self.source.namespace, selector_text(identifier.selector));
            missing(format!("unable to get external metric {namespace}/{name}/{selector}: {why}"), &before)
        })?;
        let (replicas, current) = match (average, value) {
            (Some(target), _) => {
                let (replicas, usage) = self.calculator.by_value_per_pod(self.replicas.status, target, read);
                (replicas, api::json!({"averageValue": (decimal(usage))}))
            }
            (None, target) => {
                let target = target.unwrap_or_default();
                let replicas = self.calculator.by_value(self.replicas.spec, target, read);
                (replicas.map_err(|why| missing(why, &before))?, api::json!({"value": (decimal(read))}))
            }
        };
        let mut status = identifier.status();
        status.insert("current", current);
        Ok(Proposal { replicas, name: identifier.external_name(), status: typed("External", "external", status) })
    }
}

/// Name and selector of a metric.
struct Identifier<'a> {
    name: &'a str,
    selector: Option<&'a Value>,
}

impl<'a> Identifier<'a> {
    fn of(metric: &'a Value, field: &str) -> Self {
        let name = metric.str_at(&[field, "metric", "name"]).unwrap_or_default();
        let selector = metric.at(&[field, "metric", "selector"]).filter(|it| !it.is_null());
        Self { name, selector }
    }

    /// The selector as queries have it.
    fn labels(&self) -> Result<String, String> {
        let Some(selector) = self.selector else { return Ok(String::new()) };
        let selector: LabelSelector = api::json::from_value(selector).map_err(|error| error.to_string())?;
        Ok(selector.to_selector().map_err(|error| error.to_string())?.to_string())
    }

    fn metric(&self) -> Object {
        let mut fields = Object::new();
        fields.insert("name", self.name);
        if let Some(selector) = self.selector {
            fields.insert("selector", selector.clone());
        }
        fields
    }

    fn status(&self) -> Object {
        let mut fields = Object::new();
        fields.insert("metric", self.metric());
        fields
    }

    fn external_name(&self) -> String {
        format!("external metric {}({})", self.name, selector_text(self.selector))
    }
}

/// A status of a metric.
fn typed(kind: &str, field: &str, status: Object) -> Value {
    let mut fields = Object::new();
    fields.insert("type", kind);
    fields.insert(field, status);
    Value::Object(fields)
}

/// A target in thousandths.
fn quantity(target: &Value, field: &str) -> Option<i64> {
    let value = target.get(field)?;
    let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
    Quantity::parse(&text).ok().map(|it| it.milli_value())
}

fn decimal(milli: i64) -> String {
    Quantity::new_milli(milli, Format::DecimalSi).to_string()
}

/// A selector of labels as Go prints it.
fn selector_text(selector: Option<&Value>) -> String {
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
mod tests;
