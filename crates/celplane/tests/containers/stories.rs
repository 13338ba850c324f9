//! The proposals' stories with real containers: which pods the node takes, and what their claims put into them.

use std::path::PathBuf;

use super::machine::Machine;

/// Pods by name: the fields of their spec, and whether the node takes them. A pod that names the node passes the
/// scheduler by, so that the agent alone decides.
const PODS: &[(&str, &str, bool)] = &[
    ("prefix", r#"tolerations: [{expression: "taint.key.startsWith('env.example.com/')"}]"#, true),
    (
        "regex",
        r#"tolerations: [{expression: "taint.key.matches('^env[.]example[.]com/.*$') && taint.value == '1.4.2'"}]"#,
        true,
    ),
    ("version", r#"tolerations: [{expression: "semver(taint.value).isLessThan(semver('2.0.0'))"}]"#, true),
    ("older", "tolerations: [{key: env.example.com/cni, operator: SemverLt, value: 1.5.0}]", true),
    ("either", r#"tolerations: [{expression: "taint.key == 'a' || taint.key == 'env.example.com/cni'"}]"#, true),
    ("newer", "tolerations: [{key: env.example.com/cni, operator: SemverGt, value: 1.5.0}]", false),
    ("other", r#"tolerations: [{expression: "taint.key == 'other'"}]"#, false),
    ("errs", r#"tolerations: [{expression: "semver(taint.key).isLessThan(semver('1.0.0'))"}]"#, false),
    ("plain", "", false),
    ("rack", r#"AFFINITY{matchCELExpressions: ["node.labels['rack'].startsWith('us-west')"]}END"#, true),
    (
        "kubelet",
        r#"AFFINITY{matchCELExpressions: ["semver(node.labels['driver'].replace('v', '')).compareTo(semver('1.30.0')) > 0"]}END"#,
        true,
    ),
    ("driver", "AFFINITY{matchExpressions: [{key: driver, operator: SemverGt, values: [1.30.0]}]}END", true),
    ("driver-old", "AFFINITY{matchExpressions: [{key: driver, operator: SemverLt, values: [1.30.0]}]}END", false),
    ("rack-east", r#"AFFINITY{matchCELExpressions: ["node.labels['rack'].startsWith('us-east')"]}END"#, false),
];

const AFFINITY: &str = "tolerations: [{operator: Exists}], affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: \
                        {nodeSelectorTerms: [";

fn pod(name: &str, fields: &str, extra: &str) -> String {
    let fields = fields.replace("AFFINITY", AFFINITY).replace("END", "]}}}");
    let comma = if fields.is_empty() { "" } else { "," };
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{{extra} restartPolicy: Never, {fields}{comma} \
         terminationGracePeriodSeconds: 1, containers: [{{name: c, image: 'registry.local/busybox:1', command: [echo, ran]}}]}}\n---\n"
    )
}

/// The node decides as the scheduler does, for every pod of the table, with `NoSchedule` and `NoExecute`.
pub(super) fn pods_run_where_the_proposals_let_them(machine: &Machine) {
    let node = &machine.name;
    machine.kubectl(&["label", "node", node, "rack=us-west-2a", "driver=v1.30.2"]);
    machine.kubectl(&["taint", "node", node, "env.example.com/cni=1.4.2:NoExecute"]);
    let placed: String = PODS.iter().map(|(name, fields, _)| pod(name, fields, "")).collect();
    let bound: String = PODS
        .iter()
        .map(|(name, fields, _)| pod(&format!("bound-{name}"), fields, &format!("nodeName: {node},")))
        .collect();
    machine.apply(&(placed + &bound));
    for (name, _, runs) in PODS.iter().filter(|(_, _, runs)| *runs) {
        assert!(runs);
        for pod in [(*name).to_owned(), format!("bound-{name}")] {
            machine.wait(&format!("pod/{pod}"), "jsonpath={.status.phase}=Succeeded");
            assert_eq!(machine.kubectl(&["logs", &pod]), "ran\n", "{pod}");
        }
    }
    for (name, fields, _) in PODS.iter().filter(|(_, _, runs)| !runs) {
        machine.wait(&format!("pod/{name}"), "condition=PodScheduled=false");
        let reason = if fields.starts_with("AFFINITY") { "NodeAffinity" } else { "TaintToleration" };
        // Kubernetes' taint eviction deletes pods that do not tolerate the taint, maybe before the agent rejects them.
        let left = machine.kubectl(&[
            "get",
            "pod",
            &format!("bound-{name}"),
            "--ignore-not-found",
            "-o",
            "jsonpath={.status.phase} {.status.reason} {.metadata.deletionTimestamp}",
        ]);
        let is_rejected = left.starts_with(&format!("Failed {reason}"));
        let is_evicted = reason == "TaintToleration" && (left.is_empty() || left.split(' ').count() == 3);
        assert!(is_rejected || is_evicted, "bound-{name}: {left}");
    }
    machine.kubectl(&["taint", "node", node, "env.example.com/cni-"]);
}

/// Six devices of the node, and a claim for two that are three apart.
const CLAIM: &str = "
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: example}
spec: {selectors: [{cel: {expression: \"device.driver == 'example.celplane.dev'\"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: example}
spec:
  driver: example.celplane.dev
  nodeName: NODE
  pool: {name: NODE, generation: 1, resourceSliceCount: 1}
  devices: [DEVICES]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: pair}
spec:
  devices:
    requests: [{name: r, exactly: {deviceClassName: example, count: 2}}]
    constraints:
    - cel:
        expression: \"size(devices) == 2 && devices.map(d, d.attributes['example.celplane.dev'].index).max() - devices.map(d, d.attributes['example.celplane.dev'].index).min() == 3\"
---
apiVersion: v1
kind: Pod
metadata: {name: user}
spec:
  restartPolicy: Never
  resourceClaims: [{name: devices, resourceClaimName: pair}]
  containers:
  - {name: a, image: 'registry.local/busybox:1', command: [sh, -c, 'env | grep ^EXAMPLE_ | sort'], resources: {claims: [{name: devices}]}}
  - {name: b, image: 'registry.local/busybox:1', command: [sh, -c, 'env | grep -c ^EXAMPLE_']}
";

/// Devices that satisfy a set constraint are visible in the container that names the claim, and in no other.
pub(super) fn claims_are_visible_in_containers(machine: &Machine) {
    let driver = PathBuf::from(env!("CARGO_BIN_EXE_celplane")).with_file_name("examples").join("dra_driver");
    let path = |name: &str| machine.path(name).display().to_string();
    let (kubeconfig, root) = (path("data/admin.kubeconfig"), path("data/kubelet"));
    let mut child = machine.start_beside(&driver, &[&kubeconfig, &root, "/run/cdi"]);
    let devices: Vec<String> =
        (0..6).map(|it| format!("{{name: dev-{it}, attributes: {{index: {{int: {it}}}}}}}")).collect();
    machine.apply(&CLAIM.replace("NODE", &machine.name).replace("DEVICES", &devices.join(", ")));
    machine.wait("pod/user", "jsonpath={.status.containerStatuses[1].state.terminated.exitCode}=1");
    machine.wait("pod/user", "jsonpath={.status.phase}=Failed");
    let shown = machine.kubectl(&["logs", "user", "-c", "a"]);
    let numbers: Vec<i32> = shown.lines().map(|line| line.rsplit('-').next().unwrap().parse().unwrap()).collect();
    assert!(numbers.len() == 2 && (numbers[1] - numbers[0]).abs() == 3, "{shown}");
    assert_eq!(machine.kubectl(&["logs", "user", "-c", "b"]), "0\n");
    machine.kubectl(&["delete", "pod", "user", "--wait"]);
    // The driver has released the devices before the pod is deleted.
    assert_eq!(std::fs::read_dir(machine.path("cdi")).unwrap().count(), 0);
    machine.kubectl(&["delete", "resourceslice", "example"]);
    device_stories_run(machine);
    child.kill().unwrap();
    child.wait().unwrap();
}

macro_rules! example {
    ($path:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/", $path))
    };
}

/// A command that runs until it is stopped.
const LOOP: &str = "trap exit TERM; while :; do sleep 1; done";

/// An image and a command of this machine instead of those of the stories.
fn with_image(text: &str, command: &str) -> String {
    assert!(text.contains("image: myapp:latest"), "{text}");
    text.replace("image: myapp:latest", &format!("image: registry.local/busybox:1\n    command: [sh, -c, '{command}']"))
}

/// The devices of the stories of KEP-5254 are prepared, and visible in the containers: four that follow each other, then four that
/// are a square.
fn device_stories_run(machine: &Machine) {
    let own = |text: &str| text.replace("mla.example.com", "example.celplane.dev");
    machine.apply(&own(example!("device-constraints/device-class.yaml")));
    // The devices are those of this node, not of the simulated one.
    let slice = example!("device-constraints/accelerators.yaml").split("---\n").nth(1).unwrap();
    let slice = slice.replace("nodeName: accelerators", &format!("nodeName: {}", machine.name));
    machine.apply(&own(&slice));
    let shown = |text: &str, pod: &str| -> Vec<u32> {
        machine.apply(&own(&with_image(text, LOOP)));
        machine.wait(&format!("pod/{pod}"), "condition=Ready");
        let variables = machine.kubectl(&["exec", pod, "--", "sh", "-c", "env | grep ^EXAMPLE_ | sort"]);
        let numbers = variables.lines().map(|line| line.rsplit('-').next().unwrap().parse().unwrap()).collect();
        machine.kubectl(&["delete", "pod", pod, "--grace-period=1", "--wait"]);
        numbers
    };
    let connected = shown(example!("device-constraints/story-1-connected.yaml"), "connected-pod");
    assert!(connected.len() == 4 && connected[3] - connected[0] == 3, "{connected:?}");
    let grid = shown(example!("device-constraints/story-2-grid.yaml"), "grid-pod");
    let first = *grid.first().unwrap();
    assert_eq!(grid, [first, first + 1, first + 4, first + 5]);
    machine.kubectl(&["delete", "resourceslice", "accelerators-mla"]);
}

/// The volume of KEP-5721's fourth story is mounted on a node whose kernel is new enough. It is a directory of the node, because
/// drivers of storage are not supported.
pub(super) fn volume_of_a_newer_kernel_is_mounted(machine: &Machine) {
    let disk = machine.path("kernel-storage");
    std::fs::create_dir(&disk).unwrap();
    let source = "  csi: # added: a volume needs a source\n    driver: storage.example.com # added\n    volumeHandle: kernel-storage-pv # added\n";
    let story = example!("semver-operators/story-4-volume.yaml");
    assert!(story.contains(source));
    let story = story.replace(source, &format!("  local: {{path: {}}}\n", disk.display()));
    machine.apply(&with_image(&story, LOOP));
    // The node's label is missing, so that the pod waits.
    machine.wait("pod/kernel-storage-app", "condition=PodScheduled=false");
    machine.kubectl(&["label", "node", &machine.name, "node.kubernetes.io/kernel-version=6.8.0"]);
    machine.wait("pod/kernel-storage-app", "condition=Ready");
    machine.kubectl(&["exec", "kernel-storage-app", "--", "sh", "-c", "echo kept > /data/file"]);
    assert_eq!(std::fs::read_to_string(disk.join("file")).unwrap(), "kept\n");
    machine.kubectl(&["delete", "pod", "kernel-storage-app", "--grace-period=1", "--wait"]);
}
