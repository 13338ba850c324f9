//! `celplane up` from the perspective of users: a Deployment runs, expressions control placement, and
//! everything continues after a restart.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, free_port};

const LIMIT: Duration = Duration::from_secs(60);

/// Repeats the command until the result is as expected; fails with the last one.
#[track_caller]
pub(crate) fn until(cluster: &Cluster, arguments: &[&str], holds: impl Fn(&str) -> bool) -> String {
    let started = Instant::now();
    loop {
        let output = cluster.run(arguments, "");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() && holds(&text) {
            return text;
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(started.elapsed() < LIMIT, "kubectl {arguments:?}: {text}{errors}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn count(text: &str, word: &str) -> usize {
    text.lines().filter(|line| line.contains(word)).count()
}

fn start() -> Option<Cluster> {
    if Cluster::is_missing() { None } else { Some(Cluster::up(tempfile::tempdir().unwrap(), &[])) }
}

#[test]
fn a_deployment_runs_and_goes_and_outlives_restarts() {
    let Some(mut cluster) = start() else { return };
    let nodes = until(&cluster, &["get", "nodes"], |text| count(text, " Ready ") == 3);
    assert!(!nodes.contains("NotReady"), "{nodes}");
    until(&cluster, &["get", "nodes", "-o", "jsonpath={.items[*].spec.taints}"], str::is_empty);
    until(&cluster, &["get", "serviceaccounts", "-A"], |text| count(text, "default ") >= 4);
    until(&cluster, &["get", "configmap", "kube-root-ca.crt", "-o", "yaml"], |text| text.contains("BEGIN CERTIFICATE"));
    cluster.kubectl(&["create", "deployment", "web", "--image=nginx", "--replicas=3"], "");
    let status = cluster.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"], "");
    assert!(status.contains("successfully rolled out"), "{status}");
    let pods = cluster.kubectl(&["get", "pods", "-o", "wide"], "");
    assert_eq!(count(&pods, "Running"), 3, "{pods}");
    assert_eq!(count(&pods, " 10."), 3, "each has an address: {pods}");
    assert_eq!(count(&pods, " node-"), 3, "each has a node: {pods}");
    let described = cluster.kubectl(&["describe", "pods"], "");
    assert!(described.contains("Successfully assigned default/web-"), "{described}");

    // A clean stop and a start; then a kill.
    for kill in [false, true] {
        let names = cluster.kubectl(&["get", "pods", "-o", "name"], "");
        cluster = cluster.restart(kill);
        until(&cluster, &["get", "nodes"], |text| count(text, " Ready ") == 3);
        let pods = until(&cluster, &["get", "pods"], |text| count(text, "Running") == 3);
        assert_eq!(cluster.kubectl(&["get", "pods", "-o", "name"], ""), names, "{pods}");
    }
    cluster.kubectl(&["scale", "deployment/web", "--replicas=5"], "");
    until(&cluster, &["get", "pods"], |text| count(text, "Running") == 5);
    cluster.kubectl(&["delete", "deployment", "web"], "");
    until(&cluster, &["get", "deployments,replicasets,pods", "-o", "name"], str::is_empty);
}

#[test]
fn placement_speaks_cel() {
    let Some(cluster) = start() else { return };
    until(&cluster, &["get", "nodes"], |text| count(text, " Ready ") == 3);
    cluster.kubectl(&["taint", "nodes", "node-0", "gpu.example.com/class=a100:NoSchedule"], "");
    cluster.kubectl(&["label", "nodes", "node-1", "tier=gold", "kernel=6.8.1"], "");
    cluster.kubectl(&["label", "nodes", "node-2", "kernel=5.15.0"], "");
    let pod = |name: &str, spec: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  containers: [{{name: c, image: nginx}}]\n{spec}"
        )
    };
    let required = |expression: &str| {
        format!(
            "  affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{expression}]}}}}}}\n"
        )
    };
    let on_node = |node: &str| format!("  nodeSelector: {{kubernetes.io/hostname: {node}}}\n");
    let tolerating = on_node("node-0") + "  tolerations: [{expression: \"taint.key.startsWith('gpu.')\"}]\n";
    let chosen = required("{matchCELExpressions: [\"'tier' in node.labels && node.labels['tier'] == 'gold'\"]}");
    let newer = required("{matchExpressions: [{key: kernel, operator: SemverGt, values: ['6.0.0']}]}");
    for (name, spec) in [("waits", on_node("node-0")), ("tolerates", tolerating), ("chosen", chosen), ("newer", newer)]
    {
        cluster.kubectl(&["apply", "-f", "-"], &pod(name, &spec));
    }
    for (name, node) in [("tolerates", "node-0"), ("chosen", "node-1"), ("newer", "node-1")] {
        let place = ["get", "pod", name, "-o", "jsonpath={.spec.nodeName} {.status.phase}"];
        until(&cluster, &place, |text| text == format!("{node} Running"));
    }
    let waiting = until(&cluster, &["describe", "pod", "waits"], |text| text.contains("FailedScheduling"));
    assert!(waiting.contains("untolerated taint {gpu.example.com/class: a100}"), "{waiting}");
    assert!(waiting.contains("Pending"), "{waiting}");
    cluster.kubectl(&["taint", "nodes", "node-0", "gpu.example.com/class-"], "");
    until(&cluster, &["get", "pod", "waits"], |text| text.contains("Running"));
}

#[test]
fn components_have_metrics_and_health_of_their_own() {
    let Some(cluster) = start() else { return };
    until(&cluster, &["get", "--raw", "/readyz"], |text| text == "ok");
    let checks = cluster.kubectl(&["get", "--raw", "/readyz?verbose"], "");
    for name in ["kube-controller-manager", "kube-scheduler", "kubelet"] {
        assert!(checks.contains(&format!("[+]{name} ok")), "{checks}");
        let metrics = cluster.kubectl(&["get", "--raw", &format!("/metrics/{name}")], "");
        assert!(
            metrics.contains("kubernetes_feature_enabled{name=\"TaintTolerationCEL\",stage=\"ALPHA\"} 1"),
            "{metrics}"
        );
    }
    let metrics = cluster.kubectl(&["get", "--raw", "/metrics/kube-controller-manager"], "");
    assert!(metrics.contains("workqueue_adds_total"), "{metrics}");
}

#[test]
fn logs_are_shown_and_exec_is_rejected_clearly() {
    if Cluster::is_missing() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let template =
        file("node.yaml", "kind: Node\nmetadata: {labels: {zone: a}}\nstatus: {capacity: {cpu: 2, pods: 9}}\n");
    let rules = file("rules.yaml", "log: hello\n");
    let arguments = ["--nodes", "1", "--node-template", &template, "--simulation", &rules];
    let cluster = Cluster::up(tempfile::tempdir().unwrap(), &arguments);
    let nodes = until(&cluster, &["get", "nodes", "-L", "zone"], |text| count(text, " Ready ") == 1);
    assert!(nodes.lines().any(|line| line.ends_with("   a")), "{nodes}");
    let pod = |name: &str, annotations: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, annotations: {{{annotations}}}}}\n\
             spec: {{containers: [{{name: c, image: nginx}}]}}\n"
        )
    };
    until(&cluster, &["get", "serviceaccount", "default"], |_| true);
    cluster.apply(&pod("talks", ""));
    cluster.apply(&pod(
        "crashes",
        "sim.celplane.dev/run-seconds: '0', sim.celplane.dev/exit-code: '3', sim.celplane.dev/log: oops",
    ));
    until(&cluster, &["get", "pod", "talks"], |text| text.contains("Running"));
    assert_eq!(cluster.kubectl(&["logs", "talks"], ""), "simulated container c started (nginx)\nhello\n");
    assert_eq!(cluster.kubectl(&["logs", "talks", "--tail=1"], ""), "hello\n");
    let refusal = cluster.refused(&["exec", "talks", "--", "ls"], "");
    assert!(refusal.contains("containers of node node-0 are simulated, not run"), "{refusal}");
    let refusal = cluster.refused(&["logs", "talks", "-c", "d"], "");
    assert!(refusal.contains("container d is not valid for pod talks"), "{refusal}");
    until(&cluster, &["get", "pod", "crashes"], |text| text.contains("CrashLoopBackOff"));
    let previous = cluster.kubectl(&["logs", "crashes", "--previous"], "");
    assert!(previous.contains("oops\nsimulated container c ended with code 3\n"), "{previous}");
}

#[test]
fn log_is_followed_to_its_end_with_container_events() {
    if Cluster::is_missing() {
        return;
    }
    let cluster = Cluster::up(tempfile::tempdir().unwrap(), &["--nodes", "1", "--ephemeral"]);
    until(&cluster, &["get", "serviceaccount", "default"], |_| true);
    cluster.apply(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: ends, annotations: {sim.celplane.dev/run-seconds: '4'}}\n\
         spec: {restartPolicy: Never, containers: [{name: c, image: nginx}]}\n",
    );
    cluster
        .apply("apiVersion: v1\nkind: Pod\nmetadata: {name: stays}\nspec: {containers: [{name: c, image: nginx}]}\n");
    until(&cluster, &["get", "pod", "ends"], |text| text.contains("Running") || text.contains("Completed"));
    // It resumes by itself, with the output since its start.
    let expected = "simulated container c started (nginx)\nsimulated container c ended with code 0\n";
    assert_eq!(cluster.kubectl(&["logs", "-f", "ends"], ""), expected);
    assert_eq!(cluster.kubectl(&["logs", "-f", "--tail=1", "ends"], ""), "simulated container c ended with code 0\n");
    until(&cluster, &["get", "pod", "stays"], |text| text.contains("Running"));
    let events = ["get", "events", "-o", "custom-columns=:.involvedObject.fieldPath,:.reason,:.message"];
    until(&cluster, &events, |text| {
        let has = |what: &str| text.lines().any(|line| line.starts_with("spec.containers{c}") && line.contains(what));
        has("Container image \"nginx\" already present on machine") && has("Created") && has("Started")
    });
    cluster.kubectl(&["delete", "pod", "stays"], "");
    until(&cluster, &events, |text| text.contains("Stopping container c"));

    // A deadline that comes while the pod runs counts from its start.
    cluster.apply("apiVersion: v1\nkind: Pod\nmetadata: {name: late}\nspec: {containers: [{name: c, image: nginx}]}\n");
    until(&cluster, &["get", "pod", "late"], |text| text.contains("Running"));
    cluster.kubectl(&["patch", "pod", "late", "-p", r#"{"spec": {"activeDeadlineSeconds": 1}}"#], "");
    let state = "jsonpath={.status.phase} {.status.reason} {.status.containerStatuses[0].state.terminated.exitCode}";
    until(&cluster, &["get", "pod", "late", "-o", state], |text| text == "Failed DeadlineExceeded 143");
    until(&cluster, &events, |text| text.contains("Pod was active on the node longer than the specified deadline"));
}

/// A role in its own process, stopped when dropped.
struct Role(std::process::Child);

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn roles_have_processes_of_their_own() {
    if Cluster::is_missing() {
        return;
    }
    // All controllers together hold more watches than upstream's server allows on one connection.
    let port = free_port().to_string();
    let arguments = ["--http2-max-streams-per-connection", "100", "--node-log-ports", &port];
    let cluster = Cluster::start_with(tempfile::tempdir().unwrap(), &arguments);
    let start = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_celplane"));
        command.args(arguments).args(["--healthz-port", "0", "--kubeconfig"]).arg(cluster.kubeconfig());
        Role(command.spawn().unwrap())
    };
    let node = ["kubelet", "--hostname-override", "node-0", "--log-port", &port];
    let _roles = [start(&["controller-manager"]), start(&["scheduler"]), start(&node)];
    until(&cluster, &["get", "nodes"], |text| count(text, " Ready ") == 1);
    until(&cluster, &["get", "serviceaccount", "default"], |_| true);
    cluster.kubectl(&["create", "deployment", "web", "--image=nginx", "--replicas=2"], "");
    until(&cluster, &["get", "pods"], |text| count(text, "Running") == 2);
    let logs = cluster.kubectl(&["logs", "deployment/web"], "");
    assert!(logs.contains("simulated container nginx started (nginx)"), "{logs}");
    let leases = cluster.kubectl(&["get", "leases", "-n", "kube-system"], "");
    assert!(leases.contains("kube-scheduler") && leases.contains("kube-controller-manager"), "{leases}");

    // A node cannot direct the server to another local service.
    let secret = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    secret.set_nonblocking(true).unwrap();
    let address = secret.local_addr().unwrap();
    cluster.apply("apiVersion: v1\nkind: Node\nmetadata: {name: thief}\n");
    let status = format!(
        r#"{{"status": {{"addresses": [{{"type": "InternalIP", "address": "127.0.0.1"}}],
            "daemonEndpoints": {{"kubeletEndpoint": {{"Port": {}}}}}}}}}"#,
        address.port()
    );
    cluster.kubectl(&["patch", "node", "thief", "--subresource=status", "-p", &status], "");
    cluster.apply(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: stolen}\n\
         spec: {nodeName: thief, containers: [{name: c, image: nginx}]}\n",
    );
    let refusal = cluster.refused(&["logs", "stolen"], "");
    assert!(refusal.contains(&format!("address {address} of the kubelet of node thief is not allowed")), "{refusal}");
    cluster.refused(&["get", "--raw", "/api/v1/nodes/thief/proxy/secret"], "");
    let proxy = format!("/api/v1/nodes/thief:{}/proxy/secret", address.port());
    cluster.refused(&["get", "--raw", &proxy], "");
    assert_eq!(secret.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn a_flag_that_makes_no_sense_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    for (flag, why) in [
        ("--controllers=unheard", "\"unheard\" is not in the list of known controllers"),
        ("--scheduler-feature-gates=Unheard=true", "unrecognized feature gate: Unheard"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_celplane"))
            .args(["up", "--port", "0", flag, "--data-dir"])
            .arg(directory.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains(why), "{errors}");
    }
}
