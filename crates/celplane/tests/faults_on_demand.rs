//! Nodes that stop, flap and are slow because of an annotation, and the reaction of the control plane.

use crate::cluster::Cluster;
use crate::first_light::until;

fn pod(name: &str, node: &str, tolerations: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  nodeName: {node}\n  tolerations: [{tolerations}]\n  \
         containers: [{{name: c, image: nginx}}]\n"
    )
}

#[test]
fn nodes_stop_come_back_flap_and_are_slow() {
    if Cluster::is_missing() {
        return;
    }
    let arguments = [
        "--nodes=3",
        "--ephemeral",
        "--node-monitor-period=1s",
        "--node-monitor-grace-period=12s",
        "--node-eviction-rate=100",
    ];
    let cluster = Cluster::up(tempfile::tempdir().unwrap(), &arguments);
    until(&cluster, &["get", "serviceaccount", "default"], |_| true);
    let ready = |node: &str, status: &str| {
        let path = "jsonpath={.status.conditions[?(@.type=='Ready')].status}";
        until(&cluster, &["get", "node", node, "-o", path], |text| text == status);
    };
    ready("node-1", "True");
    let at_once = "{key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 0}";
    cluster.apply(&pod("goes", "node-1", at_once));
    cluster.apply(&pod("stays", "node-1", "{expression: \"taint.key == 'node.kubernetes.io/unreachable'\"}"));
    let phase = |name: &str| {
        until(&cluster, &["get", "pod", name, "-o", "jsonpath={.status.phase}"], |text| text == "Running");
    };
    phase("goes");
    phase("stays");

    // A node without heartbeats is unreachable, and pods that do not tolerate that are evicted.
    cluster.kubectl(&["annotate", "node", "node-1", "sim.celplane.dev/heartbeat=stopped"], "");
    ready("node-1", "Unknown");
    let taints = "jsonpath={range .spec.taints[*]}{.key}:{.effect}:{.timeAdded} {end}";
    let shown =
        until(&cluster, &["get", "node", "node-1", "-o", taints], |text| text.contains("unreachable:NoExecute:2"));
    assert!(shown.contains("unreachable:NoSchedule:2"), "{shown}");
    let deleted = "jsonpath={.metadata.deletionTimestamp}";
    until(&cluster, &["get", "pod", "goes", "-o", deleted], |text| !text.is_empty());
    assert_eq!(cluster.kubectl(&["get", "pod", "stays", "-o", deleted], ""), "");
    // A silent node starts nothing; when it recovers, it catches up.
    cluster.kubectl(&["annotate", "node", "node-1", "sim.celplane.dev/heartbeat-"], "");
    ready("node-1", "True");
    until(&cluster, &["get", "node", "node-1", "-o", "jsonpath={.spec.taints}"], str::is_empty);
    until(&cluster, &["get", "pods", "-o", "name"], |text| text == "pod/stays\n");

    cluster.kubectl(&["annotate", "node", "node-2", "sim.celplane.dev/flap-seconds=2"], "");
    for status in ["False", "True", "False"] {
        ready("node-2", status);
    }
    cluster.kubectl(&["annotate", "node", "node-2", "sim.celplane.dev/flap-seconds-"], "");

    cluster.kubectl(&["annotate", "node", "node-0", "sim.celplane.dev/slow-seconds=3"], "");
    cluster.apply(&pod("slow", "node-0", ""));
    phase("slow");
    let times = "jsonpath={.metadata.creationTimestamp} {.status.containerStatuses[0].state.running.startedAt}";
    let times = cluster.kubectl(&["get", "pod", "slow", "-o", times], "");
    let (created, started) = times.split_once(' ').unwrap();
    let seconds = |text: &str| api::time::Timestamp::parse(text).unwrap().seconds;
    assert!(seconds(started) - seconds(created) >= 3, "{times}");
}
