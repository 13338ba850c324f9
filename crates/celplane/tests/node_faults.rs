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
