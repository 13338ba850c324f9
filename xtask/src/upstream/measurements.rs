//! Races between upstream's programs and ours, measured.

use super::Report;
use super::cluster::{Cluster, text};
use anyhow::{Result, ensure};
use serde_json::Value;
use std::thread::sleep;
use std::time::{Duration, Instant};

fn is_deleting(pod: &Value) -> bool {
    pod.pointer("/metadata/deletionTimestamp").is_some()
}

fn tolerates(pod: &Value, key: &str) -> bool {
    let tolerations = pod.pointer("/spec/tolerations").and_then(Value::as_array);
    tolerations.into_iter().flatten().any(|toleration| text(toleration, "/key") == key)
}

/// Seconds for which a plain toleration holds upstream's eviction back.
const BRIDGE: u64 = 10;

/// Pods on the node of the race: a toleration by expression, and behind it a plain one if `bridge`.
fn racers(count: usize, bridge: bool) -> String {
    let plain = format!("  tolerations: [{{operator: Exists, effect: NoExecute, tolerationSeconds: {BRIDGE}}}]\n");
    let (positions, plain) =
        if bridge { ("    placement.celplane.dev/tolerations.positions: '0'\n", plain.as_str()) } else { ("", "") };
    let mut pods = String::new();
    for index in 0..count {
        pods.push_str(&format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: racer-{index}\n  labels: {{part: race}}\n  annotations:\n    \
             placement.celplane.dev/tolerations: \"[{{expression: taint.key.startsWith('maintenance.example.com/')}}]\"\n{positions}\
             spec:\n{plain}  nodeSelector: {{part: race}}\n  terminationGracePeriodSeconds: 30\n  containers: [{{name: c, image: example.com/i}}]\n"
        ));
    }
    pods
}

const RACE_NODE: &str = "apiVersion: v1\nkind: Node\nmetadata: {name: race, labels: {part: race}}\n";

/// Counts the pods that upstream's taint eviction deletes before their resolved toleration arrives.
pub(crate) fn race(cluster: &Cluster, report: &mut Report) -> Result<()> {
    cluster.apply(RACE_NODE)?;
    for (count, rounds, bridge) in [(1, 10, false), (50, 2, false), (50, 2, true)] {
        let name = match bridge {
            false => format!("new taint on a node with {count} running pods, {rounds} times"),
            true => format!("the same with a plain toleration of {BRIDGE} s behind the expression"),
        };
        report.story(&name, || {
            let mut evicted = 0_usize;
            for round in 0..rounds {
                evicted = evicted.saturating_add(race_once(cluster, count, round, bridge)?);
            }
            ensure!(!bridge || evicted == 0, "{evicted} pods were evicted");
            Ok(format!("{evicted} of {} evicted before the toleration arrived", count.saturating_mul(rounds)))
        });
    }
    Ok(())
}

fn race_once(cluster: &Cluster, count: usize, round: usize, bridge: bool) -> Result<usize> {
    let list = ["pods", "-l", "part=race"];
    let running = |pod: &Value| text(pod, "/status/phase") == "Running";
    cluster.apply(&racers(count, bridge))?;
    cluster.until("the pods run", || Ok(cluster.items(&list)?.iter().filter(|pod| running(pod)).count() == count))?;
    let key = format!("maintenance.example.com/r{round}");
    cluster.kubectl(&["taint", "node", "race", &format!("{key}=now:NoExecute")], "")?;
    let decided = |pod: &Value| is_deleting(pod) || tolerates(pod, &key);
    cluster.until("every pod is decided", || Ok(cluster.items(&list)?.iter().all(decided)))?;
    sleep(Duration::from_secs(if bridge { BRIDGE.saturating_add(3) } else { 2 }));
    let kept = cluster.items(&list)?.iter().filter(|pod| !is_deleting(pod)).count();
    cluster.kubectl(&["taint", "node", "race", &format!("{key}-")], "")?;
    cluster.kubectl(&["delete", "pods", "-l", "part=race", "--force", "--grace-period=0"], "")?;
    cluster.until("the pods are deleted", || Ok(cluster.items(&list)?.is_empty()))?;
    Ok(count.saturating_sub(kept))
}

/// Nodes for load: half of them in zone `a`, half in zone `b`, each with room for 40 pods of 100m.
fn load_nodes(count: usize) -> String {
    let mut nodes = String::new();
    for index in 0..count {
        let zone = if index % 2 == 0 { "a" } else { "b" };
        nodes.push_str(&format!(
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: load-{index}, labels: {{part: load, load-zone: {zone}}}}}\n\
             status: {{capacity: {{cpu: '4', memory: 16Gi, pods: '110'}}}}\n"
        ));
    }
    nodes
}

fn deployment(name: &str, replicas: usize, scheduler: &str, affinity: Option<&str>) -> String {
    let annotations = affinity.map_or(String::new(), |expression| {
        format!(
            "      annotations:\n        placement.celplane.dev/node-affinity: |\n          \
             requiredDuringSchedulingIgnoredDuringExecution:\n            nodeSelectorTerms:\n            \
             - matchCELExpressions: [\"{expression}\"]\n"
        )
    });
    format!(
        "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}}}\nspec:\n  replicas: {replicas}\n  \
         selector: {{matchLabels: {{app: {name}}}}}\n  template:\n    metadata:\n      labels: {{app: {name}, part: load}}\n{annotations}    \
         spec:\n      schedulerName: {scheduler}\n      nodeSelector: {{part: load}}\n      containers:\n      \
         - {{name: c, image: example.com/i, resources: {{requests: {{cpu: 100m, memory: 16Mi}}}}}}\n"
    )
}

const LOAD_NODES: usize = 10;
const LOAD_PODS: &[&str] = &["pods", "-l", "part=load"];

fn start_load_nodes(cluster: &Cluster) -> Result<()> {
    cluster.apply(&load_nodes(LOAD_NODES))?;
    let nodes = ["get", "nodes", "-l", "part=load"];
    cluster.until("the nodes are ready", || Ok(cluster.kubectl(&nodes, "")?.matches(" Ready ").count() == LOAD_NODES))
}

/// Both schedulers fill the same nodes at the same time.
pub(crate) fn load(cluster: &Cluster, report: &mut Report) -> Result<()> {
    start_load_nodes(cluster)?;
    // The nodes have room for 400 pods.
    for (share, replicas) in [("80 %", 160_usize), ("100 %", 200)] {
        report.story(&format!("both schedulers at once, together {share} of the nodes' CPU"), || {
            let total = replicas.saturating_mul(2);
            let started = Instant::now();
            let theirs = deployment("plain", replicas, "default-scheduler", None);
            cluster.apply(&(theirs + &deployment("by-annotation", replicas, "celplane", Some("node.labels['load-zone'] in ['a', 'b']"))))?;
            let running = |pod: &&Value| text(pod, "/status/phase") == "Running";
            cluster.until("all pods run", || Ok(cluster.items(LOAD_PODS)?.iter().filter(running).count() == total))?;
            let seconds = started.elapsed().as_secs_f64();
            let pods = cluster.items(LOAD_PODS)?;
            let rejected = |name: &str| {
                let failed = pods.iter().filter(|pod| text(pod, "/status/phase") == "Failed");
                failed.filter(|pod| text(pod, "/metadata/labels/app") == name).count()
            };
            let (theirs, ours) = (rejected("plain"), rejected("by-annotation"));
            let reasons: std::collections::BTreeSet<&str> = pods.iter().map(|pod| text(pod, "/status/reason")).filter(|reason| !reason.is_empty()).collect();
            cluster.kubectl(&["delete", "deployments", "plain", "by-annotation"], "")?;
            cluster.kubectl(&["delete", "pods", "-l", "part=load", "--force", "--grace-period=0"], "")?;
            cluster.until("the pods are deleted", || Ok(cluster.items(LOAD_PODS)?.is_empty()))?;
            let reasons = reasons.into_iter().collect::<Vec<_>>().join(", ");
            Ok(format!(
                "{total} pods run after {seconds:.0} s; rejected by the kubelet: {theirs} of kube-scheduler, {ours} of ours {reasons}"
            ))
        });
    }
    Ok(())
}

/// The webhook goes away while pods are created; no pod runs where its annotation forbids it.
pub(crate) fn webhook_deleted(cluster: &Cluster, report: &mut Report) -> Result<()> {
    start_load_nodes(cluster)?;
    let wrong = |pods: &[Value]| {
        let on_b = |pod: &&Value| {
            text(pod, "/spec/nodeName")
                .rsplit('-')
                .next()
                .and_then(|number| number.parse::<usize>().ok())
                .is_some_and(|number| number % 2 == 1)
        };
        pods.iter().filter(on_b).count()
    };
    let guarded =
        |replicas| deployment("guarded", replicas, "default-scheduler", Some("node.labels['load-zone'] == 'a'"));
    report.story("webhook ended under load, still configured", || {
        cluster.apply(&guarded(60))?;
        cluster.until("the first pods exist", || Ok(cluster.items(LOAD_PODS)?.len() >= 10))?;
        cluster.kill("webhook")?;
        // What is created until the connection breaks was reviewed; the deployment stops somewhere.
        sleep(Duration::from_secs(5));
        let pods = cluster.items(LOAD_PODS)?;
        ensure!(wrong(&pods) == 0, "{} pods on the wrong nodes", wrong(&pods));
        let bare = deployment("bare", 1, "default-scheduler", Some("'true' == 'true'"));
        cluster.refused(&["apply", "-f", "-"], &bare, "failed calling webhook")?;
        Ok(format!("{} of 60 pods created, none on a wrong node; further ones are refused", pods.len()))
    });
    report.story("webhook started again", || {
        cluster.start_webhook()?;
        let running = |pod: &&Value| text(pod, "/status/phase") == "Running";
        cluster.until("all pods run", || Ok(cluster.items(LOAD_PODS)?.iter().filter(running).count() == 60))?;
        let pods = cluster.items(LOAD_PODS)?;
        ensure!(wrong(&pods) == 0, "{} pods on the wrong nodes", wrong(&pods));
        Ok("all 60 pods run, none on a wrong node".to_owned())
    });
    report.story("webhook configurations deleted under load", || {
        // The pods name the scheduler themselves: without the webhook nothing assigns it.
        let named = guarded(60).replace("schedulerName: default-scheduler", "schedulerName: celplane");
        cluster.apply(&named)?;
        cluster.apply(&named.replace("replicas: 60", "replicas: 150"))?;
        cluster.kubectl(
            &["delete", "validatingwebhookconfiguration,mutatingwebhookconfiguration", "celplane-placement"],
            "",
        )?;
        cluster.kill("webhook")?;
        let running = |pod: &&Value| text(pod, "/status/phase") == "Running" && !is_deleting(pod);
        cluster.until("all pods run", || Ok(cluster.items(LOAD_PODS)?.iter().filter(running).count() == 150))?;
        let pods = cluster.items(LOAD_PODS)?;
        ensure!(wrong(&pods) == 0, "{} pods on the wrong nodes", wrong(&pods));
        Ok("150 pods run, none on a wrong node".to_owned())
    });
    cluster.kubectl(&["delete", "deployment", "guarded", "--ignore-not-found"], "")?;
    Ok(())
}

const WORKLOADS: &str = "apiVersion: batch/v1
kind: Job
metadata: {name: ours}
spec:
  completions: 3
  template:
    metadata: {annotations: {sim.celplane.dev/run-seconds: '1'}}
    spec: {restartPolicy: Never, containers: [{name: c, image: example.com/i}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: ours}
spec:
  replicas: 3
  selector: {matchLabels: {app: ours-set}}
  template:
    metadata: {labels: {app: ours-set}}
    spec: {containers: [{name: c, image: example.com/i}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: ours}
spec:
  replicas: 20
  selector: {matchLabels: {app: ours}}
  template:
    metadata: {labels: {app: ours}}
    spec: {containers: [{name: c, image: example.com/i}]}
---
apiVersion: v1
kind: Service
metadata: {name: ours}
spec: {selector: {app: ours}, ports: [{port: 80}]}
";

/// Our controllers in place of upstream's, all of them in one process.
pub(crate) fn all_controllers(cluster: &Cluster, report: &mut Report) -> Result<()> {
    report.story("`celplane controller-manager` with all controllers", || {
        cluster.kill("kube-controller-manager")?;
        cluster.role("controllers", "admin", &["controller-manager"])?;
        cluster.apply(WORKLOADS)?;
        for (kind, path, expected) in [
            ("deployment", "jsonpath={.status.readyReplicas}", "20"),
            ("statefulset", "jsonpath={.status.readyReplicas}", "3"),
            ("job", "jsonpath={.status.succeeded}", "3"),
        ] {
            let get = ["get", kind, "ours", "-o", path];
            cluster.until(kind, || Ok(cluster.kubectl(&get, "")? == expected))?;
        }
        let slices = [
            "get",
            "endpointslices",
            "-l",
            "kubernetes.io/service-name=ours",
            "-o",
            "jsonpath={.items[*].endpoints[*].addresses}",
        ];
        cluster.until("20 endpoints", || Ok(cluster.kubectl(&slices, "")?.matches("\"]").count() == 20))?;
        let lease = [
            "get",
            "lease",
            "-n",
            "kube-system",
            "kube-controller-manager",
            "-o",
            "jsonpath={.spec.leaseTransitions} {.spec.renewTime}",
        ];
        let before = cluster.kubectl(&lease, "")?;
        sleep(Duration::from_secs(30));
        let after = cluster.kubectl(&lease, "")?;
        let transitions = |lease: &str| lease.split(' ').next().map(str::to_owned);
        ensure!(
            transitions(&before) == transitions(&after) && before != after,
            "the lease was lost: {before}, {after}"
        );
        cluster.kubectl(&["delete", "deployment,statefulset,job,service", "ours"], "")?;
        let pods = ["get", "pods", "-l", "app in (ours, ours-set)", "-o", "name"];
        cluster.until("the pods are collected", || Ok(cluster.kubectl(&pods, "")?.is_empty()))?;
        cluster.kill("controllers")?;
        cluster.start_controllers()?;
        Ok("Deployment, StatefulSet, Job, EndpointSlices and garbage collection work; the lease is kept".to_owned())
    });
    Ok(())
}
