//! Certificates of a real node: bootstrap, renewal, and what is served meanwhile.

use std::time::{Duration, SystemTime};

use apiserver::certificates::issue::Terms;
use apiserver::certificates::{Authority, node_request};

use crate::fake_runtime::{Agent, RUNNING, Stage, pod};

/// A certificate of the cluster's authority and its key in one file. It began long ago and has `seconds` left.
fn aged(stage: &Stage, node: &str, usages: &[&str], seconds: i64) -> String {
    let read = |name: &str| {
        let path = stage.cluster.directory.path().join("data/pki").join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let authority = Authority::from_pem(read("ca.crt"), read("ca.key")).unwrap();
    let addresses = ["127.0.0.1".parse().unwrap()];
    let (key, pem) = node_request(node, if usages.contains(&"server auth") { &addresses } else { &[] }).unwrap();
    let bytes = api::x509::pem_blocks(&pem).remove(0).bytes;
    let request = api::x509::request::Request::read(&bytes).unwrap();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let now = api::time::Timestamp { seconds: i64::try_from(now).unwrap(), nanos: 0 };
    // Certificates are dated back by five minutes, of which more than 90 % have passed.
    let terms = Terms { usages, seconds, now };
    format!("{}{key}", authority.issue(&request, &terms).unwrap())
}

/// The certificate requests of a signer.
fn requests(stage: &Stage, signer: &str) -> Vec<String> {
    let path =
        format!("jsonpath={{range .items[?(@.spec.signerName==\"{signer}\")]}}{{.metadata.name}}{{\"\\n\"}}{{end}}");
    stage.cluster.kubectl(&["get", "csr", "-o", &path], "").lines().map(ToOwned::to_owned).collect()
}

/// A connection to the agent that verifies its certificate by the cluster's authority.
fn connect(stage: &Stage, threads: &tokio::runtime::Runtime) -> client::Client {
    let port = stage.read("node/real", "{.status.daemonEndpoints.kubeletEndpoint.Port}");
    let mut kubeconfig = client::kubeconfig::Kubeconfig::read(&stage.cluster.kubeconfig(), None).unwrap();
    kubeconfig.server = format!("https://127.0.0.1:{port}");
    threads.block_on(client::Client::configured(kubeconfig, "test")).unwrap()
}

/// Waits until `holds`.
#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..600 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("{what} did not happen");
}

const SECRET: &str = "
apiVersion: v1
kind: Secret
metadata: {name: bootstrap-token-abcdef, namespace: kube-system}
type: bootstrap.kubernetes.io/token
stringData: {token-id: abcdef, token-secret: 0123456789abcdef, usage-bootstrap-authentication: \"true\",
  auth-extra-groups: \"system:bootstrappers:kubeadm:default-node-token\"}
";

/// An agent with a token gets a certificate, renews one that is about to expire, and works on when the old one has expired.
#[test]
fn certificates_are_requested_and_renewed_before_they_expire() {
    let Some(stage) = Stage::new(&["--enable-bootstrap-token-auth"]) else { return };
    stage.cluster.apply(SECRET);
    let directory = stage.cluster.directory.path();
    let path = |name: &str| directory.join(name).display().to_string();
    let server = stage.cluster.kubectl(&["config", "view", "-o", "jsonpath={.clusters[0].cluster.server}"], "");
    let bootstrap = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: '{server}', certificate-authority: {}}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {{token: abcdef.0123456789abcdef}}}}]\n",
        path("data/pki/ca.crt")
    );
    std::fs::write(path("bootstrap.kubeconfig"), bootstrap).unwrap();
    let (kubeconfig, token, pki) = (path("node.kubeconfig"), path("bootstrap.kubeconfig"), path("pki"));
    let flags = [
        "--kubeconfig",
        &kubeconfig,
        "--bootstrap-kubeconfig",
        &token,
        "--rotate-certificates",
        "--rotate-server-certificates",
        "--cert-dir",
        &pki,
    ];
    let client_signer = "kubernetes.io/kube-apiserver-client-kubelet";
    let serving_signer = "kubernetes.io/kubelet-serving";
    let agent = Agent::start_with(&stage.cluster, &stage.socket, &flags);
    until("the node's registration", || stage.cluster.run(&["get", "node", "real"], "").status.success());
    stage.wait("node/real", "condition=Ready");
    assert_eq!(requests(&stage, client_signer).len(), 1);
    // Before its serving certificate is approved, the agent has one that the authority did not sign.
    stage.cluster.apply(&pod("first", &format!("{{name: a, image: 'app:1', {RUNNING}}}"), "Always"));
    stage.wait("pod/first", "condition=Ready");
    let threads = tokio::runtime::Runtime::new().unwrap();
    let healthy = |agent: &client::Client| threads.block_on(agent.get_as("/healthz", "text/plain")).is_ok();
    assert!(!healthy(&connect(&stage, &threads)));
    until("the request for a serving certificate", || requests(&stage, serving_signer).len() == 1);
    stage.cluster.kubectl(&["certificate", "approve", &requests(&stage, serving_signer)[0]], "");
    until("the serving certificate", || healthy(&connect(&stage, &threads)));
    drop(agent);
    // Certificates with seconds to live are renewed at once.
    let client_file = directory.join("pki/kubelet-client-current.pem");
    let server_file = directory.join("pki/kubelet-server-current.pem");
    std::fs::write(&client_file, aged(&stage, "real", &["digital signature", "client auth"], 15)).unwrap();
    std::fs::write(&server_file, aged(&stage, "real", &["digital signature", "server auth"], 15)).unwrap();
    let begun = SystemTime::now();
    let old = [std::fs::read(&client_file).unwrap(), std::fs::read(&server_file).unwrap()];
    let _agent = Agent::start_with(&stage.cluster, &stage.socket, &flags);
    until("the renewal of the client certificate", || std::fs::read(&client_file).unwrap() != old[0]);
    until("the second request for a serving certificate", || requests(&stage, serving_signer).len() == 2);
    let pending = requests(&stage, serving_signer);
    // The old serving certificate is used until the new one is approved, and an open connection stays.
    let open = connect(&stage, &threads);
    assert!(healthy(&open));
    for name in &pending {
        stage.cluster.kubectl(&["certificate", "approve", name], "");
    }
    until("the renewal of the serving certificate", || std::fs::read(&server_file).unwrap() != old[1]);
    for file in [&client_file, &server_file] {
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(file).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }
    // Both work after the old ones have expired.
    until("the end of the old certificates", || begun.elapsed().unwrap() > Duration::from_secs(17));
    stage.cluster.apply(&pod("second", &format!("{{name: a, image: 'app:1', {RUNNING}}}"), "Always"));
    stage.wait("pod/second", "condition=Ready");
    assert!(healthy(&open) && healthy(&connect(&stage, &threads)));
    assert_eq!(stage.read("pod/first", "{.status.containerStatuses[0].restartCount}"), "0");
}
