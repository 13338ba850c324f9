//! Faults of real nodes with a runtime that is played: runtimes that hang, fill up or restart, agents that are killed at
//! every step, machines that are started again or shut down.

use rustix::process::Signal;

use crate::cluster::Cluster;
use crate::fake_runtime::{RUNNING, Stage, pod};
use crate::played_runtime::Fault;

fn running(name: &str) -> String {
    pod(name, &format!("{{name: a, image: 'app:1', {RUNNING}}}"), "Always")
}

const READY: &str = "condition=Ready";

/// The agent is killed while a call is under way whose effect it never learns of. The next agent neither loses nor doubles
/// anything.
#[test]
fn agent_killed_at_any_step_loses_and_doubles_nothing() {
    let Some(stage) = Stage::new(&[]) else { return };
    for (index, method) in ["RunPodSandbox", "CreateContainer", "StartContainer"].into_iter().enumerate() {
        let name = format!("p{index}");
        stage.runtime.set_fault(Some(Fault::AnswersNot(method)));
        let agent = stage.agent();
        stage.cluster.apply(&running(&name));
        stage.wait_for_call(&format!("unanswered {method}"));
        drop(agent);
        stage.runtime.set_fault(None);
        let agent = stage.agent();
        stage.wait(&format!("pod/{name}"), READY);
        assert_eq!(stage.runtime.running(), (1, 1), "{method}: {:?}", stage.runtime.calls());
        drop(agent);
        let agent = stage.agent();
        stage.cluster.kubectl(&["delete", "pod", &name, "--wait"], "");
        drop(agent);
    }
    for (index, method) in ["StopContainer", "StopPodSandbox", "RemovePodSandbox"].into_iter().enumerate() {
        let name = format!("q{index}");
        let agent = stage.agent();
        stage.cluster.apply(&running(&name));
        stage.wait(&format!("pod/{name}"), READY);
        stage.runtime.set_fault(Some(Fault::AnswersNot(method)));
        stage.cluster.kubectl(&["delete", "pod", &name, "--wait=false"], "");
        stage.wait_for_call(&format!("unanswered {method}"));
        drop(agent);
        stage.runtime.set_fault(None);
        let agent = stage.agent();
        stage.wait(&format!("pod/{name}"), "delete");
        // A pod that is started after it shows that the agent is done with the one before.
        stage.cluster.apply(&running(&format!("after-{name}")));
        stage.wait(&format!("pod/after-{name}"), READY);
        assert_eq!(stage.runtime.running(), (1, 1), "{method}: {:?}", stage.runtime.calls());
        stage.cluster.kubectl(&["delete", "pod", &format!("after-{name}"), "--wait"], "");
        drop(agent);
    }
}

/// A runtime that hangs makes the node unready and leaves the status of pods alone; a full disk is shown in events.
#[test]
fn faults_of_the_runtime_are_reported_and_outlived() {
    let Some(stage) = Stage::new(&[]) else { return };
    let _agent = stage.agent();
    stage
        .cluster
        .apply(&(running("old") + &pod("unauthorized", "{name: a, image: 'localhost:5000/private:1'}", "Always")));
    stage.wait("pod/old", READY);
    let waiting = "jsonpath={.status.containerStatuses[0].state.waiting.reason}";
    stage.wait("pod/unauthorized", &format!("{waiting}=ErrImagePull"));
    stage.runtime.set_fault(Some(Fault::DiskFull));
    stage.cluster.apply(&running("full"));
    let events = ["get", "events", "--field-selector=involvedObject.name=full", "-o", "jsonpath={.items[*].message}"];
    stage.wait("pod/full", "jsonpath={.status.phase}=Pending");
    let is_shown = |text: &str| {
        (0..600).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            stage.cluster.kubectl(&events, "").contains(text)
        })
    };
    assert!(is_shown("no space left on device"));
    stage.runtime.set_fault(None);
    stage.wait("pod/full", READY);
    let before = stage.read("pod/old", "{.metadata.resourceVersion}");
    stage.runtime.set_fault(Some(Fault::Hangs));
    stage.wait("node/real", "condition=Ready=false");
    let message = stage.read("node/real", "{.status.conditions[?(@.type==\"Ready\")].message}");
    assert!(message.contains("container runtime is down"), "{message}");
    stage.runtime.set_fault(None);
    stage.wait("node/real", READY);
    stage.cluster.apply(&running("later"));
    stage.wait("pod/later", READY);
    assert_eq!(stage.read("pod/old", "{.metadata.resourceVersion}"), before, "the status of a running pod was changed");
    assert_eq!(stage.read("pod/old", "{.status.containerStatuses[0].restartCount}"), "0");
}

/// A machine that was started again has no containers left: pods are started again by their policies.
#[test]
fn pods_start_again_after_a_reboot() {
    let Some(stage) = Stage::new(&[]) else { return };
    let agent = stage.agent();
    let once = pod("once", &format!("{{name: a, image: 'app:1', {RUNNING}}}"), "Never");
    stage.cluster.apply(&(running("always") + &once));
    stage.wait("pod/always", READY);
    stage.wait("pod/once", READY);
    drop(agent);
    stage.runtime.reboot();
    let _agent = stage.agent();
    stage.wait("pod/always", "jsonpath={.status.containerStatuses[0].restartCount}=1");
    stage.wait("pod/always", READY);
    stage.wait("pod/once", "jsonpath={.status.phase}=Failed");
    assert_eq!(
        stage.read("pod/once", "{.status.containerStatuses[0].state.terminated.reason}"),
        "ContainerStatusUnknown"
    );
    assert_eq!(stage.runtime.running(), (1, 1));
}

/// A node has room for 110 pods, and starts all of them at once.
#[test]
fn full_node_of_pods_starts_at_once() {
    let Some(stage) = Stage::new(&[]) else { return };
    let _agent = stage.agent();
    let all: String = (0..111).map(|it| running(&format!("p{it}"))).collect();
    stage.cluster.apply(&all);
    let ready = "jsonpath={range .items[?(@.status.phase==\"Running\")]}x{end}";
    let count = || stage.cluster.kubectl(&["get", "pods", "-o", ready], "").len();
    assert!(
        (0..600).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(100));
            count() == 110
        }),
        "{} pods run",
        count()
    );
    assert_eq!(stage.runtime.running(), (110, 110));
    let pending = stage.cluster.kubectl(&["get", "pods", "--field-selector=status.phase=Pending", "-o", "name"], "");
    assert_eq!(pending.lines().count(), 1, "{pending}");
}

/// Pods end in the order of their priority, with the status that Kubernetes gives them; the node is not ready.
#[test]
fn shutdown_of_the_machine_ends_pods_in_order() {
    let Some(stage) = Stage::new(&[]) else { return };
    let kubeconfig = stage.cluster.kubeconfig().display().to_string();
    let flags =
        ["--kubeconfig", &kubeconfig, "--shutdown-grace-period", "20s", "--shutdown-grace-period-critical-pods", "5s"];
    let agent = crate::fake_runtime::Agent::start_with(&stage.cluster, &stage.socket, &flags);
    let critical = pod("critical", &format!("{{name: c, image: 'app:1', {RUNNING}}}"), "Always")
        .replace("spec: {", "spec: {priorityClassName: system-node-critical, ")
        .replace("name: critical}", "name: critical, namespace: kube-system}");
    stage.cluster.apply(&(running("plain") + &critical));
    stage.wait("pod/plain", READY);
    stage.cluster.kubectl(&["-n", "kube-system", "wait", "pod/critical", "--for=condition=Ready", "--timeout=60s"], "");
    // SIGTERM ends the agent alone.
    assert!(agent.end(Signal::TERM).success());
    assert_eq!(stage.runtime.running(), (2, 2));
    let agent = crate::fake_runtime::Agent::start_with(&stage.cluster, &stage.socket, &flags);
    stage.wait("node/real", READY);
    assert!(agent.end(Signal::POWER).success());
    assert_eq!(stage.runtime.running(), (0, 0));
    let status = "{.status.phase} {.status.reason}: {.status.message} {.status.conditions[?(@.type==\"DisruptionTarget\")].reason}";
    let expected = "Failed Terminated: Pod was terminated in response to imminent node shutdown. TerminationByKubelet";
    assert_eq!(stage.read("pod/plain", status), expected);
    let of_critical = ["-n", "kube-system", "get", "pod", "critical", "-o", &format!("jsonpath={status}")];
    assert_eq!(stage.cluster.kubectl(&of_critical, ""), expected);
    // The pod's own grace period is 7 s; that of critical pods is 5 s here.
    let stops: Vec<String> = stage.runtime.calls().into_iter().filter(|it| it.starts_with("stop after")).collect();
    assert_eq!(stops, ["stop after 7", "stop after 5"]);
    let ready = "{.status.conditions[?(@.type==\"Ready\")].status} {.status.conditions[?(@.type==\"Ready\")].message}";
    assert_eq!(stage.read("node/real", ready), "False node is shutting down");
}

/// The names of evicted pods, in the order of their evictions.
fn evicted(stage: &Stage) -> Vec<String> {
    let path = "jsonpath={range .items[*]}{.involvedObject.name}{\"\\n\"}{end}";
    let order =
        ["get", "events", "--field-selector=reason=Evicted", "--sort-by=.metadata.creationTimestamp", "-o", path];
    stage.cluster.kubectl(&order, "").lines().map(ToOwned::to_owned).collect()
}

/// A node that runs out of memory evicts the pod that exceeds its request most; one that runs out of disk, the pod with most
/// files of all kinds. A look takes place every ten seconds and evicts one pod.
#[test]
fn node_without_memory_or_disk_evicts_the_largest_pod() {
    let Some(stage) = Stage::new(&[]) else { return };
    let agent = stage.agent();
    let container = |before: &str, more: &str| {
        let command = format!("{before}; trap 'exit 0' TERM; while :; do sleep 1; done");
        format!("{{name: a, image: 'app:1', {more} command: [sh, -c, \"{command}\"]}}")
    };
    let request = "resources: {requests: {memory: 64Mi}},";
    // The greedy pod is in neither list first.
    let of_memory = pod("a-modest", &container("x=$(head -c 20000000 /dev/zero)", request), "Never")
        + &pod("b-greedy", &container("x=$(head -c 30000000 /dev/zero)", ""), "Never");
    stage.cluster.apply(&of_memory);
    stage.wait("pod/a-modest", READY);
    stage.wait("pod/b-greedy", READY);
    drop(agent);
    let kubeconfig = stage.cluster.kubeconfig().display().to_string();
    let under = |threshold: &str| {
        let flags = ["--kubeconfig", &kubeconfig, "--eviction-hard", threshold];
        crate::fake_runtime::Agent::start_with(&stage.cluster, &stage.socket, &flags)
    };
    let agent = under("memory.available<100Ti");
    stage.wait("pod/b-greedy", "jsonpath={.status.reason}=Evicted");
    drop(agent);
    assert_eq!(evicted(&stage).first().map(String::as_str), Some("b-greedy"));
    let message = stage.read("pod/b-greedy", "{.status.message}");
    assert!(message.starts_with("The node was low on resource: memory. Threshold quantity: "), "{message}");
    let own = "Container a was using 31048576, request is 0, has larger consumption of memory. ";
    assert!(message.ends_with(own), "{message}");
    stage.cluster.kubectl(&["delete", "pods", "--all", "--force", "--grace-period=0", "--wait=false"], "");
    stage.cluster.kubectl(&["delete", "events", "--all"], "");
    let agent = stage.agent();
    stage.wait("node/real", READY);
    // One pod has a volume, the other one a larger file in its own file system.
    let volume = "volumeMounts: [{name: e, mountPath: /e}],";
    let of_disk = pod("c-volume", &container("head -c 1000000 /dev/zero > /e/x", volume), "Never")
        .replace("spec: {", "spec: {volumes: [{name: e, emptyDir: {}}], ")
        + &pod("d-layer", &container("truncate -s 900000000 /big", ""), "Never");
    stage.cluster.apply(&of_disk);
    stage.wait("pod/c-volume", READY);
    stage.wait("pod/d-layer", READY);
    drop(agent);
    let _agent = under("nodefs.available<100Ti");
    stage.wait("pod/d-layer", "jsonpath={.status.reason}=Evicted");
    assert_eq!(evicted(&stage).first().map(String::as_str), Some("d-layer"));
    assert_eq!(stage.read("pod/d-layer", "{.status.message}"), "The node was low on resource: ephemeral-storage. ");
}

/// The secured port: a bad token is 401, a user without permission 403, and permissions are those of the path.
#[test]
fn port_of_the_agent_authorizes_tokens() {
    let Some(stage) = Stage::new(&[]) else { return };
    let _agent = stage.agent();
    stage.wait("node/real", READY);
    let rights = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: stranger}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: usage}
rules: [{apiGroups: [''], resources: [nodes/metrics], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: usage}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: usage}
subjects: [{kind: ServiceAccount, name: reader, namespace: default}]
";
    stage.cluster.apply(rights);
    let port = stage.read("node/real", "{.status.daemonEndpoints.kubeletEndpoint.Port}");
    let server = format!("https://127.0.0.1:{port}");
    let ask = |token: &str, path: &str| {
        let arguments = ["--kubeconfig=/dev/null", "--server", &server, "--insecure-skip-tls-verify", "--token", token];
        let output = stage.cluster.run(&[&arguments[..], &["get", "--raw", path]].concat(), "");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let token = |name: &str| stage.cluster.kubectl(&["create", "token", name], "").trim().to_owned();
    let (reader, stranger) = (token("reader"), token("stranger"));
    let usage = ask(&reader, "/metrics/resource");
    assert!(usage.contains("node_memory_working_set_bytes") || usage.contains("# HELP"), "{usage}");
    for (token, path) in
        [(&stranger, "/metrics/resource"), (&stranger, "/healthz"), (&reader, "/healthz"), (&reader, "/stats/summary")]
    {
        let why = ask(token, path);
        assert!(why.to_lowercase().contains("forbidden"), "{path}: {why}");
    }
    // The signature of a token is its end.
    let forged = format!("{}AAAA", &reader[..reader.len() - 4]);
    for token in ["unknown", &forged] {
        let why = ask(token, "/metrics/resource");
        assert!(why.contains("Unauthorized") || why.contains("provide credentials"), "{why}");
    }
}

/// A pod from a file runs without the server, is shown there, replaced with its file, and ended with it.
#[test]
fn pods_from_files_run_as_containers() {
    let Some(stage) = Stage::new(&[]) else { return };
    let manifests = tempfile::tempdir().unwrap();
    let file = manifests.path().join("web.yaml");
    let manifest = |container: &str| {
        pod("web", &format!("{{name: {container}, image: 'app:1', {RUNNING}}}"), "Always").replace("---\n", "")
    };
    std::fs::write(&file, manifest("first")).unwrap();
    let kubeconfig = stage.cluster.kubeconfig().display().to_string();
    let directory = manifests.path().display().to_string();
    let flags = ["--kubeconfig", &kubeconfig, "--pod-manifest-path", &directory];
    let agent = crate::fake_runtime::Agent::start_with(&stage.cluster, &stage.socket, &flags);
    stage.wait("pod/web-real", "create");
    stage.wait("pod/web-real", READY);
    assert_eq!(stage.runtime.running(), (1, 1));
    // Another agent adopts the container.
    drop(agent);
    let _agent = crate::fake_runtime::Agent::start_with(&stage.cluster, &stage.socket, &flags);
    stage.cluster.apply(&running("beside"));
    stage.wait("pod/beside", READY);
    let starts = |name: &str| stage.runtime.calls().iter().filter(|call| **call == format!("start {name}")).count();
    assert_eq!(starts("first"), 1);
    std::fs::write(&file, manifest("second")).unwrap();
    stage.wait_for_call("start second");
    let shown = |field: &str, holds: &dyn Fn(&str) -> bool| {
        let path = format!("jsonpath={{.items[?(@.metadata.name==\"web-real\")]{field}}}");
        crate::first_light::until(&stage.cluster, &["get", "pods", "-o", &path], holds)
    };
    shown(".status.containerStatuses[?(@.ready==true)].name", &|text| text == "second");
    std::fs::remove_file(&file).unwrap();
    shown(".metadata.name", &str::is_empty);
    stage.cluster.kubectl(&["delete", "pod", "beside", "--wait"], "");
    stage.wait_until_idle();
}

/// While the API server is away, containers that end are started again; afterwards the server learns of it.
#[test]
fn containers_restart_while_the_server_is_away() {
    let port = crate::cluster::free_port().to_string();
    let arguments = ["--port", port.as_str()];
    let Some(mut stage) = Stage::new(&arguments) else { return };
    let _agent = stage.agent();
    stage.cluster.apply(&running("steady"));
    stage.wait("pod/steady", READY);
    stage.cluster.process.kill().unwrap();
    stage.cluster.process.wait().unwrap();
    stage.runtime.end_processes("default", "steady", 1);
    let starts = || stage.runtime.calls().iter().filter(|it| *it == "start a").count();
    let is_started_again = (0..600).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        starts() == 2
    });
    assert!(is_started_again, "{:?}", stage.runtime.calls());
    let directory = std::mem::replace(&mut stage.cluster.directory, tempfile::tempdir().unwrap());
    stage.cluster = Cluster::up(directory, &["--nodes", "0", "--port", &port]);
    stage.wait("pod/steady", "jsonpath={.status.containerStatuses[0].restartCount}=1");
    stage.wait("pod/steady", READY);
    assert_eq!(stage.runtime.running(), (1, 1));
}

/// Resources are changed in place, or with a restart where the policy of the container asks for it. A restarted agent knows
/// what it allocated, and a change that has no room waits.
#[test]
fn resources_of_running_containers_are_changed() {
    let Some(stage) = Stage::new(&[]) else { return };
    let agent = stage.agent();
    let resources =
        |cpu: &str| format!("resources: {{requests: {{cpu: {cpu}}}, limits: {{cpu: {cpu}, memory: 32Mi}}}}");
    let container = |policy: &str| {
        let policy = format!("resizePolicy: [{{resourceName: cpu, restartPolicy: {policy}}}]");
        format!("{{name: a, image: 'app:1', {}, {policy}, {RUNNING}}}", resources("100m"))
    };
    let of = |name: &str, policy: &str| pod(name, &container(policy), "Always");
    stage.cluster.apply(&(of("stays", "NotRequired") + &of("restarts", "RestartContainer")));
    stage.wait("pod/stays", READY);
    stage.wait("pod/restarts", READY);
    let resize = |name: &str, cpu: &str| {
        let patch = serde_json::json!({"spec": {"containers": [{"name": "a", "resources": {
            "requests": {"cpu": cpu}, "limits": {"cpu": cpu, "memory": "32Mi"}}}]}});
        stage.cluster.kubectl(&["patch", "pod", name, "--subresource=resize", "-p", &patch.to_string()], "");
    };
    resize("stays", "200m");
    resize("restarts", "200m");
    let applied = "{.status.containerStatuses[0].resources.limits.cpu}";
    stage.wait("pod/stays", &format!("jsonpath={applied}=200m"));
    stage.wait("pod/restarts", "jsonpath={.status.containerStatuses[0].restartCount}=1");
    stage.wait("pod/restarts", &format!("jsonpath={applied}=200m"));
    stage.wait_for_call("update to 20000 and 33554432");
    assert_eq!(stage.read("pod/stays", "{.status.containerStatuses[0].restartCount}"), "0");
    // More than the node has: the change waits, and a restart of the agent does not let it pass.
    resize("stays", "1000");
    let pending = "{.status.conditions[?(@.type==\"PodResizePending\")].reason}";
    stage.wait("pod/stays", &format!("jsonpath={pending}=Deferred"));
    drop(agent);
    let _agent = stage.agent();
    stage.cluster.apply(&running("later"));
    stage.wait("pod/later", READY);
    assert_eq!(stage.read("pod/stays", pending), "Deferred");
    assert_eq!(stage.read("pod/stays", applied), "200m");
    assert_eq!(stage.read("pod/stays", "{.status.containerStatuses[0].allocatedResources.cpu}"), "200m");
    // A change that is taken back needs no room.
    resize("stays", "200m");
    stage.wait("pod/stays", "jsonpath={.status.observedGeneration}=4");
    assert_eq!(stage.read("pod/stays", pending), "");
    assert_eq!(stage.read("pod/stays", "{.status.containerStatuses[0].restartCount}"), "0");
}
