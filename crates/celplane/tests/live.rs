//! The tools on a running cluster: what they read from a server is what they read from files.

use crate::cluster;

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};

use cluster::Cluster;

use crate::first_light::until;

const OBJECTS: &str = r#"
apiVersion: v1
kind: Node
metadata: {name: tainted}
spec: {taints: [{key: env.example.com/staging, value: "1", effect: NoSchedule}]}
---
apiVersion: v1
kind: Node
metadata: {name: other}
spec: {taints: [{key: dedicated, value: db, effect: NoSchedule}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec:
  containers: [{name: c, image: registry.example.com/app:1}]
  tolerations:
  - expression: taint.key.startsWith('env.example.com/')
  - {key: node.kubernetes.io/not-ready, operator: Exists}
"#;

const TEAM: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: team}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeSelector: {kubernetes.io/hostname: elsewhere}
      tolerations: [{operator: Exists}]
      containers: [{name: c, image: app}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: gold, namespace: team}
spec:
  selector: {matchLabels: {app: gold}}
  template:
    metadata: {labels: {app: gold}}
    spec:
      nodeSelector: {tier: gold}
      tolerations: [{operator: Exists}]
      containers: [{name: c, image: app}]
"#;

const GATED_POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: team}
spec:
  containers: [{name: c, image: app}]
  tolerations: [{expression: \"taint.key == 'pool'\"}]
";

/// Runs `celplane why` as a user of `kubectl` does: with the server and the namespace of the environment's kubeconfig.
fn why(cluster: &Cluster, arguments: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_celplane"));
    let output = command.arg("why").args(arguments).env("KUBECONFIG", cluster.kubeconfig()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout) + &text(output.stderr))
}

#[test]
fn why_follows_the_gates_of_the_scheduler_and_the_context() {
    if Cluster::is_missing() {
        return;
    }
    let off = "TaintTolerationCEL=false,TaintTolerationNodeAffinityCEL=false";
    let arguments = ["--ephemeral", "--nodes", "2", "--scheduler-feature-gates", off];
    let cluster = Cluster::up(tempfile::tempdir().unwrap(), &arguments);
    until(&cluster, &["get", "nodes", "-o", "name"], |text| text.lines().count() == 2);
    cluster.kubectl(&["taint", "nodes", "--all", "pool=a:NoSchedule"], "");
    cluster.apply(TEAM);
    until(&cluster, &["get", "serviceaccount", "default", "-n", "team"], |_| true);
    cluster.apply(GATED_POD);
    cluster.kubectl(&["config", "set-context", "--current", "--namespace=team"], "");

    let events = ["get", "events", "-o", "custom-columns=:.reason,:.message"];
    let note = "spec.tolerations[0].expression has no effect: feature gate TaintTolerationCEL is off in the scheduler";
    until(&cluster, &events, |text| {
        text.lines().any(|line| line.starts_with("FeatureGateDisabled") && line.contains(note))
    });
    let (code, output) = why(&cluster, &["pod/p"]);
    assert_eq!(code, 1, "{output}");
    assert!(output.starts_with("Pod team/p: 0 of 2 nodes fit\n"), "{output}");
    let gates = "TaintTolerationCEL or TaintTolerationNodeAffinityCEL is off in the scheduler";
    assert!(output.contains(&format!("spec.tolerations[0].expression has no effect: {gates}")), "{output}");
    let (code, output) = why(&cluster, &["p", "--feature-gates", "TaintTolerationCEL=true"]);
    assert!(code == 0 && output.starts_with("Pod team/p: 2 of 2 nodes fit\n"), "{output}");
    let (code, output) = why(&cluster, &["p", "-n", "default"]);
    assert_eq!((code, output.as_str()), (2, "error: there is no pod `default/p`\n"));

    // A label that nodes set on themselves would be restored; others can be set.
    let (code, output) = why(&cluster, &["deploy/web"]);
    assert!(code == 1 && output.starts_with("Deployment team/web: 0 of 2 nodes fit\n"), "{output}");
    assert!(!output.contains("the label "), "{output}");
    let (code, output) = why(&cluster, &["deployment/gold"]);
    assert!(code == 1 && output.contains("the label tier=gold on any of the nodes node-0, node-1"), "{output}");
}

/// A component that is ended with the test.
struct Role(std::process::Child);

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Role {
    /// Starts a component and returns its first two lines.
    fn start(cluster: &Cluster, name: &str) -> (Self, [String; 2]) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_celplane"));
        command.args([name, "--secure-port", "0", "--kubeconfig"]).arg(cluster.kubeconfig());
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let lines = [(); 2].map(|()| lines.next().unwrap().unwrap());
        (Self(process), lines)
    }
}

#[test]
fn components_print_their_server_and_the_leader() {
    let Some(cluster) = Cluster::start() else { return };
    let server = cluster.kubectl(&["config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"], "");
    for (role, name) in [("scheduler", "kube-scheduler"), ("controller-manager", "kube-controller-manager")] {
        let (_leader, first) = Role::start(&cluster, role);
        assert_eq!(first[0], format!("{name}: connected to {server}"));
        let prefix = format!("{name}: lease kube-system/{name} is held by ");
        let leader = first[1].strip_prefix(&prefix).unwrap_or_else(|| panic!("{first:?}"));
        let lease = ["get", "lease", name, "-n", "kube-system", "-o", "jsonpath={.spec.holderIdentity}"];
        assert_eq!(cluster.kubectl(&lease, ""), leader);
        // A second one prints the same leader.
        let (_candidate, second) = Role::start(&cluster, role);
        assert_eq!(second, first);
    }
}

fn tool(cluster: &Cluster, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_celplane"));
    command.args(arguments).arg("--kubeconfig").arg(cluster.kubeconfig()).output().unwrap()
}

#[test]
fn the_tools_read_a_running_cluster() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.apply(OBJECTS);
    let why = tool(&cluster, &["why", "--name", "web", "-o", "json"]);
    let text = String::from_utf8(why.stdout).unwrap();
    assert_eq!(why.status.code(), Some(0), "{text} {}", String::from_utf8_lossy(&why.stderr));
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    let fits =
        |name: &str| report["nodes"].as_array().unwrap().iter().find(|it| it["name"] == name).unwrap()["fits"] == true;
    assert!(fits("tainted") && !fits("other"), "{text}");

    let missing = tool(&cluster, &["why", "--name", "nobody"]);
    assert_eq!(missing.status.code(), Some(2));
    assert_eq!(String::from_utf8_lossy(&missing.stderr), "error: there is no pod `default/nobody`\n");

    let unreadable = Command::new(env!("CARGO_BIN_EXE_celplane")).args(["scan", "--kubeconfig", "/nowhere"]).output();
    let unreadable = unreadable.unwrap();
    assert_eq!((unreadable.status.code(), unreadable.stdout.as_slice()), (Some(2), b"".as_slice()));

    let scan = tool(&cluster, &["scan"]);
    let text = String::from_utf8_lossy(&scan.stdout);
    assert_eq!(scan.status.code(), Some(1), "{text}");
    assert!(text.contains("Pod default/web") && text.contains("TaintTolerationCEL"), "{text}");

    // A context of one file with the cluster and the user of another.
    let directory = tempfile::tempdir().unwrap();
    let mine = directory.path().join("mine");
    let context = "contexts: [{name: mine, context: {cluster: celplane, user: admin}}]";
    std::fs::write(&mine, context).unwrap();
    let files = std::env::join_paths([directory.path().join("absent"), mine, cluster.kubeconfig()]).unwrap();
    let merged = Command::new(env!("CARGO_BIN_EXE_celplane"))
        .args(["scan", "--context", "mine"])
        .env("KUBECONFIG", files)
        .output()
        .unwrap();
    assert_eq!((merged.status.code(), merged.stdout), (Some(1), scan.stdout));
}
