//! Data that an earlier version has written: `tests/upgrades/VERSION/`.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;

use crate::cluster::Cluster;
use crate::etcd::etcd_server;
use crate::first_light::until;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/upgrades/0.1.0").join(name)
}

fn unpacked(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    GzDecoder::new(std::fs::File::open(fixture(name)).unwrap()).read_to_end(&mut bytes).unwrap();
    bytes
}

/// Reads every kind of object in the data, and lets the controllers continue with them.
#[track_caller]
fn verify(cluster: &Cluster) {
    let get = |kind: &str, path: &str| {
        let output = format!("jsonpath={path}");
        cluster.kubectl(&["get", "-n", "upgrade", kind, "-o", &output], "")
    };
    assert_eq!(
        get("configmap/plain", "{.metadata.labels.kept} {.data.text} {.binaryData.bytes}"),
        "yes äöü 世界 AAEC/w=="
    );
    assert_eq!(get("secret/secret", "{.data.password}"), "b3BlbnNlc2FtZQ==");
    let managers =
        cluster.kubectl(&["get", "-n", "upgrade", "configmap/plain", "--show-managed-fields", "-o", "yaml"], "");
    assert!(managers.contains("operation: Apply") && managers.contains("f:text"), "{managers}");
    let template = "{.spec.template.spec.tolerations[0].expression}";
    assert_eq!(get("deployment/web", template), "taint.key.startsWith('gpu.example.com/')");
    let term = "{.spec.nodeAffinity.required.nodeSelectorTerms[0].matchCELExpressions[0]}";
    assert_eq!(get("pv/disk", term), "'kubernetes.io/hostname' in node.labels");
    let table = cluster.kubectl(&["get", "-n", "upgrade", "runs"], "");
    assert!(table.contains("first") && table.contains("42"), "{table}");

    cluster.kubectl(&["apply", "--server-side", "-f", "-"], &std::fs::read_to_string(fixture("objects.yaml")).unwrap());
    cluster.kubectl(&["scale", "-n", "upgrade", "deployment/web", "--replicas=3"], "");
    let ready = ["get", "-n", "upgrade", "deployment/web", "-o", "jsonpath={.status.readyReplicas}"];
    until(cluster, &ready, |count| count == "3");
}

#[test]
fn data_directory_of_0_1_0_is_read() {
    if Cluster::is_missing() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("store.redb"), unpacked("store.redb.gz")).unwrap();
    std::fs::copy(fixture("version.json"), data.join("version.json")).unwrap();
    verify(&Cluster::up(directory, &["--nodes", "2"]));
}

fn until_listening(endpoint: &str) {
    let started = Instant::now();
    while TcpStream::connect(endpoint.strip_prefix("http://").unwrap()).is_err() {
        assert!(started.elapsed() < Duration::from_secs(60), "etcd does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn put(endpoint: &str, line: &str) {
    let address = endpoint.strip_prefix("http://").unwrap();
    let mut connection = TcpStream::connect(address).unwrap();
    let head = format!(
        "POST /v3/kv/put HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        line.len()
    );
    connection.write_all(head.as_bytes()).unwrap();
    connection.write_all(line.as_bytes()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[test]
fn etcd_contents_of_0_1_0_are_read() {
    if Cluster::is_missing() || etcd_server::is_missing("etcd_contents_of_0_1_0_are_read") {
        return;
    }
    let etcd = etcd_server::Server::start(1, None);
    let endpoint = etcd.endpoints().remove(0);
    until_listening(&endpoint);
    for line in String::from_utf8(unpacked("etcd.jsonl.gz")).unwrap().lines() {
        put(&endpoint, line);
    }
    let servers = format!("--etcd-servers={endpoint}");
    let cluster = Cluster::up(tempfile::tempdir().unwrap(), &["--nodes", "2", &servers]);
    verify(&cluster);
    drop(cluster);

    // {"key": "/celplane/format", "value": {"format": 2, "version": "9.0.0"}}
    put(&endpoint, r#"{"key":"L2NlbHBsYW5lL2Zvcm1hdA==","value":"eyJmb3JtYXQiOjIsInZlcnNpb24iOiI5LjAuMCJ9"}"#);
    let data = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_celplane"));
    let refused = command.args(["up", "--port=0", &servers, "--data-dir"]).arg(data.path()).output().unwrap();
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{text}");
    assert!(text.contains("the data has format 2, and this version reads formats up to 1"), "{text}");
}
