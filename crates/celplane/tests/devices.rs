//! Devices as users see them: the stories of KEP-5254 with `kubectl` on simulated nodes, what goes wrong, and its gate.

mod extended;
mod hardware;
mod logs;
mod upstream;

use crate::cluster::Cluster;
use crate::first_light::until;

const CLASS: &str = include_str!("../../../examples/device-constraints/device-class.yaml");
const CONNECTED: &str = include_str!("../../../examples/device-constraints/story-1-connected.yaml");
const GRID: &str = include_str!("../../../examples/device-constraints/story-2-grid.yaml");
const GATE_OFF: &str = "device constraint CEL expressions require feature gate DRACELDeviceConstraint";
/// Four devices whose ids follow each other.
const FOUR: &str = "devices.map(d, d.attributes['mla.example.com'].deviceid).max() - devices.map(d, d.attributes['mla.example.com'].deviceid).min() == 3";

fn up(arguments: &[&str]) -> Option<Cluster> {
    if Cluster::is_missing() {
        return None;
    }
    Some(up_in(tempfile::tempdir().unwrap(), arguments))
}

fn up_in(directory: tempfile::TempDir, arguments: &[&str]) -> Cluster {
    let cluster = Cluster::up(directory, arguments);
    until(&cluster, &["get", "serviceaccount", "default", "-o", "name"], |text| text.contains("default"));
    cluster.apply(CLASS);
    cluster
}

/// The devices of the only claim whose name begins like this, as names and in order.
fn devices_of(cluster: &Cluster, pod: &str) -> Vec<String> {
    let path = "jsonpath={range .items[*]}{.metadata.name}{range .status.allocation.devices.results[*]} {.device}{end}{\"\\n\"}{end}";
    let claims = cluster.kubectl(&["get", "resourceclaims", "-o", path], "");
    let line =
        claims.lines().find(|line| line.starts_with(pod)).unwrap_or_else(|| panic!("no claim of {pod}: {claims}"));
    line.split(' ').skip(1).map(ToOwned::to_owned).collect()
}

fn runs(cluster: &Cluster, pod: &str) {
    until(cluster, &["get", "pod", pod, "-o", "jsonpath={.status.phase}"], |text| text == "Running");
}

/// Waits until an event of a pod contains a text.
fn says(cluster: &Cluster, pod: &str, words: &str) -> String {
    let selector = format!("involvedObject.name={pod}");
    let arguments = ["get", "events", "--field-selector", &selector, "-o", "jsonpath={.items[*].message}"];
    until(cluster, &arguments, |text| text.contains(words))
}

/// A claim, and a pod that uses it.
fn claim_and_pod(name: &str, count: usize, expression: &str) -> String {
    format!(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: {name}}}\nspec:\n  devices:\n    \
         requests: [{{name: r, exactly: {{deviceClassName: mla.example.com, count: {count}}}}}]\n    \
         constraints: [{{cel: {{expression: \"{expression}\"}}}}]\n---\n{}",
        pod(name, &format!("resourceClaimName: {name}"))
    )
}

fn pod(name: &str, claim: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  \
         containers: [{{name: c, image: app, resources: {{claims: [{{name: mla}}]}}}}]\n  \
         resourceClaims: [{{name: mla, {claim}}}]\n"
    )
}

#[test]
fn both_stories_of_the_proposal_run() {
    let Some(cluster) = up(&["--nodes", "2", "--devices", "grid:4x4"]) else { return };
    let slices = until(&cluster, &["get", "resourceslices"], |text| text.contains("node-1-mla.example.com-0"));
    assert!(slices.contains("mla.example.com"), "{slices}");
    cluster.apply(CONNECTED);
    runs(&cluster, "connected-pod");
    assert_eq!(devices_of(&cluster, "connected-pod-mla-"), ["mla-0", "mla-1", "mla-2", "mla-3"]);
    let claims = cluster.kubectl(&["get", "resourceclaims"], "");
    assert!(claims.contains("allocated,reserved"), "{claims}");
    // The node has prepared them, and reports it.
    let described = until(&cluster, &["describe", "resourceclaims"], |text| text.contains("prepared on node node-"));
    assert_eq!(described.matches("Prepared").count(), 4, "{described}");
    cluster.kubectl(&["delete", "pod", "connected-pod"], "");
    until(&cluster, &["get", "resourceclaims", "-o", "name"], str::is_empty);
    cluster.apply(GRID);
    runs(&cluster, "grid-pod");
    // As the story has it, in canonical order.
    assert_eq!(devices_of(&cluster, "grid-pod-mla-"), ["mla-0", "mla-1", "mla-4", "mla-5"]);
    let metrics = cluster.kubectl(&["get", "--raw", "/metrics/kube-scheduler"], "");
    assert!(metrics.contains("\ncel_expression_constraint_cost_count 2\n"), "{metrics}");
    assert!(metrics.contains("\nscheduler_device_searches_total "), "{metrics}");
    let metrics = cluster.kubectl(&["get", "--raw", "/metrics/kube-controller-manager"], "");
    let series =
        "resourceclaim_controller_with_cel_constraint{namespace=\"default\",template_name=\"2x2-device-grid\"} 1";
    assert!(metrics.contains(series), "{metrics}");
    assert!(metrics.contains("resourceclaim_controller_with_cel_constraint_latency_count{"), "{metrics}");
}

#[test]
fn the_older_versions_of_the_stories_mean_the_same() {
    let Some(cluster) = up(&["--nodes", "1", "--devices", "ring:8"]) else { return };
    // As the proposal writes it.
    let template = |version: &str, request: &str| {
        format!(
            "apiVersion: resource.k8s.io/{version}\nkind: ResourceClaimTemplate\nmetadata: {{name: {version}}}\nspec:\n  spec:\n    \
             devices:\n      requests: [{request}]\n      constraints: [{{requests: [r], cel: {{expression: \"{FOUR}\"}}}}]\n"
        )
    };
    let exact = "deviceClassName: mla.example.com, allocationMode: ExactCount, count: 4";
    cluster.apply(&template("v1beta1", &format!("{{name: r, {exact}}}")));
    cluster.apply(&template("v1beta2", &format!("{{name: r, exactly: {{{exact}}}}}")));
    for (name, expected) in [("v1beta1", "mla-0 mla-1 mla-2 mla-3"), ("v1beta2", "mla-4 mla-5 mla-6 mla-7")] {
        let path =
            "jsonpath={.apiVersion} {.spec.spec.devices.constraints[0].cel.expression} {.spec.spec.devices.requests[0]";
        for (version, count) in [("v1", ".exactly.count}"), ("v1beta2", ".exactly.count}"), ("v1beta1", ".count}")] {
            let kind = format!("resourceclaimtemplates.{version}.resource.k8s.io");
            let read = cluster.kubectl(&["get", &kind, name, "-o", &format!("{path}{count}")], "");
            assert_eq!(read, format!("resource.k8s.io/{version} {FOUR} 4"));
        }
        cluster.apply(&pod(name, &format!("resourceClaimTemplateName: {name}")));
        runs(&cluster, name);
        assert_eq!(devices_of(&cluster, &format!("{name}-mla-")).join(" "), expected);
    }
}

#[test]
fn unallocatable_claim_reports_the_reason() {
    let Some(cluster) = up(&["--nodes", "1", "--devices", "ring:40", "--device-constraint-budget", "2000000"]) else {
        return;
    };
    until(&cluster, &["get", "resourceslices"], |text| text.contains("node-0"));
    // No set.
    cluster.apply(&claim_and_pod("none", 4, &FOUR.replace("== 3", "== 2")));
    says(&cluster, "none", "0/1 nodes are available: 1 cannot allocate all claims.");
    // Partial sets allow no pruning: the budget ends the search.
    let sum = "devices.map(d, d.attributes['mla.example.com'].deviceid).sum() % 7 == 9";
    cluster.apply(&claim_and_pod("costly", 8, sum));
    says(&cluster, "costly", "device constraints cost more than 2000000 in one scheduling attempt");
    // Other pods are not held up by it.
    cluster.apply(&claim_and_pod("other", 4, FOUR));
    runs(&cluster, "other");
    // Too costly to be accepted at all.
    let pairs = "devices.all(a, devices.all(b, devices.all(c, devices.all(d, a == b || c == d))))";
    let refusal = cluster.refused(&["apply", "-f", "-"], &claim_and_pod("refused", 4, pairs));
    let expected = "spec.devices.constraints[0].cel.expression: Forbidden: too complex, exceeds cost limit";
    assert!(refusal.contains(expected), "{refusal}");
    // An attribute that one device lacks.
    let slice = "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {name: odd}\nspec:\n  driver: mla.example.com\n  \
                 nodeName: node-0\n  pool: {name: odd, generation: 1, resourceSliceCount: 1}\n  devices: [{name: a-odd}]\n";
    cluster.apply(slice);
    cluster.apply(&claim_and_pod("missing", 30, FOUR));
    let told = says(&cluster, "missing", "no such key: deviceid");
    assert!(told.contains("node(s): constraint #0 of claim default/missing failed: CEL runtime error: "), "{told}");
}

#[test]
fn drivers_fail_and_go_and_come_back() {
    let Some(cluster) = up(&["--nodes", "1"]) else { return };
    let annotate = |value: &str| {
        until(&cluster, &["annotate", "node", "node-0", value, "--overwrite"], |_| true);
    };
    // Devices can be given to a node at any time.
    annotate("sim.celplane.dev/devices=ring:8");
    until(&cluster, &["get", "resourceslices"], |text| text.contains("node-0-mla.example.com-0"));
    annotate("sim.celplane.dev/device-driver=failing");
    cluster.apply(&claim_and_pod("one", 4, FOUR));
    let told = says(&cluster, "one", "Failed to prepare dynamic resources");
    assert!(told.contains("NodePrepareResources failed for ResourceClaim default/one"), "{told}");
    let pods = cluster.kubectl(&["get", "pods"], "");
    assert!(pods.contains("ContainerCreating"), "{pods}");
    annotate("sim.celplane.dev/device-driver-");
    runs(&cluster, "one");
    // Drivers removed: no devices for new pods, and running ones stay.
    annotate("sim.celplane.dev/device-driver=gone");
    until(&cluster, &["get", "resourceslices", "-o", "name"], str::is_empty);
    cluster.apply(&claim_and_pod("two", 4, FOUR));
    says(&cluster, "two", "cannot allocate all claims");
    runs(&cluster, "one");
    annotate("sim.celplane.dev/device-driver-");
    runs(&cluster, "two");
    assert_eq!(devices_of(&cluster, "two"), ["mla-4", "mla-5", "mla-6", "mla-7"]);
    // Another template replaces the published slices.
    annotate("sim.celplane.dev/devices=pcie:2x4x1");
    let slices = until(&cluster, &["get", "resourceslices", "-o", "name"], |text| !text.contains("mla"));
    assert_eq!(slices.lines().count(), 2, "{slices}");
}

const OFF: &str = "DRACELDeviceConstraint=false";

#[test]
fn the_gate_goes_on_and_off_with_claims_that_are_stored() {
    let Some(cluster) = up(&["--nodes", "1", "--devices", "ring:24", "--feature-gates", OFF]) else { return };
    let refusal = cluster.refused(&["apply", "-f", "-"], &claim_and_pod("one", 4, FOUR));
    assert!(
        refusal.contains(&format!("spec.devices.constraints[0].cel.expression: Forbidden: {GATE_OFF}")),
        "{refusal}"
    );
    cluster.kubectl(&["delete", "pod", "one"], "");

    let on = &["--nodes", "1", "--devices", "ring:24"];
    let cluster = up_in(cluster.stop(), on);
    cluster.apply(&claim_and_pod("one", 4, FOUR));
    cluster.apply(CONNECTED);
    runs(&cluster, "one");
    runs(&cluster, "connected-pod");
    // Stored and not allocated yet.
    let unused = claim_and_pod("later", 4, FOUR);
    let (unused, user) = unused.split_once("---\n").unwrap();
    cluster.apply(unused);

    let cluster = up_in(cluster.stop(), &["--nodes", "1", "--devices", "ring:24", "--feature-gates", OFF]);
    // What runs stays, with its devices; what is stored can be changed, and keeps its expression.
    runs(&cluster, "one");
    assert_eq!(devices_of(&cluster, "one").len(), 4);
    cluster.kubectl(&["label", "resourceclaim", "later", "touched=yes"], "");
    let path = "jsonpath={.spec.devices.constraints[0].cel.expression}";
    assert_eq!(cluster.kubectl(&["get", "resourceclaim", "later", "-o", path], ""), FOUR);
    // Nothing new is allocated, and events name the gate.
    cluster.apply(user);
    let told = says(&cluster, "later", GATE_OFF);
    assert!(told.contains("resource claim default/later, constraint #0"), "{told}");
    cluster.apply(&pod("new", "resourceClaimTemplateName: 4-connected-devices"));
    says(&cluster, "new", "the feature DRACELDeviceConstraint is disabled");

    let cluster = up_in(cluster.stop(), on);
    // There are enough adjacent devices for all of them: which of two waiting pods is tried first after a restart is not defined.
    for pod in ["one", "connected-pod", "later", "new"] {
        runs(&cluster, pod);
    }
}

#[test]
fn a_component_without_the_gate_allocates_nothing() {
    for (component, words) in
        [("scheduler", GATE_OFF), ("controller-manager", "the feature DRACELDeviceConstraint is disabled")]
    {
        let flag = format!("--{component}-feature-gates");
        let Some(cluster) = up(&["--nodes", "1", "--devices", "ring:8", &flag, OFF]) else { return };
        cluster.apply(CONNECTED);
        says(&cluster, "connected-pod", words);
        let phase = cluster.kubectl(&["get", "pod", "connected-pod", "-o", "jsonpath={.status.phase}"], "");
        assert_eq!(phase, "Pending", "{component}");
    }
    let Some(cluster) = up(&["--nodes", "0", "--apiserver-feature-gates", OFF]) else { return };
    let refusal = cluster.refused(&["apply", "-f", "-"], CONNECTED);
    assert!(refusal.contains(GATE_OFF), "{refusal}");
}

#[test]
fn a_taint_by_rule_keeps_pods_away_and_sends_them_away() {
    let Some(cluster) = up(&["--nodes", "1", "--devices", "ring:8"]) else { return };
    cluster.apply(&claim_and_pod("one", 4, FOUR));
    runs(&cluster, "one");
    let rule = |name: &str, device: &str, effect: &str| {
        format!(
            "apiVersion: resource.k8s.io/v1\nkind: DeviceTaintRule\nmetadata: {{name: {name}}}\nspec:\n  \
             deviceSelector: {{driver: mla.example.com, device: {device}}}\n  taint: {{key: broken, effect: {effect}}}\n"
        )
    };
    cluster.apply(&rule("soft", "mla-6", "NoSchedule"));
    cluster.apply(&claim_and_pod("two", 4, FOUR));
    says(&cluster, "two", "cannot allocate all claims");
    cluster.kubectl(&["delete", "devicetaintrule", "soft"], "");
    runs(&cluster, "two");
    cluster.apply(&rule("hard", "mla-1", "NoExecute"));
    until(&cluster, &["get", "pods", "-o", "name"], |text| text.trim() == "pod/two");
    says(&cluster, "one", "Marking for deletion");
    // The rule reports its progress; and one without effect, what it would do.
    let status = "jsonpath={.status.conditions[*].reason}: {.status.conditions[*].message}";
    let done = |text: &str| text == "Completed: 1 pod evicted since starting the controller.";
    until(&cluster, &["get", "devicetaintrule", "hard", "-o", status], done);
    cluster.apply(&rule("trial", "mla-5", "None"));
    let expected =
        "NoEffect: 1 published device selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace if";
    until(&cluster, &["get", "devicetaintrule", "trial", "-o", status], |text| text.starts_with(expected));
}

/// Runs a tool on files.
fn tool(arguments: &[&str]) -> String {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_celplane")).args(arguments).output().unwrap();
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn check_says_how_a_constraint_will_be_searched() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, expression: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, claim_and_pod("a", 4, expression)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let gates = "DRACELDeviceConstraint=true";
    let check = |path: &str| tool(&["check", "-v", "--feature-gates", gates, "-f", path]);
    let told = check(&write("good.yaml", &format!("size(devices) == 4 && {FOUR}")));
    let expected = "search: pruned by 2 of 2 conditions; sets are tried in the order of the attributes that it reads";
    assert!(told.contains(expected) && !told.contains("warning"), "{told}");
    let told = check(&write("costly.yaml", "devices.map(d, d.attributes['mla.example.com'].deviceid).sum() % 7 == 3"));
    let expected = "spec.devices.constraints[0].cel.expression: cannot be judged before a set is whole, because of `%`";
    assert!(told.contains(expected), "{told}");
    let told = check(&write("ordered.yaml", "devices[0].driver == 'mla.example.com'"));
    assert!(told.contains("cel.expression: depends on the order of devices"), "{told}");
}

#[test]
fn why_explains_a_claim_that_cannot_be_allocated() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let devices: Vec<String> =
        [0, 1, 3, 4, 6, 7].map(|id| format!("{{name: mla-{id}, attributes: {{deviceid: {{int: {id}}}}}}}")).to_vec();
    let cluster = write(
        "cluster.yaml",
        &format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: n1}}\n---\n{CLASS}\n---\napiVersion: resource.k8s.io/v1\n\
             kind: ResourceSlice\nmetadata: {{name: s}}\nspec:\n  driver: mla.example.com\n  nodeName: n1\n  \
             pool: {{name: n1, generation: 1, resourceSliceCount: 1}}\n  devices: [{}]\n",
            devices.join(", ")
        ),
    );
    let told =
        tool(&["why", "--pod", &write("pod.yaml", CONNECTED), "--name", "connected-pod", "-f", &cluster, "--all"]);
    assert!(told.contains("0 of 1 nodes fit"), "{told}");
    assert!(told.contains("cannot allocate all claims"), "{told}");
    assert!(told.contains("6  devices that the node can use"), "{told}");
    assert!(told.contains("6  class mla.example.com selector #0"), "{told}");
    assert!(told.contains("`size(devices) == 4` holds for mla.example.com/n1/mla-0, "), "{told}");
    assert!(told.contains("== 3` holds for no 4 of the 6 devices"), "{told}");
    // 4 of 6 devices. So few sets are evaluated one by one: look-ahead would cost more.
    assert!(told.contains("search: 15 of 15 possible sets evaluated, "), "{told}");
    let told = tool(&[
        "why",
        "--pod",
        &write("two.yaml", &CONNECTED.replace("== 3", "<= 4")),
        "--name",
        "connected-pod",
        "-f",
        &cluster,
    ]);
    assert!(told.contains("1 of 1 nodes fit"), "{told}");
}
