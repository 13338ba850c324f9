//! Two schedulers that allocate the devices of one pool.

use super::Report;
use super::cluster::{Cluster, text};
use anyhow::{Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;

/// Devices of the pool; both schedulers together need three quarters of them.
const DEVICES: usize = 80;
const PODS_EACH: usize = 30;
const LIST: [&str; 3] = ["pods", "-l", "part=devices"];

/// A node with devices, their class, and a template of claims for one of them.
fn pool() -> String {
    let devices: String = (0..DEVICES).map(|index| format!("  - {{name: d{index}}}\n")).collect();
    format!(
        "apiVersion: v1\nkind: Node\nmetadata: {{name: shared, labels: {{part: devices}}}}\n---\n\
         apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {{name: shared.example.com}}\n\
         spec: {{selectors: [{{cel: {{expression: \"device.driver == 'shared.example.com'\"}}}}]}}\n---\n\
         apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {{name: one}}\n\
         spec: {{spec: {{devices: {{requests: [{{name: r, exactly: {{deviceClassName: shared.example.com}}}}]}}}}}}\n---\n\
         apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {{name: shared}}\nspec:\n  driver: shared.example.com\n  \
         nodeName: shared\n  pool: {{name: shared, generation: 1, resourceSliceCount: 1}}\n  devices:\n{devices}"
    )
}

fn pods(scheduler: &str) -> String {
    let pod = |index: usize| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {scheduler}-{index}, labels: {{part: devices}}}}\nspec:\n  \
             schedulerName: {scheduler}\n  resourceClaims: [{{name: c, resourceClaimTemplateName: one}}]\n  \
             containers: [{{name: c, image: example.com/i, resources: {{claims: [{{name: c}}]}}}}]\n"
        )
    };
    (0..PODS_EACH).map(pod).collect()
}

/// Pods of both schedulers take devices from one pool at the same time. Two of them may get the same device: the page
/// advises to separate the devices, and the row states how often it happened.
pub(crate) fn shared(cluster: &Cluster, report: &mut Report) -> Result<()> {
    cluster.apply(&pool())?;
    let total = PODS_EACH.saturating_mul(2);
    report.story(&format!("both schedulers allocate {total} of {DEVICES} devices of one pool"), || {
        cluster.apply(&(pods("default-scheduler") + &pods("celplane")))?;
        let running = |pod: &&Value| text(pod, "/status/phase") == "Running";
        cluster.until("all pods run", || Ok(cluster.items(&LIST)?.iter().filter(running).count() == total))?;
        let mut given: BTreeMap<String, usize> = BTreeMap::new();
        for claim in cluster.items(&["resourceclaims"])? {
            let results = claim.pointer("/status/allocation/devices/results").and_then(Value::as_array);
            for result in results.into_iter().flatten().filter(|it| text(it, "/driver") == "shared.example.com") {
                let count = given.entry(text(result, "/device").to_owned()).or_default();
                *count = count.saturating_add(1);
            }
        }
        ensure!(given.values().sum::<usize>() == total, "{given:?}");
        let twice = given.values().filter(|count| **count > 1).count();
        let events =
            ["get", "events", "--field-selector", "reason=FailedScheduling", "-o", "jsonpath={.items[*].message}"];
        let rolled_back = cluster.kubectl(&events, "")?.matches("was given to resource claim").count();
        Ok(format!("all run; allocations rolled back: {rolled_back}; devices allocated twice: {twice}"))
    });
    cluster.kubectl(&["delete", "pods", "-l", "part=devices", "--force", "--grace-period=0"], "")?;
    cluster.until("the pods are deleted", || Ok(cluster.items(&LIST)?.is_empty()))?;
    let is_of_pod = |claim: &Value| {
        let name = text(claim, "/metadata/name");
        name.starts_with("celplane-") || name.starts_with("default-scheduler-")
    };
    cluster.until("their claims are deleted", || Ok(!cluster.items(&["resourceclaims"])?.iter().any(is_of_pod)))
}
