//! A node agent in a process of its own, with real containers: `celplane kubelet` beside `celplane up`.

use std::time::{Duration, Instant};

use super::machine::Machine;

/// The last node by name.
const NODE: &str = "zz-second";

/// A container that computes until a file exists, and an autoscaler that adds a second one, and removes it at once when there is no load.
const BUSY: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: busy}
spec:
  selector: {matchLabels: {app: busy}}
  template:
    metadata: {labels: {app: busy}}
    spec:
      nodeName: zz-second
      terminationGracePeriodSeconds: 1
      containers:
      - {name: c, image: "registry.local/busybox:1", command: [sh, -c, "while [ ! -e /tmp/idle ]; do :; done; exec sleep 1000000"], resources: {requests: {cpu: 20m}, limits: {cpu: 100m}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: busy}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: busy}
  maxReplicas: 2
  behavior: {scaleDown: {stabilizationWindowSeconds: 0}}
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]
"#;

/// Starts the agent, on the runtime of the first one: each agent has only the pods of its own node.
pub(super) fn start(machine: &mut Machine) {
    machine.start_agent(NODE, 10251);
    machine.wait(&format!("node/{NODE}"), "condition=Ready");
    // Only pods that name the node are for it.
    machine.kubectl(&["cordon", NODE]);
    machine.apply(BUSY);
    machine.wait("deployment/busy", "condition=Available");
}

/// The usage of both nodes and of the second one's pods is shown, and the autoscaler uses it in both directions. The agent of the second node is read over its secured port.
pub(super) fn usage_is_measured(machine: &Machine) {
    // Nodes are read every 15 seconds, and usage is the difference of two samples.
    let begun = Instant::now();
    let shown = loop {
        let pods = machine.try_kubectl(&["top", "pods", "--no-headers"], "");
        let text = String::from_utf8_lossy(&pods.stdout).into_owned();
        if text.contains("busy") && text.contains("web-") {
            break text;
        }
        assert!(begun.elapsed() < Duration::from_secs(90), "{text}{}", String::from_utf8_lossy(&pods.stderr));
        std::thread::sleep(Duration::from_millis(500));
    };
    let busy: Vec<&str> = shown.lines().find(|line| line.starts_with("busy")).unwrap().split_whitespace().collect();
    let millicores: u32 = busy[1].trim_end_matches('m').parse().unwrap();
    assert!(millicores >= 20, "a container that computes all the time uses {}", busy[1]);
    // Nodes are sampled apart from their pods.
    let nodes = loop {
        let nodes = machine.try_kubectl(&["top", "nodes", "--no-headers"], "");
        let text = String::from_utf8_lossy(&nodes.stdout).into_owned();
        if text.lines().count() == 2 {
            break text;
        }
        assert!(begun.elapsed() < Duration::from_secs(90), "{text}{}", String::from_utf8_lossy(&nodes.stderr));
        std::thread::sleep(Duration::from_millis(500));
    };
    assert!(nodes.contains(NODE), "{nodes}");
    machine.wait("deployment/busy", "jsonpath={.spec.replicas}=2");
    machine.wait("deployment/busy", "jsonpath={.status.readyReplicas}=2");
    let names = machine.kubectl(&["get", "pods", "-l", "app=busy", "-o", "jsonpath={.items[*].metadata.name}"]);
    for pod in names.split_whitespace() {
        machine.kubectl(&["exec", pod, "--", "touch", "/tmp/idle"]);
    }
    machine.wait("deployment/busy", "jsonpath={.spec.replicas}=1");
    // A user without permission reads nothing from the agent.
    let path = format!("/api/v1/nodes/{NODE}/proxy/metrics/resource");
    assert!(machine.kubectl(&["get", "--raw", &path]).contains("container_cpu_usage_seconds_total"));
    let refused = machine.try_kubectl(&["--as", "nobody", "get", "--raw", &path], "");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("Forbidden"));
}

/// A pod that fills the disk of the node is evicted, and its files are removed: the others run on.
pub(super) fn full_disk_evicts_the_pod_that_fills_it(machine: &Machine) {
    let fill = "head -c 45000000 /dev/zero > /e/x; trap exit TERM; while :; do sleep 1; done";
    machine.apply(&format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: fills}}\nspec: {{nodeName: {NODE}, terminationGracePeriodSeconds: 1, containers: [{{name: c, \
         image: 'registry.local/busybox:1', command: [sh, -c, '{fill}'], volumeMounts: [{{name: e, mountPath: /e}}]}}], volumes: [{{name: e, emptyDir: {{}}}}]}}\n"
    ));
    machine.wait("pod/fills", "jsonpath={.status.reason}=Evicted");
    let message = machine.kubectl(&["get", "pod", "fills", "-o", "jsonpath={.status.message}"]);
    assert_eq!(message, "The node was low on resource: ephemeral-storage. ");
    machine.wait(&format!("node/{NODE}"), "condition=DiskPressure=false");
    let evicted = machine.kubectl(&[
        "get",
        "events",
        "--field-selector=reason=Evicted",
        "-o",
        "jsonpath={.items[*].involvedObject.name}",
    ]);
    assert_eq!(evicted, "fills");
}

/// Ends the agent and removes its node.
pub(super) fn end(machine: &mut Machine) {
    machine.kubectl(&["delete", "hpa/busy", "deployment/busy", "--cascade=foreground", "--wait"]);
    machine.end_agent();
    machine.kubectl(&["delete", "node", NODE]);
}
