//! `celplane up` and `down` as scripts and people call them.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn celplane(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_celplane"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    celplane(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Ends what a test has left running, also where it fails.
pub(crate) struct Down<'d>(pub(crate) &'d Path);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        let _ = celplane(&["down", "--data-dir"]).arg(self.0).output();
    }
}

#[test]
fn it_stays_in_the_background_until_it_is_ended_and_goes_on_where_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let data_text = data.to_str().unwrap();
    let _down = Down(&data);
    let template = directory.path().join("nodes.yaml");
    std::fs::write(
        &template,
        "kind: Node\napiVersion: v1\nmetadata: {name: big, annotations: {sim.celplane.dev/replicas: '2'}}\nstatus: {capacity: {cpu: '64', pods: '9'}}\n---\n\
         kind: Node\napiVersion: v1\nmetadata: {labels: {kind: small}}\n",
    )
    .unwrap();
    let up = ["up", "--wait", "--port", "0", "--nodes", "1", "--data-dir", data_text, "--node-template"];
    let started = celplane(&up).arg(&template).output().unwrap();
    let said = text(&started.stdout);
    assert!(started.status.success(), "{said}{}", text(&started.stderr));
    assert!(said.contains("3 nodes are ready after "), "{said}");
    assert!(said.contains(&format!("export KUBECONFIG={data_text}/admin.kubeconfig")), "{said}");
    assert!(said.contains("kubectl get nodes"), "{said}");
    assert!(!said.contains('\u{1b}'), "no color outside a terminal: {said}");

    let second = run(&["up", "--wait", "--port", "0", "--data-dir", data_text]);
    let said = text(&second.stderr);
    assert!(!second.status.success());
    assert!(said.contains("is in use by process ") && said.contains("celplane down"), "{said}");

    // What was there is there again, with the same flags or without.
    let scan = || {
        let kubeconfig = data.join("admin.kubeconfig");
        let simulated = run(&["simulate", "-o", "json", "--kubeconfig", kubeconfig.to_str().unwrap()]);
        let report: serde_json::Value = serde_json::from_slice(&simulated.stdout).unwrap();
        let names = report["nodes"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap().to_owned());
        (names.collect::<Vec<_>>(), report["nodes"][0]["milliCPU"]["allocatable"].as_i64())
    };
    let nodes = (["big-0", "big-1", "node-0"].map(ToOwned::to_owned).to_vec(), Some(64_000));
    assert_eq!(scan(), nodes);
    let ended = run(&["down", "--data-dir", data_text]);
    assert!(text(&ended.stdout).starts_with("Stopped process "), "{}", text(&ended.stdout));
    let again = run(&["up", "--wait", "--port", "0", "--nodes", "1", "--data-dir", data_text]);
    assert!(text(&again.stdout).contains("3 nodes are ready after "), "{}", text(&again.stdout));
    assert_eq!(scan(), nodes);
    assert!(run(&["down", "--data-dir", data_text]).status.success());
    let nothing = run(&["down", "--data-dir", data_text]);
    assert!(nothing.status.success());
    assert!(text(&nothing.stdout).starts_with("No control plane is running on "), "{}", text(&nothing.stdout));
}

#[test]
fn startup_failure_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().to_str().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for arguments in [&["up"][..], &["up", "--wait"]] {
        let refused = run(&[arguments, &["--port", &port, "--data-dir", data]].concat());
        assert_eq!(refused.status.code(), Some(1));
        let said = text(&refused.stderr);
        let expected =
            format!("error: port {port} on 127.0.0.1 is in use by another program; choose another with --port");
        assert!(said.starts_with(&expected), "{said}");
    }

    std::fs::write(directory.path().join("version.json"), r#"{"format": 99, "version": "7.0.0"}"#).unwrap();
    let refused = run(&["up", "--port", "0", "--data-dir", data]);
    let said = text(&refused.stderr);
    assert!(said.contains("was written by celplane 7.0.0 in format 99"), "{said}");
    std::fs::write(directory.path().join("version.json"), "{").unwrap();
    assert!(!run(&["up", "--port", "0", "--data-dir", data]).status.success(), "what cannot be read is refused");

    let missing = run(&["up", "--port", "0", "--ephemeral", "--data-dir", data, "--node-template", "no-such-file"]);
    assert!(text(&missing.stderr).contains("cannot read `no-such-file`"), "{}", text(&missing.stderr));
}

#[test]
fn data_is_kept_in_a_directory_of_the_user() {
    let home = tempfile::tempdir().unwrap();
    let own = |arguments: &[&str]| celplane(arguments).env("XDG_DATA_HOME", home.path()).output().unwrap();
    let started = own(&["up", "--wait", "--port", "0", "--ephemeral", "--nodes", "0"]);
    let data = home.path().join("celplane");
    let _down = Down(&data);
    let said = text(&started.stdout);
    assert!(started.status.success(), "{said}{}", text(&started.stderr));
    assert!(said.contains("Ready after ") && said.contains("objects in memory only"), "{said}");
    assert!(data.join("admin.kubeconfig").exists());
    assert!(!data.join("store.redb").exists());
    assert!(text(&own(&["down"]).stdout).starts_with("Stopped process "));
}

/// Objects of another cluster.
pub(crate) const DUMP: &str = r#"
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Secret, metadata: {name: s, namespace: default, uid: u0}}
- apiVersion: v1
  kind: Node
  metadata: {name: real-1, uid: u1, resourceVersion: "7", labels: {kubernetes.io/hostname: real-1}}
  spec: {taints: [{key: node.kubernetes.io/not-ready, effect: NoSchedule}]}
  status:
    capacity: {cpu: "4", memory: 8Gi, pods: "110"}
    allocatable: {cpu: 3500m, memory: 7Gi, pods: "110"}
    conditions: [{type: Ready, status: "False"}]
- apiVersion: v1
  kind: Pod
  metadata: {name: web-1, namespace: shop, uid: u4, finalizers: [example.com/hold], ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: u3, controller: true}]}
  spec: {nodeName: real-1, priority: 7, priorityClassName: gold, serviceAccountName: robot, containers: [{name: c, image: i}]}
  status: {phase: Running}
- apiVersion: v1
  kind: Pod
  metadata: {name: done, namespace: shop, uid: u5}
  spec: {nodeName: real-1, containers: [{name: c, image: i}]}
  status: {phase: Succeeded}
- apiVersion: batch/v1
  kind: Job
  metadata: {name: done, namespace: shop, uid: u6}
  spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}
  status: {succeeded: 1, conditions: [{type: Complete, status: "True"}]}
- apiVersion: apps/v1
  kind: ReplicaSet
  metadata: {name: web, namespace: shop, uid: u3, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: gone, controller: true}]}
  spec: {replicas: 1, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}
"#;

#[test]
fn loaded_cluster_omits_harmful_objects() {
    let directory = tempfile::tempdir().unwrap();
    let (data, dump) = (directory.path().join("data"), directory.path().join("dump.yaml"));
    std::fs::write(&dump, DUMP.replace("uid: u4,", "uid: u4, labels: {a: b},")).unwrap();
    let data_text = data.to_str().unwrap();
    let _down = Down(&data);
    let started = run(&["up", "--wait", "--port", "0", "--data-dir", data_text, "--load", dump.to_str().unwrap()]);
    let log = std::fs::read_to_string(data.join("celplane.log")).unwrap();
    assert!(started.status.success(), "{}{log}", text(&started.stderr));
    assert!(text(&started.stdout).contains("1 node is ready"), "{}", text(&started.stdout));
    let log = text(&started.stdout);
    assert!(log.contains("Loaded 1 Node, 1 Pod, 1 ReplicaSet."), "{log}");
    for why in [
        "1 × Secret",
        "1 × Pod that has ended",
        "1 × Job that has ended",
        "1 × finalizers of a Pod",
        "1 × owner of a ReplicaSet that is not in the dump",
        "1 × priority class gold of a Pod, which is not in the dump",
    ] {
        assert!(log.contains(&format!("left out: {why}")), "{why}: {log}");
    }
    let kubeconfig = data.join("admin.kubeconfig");
    let simulated = run(&["simulate", "-o", "json", "--kubeconfig", kubeconfig.to_str().unwrap()]);
    let report: serde_json::Value = serde_json::from_slice(&simulated.stdout).unwrap();
    assert_eq!(report["nodes"][0]["name"], "real-1");
    assert_eq!(report["nodes"][0]["milliCPU"]["allocatable"], 3500);
    // The ReplicaSet has its pod: it belongs to it under its new uid, so that no second one was made.
    assert_eq!(report["nodes"][0]["pods"]["used"], 1, "{report}");
    assert_eq!(report["pending"].as_array().unwrap().len(), 0);
}

#[test]
fn flags_have_the_heading_of_their_topic() {
    let help = text(&run(&["up", "--help"]).stdout);
    let heading_of = |flag: &str| {
        let before = help.split(&format!("      --{flag}")).next().unwrap();
        assert_ne!(before.len(), help.len(), "no flag {flag}");
        let is_heading = |line: &&str| line.ends_with(':') && !line.starts_with(' ');
        before.lines().rfind(is_heading).unwrap().to_owned()
    };
    for (flag, heading) in [
        ("nodes ", "Nodes, scheduler and controllers:"),
        ("simulation ", "Nodes, scheduler and controllers:"),
        ("scheduler-config ", "Nodes, scheduler and controllers:"),
        ("cluster-cidr ", "Pod network of real nodes:"),
        ("port ", "API server:"),
        ("feature-gates ", "API server:"),
        ("dry-run", "API server:"),
        ("max-requests-inflight ", "API server:"),
        ("client-ca-file ", "Identities and certificates:"),
        ("etcd-servers ", "etcd:"),
        ("audit-log-path ", "Audit log:"),
    ] {
        assert_eq!(heading_of(flag), heading, "{flag}");
    }
    // The flags of the first hour come first.
    assert!(help.find("--nodes ").unwrap() < help.find("--runtime ").unwrap());
}

#[test]
fn version_and_help_are_printed() {
    let version: serde_json::Value = serde_json::from_slice(&run(&["version", "-o", "json"]).stdout).unwrap();
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert!(version["kubernetesVersion"].as_str().unwrap().starts_with("v1."), "{version}");
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&run(&["completion", shell]).stdout);
        assert!(script.contains("node-template"), "{shell}: {script}");
    }
    let pages = tempfile::tempdir().unwrap();
    assert!(run(&["man", "--dir", pages.path().to_str().unwrap()]).status.success());
    let page = std::fs::read_to_string(pages.path().join("celplane-up.1")).unwrap();
    assert!(page.contains("node\\-template"), "{page}");

    // As a plugin of kubectl it goes by that name.
    let plugin = pages.path().join("kubectl-celplane");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_celplane"), &plugin).unwrap();
    let help = Command::new(plugin).args(["simulate", "--help"]).output().unwrap();
    assert!(text(&help.stdout).contains("Usage: kubectl celplane simulate"), "{}", text(&help.stdout));
}
