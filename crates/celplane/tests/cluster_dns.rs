//! `celplane dns` as a process: readiness before and after its records are complete, and answers over UDP.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, program};

/// Time limit of everything that follows from a change.
const PATIENCE: Duration = Duration::from_secs(60);
const PORT: u16 = 5353;
/// The port of health and metrics, as in CoreDNS.
const STATUS_PORT: u16 = 9153;
const SERVER_FAILURE: u8 = 2;

/// The permissions that docs/dns.md names, for the user of the server.
const PERMISSIONS: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: names}
rules:
- {apiGroups: [""], resources: [services, namespaces], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: names}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: names}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: names}]
"#;

/// A server that ends when dropped.
struct Server {
    process: Child,
    address: Ipv4Addr,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    /// The status code and body of a page, once the port is open.
    fn page(&self, path: &str) -> (u16, String) {
        let mut text = String::new();
        self.eventually(|| {
            text.clear();
            let Ok(mut stream) = TcpStream::connect((self.address, STATUS_PORT)) else { return false };
            let request = format!("GET {path} HTTP/1.1\r\nhost: names\r\nconnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).is_ok() && stream.read_to_string(&mut text).is_ok()
        });
        let code = text.split(' ').nth(1).unwrap().parse().unwrap();
        (code, text.split_once("\r\n\r\n").unwrap().1.to_owned())
    }

    /// The response code and the last four bytes of the response for an address, which are those of the only record.
    fn lookup(&self, name: &str) -> (u8, [u8; 4]) {
        let labels = name.split('.').flat_map(|it| [&[u8::try_from(it.len()).unwrap()], it.as_bytes()].concat());
        let query: Vec<u8> =
            [7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0].into_iter().chain(labels).chain([0, 0, 1, 0, 1]).collect();
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.send_to(&query, (self.address, PORT)).unwrap();
        let mut response = [0; 512];
        let length = socket.recv(&mut response).unwrap();
        (response[3] & 15, response[length - 4..length].try_into().unwrap())
    }

    #[track_caller]
    fn eventually(&self, mut condition: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !condition() {
            assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn server_is_ready_once_its_records_are_complete() {
    let Some(cluster) = Cluster::start() else { return };
    // The user of the server may read nothing yet. Users are the last part of the file.
    let kubeconfig = cluster.directory.path().join("names.kubeconfig");
    let text = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    std::fs::write(&kubeconfig, text + "    as: names\n").unwrap();
    let path = kubeconfig.display().to_string();
    // An address of this process, so that others do not use its ports.
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let address = Ipv4Addr::new(127, 53, high, low);
    let process = Command::new(program())
        .args(["dns", "--kubeconfig", &path, "--bind-address", &address.to_string(), "--port", &PORT.to_string()])
        .args(["--resolv-conf", "/dev/null"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let server = Server { process, address };
    assert_eq!(server.page("/health"), (200, "ok".to_owned()));
    let (code, report) = server.page("/ready");
    assert!(code == 500 && report.contains("[-]kubernetes failed: Services, EndpointSlices"), "{code} {report}");
    // Without the records, nothing is known about a name: that it does not exist would be kept by clients.
    let name = "kubernetes.default.svc.cluster.local";
    assert_eq!(server.lookup(name).0, SERVER_FAILURE);
    cluster.apply(PERMISSIONS);
    server.eventually(|| server.page("/ready").0 == 200);
    let expected = cluster.kubectl(&["get", "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}"], "");
    let (code, found) = server.lookup(name);
    assert_eq!((code, Ipv4Addr::from(found).to_string()), (0, expected));
    let (_, metrics) = server.page("/metrics");
    assert!(metrics.contains("coredns_dns_responses_total{") && metrics.contains("rcode=\"SERVFAIL\""), "{metrics}");
}
