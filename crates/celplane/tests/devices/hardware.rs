//! Kinds of hardware, in a running cluster: partitions that share counters, devices that many claims share by
//! amount, devices that must become ready first, devices of several nodes, and admin access to devices in use.

use super::upstream::{by_claim, claim, status};
use super::*;

/// A class for each driver of this file.
fn class(name: &str) -> String {
    format!(
        "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {{name: {name}}}\nspec: {{selectors: [{{cel: {{expression: \"device.driver == '{name}'\"}}}}]}}\n---\n"
    )
}

/// A slice: its name is that of the driver and a suffix; `content` are the fields that make it special.
fn slice(driver: &str, suffix: &str, count: usize, content: &str) -> String {
    format!(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {{name: {driver}-{suffix}}}\nspec:\n  driver: {driver}\n  \
         pool: {{name: pool, generation: 1, resourceSliceCount: {count}}}\n  {content}\n---\n"
    )
}

/// A request for devices of a class, with further fields.
fn request(class: &str, more: &str) -> String {
    format!("{{requests: [{{name: r, exactly: {{deviceClassName: {class}{more}}}}}]}}")
}

fn devices(cluster: &Cluster, claim: &str) -> String {
    status(cluster, claim, ".status.allocation.devices.results[*].device", |text| !text.is_empty())
}

/// Two GPUs of 80 GB, each whole or in halves.
fn partitioned() -> String {
    let driver = "gpu.example.com";
    let counters =
        ["0", "1"].map(|gpu| format!("{{name: gpu-{gpu}, counters: {{memory: {{value: 80Gi}}}}}}")).join(", ");
    let part = |gpu: usize, name: &str, size: usize| {
        format!(
            "{{name: gpu-{gpu}-{name}, attributes: {{gpu: {{int: {gpu}}}}}, capacity: {{memory: {{value: {size}Gi}}}}, \
             consumesCounters: [{{counterSet: gpu-{gpu}, counters: {{memory: {{value: {size}Gi}}}}}}]}}"
        )
    };
    let parts: Vec<String> =
        (0..2).flat_map(|gpu| [part(gpu, "a", 40), part(gpu, "b", 40), part(gpu, "whole", 80)]).collect();
    slice(driver, "counters", 2, &format!("nodeName: node-0\n  sharedCounters: [{counters}]"))
        + &slice(driver, "devices", 2, &format!("nodeName: node-0\n  devices: [{}]", parts.join(", ")))
}

#[test]
fn partitions_share_device_counters() {
    let Some(cluster) = up(&["--nodes", "1"]) else { return };
    cluster.apply(&(class("gpu.example.com") + &partitioned()));
    let of_size = |size: usize| {
        let selector = format!("device.capacity['gpu.example.com'].memory.compareTo(quantity('{size}Gi')) == 0");
        request("gpu.example.com", &format!(", selectors: [{{cel: {{expression: \"{selector}\"}}}}]"))
    };
    cluster.apply(&(claim("half", &of_size(40)) + &by_claim("half", "half")));
    runs(&cluster, "half");
    assert_eq!(devices(&cluster, "half"), "gpu-0-a");
    // Half of the first is taken, so that only the second is whole.
    cluster.apply(&(claim("whole", &of_size(80)) + &by_claim("whole", "whole")));
    runs(&cluster, "whole");
    assert_eq!(devices(&cluster, "whole"), "gpu-1-whole");
    cluster.apply(&(claim("second", &of_size(80)) + &by_claim("second", "second")));
    says(&cluster, "second", "cannot allocate all claims");
    // The other half can still be had; of the second nothing can.
    cluster.apply(&(claim("other", &of_size(40)) + &by_claim("other", "other")));
    runs(&cluster, "other");
    assert_eq!(devices(&cluster, "other"), "gpu-0-b");
    cluster.kubectl(&["delete", "pod", "half", "other"], "");
    runs(&cluster, "second");
    assert_eq!(devices(&cluster, "second"), "gpu-0-whole");
    // A constraint over the set, with partitions: halves of different devices.
    cluster.kubectl(&["delete", "pod", "whole", "second"], "");
    let apart = "{requests: [{name: r, exactly: {deviceClassName: gpu.example.com, count: 2}}], constraints: [{cel: {expression: \
                 \"devices.map(d, d.attributes['gpu.example.com'].gpu).distinct().size() == 2 && \
                 devices.all(d, d.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) == 0)\"}}]}";
    cluster.apply(&(claim("apart", apart) + &by_claim("apart", "apart")));
    runs(&cluster, "apart");
    assert_eq!(devices(&cluster, "apart"), "gpu-0-a gpu-1-a");
}

#[test]
fn claims_share_a_device_as_far_as_its_capacity_goes() {
    let Some(cluster) = up(&["--nodes", "2"]) else { return };
    let nic = "allNodes: true\n  devices: [{name: nic, allowMultipleAllocations: true, capacity: {bandwidth: {value: 10G, \
               requestPolicy: {default: 1G, validRange: {min: 1G, max: 8G, step: 1G}}}}}]";
    cluster.apply(&(class("nic.example.com") + &slice("nic.example.com", "0", 1, nic)));
    let asking =
        |amount: &str| request("nic.example.com", &format!(", capacity: {{requests: {{bandwidth: {amount}}}}}"));
    for (name, amount) in [("one", "3500M"), ("two", "4G")] {
        cluster.apply(&(claim(name, &asking(amount)) + &by_claim(name, name)));
        runs(&cluster, name);
        // A request is rounded up to a step.
        let consumed =
            status(&cluster, name, ".status.allocation.devices.results[0].consumedCapacity.bandwidth", |_| true);
        assert_eq!(consumed, "4G", "{name}");
    }
    let share = ".status.allocation.devices.results[0].shareID";
    let shares = ["one", "two"].map(|name| status(&cluster, name, share, |text| !text.is_empty()));
    assert_ne!(shares[0], shares[1]);
    // Two are left: four are too many, and the default is not.
    cluster.apply(&(claim("three", &asking("4G")) + &by_claim("three", "three")));
    says(&cluster, "three", "cannot allocate all claims");
    cluster.apply(&(claim("default", &request("nic.example.com", "")) + &by_claim("default", "default")));
    runs(&cluster, "default");
    // More than the policy allows is never to be had.
    cluster.apply(&(claim("much", &asking("9G")) + &by_claim("much", "much")));
    says(&cluster, "much", "cannot allocate all claims");
    cluster.kubectl(&["delete", "pod", "one"], "");
    runs(&cluster, "three");
    // Two requests of one claim share it as well, and a constraint sees the set of both.
    cluster.kubectl(&["delete", "pod", "three", "two"], "");
    let both = "{requests: [{name: a, exactly: {deviceClassName: nic.example.com}}, {name: b, exactly: {deviceClassName: nic.example.com}}], \
                constraints: [{cel: {expression: \"size(devices) == 2 && devices[0] == devices[1]\"}}]}";
    cluster.apply(&(claim("both", both) + &by_claim("both", "both")));
    runs(&cluster, "both");
    assert_eq!(devices(&cluster, "both"), "nic nic");
}

#[test]
fn devices_that_must_be_made_ready_hold_the_pod_back() {
    let Some(cluster) = up(&["--nodes", "1"]) else { return };
    let fabric = "allNodes: true\n  devices: [{name: gpu-0, bindsToNode: true, bindingConditions: [example.com/attached], \
                  bindingFailureConditions: [example.com/broken]}]";
    cluster.apply(&(class("fabric.example.com") + &slice("fabric.example.com", "0", 1, fabric)));
    let one = request("fabric.example.com", "");
    let condition = |name: &str, kind: &str| {
        let patch = format!(
            "{{\"status\":{{\"devices\":[{{\"driver\":\"fabric.example.com\",\"pool\":\"pool\",\"device\":\"gpu-0\",\"conditions\":[{{\"type\":\"{kind}\",\
             \"status\":\"True\",\"reason\":\"Said\",\"message\":\"\",\"lastTransitionTime\":\"2030-01-01T00:00:00Z\"}}]}}]}}}}"
        );
        cluster
            .kubectl(&["patch", "resourceclaim", name, "--subresource", "status", "--type", "merge", "-p", &patch], "");
    };
    cluster.apply(&(claim("one", &one) + &by_claim("one", "one")));
    assert_eq!(devices(&cluster, "one"), "gpu-0");
    // It is assigned to the node, but the pod is not: the driver has not reported yet.
    let node = ".status.allocation.nodeSelector.nodeSelectorTerms[0].matchFields[0].values[0]";
    status(&cluster, "one", node, |text| text == "node-0");
    assert_eq!(cluster.kubectl(&["get", "pod", "one", "-o", "jsonpath={.spec.nodeName}"], ""), "");
    condition("one", "example.com/attached");
    runs(&cluster, "one");
    cluster.kubectl(&["delete", "pod", "one"], "");
    status(&cluster, "one", ".status.allocation", str::is_empty);
    // A failure gives the device back, and the pod is tried again.
    cluster.apply(&(claim("two", &one) + &by_claim("two", "two")));
    assert_eq!(devices(&cluster, "two"), "gpu-0");
    condition("two", "example.com/broken");
    let told = says(&cluster, "two", "example.com/broken");
    assert!(
        told.contains(
            "running PreBind plugin \"DynamicResources\": resource claim \"two\": device fabric.example.com/pool/gpu-0"
        ),
        "{told}"
    );
    status(&cluster, "two", ".status.devices[*].conditions[*].type", |text| !text.contains("broken"));
    assert_eq!(devices(&cluster, "two"), "gpu-0");
    condition("two", "example.com/attached");
    runs(&cluster, "two");
}

#[test]
fn devices_of_several_nodes_go_to_pods_on_those() {
    let Some(cluster) = up(&["--nodes", "3"]) else { return };
    until(&cluster, &["get", "nodes", "-o", "name"], |text| text.lines().count() == 3);
    cluster.kubectl(&["label", "node", "node-1", "rack=r1"], "");
    cluster.kubectl(&["label", "node", "node-2", "rack=r1"], "");
    let rack = "nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: rack, operator: In, values: [r1]}]}]}\n  \
                devices: [{name: disk-0}, {name: disk-1}]";
    let each =
        "perDeviceNodeSelection: true\n  devices: [{name: port-0, nodeName: node-0}, {name: port-1, allNodes: true}]";
    cluster.apply(&(class("disk.example.com") + &slice("disk.example.com", "r1", 1, rack)));
    cluster.apply(&(class("port.example.com") + &slice("port.example.com", "each", 1, each)));
    cluster.apply(&(claim("disk", &request("disk.example.com", "")) + &by_claim("disk", "disk")));
    runs(&cluster, "disk");
    let node = cluster.kubectl(&["get", "pod", "disk", "-o", "jsonpath={.spec.nodeName}"], "");
    assert!(["node-1", "node-2"].contains(&node.as_str()), "{node}");
    let key = ".status.allocation.nodeSelector.nodeSelectorTerms[0].matchExpressions[0].key";
    assert_eq!(status(&cluster, "disk", key, |text| !text.is_empty()), "rack");
    // One device of the rack and a port of another node do not go together.
    let pinned = "{requests: [{name: d, exactly: {deviceClassName: disk.example.com}}, {name: p, exactly: {deviceClassName: port.example.com, \
                  selectors: [{cel: {expression: \"true\"}}]}}]}";
    cluster.apply(&(claim("pinned", pinned) + &by_claim("pinned", "pinned")));
    runs(&cluster, "pinned");
    assert_eq!(devices(&cluster, "pinned"), "disk-1 port-1");
    cluster.apply(&(claim("port", &request("port.example.com", "")) + &by_claim("port", "port")));
    runs(&cluster, "port");
    assert_eq!(cluster.kubectl(&["get", "pod", "port", "-o", "jsonpath={.spec.nodeName}"], ""), "node-0");
}

#[test]
fn administrators_look_at_devices_in_use_from_their_namespaces_only() {
    let Some(cluster) = up(&["--nodes", "1", "--devices", "ring:2"]) else { return };
    let all = request("mla.example.com", ", allocationMode: All");
    cluster.apply(&(claim("user", &all) + &by_claim("user", "user")));
    runs(&cluster, "user");
    let admin = claim("admin", &request("mla.example.com", ", allocationMode: All, adminAccess: true"))
        + &by_claim("admin", "admin");
    let refusal = cluster.refused(&["apply", "-f", "-"], &admin);
    assert!(refusal.contains("spec.devices.requests[0].adminAccess: Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace"), "{refusal}");
    cluster.kubectl(&["delete", "pod", "admin"], "");
    cluster.kubectl(&["label", "namespace", "default", "resource.kubernetes.io/admin-access=true"], "");
    cluster.apply(&admin);
    runs(&cluster, "admin");
    assert_eq!(devices(&cluster, "admin"), "mla-0 mla-1");
    let access =
        status(&cluster, "admin", ".status.allocation.devices.results[*].adminAccess", |text| !text.is_empty());
    assert_eq!(access, "true true");
    // No other claim gets them, even after the administrator's pod was deleted.
    cluster.kubectl(&["delete", "pod", "admin"], "");
    cluster.apply(&(claim("next", &all) + &by_claim("next", "next")));
    says(&cluster, "next", "cannot allocate all claims");
    cluster.kubectl(&["delete", "pod", "user"], "");
    runs(&cluster, "next");
}
