//! The pods that a workload would make: one document, and how many are like it.

use anyhow::{Context as _, Result};
use api::json::Value;
use registry::resources::Resource;

/// Objects that a workload creates.
#[derive(Debug, Default)]
pub(super) struct CreatedObjects {
    /// Pods, each with the number of equal ones that it stands for.
    pub(super) pods: Vec<(Value, Option<usize>)>,
    /// Claims to volumes.
    pub(super) claims: Vec<Value>,
}

/// The resource of pods, for admission.
pub(super) fn pods() -> Result<&'static Resource<'static>> {
    registry::resources::find_by_api_version("v1", "Pod").context("there is no resource for pods")
}

/// Returns the objects that a workload would create. Daemon pods depend on nodes and are not created here.
pub(super) fn expand(kind: &str, object: &Value) -> Result<CreatedObjects> {
    let number = |path: &[&str]| object.i64_at(path).and_then(|it| usize::try_from(it).ok());
    let replicas = match kind {
        "Job" => {
            let parallelism = number(&["spec", "parallelism"]).unwrap_or(1);
            number(&["spec", "completions"]).map_or(parallelism, |completions| completions.min(parallelism))
        }
        "DaemonSet" | "CronJob" => return Ok(CreatedObjects::default()),
        _ => number(&["spec", "replicas"]).unwrap_or(1),
    };
    let template = object.at(&["spec", "template"]).context("it has no pod template")?;
    let text = |field: &str| object.text_at(&["metadata", field]);
    let (name, namespace) = (text("name"), text("namespace"));
    let pod = |name: &str| {
        let mut pod = template.clone();
        if let Some(fields) = pod.as_object_mut() {
            fields.insert("apiVersion", "v1");
            fields.insert("kind", "Pod");
            if let Some(metadata) = fields.get_or_insert("metadata", Value::object).as_object_mut() {
                metadata.insert("name", name);
                metadata.insert("namespace", namespace);
                // The scheduler spreads the pods of one owner.
                let (owner, version) = match kind {
                    "Deployment" => ("ReplicaSet", "apps/v1"),
                    "Job" => ("Job", "batch/v1"),
                    "ReplicationController" => (kind, "v1"),
                    _ => (kind, "apps/v1"),
                };
                let uid = format!("{kind}-{namespace}-{}", text("name"));
                metadata.insert(
                    "ownerReferences",
                    api::json!([{"apiVersion": version, "kind": owner, "name": (text("name")), "uid": uid, "controller": true}]),
                );
            }
        }
        pod
    };
    let templates = object.list_at(&["spec", "volumeClaimTemplates"]);
    if templates.is_empty() {
        return Ok(CreatedObjects { pods: vec![(pod(name), Some(replicas))], claims: Vec::new() });
    }
    // Each pod of a StatefulSet has its own claims.
    let mut made = CreatedObjects::default();
    for ordinal in 0..replicas {
        let own = format!("{name}-{ordinal}");
        let mut pod = pod(&own);
        for template in templates {
            let volume = template.text_at(&["metadata", "name"]);
            let claim_name = format!("{volume}-{own}");
            let mut claim = template.clone();
            if let Some(metadata) = claim.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.insert("name", claim_name.as_str());
                metadata.insert("namespace", namespace);
            }
            made.claims.push(claim);
            let mount = api::json!({"name": volume, "persistentVolumeClaim": {"claimName": claim_name}});
            let spec = pod.get_mut("spec").and_then(Value::as_object_mut);
            if let Some(Value::Array(volumes)) = spec.map(|spec| spec.get_or_insert("volumes", || Value::Array(Vec::new()))) {
                volumes.push(mount);
            }
        }
        made.pods.push((pod, None));
    }
    Ok(made)
}
