//! Containers that really run: `celplane up --runtime containerd` with `kubectl`, as root and with Debian's packages.

mod image;
mod joined;
mod machine;
mod names;
mod registry;
mod resources;
mod second_agent;
mod stories;
mod streams;
mod two_machines;
mod workloads;

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
    second_agent::start(&mut machine);
    pods_reach_each_other(&machine);
    names::are_resolved(&machine);
    streams_reach_containers(&machine);
    ends_are_reported(&machine);
    second_agent::usage_is_measured(&machine);
    second_agent::full_disk_evicts_the_pod_that_fills_it(&machine);
    second_agent::end(&mut machine);
    containers_outlive_a_killed_control_plane(&mut machine);
    noexecute_evicts_pods_without_a_matching_expression(&machine);
    nothing_is_left_behind(&machine);
}

/// A check on a machine, with its name.
type Check = (&'static str, fn(&Machine));

/// Runs checks on one machine, all of them even if one fails.
fn run_all(machine: &Machine, checks: &[Check]) {
    let mut failed = Vec::new();
    for (name, check) in checks {
        let begun = std::time::Instant::now();
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(machine))).is_err() {
            failed.push(*name);
        }
        eprintln!("{name}: {:.1} s", begun.elapsed().as_secs_f64());
    }
    assert!(failed.is_empty(), "failed: {failed:?}");
}

#[test]
fn kubectl_reaches_containers_of_all_workloads() {
    let Some(machine) = Machine::start() else { return };
    workloads::create(&machine);
    machine.apply(streams::PODS);
    machine.apply(resources::PODS);
    run_all(
        &machine,
        &[
            ("exec", streams::exec_has_input_and_terminals),
            ("cp", streams::files_are_copied_both_ways),
            ("attach", streams::attach_reaches_the_first_process),
            ("debug", streams::debug_containers_see_their_target),
            ("logs", streams::logs_are_selected_and_followed),
            ("rotation", streams::rotated_logs_are_followed_completely),
            ("paths", streams::paths_and_identities_are_checked),
            ("jobs", workloads::jobs_end_and_daemons_run),
            ("state", workloads::sets_keep_their_local_volumes),
            ("secrets", workloads::secrets_stay_in_memory),
            ("probes", workloads::probes_decide_readiness_and_restarts),
            ("volumes", workloads::volumes_are_not_left),
            ("resize", resources::running_containers_are_resized),
            ("limits", resources::pods_are_limited_as_a_whole),
            ("runtime", resources::killed_runtime_is_started_again),
            ("grace", workloads::grace_periods_end),
            ("cron", workloads::cron_jobs_start_jobs),
            ("drain", workloads::node_drains),
        ],
    );
}

#[test]
fn pods_of_two_machines_reach_each_other() {
    let Some(machine) = Machine::start_with(&["--node-routes"]) else { return };
    two_machines::reach_each_other(&machine);
}

#[test]
fn stories_of_the_proposals_run_as_containers() {
    let Some(machine) = Machine::start_with(&["--enable-bootstrap-token-auth"]) else { return };
    run_all(
        &machine,
        &[
            ("claims", stories::claims_are_visible_in_containers),
            ("volume", stories::volume_of_a_newer_kernel_is_mounted),
            ("pulls", registry::images_are_pulled_with_credentials),
            ("join", joined::agent_runs_pods_with_files_of_join),
            ("pods", stories::pods_run_where_the_proposals_let_them),
        ],
    );
}

fn first_web_pod(machine: &Machine) -> String {
    machine.kubectl(&["get", "pods", "-l", "app=web", "-o", "jsonpath={.items[0].metadata.name}"])
}

fn pods_reach_each_other(machine: &Machine) {
    let address = machine.kubectl(&["get", "pods", "-l", "app=web", "-o", "jsonpath={.items[0].status.podIP}"]);
    machine.apply(&once("fetch", &format!("wget -qO- http://{address}:8080/index.html"), ""));
    machine.wait("pod/fetch", "jsonpath={.status.phase}=Succeeded");
    assert_eq!(machine.kubectl(&["logs", "fetch"]), "hello from a file\n");
    services_reach_pods(machine);
    // Pods reach the API server by the address of its Service, over the proxy.
    let environment = machine.kubectl(&[
        "exec",
        &first_web_pod(machine),
        "--",
        "sh",
        "-c",
        "echo $KUBERNETES_SERVICE_HOST; stat -c %a /var/run/secrets/kubernetes.io/serviceaccount/..data/token",
    ]);
    assert_eq!(environment, "10.96.0.1\n644\n");
}

/// Two pods behind a Service, fetched by a third one; and the API server, which has no pods.
fn services_reach_pods(machine: &Machine) {
    machine.kubectl(&["expose", "deployment", "web", "--port=80", "--target-port=8080", "--type=NodePort"]);
    let address = machine.kubectl(&["get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"]);
    let port = machine.kubectl(&["get", "service", "web", "-o", "jsonpath={.spec.ports[0].nodePort}"]);
    let fetch = |url: &str| format!("until wget -qO- {url} 2>/dev/null; do sleep 0.1; done");
    let api_server = "until echo | nc -w 2 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT > /dev/null 2>&1; do sleep 0.1; done; echo connected";
    machine.apply(
        &(once("by-service", &fetch(&format!("http://{address}/index.html")), "") + &once("by-api", api_server, "")),
    );
    for pod in ["by-service", "by-api"] {
        machine.wait(&format!("pod/{pod}"), "jsonpath={.status.phase}=Succeeded");
    }
    assert_eq!(machine.kubectl(&["logs", "by-service"]), "hello from a file\n");
    assert_eq!(machine.kubectl(&["logs", "by-api"]), "connected\n");
    pods_are_proxied(machine);
    // The machine itself reaches the cluster IP and the node port.
    for url in [format!("http://{address}/index.html"), format!("http://192.168.77.1:{port}/index.html")] {
        assert_eq!(machine.run("busybox", &["wget", "-qO-", &url]), "hello from a file\n", "{url}");
    }
    // Pods have addresses of the node's own network, which the controller manager has allocated.
    assert_eq!(machine.kubectl(&["get", "nodes", "-o", "jsonpath={.items[0].spec.podCIDR}"]), "10.244.0.0/24");
    let tables = machine.run("nft", &["list", "tables", "ip"]);
    assert!(tables.contains("table ip celplane-proxy"), "{tables}");
}

/// The API server passes requests on to the real addresses of pods.
fn pods_are_proxied(machine: &Machine) {
    let pod = first_web_pod(machine);
    let root = "/api/v1/namespaces/default";
    for path in [
        format!("{root}/pods/{pod}:8080/proxy/index.html"),
        format!("{root}/pods/http:{pod}:8080/proxy/index.html"),
        format!("{root}/services/web:80/proxy/index.html"),
        format!("{root}/services/http:web:80/proxy/index.html"),
    ] {
        assert_eq!(machine.kubectl(&["get", "--raw", &path]), "hello from a file\n", "{path}");
    }
    let refused = |path: &str, more: &[&str]| {
        let output = machine.try_kubectl(&[&["get", "--raw", path], more].concat(), "");
        assert!(!output.status.success(), "{path}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let why = refused(&format!("{root}/pods/{pod}:9/proxy/"), &[]);
    assert!(why.contains("error trying to reach service"), "{why}");
    let why = refused(&format!("{root}/services/web:80/proxy/"), &["--as", "nobody"]);
    assert!(why.contains("Forbidden"), "{why}");
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
    // Files, shims, mounts and cgroups go a moment after the pod's object.
    let is_clean = (0..300).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        machine.remains().is_empty()
    });
    assert!(is_clean, "left: {:#?}", machine.remains());
}
