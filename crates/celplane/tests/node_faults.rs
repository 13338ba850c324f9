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
