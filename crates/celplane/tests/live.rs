//! The tools on a running cluster: what they read from a server is what they read from files.

use crate::cluster;

use std::process::{Command, Output};

use cluster::Cluster;

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
