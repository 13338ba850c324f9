//! Samples of nodes whose containers run: reads `/metrics/resource` of their agents.
//!
//! Agents are read every 15 seconds, a few at a time, each within a time limit and up to a number of bytes. Simulated nodes
//! are not read: their usage is computed on request.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use api::json::Value;
use bytes::Bytes;
use http::Request;
use http::header::{HOST, HeaderValue};
use http_body_util::{BodyExt as _, Limited};
use tokio::task::JoinSet;
use tracing::debug;

use crate::outbound::forward;
use crate::resources;
use crate::state::usage::{Point, Sample};
use crate::state::{Kubelets, Server, StreamFailure};

/// Time between two samples of a node.
const INTERVAL: Duration = Duration::from_secs(15);
/// Time limit for one node.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Nodes that are read at the same time.
const READS_MAX: usize = 16;
/// Bytes of an answer.
const BYTES_MAX: usize = 8 << 20;

/// Reads all agents until the server stops.
pub(crate) fn keep(server: &Arc<Server>) {
    let (weak, mut stopping) = (Arc::downgrade(server), server.stopping());
    server.tasks.spawn("node metrics", async move {
        loop {
            let Some(server) = weak.upgrade() else { return };
            tokio::select! {
                () = server.sample_nodes() => {}
                () = stopping.stopped() => return,
            }
            drop(server);
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                () = stopping.stopped() => return,
            }
        }
    });
}

impl Server {
    /// Takes a sample of each node whose containers run, for `metrics.k8s.io`. The server does so by itself every 15 seconds.
    pub async fn sample_nodes(self: &Arc<Self>) {
        let prefix = resources::NODES.prefix();
        let runs = |object: &cache::stored::ServedObject| !object.contains(b"\"kernelVersion\":\"simulated\"");
        let nodes = self.cache.resource(&prefix).list(&prefix, None, 0, |_, object| runs(object)).objects;
        let nodes: Vec<Value> = nodes.iter().map(|(_, object)| object.decode()).collect();
        let names: HashSet<&str> = nodes.iter().map(|node| api::metadata::text(node, "name")).collect();
        self.usage_samples.retain(|name| names.contains(name));
        let Some(kubelets) = self.kubelets().cloned() else { return };
        let (mut nodes, mut reads) = (nodes.into_iter(), JoinSet::new());
        loop {
            while reads.len() < READS_MAX
                && let Some(node) = nodes.next()
            {
                reads.spawn(sample(self.clone(), kubelets.clone(), node));
            }
            if reads.join_next().await.is_none() {
                return;
            }
        }
    }
}

async fn sample(server: Arc<Server>, kubelets: Arc<dyn Kubelets>, node: Value) {
    let name = api::metadata::text(&node, "name").to_owned();
    let late = || Err("it does not answer in time".to_owned());
    let read = tokio::time::timeout(TIMEOUT, read(&*kubelets, node, name.clone())).await.unwrap_or_else(|_| late());
    let now = server.clock().now().unix_nanos().checked_div(1_000_000).unwrap_or_default();
    let sample = match read {
        Ok(text) => Some(parse(&String::from_utf8_lossy(&text), now)),
        Err(why) => {
            debug!(node = name, err = why, "Could not read the usage of a node");
            None
        }
    };
    server.usage_samples.add(&name, sample);
}

async fn read(kubelets: &dyn Kubelets, node: Value, name: String) -> Result<Bytes, String> {
    let stream = kubelets.connect(Some(node), name.clone()).await.map_err(|failure| match failure {
        StreamFailure::Refused(why) | StreamFailure::Unreachable(why) => why,
    })?;
    let mut request = Request::new(forward::empty());
    *request.uri_mut() = http::Uri::from_static("/metrics/resource");
    let host = HeaderValue::from_str(&name).map_err(|_| "the node has no usable name".to_owned())?;
    request.headers_mut().insert(HOST, host);
    let (response, _connection) = forward::send_over(stream, request).await?.into_parts();
    if !response.status().is_success() {
        return Err(format!("it answers with code {}", response.status().as_u16()));
    }
    let body = Limited::new(response.into_body(), BYTES_MAX).collect().await;
    Ok(body.map_err(|error| error.to_string())?.to_bytes())
}

/// Counters of a container while they are gathered.
#[derive(Default, Clone, Copy)]
struct PartialCounters {
    at_millis: Option<i64>,
    started_millis: Option<i64>,
    cpu_nanos: Option<u64>,
    memory_bytes: Option<u64>,
}

impl PartialCounters {
    fn take(&mut self, name: &str, value: f64, at_millis: Option<i64>) {
        if name.ends_with("_cpu_usage_seconds_total") {
            self.cpu_nanos = whole(value * 1e9);
            self.at_millis = at_millis;
        } else if name.ends_with("_memory_working_set_bytes") {
            self.memory_bytes = whole(value);
        } else if name == "container_start_time_seconds" {
            self.started_millis = whole(value * 1e3).and_then(|it| i64::try_from(it).ok()).filter(|it| *it > 0);
        }
    }

    /// The point; none if one of the counters is missing.
    fn point(self, now_millis: i64) -> Option<Point> {
        Some(Point {
            at_millis: self.at_millis.unwrap_or(now_millis),
            started_millis: self.started_millis,
            cpu_nanos: self.cpu_nanos?,
            memory_bytes: self.memory_bytes?,
        })
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the value is in the range of integers")]
fn whole(value: f64) -> Option<u64> {
    (0.0..9e18).contains(&value).then_some(value as u64)
}

/// Reads the counters of a node and its containers. Lines that cannot be read are left out, and so are containers without
/// all of their counters.
fn parse(text: &str, now_millis: i64) -> Sample {
    let mut node = PartialCounters::default();
    let mut pods: HashMap<(String, String), HashMap<String, PartialCounters>> = HashMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, labels, value, at_millis)) = split(line) else { continue };
        if name.starts_with("node_") {
            node.take(name, value, at_millis);
        } else if name.starts_with("container_") {
            let label = |wanted: &str| label(labels, wanted).unwrap_or_default().to_owned();
            let key = (label("namespace"), label("pod"));
            pods.entry(key).or_default().entry(label("container")).or_default().take(name, value, at_millis);
        }
    }
    let of_pod = |(key, containers): ((String, String), HashMap<String, PartialCounters>)| {
        let points = containers.into_iter().filter_map(|(name, partial)| Some((name, partial.point(now_millis)?)));
        let points: HashMap<String, Point> = points.collect();
        (!points.is_empty()).then_some((key, points))
    };
    Sample { node: node.point(now_millis), pods: pods.into_iter().filter_map(of_pod).collect() }
}

/// Name, labels, value and time of a line.
fn split(line: &str) -> Option<(&str, &str, f64, Option<i64>)> {
    let (name, labels, rest) = match line.split_once('{') {
        Some((name, rest)) => {
            let (labels, rest) = rest.rsplit_once('}')?;
            (name, labels, rest)
        }
        None => {
            let (name, rest) = line.split_once(' ')?;
            (name, "", rest)
        }
    };
    let mut rest = rest.split_ascii_whitespace();
    let value = rest.next()?.parse().ok()?;
    Some((name, labels, value, rest.next().and_then(|it| it.parse().ok())))
}

/// The value of a label. Names of Kubernetes have nothing that would be escaped.
fn label<'a>(labels: &'a str, wanted: &str) -> Option<&'a str> {
    let mut rest = labels;
    while let Some((name, after)) = rest.split_once("=\"") {
        let (value, after) = after.split_once('"')?;
        if name.trim_start_matches([',', ' ']) == wanted {
            return Some(value);
        }
        rest = after;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_node_and_containers_are_read() {
        let text = "# HELP container_cpu_usage_seconds_total [STABLE] x\n\
            container_cpu_usage_seconds_total{container=\"c\",namespace=\"d\",pod=\"p\"} 1.5 1700000000123\n\
            container_memory_working_set_bytes{container=\"c\",namespace=\"d\",pod=\"p\"} 4096 1700000000000\n\
            container_start_time_seconds{container=\"c\",namespace=\"d\",pod=\"p\"} 1.6999e+09\n\
            container_cpu_usage_seconds_total{container=\"half\",namespace=\"d\",pod=\"p\"} 1\n\
            container_cpu_usage_seconds_total{container=\"x\",namespace=\"d\",pod=\"q\"} NaN\n\
            pod_cpu_usage_seconds_total{namespace=\"d\",pod=\"p\"} 9\n\
            node_cpu_usage_seconds_total 20.25\nnode_memory_working_set_bytes 1e+09\nbroken{ 1\n\n";
        let sample = parse(text, 5);
        let node = Point { at_millis: 5, started_millis: None, cpu_nanos: 20_250_000_000, memory_bytes: 1_000_000_000 };
        assert_eq!(sample.node, Some(node));
        let container = Point {
            at_millis: 1_700_000_000_123,
            started_millis: Some(1_699_900_000_000),
            cpu_nanos: 1_500_000_000,
            memory_bytes: 4096,
        };
        let key = ("d".to_owned(), "p".to_owned());
        assert_eq!(sample.pods, HashMap::from([(key, HashMap::from([("c".to_owned(), container)]))]));
    }

    #[test]
    fn labels_are_found_in_any_order() {
        let labels = "pod=\"p\", namespace=\"d\",container=\"\"";
        let found = ["container", "namespace", "pod", "image"].map(|it| label(labels, it));
        assert_eq!(found, [Some(""), Some("d"), Some("p"), None]);
    }
}
