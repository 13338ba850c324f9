//! Containers that really run: `celplane up --runtime containerd` with `kubectl`, as root and with Debian's packages.

mod image;
mod machine;

use std::io::BufRead as _;

use self::machine::Machine;

const WEB: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: page}
data: {index.html: "hello from a file\n"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 2
      initContainers:
      - {name: init, image: "registry.local/busybox:1", command: [sh, -c, "cp /page/index.html /www/"], volumeMounts: [{name: www, mountPath: /www}, {name: page, mountPath: /page}]}
      containers:
      - name: httpd
        image: registry.local/busybox:1
        command: [sh, -c, "echo serving $(POD); exec httpd -f -p 8080 -h /www"]
        env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
        ports: [{containerPort: 8080}]
        readinessProbe: {httpGet: {port: 8080, path: /index.html}, periodSeconds: 1}
        resources: {limits: {memory: 32Mi, cpu: 500m}}
        volumeMounts: [{name: www, mountPath: /www}]
      volumes:
      - {name: www, emptyDir: {}}
      - {name: page, configMap: {name: page}}
"#;

/// A pod that runs a command once.
fn once(name: &str, command: &str, more: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{restartPolicy: Never, terminationGracePeriodSeconds: 1, \
         {more} containers: [{{name: c, image: 'registry.local/busybox:1', command: [sh, -c, '{command}']}}]}}\n---\n"
    )
}

/// One machine for all, because it takes seconds to start.
#[test]
fn containers_run_and_survive_the_control_plane() {
    let Some(mut machine) = Machine::start() else { return };
    machine.apply(WEB);
    machine.wait("deployment/web", "condition=Available");
    pods_reach_each_other(&machine);
    streams_reach_containers(&machine);
    ends_are_reported(&machine);
    proposals_let_pods_in(&machine);
    containers_outlive_a_killed_control_plane(&mut machine);
    noexecute_evicts_pods_without_a_matching_expression(&machine);
    nothing_is_left_behind(&machine);
}

fn first_web_pod(machine: &Machine) -> String {
    machine.kubectl(&["get", "pods", "-l", "app=web", "-o", "jsonpath={.items[0].metadata.name}"])
}

fn pods_reach_each_other(machine: &Machine) {
    let address = machine.kubectl(&["get", "pods", "-l", "app=web", "-o", "jsonpath={.items[0].status.podIP}"]);
    machine.apply(&once("fetch", &format!("wget -qO- http://{address}:8080/index.html"), ""));
    machine.wait("pod/fetch", "jsonpath={.status.phase}=Succeeded");
    assert_eq!(machine.kubectl(&["logs", "fetch"]), "hello from a file\n");
    // Pods are given an address at which they reach the API server.
    let environment = machine.kubectl(&[
        "exec",
        &first_web_pod(machine),
        "--",
        "sh",
        "-c",
        "echo $KUBERNETES_SERVICE_HOST; stat -c %a /var/run/secrets/kubernetes.io/serviceaccount/..data/token",
    ]);
    assert_eq!(environment, "192.168.77.1\n644\n");
}

fn streams_reach_containers(machine: &Machine) {
    let pod = first_web_pod(machine);
    assert_eq!(machine.kubectl(&["logs", &pod, "-c", "httpd"]), format!("serving {pod}\n"));
    let output = machine.try_kubectl(&["exec", &pod, "--", "sh", "-c", "echo out; echo err >&2; exit 7"], "");
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(7), b"out\n".as_slice()));
    assert!(String::from_utf8_lossy(&output.stderr).contains("err\n"));
    // The end of standard input arrives.
    let output = machine.try_kubectl(&["exec", "-i", &pod, "--", "sh", "-c", "cat; echo end"], "typed\n");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "typed\nend\n");
    let (mut child, mut output) = machine.beside(&["port-forward", &pod, "18080:8080"]);
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert!(line.starts_with("Forwarding from 127.0.0.1:18080"), "{line}");
    assert_eq!(machine.run("busybox", &["wget", "-qO-", "http://127.0.0.1:18080/index.html"]), "hello from a file\n");
    child.kill().unwrap();
    child.wait().unwrap();
    // A user without permission to enter a pod is rejected before the node is contacted.
    let output = machine.try_kubectl(&["--as", "nobody", "exec", &pod, "--", "true"], "");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("Forbidden"),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn ends_are_reported(machine: &Machine) {
    let memory = "x=$(yes | head -c 200000000); echo no";
    let limited = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: oom}}\nspec: {{restartPolicy: Never, containers: [{{name: c, image: 'registry.local/busybox:1', \
         command: [sh, -c, '{memory}'], resources: {{limits: {{memory: 16Mi}}}}}}]}}\n---\n"
    );
    machine.apply(&(once("fails", "echo why > /dev/termination-log; exit 3", "") + &limited));
    machine.wait("pod/fails", "jsonpath={.status.phase}=Failed");
    machine.wait("pod/oom", "jsonpath={.status.phase}=Failed");
    let ended = |pod: &str| {
        let path = "jsonpath={.status.containerStatuses[0].state.terminated.reason} {.status.containerStatuses[0].state.terminated.exitCode} \
            {.status.containerStatuses[0].state.terminated.message}";
        machine.kubectl(&["get", "pod", pod, "-o", path])
    };
    assert_eq!(ended("fails"), "Error 3 why\n");
    assert_eq!(ended("oom").trim(), "OOMKilled 137");
}

fn proposals_let_pods_in(machine: &Machine) {
    let node = machine.kubectl(&["get", "nodes", "-o", "jsonpath={.items[0].metadata.name}"]);
    machine.kubectl(&["label", "node", &node, "rack=us-west-2a", "driver=1.30.2"]);
    let affinity = |term: &str| {
        format!(
            "affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{term}]}}}}}},"
        )
    };
    let by_expression =
        affinity("{matchCELExpressions: [\"node.labels[''rack''].startsWith(''us-west'')\"]}").replace("''", "'");
    let by_version = affinity("{matchExpressions: [{key: driver, operator: SemverGt, values: ['1.30.0']}]}");
    machine.apply(&(once("by-expression", "true", &by_expression) + &once("by-version", "true", &by_version)));
    for pod in ["pod/by-expression", "pod/by-version"] {
        machine.wait(pod, "jsonpath={.status.phase}=Succeeded");
    }
}

fn containers_outlive_a_killed_control_plane(machine: &mut Machine) {
    let path = "jsonpath={range .items[*]}{.metadata.name} {.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}{\"\\n\"}{end}";
    let before = machine.kubectl(&["get", "pods", "-l", "app=web", "-o", path]);
    machine.kill();
    machine.up();
    machine.wait("deployment/web", "condition=Available");
    let after = machine.kubectl(&["get", "pods", "-l", "app=web", "-o", path]);
    assert_eq!(before, after);
    let output = machine.kubectl(&["exec", &first_web_pod(machine), "--", "echo", "still here"]);
    assert_eq!(output, "still here\n");
}

fn noexecute_evicts_pods_without_a_matching_expression(machine: &Machine) {
    let node = machine.kubectl(&["get", "nodes", "-o", "jsonpath={.items[0].metadata.name}"]);
    let tolerates = "tolerations: [{expression: \"taint.key.startsWith('maintenance.example.com/')\"}],";
    machine.apply(&once("stays", "trap exit TERM; while :; do sleep 1; done", tolerates));
    machine.wait("pod/stays", "jsonpath={.status.phase}=Running");
    let evicted = first_web_pod(machine);
    machine.kubectl(&["taint", "node", &node, "maintenance.example.com/disk=x:NoExecute"]);
    machine.wait(&format!("pod/{evicted}"), "delete");
    let phase = machine.kubectl(&["get", "pod", "stays", "-o", "jsonpath={.status.phase}"]);
    assert_eq!(phase, "Running");
}

fn nothing_is_left_behind(machine: &Machine) {
    machine.kubectl(&["delete", "deployment", "web"]);
    machine.kubectl(&["delete", "pods", "--all", "--wait"]);
    // Files go a moment after the pod's object.
    let left = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        machine.pod_directories() == 0
    });
    assert!(left, "{} directories of pods are left", machine.pod_directories());
}
