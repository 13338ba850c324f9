//! Our scheduler in place of kube-scheduler: it places the pods of both names.

use super::Report;
use super::cluster::Cluster;
use anyhow::{Result, ensure};

/// The name that pods have unless they name another scheduler.
const DEFAULT: &str = "default-scheduler";

/// Nodes of two zones, one of them with a taint that only an expression tolerates.
const NODES: &str = "apiVersion: v1
kind: Node
metadata: {name: alone-a, labels: {part: alone, zone: a1}}
spec: {taints: [{key: maintenance.example.com/disk, effect: NoSchedule}]}
---
apiVersion: v1
kind: Node
metadata: {name: alone-b, labels: {part: alone, zone: b1}}
";

const ANNOTATIONS: &str =
    "    placement.celplane.dev/tolerations: \"[{expression: taint.key.startsWith('maintenance.example.com/')}]\"
    placement.celplane.dev/node-affinity: |
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms: [{matchCELExpressions: [\"node.labels['zone'].startsWith('a')\"]}]
";

fn deployment(name: &str, annotations: &str) -> String {
    let annotations =
        if annotations.is_empty() { String::new() } else { format!("      annotations:\n{}", indented(annotations)) };
    format!(
        "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}}}\nspec:\n  replicas: 20\n  \
         selector: {{matchLabels: {{app: {name}}}}}\n  template:\n    metadata:\n      labels: {{app: {name}, part: alone}}\n\
         {annotations}    spec:\n      nodeSelector: {{part: alone}}\n      \
         containers: [{{name: c, image: example.com/i, resources: {{requests: {{cpu: 10m}}}}}}]\n"
    )
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

/// Ends kube-scheduler and the second scheduler, and runs ours under the name of the default one.
pub(crate) fn play(cluster: &Cluster, report: &mut Report) -> Result<()> {
    cluster.apply(NODES)?;
    let nodes = ["get", "nodes", "-l", "part=alone"];
    cluster.until("the nodes are ready", || Ok(cluster.kubectl(&nodes, "")?.matches(" Ready ").count() == 2))?;
    report.story("kube-scheduler ended; ours as `default-scheduler` places everything", || {
        for name in ["kube-scheduler", "scheduler", "webhook"] {
            cluster.kill(name)?;
        }
        cluster.start_webhook_for(DEFAULT)?;
        cluster.start_scheduler_for(DEFAULT)?;
        let deployments = deployment("alone-plain", "") + &deployment("alone-annotated", ANNOTATIONS);
        // The webhook has been started just now.
        cluster.until("the webhook validates the templates", || {
            Ok(cluster.run(&["apply", "-f", "-"], &deployments)?.status.success())
        })?;
        let mut placed = Vec::new();
        for (name, node) in [("alone-plain", "alone-b"), ("alone-annotated", "alone-a")] {
            let selector = format!("app={name}");
            let path = "jsonpath={range .items[*]}{.status.phase} {.spec.nodeName} {.spec.schedulerName}{\"\\n\"}{end}";
            let get = ["get", "pods", "-l", &selector, "-o", path];
            cluster.until(name, || Ok(cluster.kubectl(&get, "")?.matches("Running ").count() == 20))?;
            let found = cluster.kubectl(&get, "")?;
            let expected = format!("Running {node} {DEFAULT}");
            ensure!(found.lines().all(|line| line == expected), "{name}: {found}");
            placed.push(format!("20 pods on {node}"));
        }
        cluster.kubectl(&["delete", "deployments", "alone-plain", "alone-annotated"], "")?;
        Ok(format!("{}; the annotated ones by their annotations", placed.join(", ")))
    });
    report.story("kube-scheduler and the second scheduler in place again", || {
        for name in ["scheduler", "webhook"] {
            cluster.kill(name)?;
        }
        cluster.start_kube_scheduler()?;
        cluster.start_webhook()?;
        cluster.start_scheduler()?;
        let get = ["get", "deployment", "alone-plain", "-o", "jsonpath={.status.readyReplicas}"];
        cluster.apply(&deployment("alone-plain", ""))?;
        cluster.until("kube-scheduler places pods", || Ok(cluster.kubectl(&get, "")? == "20"))?;
        cluster.kubectl(&["delete", "deployment", "alone-plain"], "")?;
        cluster.kubectl(&["delete", "nodes", "-l", "part=alone"], "")?;
        Ok("pods are placed without a change to any object".to_owned())
    });
    Ok(())
}
