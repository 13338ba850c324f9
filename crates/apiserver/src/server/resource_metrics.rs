//! Requests for `metrics.k8s.io`: processor time and memory that pods and nodes use.
//!
//! Usage of simulated containers is computed by their rules, that of others comes from samples of their nodes. Pods and nodes
//! without usage are left out of lists. Follows `pkg/api` of metrics-server: there are get and list, without pages.

use std::sync::Arc;

use api::json::{self, Object, Value};
use api::quantity::{Format, Quantity};
use api::time::Timestamp;
use cache::stored::ServedObject;

use super::{Flow, Server};
use crate::aggregator::resource_metrics::{GROUP, VERSION, resource_list};
use crate::resources::{self, Resource};
use crate::state::usage::{ContainerUsage, Measurement, Usage};
use crate::verbs::{Selection, partial_metadata, tables};
use crate::wire::answer::Answer;
use crate::wire::negotiation::{self, AcceptedEncoding, Form};
use crate::wire::request::{Query, Target, Verb};
use crate::wire::status::{Failure, Result};

/// The window of simulated usage.
const SIMULATED_WINDOW_MILLIS: i64 = 15_000;
/// More objects are looked at on the threads for long work.
const MANY: usize = 256;

/// One of the two resources.
#[derive(Clone, Copy, PartialEq)]
enum Subject {
    Pods,
    Nodes,
}

impl Subject {
    fn of(target: &Target) -> Result<Self> {
        let subject = match target.resource.as_str() {
            "pods" => Self::Pods,
            "nodes" => Self::Nodes,
            _ => return Err(Failure::no_resource()),
        };
        let (has_name, has_namespace) = (!target.name.is_empty(), !target.namespace.is_empty());
        let is_misplaced = match subject {
            Self::Pods => has_name && !has_namespace,
            Self::Nodes => has_namespace,
        };
        if is_misplaced || !target.subresource.is_empty() || target.name.contains('/') {
            return Err(Failure::no_resource());
        }
        Ok(subject)
    }

    /// The resource whose objects are measured.
    fn row(self) -> &'static Resource<'static> {
        match self {
            Self::Pods => resources::PODS,
            Self::Nodes => resources::NODES,
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Pods => "PodMetrics",
            Self::Nodes => "NodeMetrics",
        }
    }
}

/// An object without kind and version, and the sum of its usage.
struct Metrics {
    object: Object,
    sum: Usage,
}

impl Server {
    /// Answers a request for `metrics.k8s.io`. One for a resource has been authorized.
    pub(super) async fn resource_metrics(
        self: &Arc<Self>,
        parts: &http::request::Parts,
        flow: &Flow<'_>,
    ) -> Result<Answer> {
        let Some(target) = flow.asked.target else {
            return match parts.method {
                http::Method::GET | http::Method::HEAD => Ok(Answer::json(200, &resource_list())),
                _ => Err(Failure::method_not_allowed()),
            };
        };
        let subject = Subject::of(target)?;
        let accepted = negotiation::negotiate_without_protobuf(&parts.headers)?;
        // Pods and nodes that the client has created are there.
        self.catch_up().await;
        match target.verb {
            Some(Verb::Get) => self.one(subject, target, flow.query, &accepted).await,
            Some(Verb::List) => self.all(subject, target, flow.query, accepted).await,
            _ => Err(Failure::method_not_allowed()),
        }
    }

    async fn one(
        self: &Arc<Self>,
        subject: Subject,
        target: &Target,
        query: &Query,
        accepted: &AcceptedEncoding,
    ) -> Result<Answer> {
        let (row, name) = (subject.row(), target.name.as_str());
        let key = row.key(&target.namespace, name);
        let Some(object) = self.cache.resource(&row.prefix()).get(&key) else {
            return Err(Failure::not_found(row, name));
        };
        let measured = self.measure(subject, vec![object]).await?.into_iter().next();
        let Some(metrics) = measured else {
            let full = match subject {
                Subject::Pods => format!("{}/{name}", target.namespace),
                Subject::Nodes => name.to_owned(),
            };
            let message = format!("{}.{GROUP} \"{full}\" not found", row.plural);
            let failure = Failure::new(404, "NotFound", message).with_detail("name", full);
            return Err(failure.with_detail("group", GROUP).with_detail("kind", row.plural));
        };
        let shown = match accepted.form {
            Form::Table => table(query, accepted.version, vec![metrics], subject),
            Form::Metadata => partial_metadata(&Value::Object(metrics.object), accepted.version),
            Form::MetadataList | Form::GroupDiscovery => return Err(not_acceptable()),
            Form::Object => typed(metrics.object, subject.kind()),
        };
        Ok(Answer::json(200, &shown))
    }

    async fn all(
        self: &Arc<Self>,
        subject: Subject,
        target: &Target,
        query: &Query,
        accepted: AcceptedEncoding,
    ) -> Result<Answer> {
        let row = subject.row();
        let selection = Selection::from_query(query, row)?;
        let prefix = row.prefix();
        let range = match target.namespace.as_str() {
            "" => prefix.clone(),
            namespace => format!("{prefix}{namespace}/"),
        };
        if matches!(accepted.form, Form::Metadata | Form::GroupDiscovery) {
            return Err(not_acceptable());
        }
        let server = self.clone();
        let select = move || {
            let keep = |key: &str, object: &ServedObject| selection.matches_served(key, object);
            let found = server.cache.resource(&prefix).list(&range, None, 0, keep).objects;
            found.into_iter().map(|(_, object)| object).collect::<Vec<_>>()
        };
        let is_long = self.cache.resource(&row.prefix()).len() > MANY;
        let selected = if is_long { self.threads().run(select).await.ok_or_else(failed)? } else { select() };
        let all = self.measure(subject, selected).await?;
        let query = query.clone();
        let is_long = all.len() > MANY;
        let show = move || {
            let shown = match accepted.form {
                Form::Table => table(&query, accepted.version, all, subject),
                form => list(all, subject, form, accepted.version),
            };
            Answer::json(200, &shown)
        };
        if is_long { self.threads().run(show).await.ok_or_else(failed) } else { Ok(show()) }
    }

    /// The metrics of pods or nodes, as far as there are any, in their order.
    async fn measure(self: &Arc<Self>, subject: Subject, objects: Vec<Arc<ServedObject>>) -> Result<Vec<Metrics>> {
        // The usage of one node is the sum of its pods, which are found among all.
        let is_long = objects.len() > MANY || subject == Subject::Nodes;
        let server = self.clone();
        let work = move || match subject {
            Subject::Pods => server.measure_pods(&objects),
            Subject::Nodes => server.measure_nodes(&objects),
        };
        if is_long { self.threads().run(work).await.ok_or_else(failed) } else { Ok(work()) }
    }

    fn measure_pods(&self, pods: &[Arc<ServedObject>]) -> Vec<Metrics> {
        let now = self.clock().now();
        let measure = |pod: &Arc<ServedObject>| {
            let (namespace, name) = (pod.text_at(&["metadata", "namespace"])?, pod.text_at(&["metadata", "name"])?);
            let simulated = self.kubelets().and_then(|it| it.simulated_pod(&namespace, &name));
            let measured = match simulated {
                Some(value) => simulated_now(value, now),
                None => self.usage_samples.pod(pod.node_name(), &namespace, &name)?,
            };
            let mut object = begin(pod, &name, Some(&namespace), &measured, now);
            let containers = measured.value.iter().map(container).collect::<Vec<_>>();
            object.insert("containers", containers);
            let mut sum = Usage::default();
            for ContainerUsage { usage, .. } in &measured.value {
                sum.cpu_nanocores = sum.cpu_nanocores.saturating_add(usage.cpu_nanocores);
                sum.memory_bytes = sum.memory_bytes.saturating_add(usage.memory_bytes);
            }
            Some(Metrics { object, sum })
        };
        pods.iter().filter_map(measure).collect()
    }

    fn measure_nodes(&self, nodes: &[Arc<ServedObject>]) -> Vec<Metrics> {
        let now = self.clock().now();
        let simulated = self.kubelets().map(|it| it.simulated_nodes()).unwrap_or_default();
        let measure = |node: &Arc<ServedObject>| {
            let name = node.text_at(&["metadata", "name"])?;
            let measured = match simulated.get(&*name) {
                Some(usage) => simulated_now(*usage, now),
                None => self.usage_samples.node(&name)?,
            };
            let mut object = begin(node, &name, None, &measured, now);
            object.insert("usage", amounts(measured.value));
            Some(Metrics { object, sum: measured.value })
        };
        nodes.iter().filter_map(measure).collect()
    }
}

fn failed() -> Box<Failure> {
    Failure::internal("the metrics could not be gathered")
}

fn not_acceptable() -> Box<Failure> {
    let message = "only the following media types are accepted: application/json, application/yaml";
    Failure::new(406, "NotAcceptable", message)
}

fn simulated_now<T>(value: T, now: Timestamp) -> Measurement<T> {
    let at_millis = now.unix_nanos().checked_div(1_000_000).unwrap_or_default();
    Measurement { at_millis, window_millis: SIMULATED_WINDOW_MILLIS, value }
}

/// Metadata and times of an object.
fn begin<T>(
    of: &ServedObject,
    name: &str,
    namespace: Option<&str>,
    measured: &Measurement<T>,
    now: Timestamp,
) -> Object {
    let mut metadata = Object::new();
    metadata.insert("name", name);
    if let Some(namespace) = namespace {
        metadata.insert("namespace", namespace);
    }
    metadata.insert("creationTimestamp", Timestamp { nanos: 0, ..now }.to_string());
    if let Ok(labels) = json::parse(of.labels()) {
        metadata.insert("labels", labels);
    }
    let at = Timestamp { seconds: measured.at_millis.div_euclid(1000), nanos: 0 };
    let mut object = Object::new();
    object.insert("metadata", metadata);
    object.insert("timestamp", at.to_string());
    object.insert("window", window(measured.window_millis));
    object
}

fn window(millis: i64) -> String {
    api::duration::Duration { nanos: millis.saturating_mul(1_000_000) }.to_string()
}

fn container(usage: &ContainerUsage) -> Value {
    api::json!({"name": (usage.name.as_str()), "usage": (amounts(usage.usage))})
}

fn amounts(usage: Usage) -> Value {
    let [cpu, memory] = quantities(usage);
    api::json!({"cpu": cpu, "memory": memory})
}

fn quantities(usage: Usage) -> [String; 2] {
    let number = |it: u64| i64::try_from(it).unwrap_or(i64::MAX);
    let cpu = Quantity::scaled(number(usage.cpu_nanocores), -9, Format::DecimalSi);
    [cpu.to_string(), Quantity::new(number(usage.memory_bytes), Format::BinarySi).to_string()]
}

fn typed(object: Object, kind: &str) -> Value {
    let mut typed = Object::with_capacity(object.len().saturating_add(2));
    typed.insert("kind", kind);
    typed.insert("apiVersion", format!("{GROUP}/{VERSION}"));
    object.into_iter().for_each(|(name, value)| drop(typed.insert(name, value)));
    Value::Object(typed)
}

fn list(all: Vec<Metrics>, subject: Subject, form: Form, version: &str) -> Value {
    let objects = all.into_iter().map(|it| Value::Object(it.object));
    if form == Form::MetadataList {
        let items: Vec<Value> = objects.map(|object| partial_metadata(&object, version)).collect();
        let api_version = format!("meta.k8s.io/{version}");
        return api::json!({
            "kind": "PartialObjectMetadataList", "apiVersion": api_version, "metadata": {}, "items": items
        });
    }
    let (kind, api_version) = (format!("{}List", subject.kind()), format!("{GROUP}/{VERSION}"));
    api::json!({"kind": kind, "apiVersion": api_version, "metadata": {}, "items": (Value::Array(objects.collect()))})
}

fn table(query: &Query, version: &str, all: Vec<Metrics>, subject: Subject) -> Value {
    let column = |name: &str, format: &str, description: &str| {
        api::json!({
            "name": name, "type": "string", "format": format, "description": description, "priority": 0
        })
    };
    let columns = [
        column("Name", "name", "Name of the resource"),
        column("cpu", "quantity", ""),
        column("memory", "quantity", ""),
        column("Window", "duration", ""),
    ];
    let row = |metrics: Metrics| {
        let Metrics { object, sum } = metrics;
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = text(object.get("metadata").and_then(|it| it.get("name")));
        let [cpu, memory] = quantities(sum);
        let cells = [name, cpu, memory, text(object.get("window"))];
        let mut row = Object::new();
        row.insert("cells", cells.into_iter().map(Value::from).collect::<Vec<_>>());
        tables::put_object(&mut row, query, version, typed(object, subject.kind()));
        Value::Object(row)
    };
    let rows: Vec<Value> = all.into_iter().map(row).collect();
    let api_version = format!("meta.k8s.io/{version}");
    api::json!({
        "kind": "Table", "apiVersion": api_version, "metadata": {}, "columnDefinitions": (Value::Array(columns.to_vec())),
        "rows": rows
    })
}
