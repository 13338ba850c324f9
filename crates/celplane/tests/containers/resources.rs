//! Resources of real containers: limits of whole pods, changes of running containers, and a runtime that is killed.

use super::machine::Machine;

/// Pods for the checks below.
pub(super) const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: grows}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: registry.local/busybox:1
    command: [sh, -c, "trap exit TERM; while :; do sleep 1; done"]
    resources: {requests: {cpu: 50m, memory: 16Mi}, limits: {cpu: 100m, memory: 32Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: whole}
spec:
  terminationGracePeriodSeconds: 1
  resources: {requests: {cpu: 100m}, limits: {cpu: 200m, memory: 48Mi}}
  containers:
  - {name: a, image: "registry.local/busybox:1", command: [sh, -c, "trap exit TERM; while :; do sleep 1; done"]}
  - {name: b, image: "registry.local/busybox:1", command: [sh, -c, "trap exit TERM; while :; do sleep 1; done"]}
"#;

fn read(machine: &Machine, pod: &str, path: &str) -> String {
    machine.kubectl(&["get", "pod", pod, "-o", &format!("jsonpath={path}")])
}

/// The limits of a container and of its pod change while the container runs on.
pub(super) fn running_containers_are_resized(machine: &Machine) {
    machine.wait("pod/grows", "condition=Ready");
    let id = read(machine, "grows", "{.status.containerStatuses[0].containerID}");
    let patch = r#"{"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "60m"}, "limits": {"cpu": "300m", "memory": "64Mi"}}}]}}"#;
    machine.kubectl(&["patch", "pod", "grows", "--subresource=resize", "-p", patch]);
    machine.wait("pod/grows", "jsonpath={.status.containerStatuses[0].resources.limits.memory}=64Mi");
    let files = "cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/memory/memory.limit_in_bytes 2> /dev/null || \
                 cut -d ' ' -f 1 /sys/fs/cgroup/cpu.max /sys/fs/cgroup/memory.max";
    assert_eq!(machine.kubectl(&["exec", "grows", "--", "sh", "-c", files]), "30000\n67108864\n");
    let uid = read(machine, "grows", "{.metadata.uid}");
    assert_eq!(machine.pod_cgroup("burstable", &uid, ["memory.limit_in_bytes", "memory.max"]), "67108864");
    assert_eq!(read(machine, "grows", "{.status.containerStatuses[0].containerID}"), id);
    let events = machine.kubectl(&[
        "get",
        "events",
        "--field-selector=involvedObject.name=grows",
        "-o",
        "jsonpath={.items[*].reason}",
    ]);
    assert!(events.ends_with("ResizeStarted ResizeCompleted"), "{events}");
}

/// Containers share the limits of their pod.
pub(super) fn pods_are_limited_as_a_whole(machine: &Machine) {
    machine.wait("pod/whole", "condition=Ready");
    let uid = read(machine, "whole", "{.metadata.uid}");
    let file = |names| machine.pod_cgroup("burstable", &uid, names);
    assert_eq!(file(["memory.limit_in_bytes", "memory.max"]), (48 << 20).to_string());
    let quota = file(["cpu.cfs_quota_us", "cpu.max"]);
    assert_eq!(quota.split(' ').next(), Some("20000"), "{quota}");
}

/// A runtime that ends is started again, and its containers run on.
pub(super) fn killed_runtime_is_started_again(machine: &Machine) {
    let path = "{.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}";
    let before = read(machine, "whole", path);
    machine.kill_runtime();
    machine.apply(&super::once("later", "echo ran", ""));
    machine.wait("pod/later", "jsonpath={.status.phase}=Succeeded");
    assert_eq!(machine.kubectl(&["exec", "whole", "-c", "a", "--", "echo", "runs on"]), "runs on\n");
    assert_eq!(read(machine, "whole", path), before);
}
