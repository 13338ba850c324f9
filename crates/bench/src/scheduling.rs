//! Workloads on the scheduler's core alone: what a decision costs, without API server, store and network.
//!
//! [`Workload`]s are YAML in `workloads/scheduler.yaml`; [`run`] plays one with any number of nodes and pods.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use api::core::v1::{Node, Pod};
use api::json::{Value, from_value};
use matching::{Features, Matcher};
use scheduling::queue::Backoff;
use scheduling::{Outcome, Scheduler, plugins};

use crate::load::latencies::Latencies;

/// All workloads.
const WORKLOADS: &str = include_str!("../workloads/scheduler.yaml");

/// What nodes are like unless a workload says otherwise.
const NODE: &str = r#"{"metadata": {"name": "n$number"}, "spec": {}, "status": {"allocatable": {"cpu": "4", "memory": "32Gi", "pods": "110"}}}"#;

/// What pods are like unless a workload says otherwise.
const POD: &str = r#"{"metadata": {"name": "p$number", "namespace": "bench", "uid": "p$number"},
    "spec": {"containers": [{"name": "c", "image": "registry.example.com/pause:1",
    "resources": {"requests": {"cpu": "100m", "memory": "500Mi"}}}]}}"#;

/// A workload: what differs from the usual nodes and pods.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// The question it answers.
    pub question: String,
    node: Value,
    pod: Value,
    #[serde(default)]
    waiting: usize,
    #[serde(default)]
    waiting_pod: Value,
}

/// How large a run is.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// How many nodes.
    pub nodes: usize,
    /// How many pods are measured.
    pub pods: usize,
    /// How many distinct sets of taints, or zones.
    pub sets: usize,
}

/// What came of a run.
#[derive(Debug)]
pub struct Report {
    /// How many pods were placed.
    pub placed: usize,
    /// How long all decisions took.
    pub took: Duration,
    /// How long single decisions took, events before and after included.
    pub latencies: Latencies,
}

/// All workloads, in the order of the file.
///
/// # Errors
/// The file is not what it should be.
pub fn workloads() -> Result<Vec<Workload>> {
    let (documents, error) = api::yaml::parse_documents(WORKLOADS);
    ensure!(error.is_none(), "workloads do not parse: {error:?}");
    documents.iter().map(|document| from_value(&document.value).context("a workload")).collect()
}

/// Plays a workload.
///
/// # Errors
/// Nodes or pods are not what they should be, or a decision failed.
pub fn run(workload: &Workload, size: Size) -> Result<Report> {
    let capacity = NonZeroUsize::new(1024).context("capacity")?;
    let matcher = Matcher::new(capacity, Arc::new(|| Duration::ZERO), Features::ALL)?;
    let matcher = Arc::new(matcher);
    let profile = plugins::default_profile(&matcher)?;
    let mut scheduler = Scheduler::new(vec![profile], Backoff::default(), matcher, 1);
    let start = Instant::now();
    for number in 0..size.nodes {
        let node: Node = make(NODE, &workload.node, number, size.sets)?;
        scheduler.set_node(&node, start.elapsed());
    }
    for number in 0..workload.waiting {
        let pod: Pod = make(&POD.replace("p$number", "w$number"), &workload.waiting_pod, number, size.sets)?;
        scheduler.set_pod(&pod, start.elapsed());
    }
    while scheduler.schedule_one(start.elapsed()).is_some() {}
    let mut report = Report { placed: 0, took: Duration::ZERO, latencies: Latencies::default() };
    for number in 0..size.pods {
        let mut pod: Pod = make(POD, &workload.pod, number, size.sets)?;
        let begin = Instant::now();
        scheduler.set_pod(&pod, start.elapsed());
        while let Some(attempt) = scheduler.schedule_one(start.elapsed()) {
            match attempt.outcome {
                Outcome::Scheduled(placement) => {
                    scheduler.bound(&attempt.uid);
                    pod.spec.node_name = placement.node;
                    scheduler.set_pod(&pod, start.elapsed());
                    report.placed = report.placed.saturating_add(1);
                }
                Outcome::Unschedulable(_) => {}
                Outcome::Error(error) => return Err(anyhow!(error)),
            }
        }
        let took = begin.elapsed();
        report.latencies.add(took);
        report.took = report.took.saturating_add(took);
    }
    Ok(report)
}

/// An object: the usual one, with what the workload says laid over it.
fn make<T: serde::de::DeserializeOwned>(usual: &str, changes: &Value, number: usize, sets: usize) -> Result<T> {
    let mut value = api::json::parse(usual.as_bytes())?;
    lay_over(&mut value, changes);
    let set = number.checked_rem(sets.max(1)).unwrap_or(0);
    let text = api::json::to_string(&value).replace("$number", &number.to_string()).replace("$set", &set.to_string());
    Ok(from_value(&api::json::parse(text.as_bytes())?)?)
}

fn lay_over(value: &mut Value, changes: &Value) {
    let (Some(object), Value::Object(changes)) = (value.as_object_mut(), changes) else {
        if !changes.is_null() {
            *value = changes.clone();
        }
        return;
    };
    for (key, change) in changes.iter() {
        match object.get_mut(key) {
            Some(known) => lay_over(known, change),
            None => {
                object.insert(key, change.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_runs_on_five_nodes() {
        let workloads = workloads().unwrap();
        assert!(workloads.len() >= 9);
        for mut workload in workloads {
            workload.waiting = workload.waiting.min(20);
            let pods = if workload.name == "pod-anti-affinity" { 5 } else { 20 };
            let report = run(&workload, Size { nodes: 5, pods, sets: 2 }).unwrap();
            assert_eq!(report.placed, pods, "{}", workload.name);
        }
    }
}
