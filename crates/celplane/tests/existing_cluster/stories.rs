//! The stories of the proposals in annotation form beside another scheduler, with replicas, restarts and removal.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use api::json::Value;

use super::{Role, celplane};
use crate::cluster::{Cluster, free_port};
use crate::first_light::until;

/// All proposals, off: scheduler, nodes and API server know the fields no more than upstream's.
const GATES_OFF: &str = "TaintTolerationCEL=false,TaintTolerationNodeAffinityCEL=false,DRACELDeviceConstraint=false,\
                         TaintTolerationNodeAffinitySemverComparisonOperators=false,CRDAdditionalPrinterColumnCEL=false";
const NAMESPACE: &str = "celplane-system";

/// Files with a pod, and the node on which it runs; any but `old-kernel` if not given.
const PODS: &[(&str, &str, &str)] = &[
    ("tolerations/story-1-key-prefix.yaml", "log-collector", "env-node-1"),
    ("tolerations/story-2-kernel-version.yaml", "my-app", ""),
    ("tolerations/story-3-regex.yaml", "zone-app", "rack-a1"),
    ("tolerations-and-node-affinity/story-1-or.yaml", "monitoring-agent", "maintained"),
    ("tolerations-and-node-affinity/story-2-taint-version.yaml", "compatible-workload", "cni-node-1"),
    ("tolerations-and-node-affinity/story-3-rack.yaml", "regional-app", "new-kernel"),
    ("tolerations-and-node-affinity/story-4-kubelet-version.yaml", "modern-app", "new-kernel"),
    ("tolerations-and-node-affinity/story-5-volume.yaml", "storage-app", "new-kernel"),
    ("semver-operators/story-1-kubelet-version.yaml", "kubelet-app", "new-kernel"),
    ("semver-operators/story-2-older-cni.yaml", "tolerant-pod", "old-cni-node-1"),
    ("semver-operators/story-3-container-runtime.yaml", "sensitive-app", "new-kernel"),
    ("semver-operators/story-4-volume.yaml", "kernel-storage-app", "new-kernel"),
    ("device-constraints/story-1-connected.yaml", "connected-pod", "accelerators"),
    ("device-constraints/story-2-grid.yaml", "grid-pod", "accelerators"),
];

/// The cluster with what is installed in it.
struct Stage {
    cluster: Cluster,
    flags: Vec<String>,
    webhook: String,
}

impl Stage {
    fn start(directory: tempfile::TempDir, flags: &[String]) -> Cluster {
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        Cluster::up(directory, &flags)
    }

    /// Kills the API server with all that runs beside it, and starts it on the same port and data.
    fn restart(&mut self) {
        self.cluster.process.kill().unwrap();
        self.cluster.process.wait().unwrap();
        let directory = std::mem::replace(&mut self.cluster.directory, tempfile::tempdir().unwrap());
        self.cluster = Self::start(directory, &self.flags);
    }

    /// A kubeconfig with a token of an account of the manifests.
    fn account(&self, name: &str) -> PathBuf {
        let directory = self.cluster.directory.path();
        let token = self.cluster.kubectl(&["create", "token", name, "-n", NAMESPACE, "--duration", "1h"], "");
        let server = self.cluster.kubectl(&["config", "view", "-o", "jsonpath={.clusters[0].cluster.server}"], "");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: '{server}', certificate-authority: '{}'}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {{token: {}}}}}]\n",
            directory.join("data/pki/ca.crt").display(),
            token.trim()
        );
        let path = directory.join(format!("{name}.kubeconfig"));
        std::fs::write(&path, text).unwrap();
        path
    }

    fn role(&self, account: &Path, arguments: &[&str]) -> Role {
        let mut command = Command::new(env!("CARGO_BIN_EXE_celplane"));
        command.args(arguments).args(["--healthz-port", "0", "--kubeconfig"]).arg(account);
        Role(command.stdin(Stdio::null()).spawn().unwrap())
    }

    fn scheduler(&self, account: &Path) -> Role {
        let lease = ["--leader-elect-resource-namespace", NAMESPACE];
        self.role(account, &[&super::SCHEDULER[..], &lease].concat())
    }

    fn start_webhook(&self, account: &Path) -> Role {
        self.role(account, &["webhook", "--assign-scheduler", "--listen", &self.webhook])
    }

    /// The holder of the scheduler's lease.
    fn leader(&self, holds: impl Fn(&str) -> bool) -> String {
        let path = ["get", "lease", "-n", NAMESPACE, "celplane-scheduler", "-o", "jsonpath={.spec.holderIdentity}"];
        until(&self.cluster, &path, |holder| !holder.is_empty() && holds(holder))
    }

    /// Applies manifests when the API server and the webhook answer.
    fn apply_soon(&self, manifests: &str) {
        let file = self.cluster.directory.path().join("soon.yaml");
        std::fs::write(&file, manifests).unwrap();
        until(&self.cluster, &["apply", "-f", &file.display().to_string()], |_| true);
    }

    #[track_caller]
    fn runs(&self, pod: &str, node: &str) {
        let place = ["get", "pod", pod, "-o", "jsonpath={.status.phase} {.spec.nodeName} {.spec.schedulerName}"];
        let place = until(&self.cluster, &place, |text| text.starts_with("Running "));
        let expected = format!("Running {node} celplane");
        assert!(place == expected || node.is_empty() && place.ends_with(" celplane"), "{pod}: {place}");
        assert!(!place.contains("old-kernel"), "{pod}: {place}");
    }

    /// The names of all objects that contain the name of the program, but for events.
    fn leftovers(&self) -> Vec<String> {
        let kinds = self.cluster.kubectl(&["api-resources", "--verbs=list", "-o", "name"], "");
        let kinds: Vec<&str> = kinds.lines().filter(|kind| !kind.starts_with("events")).collect();
        assert!(kinds.len() > 40, "{kinds:?}");
        let found = self.cluster.kubectl(&["get", "-A", "-o", "name", &kinds.join(",")], "");
        found.lines().filter(|line| line.contains("celplane")).map(ToOwned::to_owned).collect()
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn examples_run_by_annotations_beside_another_scheduler() {
    if Cluster::is_missing() {
        return;
    }
    let webhook = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (backend, port) = (format!("{NAMESPACE}/celplane-webhook:443={webhook}"), free_port().to_string());
    let flags = ["--feature-gates", GATES_OFF, "--nodes", "0", "--port", &port, "--backend", &backend];
    let flags = flags.map(ToOwned::to_owned).to_vec();
    let cluster = Stage::start(tempfile::tempdir().unwrap(), &flags);
    let mut stage = Stage { cluster, flags, webhook };
    until(&stage.cluster, &["get", "serviceaccount", "default"], |_| true);
    let before = stage.leftovers();
    let install = ["webhook", "install", "--image", "example.com/celplane:1", "--assign-scheduler"];
    let manifests = celplane(&stage.cluster, &install);
    stage.cluster.apply(&manifests);
    let accounts =
        ["celplane-scheduler", "celplane-toleration-resolver", "celplane-webhook"].map(|it| stage.account(it));
    let [for_scheduler, for_resolver, for_webhook] = &accounts;
    let hooks = stage.start_webhook(for_webhook);
    let bundle = "jsonpath={.webhooks[0].clientConfig.caBundle}";
    let configuration = ["get", "mutatingwebhookconfiguration", "celplane-placement", "-o", bundle];
    until(&stage.cluster, &configuration, |text| !text.is_empty());
    let resolver = [
        "controller-manager",
        "--controllers",
        "toleration-resolver",
        "--placement-annotations",
        "--leader-elect=false",
    ];
    let resolver = stage.role(for_resolver, &resolver);
    let first = stage.scheduler(for_scheduler);
    let leader = stage.leader(|_| true);
    let second = stage.scheduler(for_scheduler);

    check_stories(&stage);
    check_load(&stage);

    // The API server, the leading scheduler and the webhook end at once; the other scheduler takes over.
    drop(first);
    drop(hooks);
    stage.restart();
    let hooks = stage.start_webhook(for_webhook);
    stage.leader(|holder| holder != leader);
    let later = std::fs::read_to_string(examples(&stage).join("tolerations/story-3-regex.yaml")).unwrap();
    stage.apply_soon(&later.replace("zone-app", "zone-app-later"));
    stage.runs("zone-app-later", "rack-a1");
    stage.runs("zone-app", "rack-a1");

    for role in [hooks, resolver, second] {
        drop(role);
    }
    stage.cluster.kubectl(&["delete", "-f", "-"], &manifests);
    assert_eq!(stage.leftovers(), before);
    stage.runs("zone-app", "rack-a1");
}

/// The directory of the examples in annotation form.
fn examples(stage: &Stage) -> PathBuf {
    stage.cluster.directory.path().join("examples")
}

/// Every pod of the examples runs on the node that it has with fields.
fn check_stories(stage: &Stage) {
    let examples = examples(stage);
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples"), &examples);
    let text = examples.display().to_string();
    celplane(&stage.cluster, &["convert", "--to", "annotations", &text, "--in-place"]);
    let file = |name: &str| examples.join(name).display().to_string();
    for name in ["cluster", "device-constraints/device-class.yaml", "device-constraints/accelerators.yaml"] {
        stage.cluster.kubectl(&["apply", "-f", &file(name)], "");
    }
    for (name, ..) in PODS {
        let manifests = std::fs::read_to_string(examples.join(name)).unwrap();
        assert!(manifests.contains("placement.celplane.dev/"), "{name} is not converted: {manifests}");
        // Pods without annotations of their own have to name the scheduler that reads those of their volumes.
        let is_by_volume = name.ends_with("-volume.yaml");
        let named = "  schedulerName: celplane\n  containers:\n";
        stage.cluster.apply(&if is_by_volume { manifests.replace("  containers:\n", named) } else { manifests });
    }
    for (_, pod, node) in PODS {
        stage.runs(pod, node);
    }
    let claims = stage.cluster.kubectl(&["get", "resourceclaims", "-o", "json"], "");
    let claims = api::json::parse(claims.as_bytes()).unwrap();
    let results =
        |claim: &Value| claim.at(&["status", "allocation", "devices", "results"]).cloned().unwrap_or_default();
    let mut devices: Vec<String> = claims
        .list("items")
        .iter()
        .flat_map(|claim| results(claim).as_array().unwrap_or_default().to_vec())
        .map(|result| result.text("device").to_owned())
        .collect();
    devices.sort();
    let count = devices.len();
    devices.dedup();
    assert_eq!((count, devices.len()), (8, 8), "two claims of four devices: {devices:?}");
}

/// Nodes with room for 30 pods each: two of them hold all pods of one Deployment, and some of the other.
const LOAD_NODES: usize = 4;
const REPLICAS: usize = 30;

fn deployment(name: &str, scheduler: &str, annotations: &str) -> String {
    format!(
        "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}}}\nspec:\n  replicas: {REPLICAS}\n  \
         selector: {{matchLabels: {{app: {name}}}}}\n  template:\n    \
         metadata: {{labels: {{app: {name}, part: load}}, annotations: {{{annotations}}}}}\n    \
         spec:\n      schedulerName: {scheduler}\n      nodeSelector: {{part: load}}\n      containers:\n      \
         - {{name: c, image: example.com/i, resources: {{requests: {{cpu: 100m}}}}}}\n"
    )
}

/// Both schedulers fill the same nodes; the one that reads annotations uses only half of them.
fn check_load(stage: &Stage) {
    let nodes: String = (0..LOAD_NODES)
        .map(|index| {
            let zone = if index % 2 == 0 { "a1" } else { "b1" };
            format!(
                "---\napiVersion: v1\nkind: Node\nmetadata:\n  name: load-{index}\n  labels: {{part: load, zone: {zone}}}\n  \
                 annotations: {{sim.celplane.dev/node: \"true\"}}\n\
                 status: {{capacity: {{cpu: '3', memory: 16Gi, pods: '110'}}}}\n"
            )
        })
        .collect();
    stage.cluster.apply(&nodes);
    let ready = ["get", "nodes", "-l", "part=load"];
    until(&stage.cluster, &ready, |text| text.matches(" Ready ").count() == LOAD_NODES);
    let affinity = "placement.celplane.dev/node-affinity: '{requiredDuringSchedulingIgnoredDuringExecution: \
                    {nodeSelectorTerms: [{matchCELExpressions: [\"node.labels[\\\"zone\\\"].startsWith(\\\"a\\\")\"]}]}}'";
    let plain = deployment("plain", "default-scheduler", "");
    stage.cluster.apply(&(plain + &deployment("by-annotation", "celplane", affinity)));
    let running = |app: &str| {
        let path = "jsonpath={range .items[*]}{.spec.nodeName}{\"\\n\"}{end}";
        let selector = format!("app={app}");
        let pods = ["get", "pods", "-l", &selector, "--field-selector", "status.phase=Running", "-o", path];
        until(&stage.cluster, &pods, |text| text.lines().count() == REPLICAS)
    };
    running("plain");
    let nodes = running("by-annotation");
    assert!(nodes.lines().all(|node| matches!(node, "load-0" | "load-2")), "{nodes}");
    stage.cluster.kubectl(&["delete", "deployment", "plain", "by-annotation"], "");
}
