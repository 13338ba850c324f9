//! Workloads as YAML: what is made before, and what is measured.

use anyhow::{Context, Result, ensure};
use api::json::{Value, from_value};

use super::Size;

/// All workloads.
const WORKLOADS: &str = include_str!("../../workloads/scheduler.yaml");

/// Default node of a workload.
const NODE: &str = r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n$number"}, "spec": {},
    "status": {"capacity": {"cpu": "4", "memory": "32Gi", "pods": "110"},
               "allocatable": {"cpu": "4", "memory": "32Gi", "pods": "110"},
               "conditions": [{"type": "Ready", "status": "True"}]}}"#;

/// Default pod of a workload.
const POD: &str = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "$name", "namespace": "bench"},
    "spec": {"containers": [{"name": "c", "image": "registry.example.com/pause:1",
    "resources": {"requests": {"cpu": "100m", "memory": "500Mi"}}}]}}"#;

/// A workload.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Workload {
    /// Name of the workload.
    pub name: String,
    /// The question it answers.
    pub question: String,
    /// Number of distinct sets of taints or zones, regardless of the run.
    #[serde(default)]
    sets: Option<usize>,
    /// Maximum number of its pods on one node.
    #[serde(default)]
    pods_per_node: Option<usize>,
    /// The proposals' gates are closed.
    #[serde(default)]
    pub gates_off: bool,
    /// Changes to the default node.
    #[serde(default)]
    create_nodes: Value,
    /// Pods created before the measurement, in this order.
    #[serde(default)]
    create_pods: Vec<PodsBefore>,
    /// Changes to the default pod for measured pods.
    #[serde(default)]
    measure_pods: Value,
    /// Changes during the measurement.
    #[serde(default)]
    pub churn: Option<Churn>,
}

/// Pods that are there before.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PodsBefore {
    /// Number of pods at full size.
    count: Option<usize>,
    /// Number of pods on each node, instead.
    per_node: Option<usize>,
    /// Whether they fit nowhere.
    #[serde(default)]
    pub waiting: bool,
    /// Changes to the default pod.
    #[serde(default)]
    pod: Value,
}

/// Changes during the measurement.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Churn {
    /// Number of pods between two changes.
    pub every_pods: usize,
    /// Number of nodes that are changed, one after the other.
    #[serde(default)]
    pub nodes: usize,
    /// Fields of these nodes after the change.
    #[serde(default)]
    node: Value,
    /// Number of earlier pods that are deleted.
    #[serde(default)]
    pub delete_pods: usize,
}

/// All workloads, in the order of the file.
///
/// # Errors
/// The file is not what it should be.
pub fn all() -> Result<Vec<Workload>> {
    let (documents, error) = api::yaml::parse_documents(WORKLOADS);
    ensure!(error.is_none(), "workloads do not parse: {error:?}");
    documents.iter().map(|document| from_value(&document.value).context("a workload")).collect()
}

impl Workload {
    /// Number of its pods that fit on this many nodes.
    #[must_use]
    pub fn pods_on(&self, nodes: usize) -> usize {
        // Four processors of ten pods each.
        nodes.saturating_mul(self.pods_per_node.unwrap_or(40))
    }

    /// Number of distinct sets.
    #[must_use]
    pub fn sets(&self, size: Size) -> usize {
        self.sets.unwrap_or(size.sets)
    }

    /// A node.
    ///
    /// # Errors
    /// The workload is not what it should be.
    pub fn node(&self, number: usize, sets: usize) -> Result<Value> {
        make(NODE, &[&self.create_nodes], "", number, sets)
    }

    /// The node whose turn it is, of this many, as the churn leaves it.
    ///
    /// # Errors
    /// The workload is not what it should be.
    pub fn changed_node(&self, nodes: usize, turn: usize, sets: usize) -> Result<Value> {
        let changes = self.churn.as_ref().map_or(&Value::Null, |churn| &churn.node);
        let number = turn.checked_rem(nodes).unwrap_or(0);
        // Each time a node is changed, it moves to the next set.
        let round = turn.checked_div(nodes).unwrap_or(0).saturating_add(1);
        let next = number.saturating_add(round).checked_rem(sets.max(1)).unwrap_or(0);
        let value = make(NODE, &[&self.create_nodes, changes], "", number, sets)?;
        replaced(&value, &[("$turn", turn), ("$next", next)])
    }

    /// The pods that are there before: their template, their prefix, and how many there are.
    pub fn pods_before(&self, size: Size) -> impl Iterator<Item = (&PodsBefore, String, usize)> {
        self.create_pods.iter().enumerate().map(move |(index, before)| {
            let count = before
                .per_node
                .map_or_else(|| size.scaled(before.count.unwrap_or(0)), |per_node| per_node.saturating_mul(size.nodes));
            (before, format!("before{index}-"), count)
        })
    }

    /// A pod that is measured.
    ///
    /// # Errors
    /// The workload is not what it should be.
    pub fn measured_pod(&self, number: usize, sets: usize) -> Result<Value> {
        make(POD, &[&self.measure_pods], &format!("measured-{number}"), number, sets)
    }
}

impl PodsBefore {
    /// One of them.
    ///
    /// # Errors
    /// The workload is not what it should be.
    pub fn pod(&self, prefix: &str, number: usize, sets: usize) -> Result<Value> {
        make(POD, &[&self.pod], &format!("{prefix}{number}"), number, sets)
    }
}

/// Builds an object: the default one, overlaid with the changes of the workload.
fn make(usual: &str, changes: &[&Value], name: &str, number: usize, sets: usize) -> Result<Value> {
    let mut value = api::json::parse(usual.replace("$name", name).as_bytes())?;
    for changes in changes {
        lay_over(&mut value, changes);
    }
    let set = number.checked_rem(sets.max(1)).unwrap_or(0);
    replaced(&value, &[("$number", number), ("$set", set)])
}

fn replaced(value: &Value, names: &[(&str, usize)]) -> Result<Value> {
    let mut text = api::json::to_string(value);
    for (name, number) in names {
        text = text.replace(name, &number.to_string());
    }
    Ok(api::json::parse(text.as_bytes())?)
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
