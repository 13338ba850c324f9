//! `celplane join` and `celplane doctor`.

use std::process::{Command, Stdio};

use crate::cluster::Cluster;

const TOKEN: &str = "abcdef.0123456789abcdef";

/// A token that may sign `cluster-info` and whose certificate requests are approved by themselves.
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

const NAMES: &str = "
apiVersion: v1
kind: Service
metadata:
  name: kube-dns
  namespace: kube-system
  annotations: {celplane.dev/pod-network: 10.99.0.0/16, celplane.dev/node-routes: \"true\"}
spec: {ports: [{name: dns, port: 53, protocol: UDP}]}
";

#[test]
fn machine_joins_with_a_token() {
    if Cluster::is_missing() {
        return;
    }
    let cluster = Cluster::up(tempfile::tempdir().unwrap(), &["--nodes", "0", "--enable-bootstrap-token-auth"]);
    cluster.apply(SECRET);
    // The Service as `celplane up --runtime containerd` has it.
    cluster.apply(NAMES);
    let signed = "jsonpath={.data.jws-kubeconfig-abcdef}";
    cluster.kubectl(
        &["-n", "kube-public", "wait", "configmap/cluster-info", &format!("--for={signed}"), "--timeout=60s"],
        "",
    );
    let server = cluster.kubectl(&["config", "view", "-o", "jsonpath={.clusters[0].cluster.server}"], "");
    let authority = std::fs::read_to_string(cluster.directory.path().join("data/pki/ca.crt")).unwrap();
    let pin = apiserver::certificates::pins(&authority).remove(0);
    let directory = cluster.directory.path().join("joined");
    let join = |pin: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_celplane"));
        command
            .args(["join", &server, "--token", TOKEN, "--hostname-override", "machine", "--node-ip", "192.0.2.7"])
            .args(["--discovery-token-ca-cert-hash", pin, "--timeout", "60", "--directory"])
            .arg(&directory);
        command
    };
    // A cluster with another authority is refused before anything is sent to it.
    let refused = join(&format!("sha256:{}", "0".repeat(64))).output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("which is not the expected one"));
    assert!(!directory.exists());
    let child = join(&pin).stdout(Stdio::piped()).spawn().unwrap();
    // The client certificate is approved by itself; the serving certificate by an administrator.
    let serving = loop {
        let fields =
            "jsonpath={range .items[?(@.spec.signerName==\"kubernetes.io/kubelet-serving\")]}{.metadata.name}{end}";
        let name = cluster.kubectl(&["get", "csr", "-o", fields], "");
        if !name.is_empty() {
            break name;
        }
    };
    cluster.kubectl(&["certificate", "approve", &serving], "");
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("celplane kubelet --kubeconfig"), "{text}");
    let names = ["-n", "kube-system", "get", "service", "kube-dns", "-o", "jsonpath={.spec.clusterIP}"];
    let names = cluster.kubectl(&names, "");
    let network =
        format!("--cluster-dns {names} --cluster-cidr 10.99.0.0/16 --cni-conf-dir /etc/cni/net.d --node-routes\n");
    assert!(text.contains(&network) && !text.contains("Replace"), "{text}");
    for name in ["kubelet.kubeconfig", "kubelet.crt", "kubelet.key"] {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(directory.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let kubeconfig = directory.join("kubelet.kubeconfig").display().to_string();
    let user = cluster
        .kubectl(&["--kubeconfig", &kubeconfig, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"], "");
    assert_eq!(user, "system:node:machine");
}

#[test]
fn doctor_reports_checks_with_remedies() {
    let output = Command::new(env!("CARGO_BIN_EXE_celplane"))
        .args(["doctor", "-o", "json", "--container-runtime-endpoint", "unix:///nowhere.sock"])
        .output()
        .unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let failed = checks.iter().any(|it| it["verdict"] == "failure");
    assert_eq!(output.status.success(), !failed);
    let runtime = checks.iter().find(|it| it["name"] == "container runtime").unwrap();
    assert!(runtime["verdict"] == "warning" && runtime["remedy"].as_str().unwrap().contains("systemctl"), "{runtime}");
    assert!(checks.iter().all(|it| (it["verdict"] == "ok") == it["remedy"].as_str().unwrap().is_empty()));
}
