//! What-if: the cluster as it is and with a change, both placed by `celplane simulate`.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use ::console::Failure;
use api::features::Features;
use api::json::{self, Value};
use api::well_known::LABEL_HOSTNAME;
use api::yaml;
use client::Client;

use super::Process;
use crate::live;

/// The size of a cluster that is simulated for a page.
const CLUSTER_BYTES_MAX: usize = 64 << 20;
/// Nodes that a change adds.
const ADDED_NODES_MAX: i64 = 1_000;
/// Objects that a change adds.
const ADDED_MAX: usize = 200;

/// A change to a cluster.
struct Change {
    /// More objects: pods, workloads, nodes.
    added: Vec<Value>,
    /// The number of nodes that are added, and the node that they are like.
    like: Option<(String, i64)>,
    /// Taints, and the nodes that get them: a name, or `key=value` of a label.
    taints: Vec<(String, Value)>,
    /// Nodes that are removed.
    removed: Vec<String>,
    /// Feature gates, as a flag.
    gates: String,
    /// A KubeSchedulerConfiguration, or nothing.
    configuration: String,
}

/// Answers with the placements before and after a change.
pub(super) async fn answer(process: &Process, client: &Client, question: &Value) -> Result<String, Failure> {
    let change = Change::read(question)?;
    let mut objects = live::list(client, live::SCHEDULING)
        .await
        .map_err(|error| Failure { code: 502, message: format!("{error:#}") })?;
    if question.get("again").and_then(Value::as_bool) == Some(true) {
        objects.iter_mut().for_each(unplace);
    }
    let before = text_of(&objects)?;
    change.apply(&mut objects)?;
    let after = text_of(&objects)?;
    let base = vec![
        OsString::from("simulate"),
        "--output=json".into(),
        "--filename=-".into(),
        "--seed=1".into(),
        "--timeout=60s".into(),
    ];
    let first = process.run(base.clone(), Some(before)).await?;
    let mut arguments = base;
    let file = PrivateFile::write(&change.configuration)?;
    if let Some(file) = &file {
        arguments.push("--scheduler-config".into());
        arguments.push(file.0.clone().into());
    }
    if !change.gates.is_empty() {
        arguments.push(format!("--feature-gates={}", change.gates).into());
    }
    let other = process.run(arguments, Some(after)).await?;
    Ok(format!("{{\"before\":{},\"after\":{}}}", first.trim(), other.trim()))
}

impl Change {
    fn read(question: &Value) -> Result<Self, Failure> {
        let text = |name: &str| question.text(name).to_owned();
        let (documents, error) = yaml::parse_manifests(&text("add"));
        if let Some(error) = error {
            return Err(Failure::invalid(format!("the added objects are not YAML: {}", error.message)));
        }
        if documents.len() > ADDED_MAX {
            return Err(Failure::invalid(format!("at most {ADDED_MAX} objects can be added")));
        }
        let count = question.int_at(&["nodes", "count"]);
        if !(0..=ADDED_NODES_MAX).contains(&count) {
            return Err(Failure::invalid(format!("between 0 and {ADDED_NODES_MAX} nodes can be added")));
        }
        let like = question.str_at(&["nodes", "like"]).filter(|it| count > 0 && !it.is_empty());
        let taints = question.get("taints").and_then(Value::as_array).unwrap_or_default().iter();
        let taints = taints.filter_map(|it| Some((it.str_at(&["nodes"])?.to_owned(), it.get("taint")?.clone())));
        let removed = question.get("removed").and_then(Value::as_array).unwrap_or_default().iter();
        let gates = text("gates");
        Features::all_proposals().with_flag(&gates).map_err(|error| Failure::invalid(error.to_string()))?;
        Ok(Self {
            added: documents.into_iter().map(|document| document.value).collect(),
            like: like.map(|it| (it.to_owned(), count)),
            taints: taints.collect(),
            removed: removed.filter_map(|it| it.as_str().map(ToOwned::to_owned)).collect(),
            gates,
            configuration: text("configuration"),
        })
    }

    fn apply(&self, objects: &mut Vec<Value>) -> Result<(), Failure> {
        let is_node = |it: &Value| it.str_at(&["kind"]) == Some("Node");
        let name_of = |it: &Value| it.text_at(&["metadata", "name"]).to_owned();
        if let Some((like, count)) = &self.like {
            let model = objects.iter().find(|it| is_node(it) && name_of(it) == *like);
            let Some(model) = model.cloned() else {
                return Err(Failure::invalid(format!("there is no node `{like}`")));
            };
            objects.extend((0..*count).map(|number| copy_of(&model, &format!("{like}-new-{number}"))));
        }
        for (nodes, taint) in &self.taints {
            let mut hits = 0_usize;
            for node in objects.iter_mut().filter(|it| is_node(it) && is_meant(it, nodes)) {
                hits = hits.saturating_add(1);
                if let Some(spec) = node.as_object_mut().map(|it| it.get_or_insert("spec", Value::object))
                    && let Some(taints) =
                        spec.as_object_mut().map(|it| it.get_or_insert("taints", || Value::Array(Vec::new())))
                    && let Some(taints) = taints.as_array_mut()
                {
                    taints.push(taint.clone());
                }
            }
            if hits == 0 {
                return Err(Failure::invalid(format!("no node is called `{nodes}` or has that label")));
            }
        }
        objects.retain(|it| !(is_node(it) && self.removed.contains(&name_of(it))));
        // Pods of removed nodes have to find another place.
        for pod in objects
            .iter_mut()
            .filter(|it| it.str_at(&["spec", "nodeName"]).is_some_and(|node| self.removed.iter().any(|it| it == node)))
        {
            unplace(pod);
        }
        objects.extend(self.added.iter().cloned());
        Ok(())
    }
}

/// Whether a node has a name, or a label `key=value`.
fn is_meant(node: &Value, nodes: &str) -> bool {
    match nodes.split_once('=') {
        Some((key, value)) => node.at(&["metadata", "labels"]).and_then(|it| it.str_at(&[key])) == Some(value),
        None => node.str_at(&["metadata", "name"]) == Some(nodes) || nodes == "*",
    }
}

/// A node like another, under a name of its own.
fn copy_of(node: &Value, name: &str) -> Value {
    let mut copy = node.clone();
    if let Some(metadata) = copy.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("name", name);
        metadata.insert("uid", format!("uid-{name}"));
        if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
            labels.insert(LABEL_HOSTNAME, name);
        }
    }
    copy
}

/// Makes a pod that runs one that waits.
fn unplace(object: &mut Value) {
    let is_pod = object.str_at(&["kind"]) == Some("Pod");
    let is_over = matches!(object.str_at(&["status", "phase"]), Some("Succeeded" | "Failed"));
    if !is_pod || is_over {
        return;
    }
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("nodeName");
    }
}

fn text_of(objects: &[Value]) -> Result<String, Failure> {
    let mut text = String::from("{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[");
    for (index, object) in objects.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        json::write_value(&mut text, object);
        if text.len() > CLUSTER_BYTES_MAX {
            let message = "the cluster is too large for a simulation in the page: use celplane simulate";
            return Err(Failure::invalid(message));
        }
    }
    text.push_str("]}");
    Ok(text)
}

/// A file that only this user can read, and that ends with this value.
struct PrivateFile(PathBuf);

impl PrivateFile {
    fn write(text: &str) -> Result<Option<Self>, Failure> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        if text.trim().is_empty() {
            return Ok(None);
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("celplane-console-{}-{number}.yaml", std::process::id()));
        let failed =
            |error: std::io::Error| Failure { code: 502, message: format!("cannot write the configuration: {error}") };
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
        let written = Self(path);
        file.write_all(text.as_bytes()).map_err(failed)?;
        Ok(Some(written))
    }
}

impl Drop for PrivateFile {
    fn drop(&mut self) {
        // The directory is cleaned by the system if this fails.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn cluster() -> Vec<Value> {
        vec![
            api::json!({"kind": "Node", "metadata": {"name": "a", "uid": "1", "labels": {"zone": "x"}}, "spec": {}}),
            api::json!({"kind": "Node", "metadata": {"name": "b", "uid": "2", "labels": {"zone": "y"}}, "spec": {}}),
            api::json!({"kind": "Pod", "metadata": {"name": "p", "uid": "3"}, "spec": {"nodeName": "b"}, "status": {"phase": "Running"}}),
        ]
    }

    #[track_caller]
    fn changed(question: Value) -> Result<Vec<Value>, String> {
        let mut objects = cluster();
        let change = Change::read(&question).map_err(|it| it.message)?;
        change.apply(&mut objects).map_err(|it| it.message)?;
        Ok(objects)
    }

    #[test]
    fn nodes_are_added_tainted_and_removed() {
        let taint = api::json!({"key": "k", "effect": "NoSchedule"});
        let objects = changed(api::json!({
            "nodes": {"like": "a", "count": 2}, "taints": [{"nodes": "zone=x", "taint": (taint)}], "removed": ["b"]
        }))
        .unwrap();
        let names: Vec<&str> = objects.iter().map(|it| it.str_at(&["metadata", "name"]).unwrap()).collect();
        assert_eq!(names, ["a", "p", "a-new-0", "a-new-1"]);
        let tainted = objects.iter().filter(|it| it.at(&["spec", "taints"]).is_some()).count();
        assert_eq!(tainted, 3, "copies have the label too");
        assert!(objects.get(1).unwrap().at(&["spec", "nodeName"]).is_none(), "its node is gone");
    }

    #[test]
    fn bad_changes_are_reported() {
        assert!(changed(api::json!({"nodes": {"like": "c", "count": 1}})).unwrap_err().contains("`c`"));
        assert!(changed(api::json!({"nodes": {"like": "a", "count": 5000}})).unwrap_err().contains("1000"));
        assert!(changed(api::json!({"taints": [{"nodes": "c", "taint": {}}]})).unwrap_err().contains("`c`"));
        assert!(changed(api::json!({"add": "a: ["})).unwrap_err().contains("YAML"));
        assert!(changed(api::json!({"gates": "Nonsense=maybe"})).is_err());
    }
}
