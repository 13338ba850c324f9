//! The API server as `kubectl` sees it: a real client against a real process, each test on its own port and directory.
//!
//! Without `kubectl` the tests print a note and pass, unless `CELPLANE_REQUIRE_TOOLS=1` is set.

use crate::cluster;

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use cluster::Cluster;

const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: 'nginx:1.27'}]}
---
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {a: b}}
spec: {containers: [{name: c, image: nginx}]}
---
apiVersion: v1
kind: Node
metadata: {name: n1}
";

#[test]
fn objects_are_applied_shown_changed_and_deleted() {
    let Some(cluster) = Cluster::start() else { return };
    let created = cluster.kubectl(&["apply", "-f", "-"], WEB);
    assert_eq!(created, "deployment.apps/web created\npod/p created\nnode/n1 created\n");
    let again = cluster.kubectl(&["apply", "-f", "-"], WEB);
    assert_eq!(again, "deployment.apps/web unchanged\npod/p unchanged\nnode/n1 unchanged\n");
    let pods = cluster.kubectl(&["get", "pods"], "");
    assert!(pods.starts_with("NAME   READY   STATUS    RESTARTS   AGE\np      0/1     Pending   0"), "{pods}");
    let changed = cluster.kubectl(&["apply", "-f", "-"], &WEB.replace("replicas: 2", "replicas: 3"));
    assert!(changed.starts_with("deployment.apps/web configured\n"), "{changed}");
    cluster.kubectl(&["scale", "deployment", "web", "--replicas", "5"], "");
    assert_eq!(cluster.kubectl(&["get", "deployment", "web", "-o", "jsonpath={.spec.replicas}"], ""), "5");
    cluster.kubectl(&["label", "pod", "p", "x=y"], "");
    cluster.kubectl(&["annotate", "pod", "p", "note=hello"], "");
    let labels = cluster.kubectl(&["get", "pods", "-l", "x=y", "-o", "name"], "");
    assert_eq!(labels, "pod/p\n");
    cluster.kubectl(&["taint", "node", "n1", "k=v:NoSchedule"], "");
    cluster.kubectl(&["cordon", "n1"], "");
    let node = cluster.kubectl(&["get", "node", "n1"], "");
    assert!(node.contains("SchedulingDisabled"), "{node}");
    let explained = cluster.kubectl(&["explain", "pod.spec.tolerations.expression"], "");
    assert!(explained.contains("FIELD: expression <string>"), "{explained}");
    let described = cluster.kubectl(&["describe", "pod", "p"], "");
    assert!(described.lines().any(|line| line.starts_with("Labels:  ") && line.ends_with(" a=b")), "{described}");
    cluster.kubectl(&["delete", "pod", "p"], "");
    assert!(cluster.refused(&["get", "pod", "p"], "").contains("pods \"p\" not found"));
}

#[test]
fn errors_are_those_of_kubernetes() {
    let Some(cluster) = Cluster::start() else { return };
    let unknown = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\nbogus: 1\n";
    let message = cluster.refused(&["apply", "-f", "-"], unknown);
    assert!(message.contains("unknown field \"bogus\""), "{message}");
    let invalid = WEB.replace("name: c, image: nginx}", "name: C, image: nginx}");
    let message = cluster.refused(&["apply", "-f", "-"], &invalid);
    assert!(message.contains("spec.containers[0].name: Invalid value: \"C\""), "{message}");
    let elsewhere = cluster
        .refused(&["-n", "nowhere", "apply", "-f", "-"], "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n");
    assert!(elsewhere.contains("namespaces \"nowhere\" not found"), "{elsewhere}");
    let message = cluster.refused(&["delete", "namespace", "kube-system"], "");
    assert!(message.contains("this namespace may not be deleted"), "{message}");
}

#[test]
fn data_survives_the_end_of_the_process() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.kubectl(&["apply", "-f", "-"], WEB);
    let version = cluster.kubectl(&["get", "pod", "p", "-o", "jsonpath={.metadata.resourceVersion}"], "");
    let cluster = Cluster::start_in(cluster.stop());
    assert_eq!(cluster.kubectl(&["get", "pod", "p", "-o", "jsonpath={.metadata.resourceVersion}"], ""), version);
}

#[test]
fn a_watch_shows_changes_as_they_come() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.kubectl(&["apply", "-f", "-"], WEB);
    let mut watch = Command::new("kubectl")
        .arg("--kubeconfig")
        .arg(cluster.kubeconfig())
        .args(["get", "pods", "-w", "-o", "jsonpath={.metadata.name} {.metadata.labels}{'\\n'}"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "p {\"a\":\"b\"}");
    cluster.kubectl(&["label", "pod", "p", "c=d"], "");
    assert_eq!(lines.next().unwrap().unwrap(), "p {\"a\":\"b\",\"c\":\"d\"}");
    watch.kill().unwrap();
    watch.wait().unwrap();
}

const SETTINGS: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: red, size: big}
";

#[test]
fn server_side_apply_shares_and_disputes_fields() {
    let Some(cluster) = Cluster::start() else { return };
    let apply = ["apply", "--server-side", "-f", "-"];
    assert_eq!(cluster.kubectl(&apply, SETTINGS), "configmap/settings serverside-applied\n");
    let data = |path: &str| cluster.kubectl(&["get", "configmap", "settings", "-o", &format!("jsonpath={path}")], "");
    assert_eq!(data("{.metadata.managedFields[*].manager}"), "kubectl");
    // Another manager receives a conflict that names the owner.
    let blue = SETTINGS.replace("red", "blue");
    let other = ["apply", "--server-side", "--field-manager=painter", "-f", "-"];
    let refusal = cluster.refused(&other, &blue);
    assert!(refusal.contains("Apply failed with 1 conflict: conflict with \"kubectl\": .data.color"), "{refusal}");
    assert!(refusal.contains("--force-conflicts"), "{refusal}");
    assert_eq!(data("{.data.color}"), "red");
    // It can force the change, and then the first one receives the conflict.
    let forced = ["apply", "--server-side", "--field-manager=painter", "--force-conflicts", "-f", "-"];
    cluster.kubectl(&forced, &blue);
    assert_eq!(data("{.data.color} {.data.size}"), "blue big");
    assert!(cluster.refused(&apply, SETTINGS).contains("conflict with \"painter\": .data.color"));
    // A field with two owners stays until neither applies it.
    let only_size = SETTINGS.replace("color: red, ", "");
    cluster.kubectl(&apply, &only_size);
    assert_eq!(data("{.data.color}"), "blue");
    cluster.kubectl(&other, &only_size);
    assert_eq!(data("{.data}"), r#"{"size":"big"}"#);
    // What would change is shown, and nothing changes.
    let output = cluster.run(&["diff", "--server-side", "-f", "-"], &only_size.replace("big", "small"));
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.code() == Some(1) && !shown.is_empty() {
        assert!(shown.contains("-  size: big") && shown.contains("+  size: small"), "{shown}");
    } else {
        // The diff is made by a program that may be missing, or the field is in dispute.
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("conflict with \"painter\": .data.size"), "{errors}");
    }
    assert_eq!(data("{.data.size}"), "big");
}

#[test]
fn client_side_apply_is_taken_over() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.kubectl(&["apply", "-f", "-"], WEB);
    let managers = |name: &str| {
        let path = "jsonpath={range .metadata.managedFields[*]}{.manager}={.operation} {end}";
        cluster.kubectl(&["get", name, "-o", path], "")
    };
    assert_eq!(managers("deployment/web"), "kubectl-client-side-apply=Update ");
    let output = cluster.kubectl(&["apply", "--server-side", "-f", "-"], &WEB.replace("replicas: 2", "replicas: 3"));
    assert!(output.contains("deployment.apps/web serverside-applied"), "{output}");
    // The client moves the fields of its older self to the new one, so that they can be removed.
    let after = managers("deployment/web");
    assert!(after.contains("kubectl=Apply ") && !after.contains("client-side"), "{after}");
    let replicas = || cluster.kubectl(&["get", "deployment/web", "-o", "jsonpath={.spec.replicas}"], "");
    assert_eq!(replicas(), "3");
    cluster.kubectl(&["apply", "--server-side", "-f", "-"], &WEB.replace("  replicas: 2\n", ""));
    assert_eq!(replicas(), "1");
    // Through the scale subresource, the number gets its own manager.
    cluster.kubectl(&["apply", "--server-side", "-f", "-"], WEB);
    cluster.kubectl(&["scale", "deployment/web", "--replicas=4"], "");
    let after = managers("deployment/web");
    assert!(after.contains("kubectl=Update "), "{after}");
    let refusal = cluster.refused(&["apply", "--server-side", "--field-manager=other", "-f", "-"], WEB);
    let owner = "conflict with \"kubectl\" with subresource \"scale\" using apps/v1: .spec.replicas";
    assert!(refusal.contains(owner), "{refusal}");
    // Tables leave it to the client what to show, and the client shows managed fields only on request.
    let yaml = cluster.kubectl(&["get", "deployment/web", "-o", "yaml"], "");
    assert!(!yaml.contains("managedFields"), "{yaml}");
    let yaml = cluster.kubectl(&["get", "deployment/web", "-o", "yaml", "--show-managed-fields"], "");
    assert!(yaml.contains("f:replicas"), "{yaml}");
}
