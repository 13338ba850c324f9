//! A node that `celplane join` has prepared: its agent runs pods with the files and the flags that the command returned.

use std::io::{BufRead as _, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;

use super::machine::Machine;
use super::once;

const NODE: &str = "joined";
const TOKEN: &str = "abcdef.0123456789abcdef";
const SECRET: &str = "
apiVersion: v1
kind: Secret
metadata: {name: bootstrap-token-abcdef, namespace: kube-system}
type: bootstrap.kubernetes.io/token
stringData:
  token-id: abcdef
  token-secret: 0123456789abcdef
  usage-bootstrap-authentication: \"true\"
  usage-bootstrap-signing: \"true\"
  auth-extra-groups: system:bootstrappers:kubeadm:default-node-token
";

/// Joins the cluster and returns the flags of the agent that the command prints.
fn join(machine: &Machine) -> Vec<String> {
    machine.apply(SECRET);
    let signed = "--for=jsonpath={.data.jws-kubeconfig-abcdef}";
    machine.kubectl(&["-n", "kube-public", "wait", "configmap/cluster-info", signed, "--timeout=90s"]);
    let authority = std::fs::read_to_string(machine.path("data/pki/ca.crt")).unwrap();
    let pin = apiserver::certificates::pins(&authority).remove(0);
    let directory = machine.path("joined").display().to_string();
    let arguments =
        ["join", "https://192.168.77.1:6443", "--token", TOKEN, "--hostname-override", NODE, "--directory", &directory];
    let more = ["--node-ip", "192.168.77.1", "--discovery-token-ca-cert-hash", &pin, "--timeout", "90"];
    let mut command = machine.command(env!("CARGO_BIN_EXE_celplane"), &[&arguments[..], &more].concat());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let fields =
        "jsonpath={range .items[?(@.spec.signerName==\"kubernetes.io/kubelet-serving\")]}{.metadata.name}{end}";
    let serving = loop {
        let name = machine.kubectl(&["get", "csr", "-o", fields]);
        if !name.is_empty() {
            break name;
        }
        assert!(child.try_wait().unwrap().is_none(), "`celplane join` has ended");
    };
    machine.kubectl(&["certificate", "approve", &serving]);
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success(), "{text}");
    let line =
        text.lines().find_map(|line| line.trim().strip_prefix("celplane kubelet ")).unwrap_or_else(|| panic!("{text}"));
    line.split_whitespace().map(ToOwned::to_owned).collect()
}

/// The agent's node is ready and runs a pod, whose log and commands the API server reaches by the certificates of `join`.
pub(super) fn agent_runs_pods_with_files_of_join(machine: &Machine) {
    let mut flags = join(machine);
    // The runtime of the first node has its socket elsewhere, and the first node has a service proxy.
    for (flag, value) in [
        (
            "--container-runtime-endpoint",
            format!("unix://{}", machine.path("data/containerd/containerd.sock").display()),
        ),
        ("--proxy-mode", "none".to_owned()),
    ] {
        let at = flags.iter().position(|it| it == flag).unwrap_or_else(|| panic!("{flag} is not in {flags:?}"));
        flags[at + 1] = value;
    }
    let path = |name: &str| machine.path(name).display().to_string();
    let (root, logs, cgroup) = (path("joined/root"), path("joined/logs"), format!("/celplane-{}/{NODE}", machine.name));
    let own = ["--root-dir", &root, "--pod-logs-dir", &logs, "--cgroup-root", &cgroup, "--port", "10252"];
    // The disks of developers are often nearly full.
    let more = ["--secure-port", "0", "--cluster-dns", "10.96.0.10", "--eviction-hard", "memory.available<10Mi"];
    let flags: Vec<&str> =
        ["kubelet"].into_iter().chain(flags.iter().map(String::as_str)).chain(own).chain(more).collect();
    let mut command = machine.command(env!("CARGO_BIN_EXE_celplane"), &flags);
    let mut agent = command.stdout(Stdio::null()).process_group(0).spawn().unwrap();
    machine.wait(&format!("node/{NODE}"), "create");
    machine.wait(&format!("node/{NODE}"), "condition=Ready");
    machine.kubectl(&["cordon", NODE]);
    let loops = "echo runs; trap exit TERM; while :; do sleep 1; done";
    machine.apply(&once("on-joined", loops, &format!("nodeName: {NODE},")));
    machine.wait("pod/on-joined", "condition=Ready");
    let (mut follower, mut output) = machine.beside(&["logs", "-f", "on-joined"]);
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "runs\n");
    follower.kill().unwrap();
    follower.wait().unwrap();
    assert_eq!(machine.kubectl(&["exec", "on-joined", "--", "echo", "reached"]), "reached\n");
    machine.kubectl(&["delete", "pod", "on-joined", "--wait"]);
    agent.kill().unwrap();
    agent.wait().unwrap();
    machine.kubectl(&["delete", "node", NODE]);
}
