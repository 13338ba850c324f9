//! `celplane-testing` with the program as a child process.

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use testing::{Cluster, Error};

/// Set in the process that is killed: it holds a cluster.
const HOLDER: &str = "CELPLANE_TEST_HOLDS_CLUSTER";
const LIMIT: Duration = Duration::from_secs(60);

fn address(url: &str) -> String {
    url.trim_start_matches("https://").to_owned()
}

#[tokio::test]
async fn child_process_serves_nodes_and_is_stopped_on_drop() {
    let program = env!("CARGO_BIN_EXE_celplane");
    let cluster = Cluster::builder().program(program).nodes(2).gates("TaintTolerationCEL=false").start().await.unwrap();
    let nodes = Api::<Node>::all(cluster.client().await.unwrap()).list(&Default::default()).await.unwrap();
    let names: Vec<String> = nodes.items.into_iter().filter_map(|node| node.metadata.name).collect();
    assert_eq!(names, ["node-0", "node-1"]);
    assert!(matches!(cluster.advance(Duration::from_secs(1)).await, Err(Error::ChildProcess)));
    assert!(matches!(cluster.api(), Err(Error::ChildProcess)));
    cluster.node("node-1").stop().await.unwrap();
    let (address, directory) = (address(cluster.url()), cluster.directory().to_owned());
    assert!(TcpStream::connect(&address).is_ok() && directory.exists());
    drop(cluster);
    assert!(TcpStream::connect(&address).is_err() && !directory.exists());
}

/// The test runs itself: the inner process starts a cluster, prints its address, and waits to be killed.
#[tokio::test]
async fn child_process_ends_with_a_killed_test() {
    if std::env::var_os(HOLDER).is_some() {
        let cluster = Cluster::builder().program(env!("CARGO_BIN_EXE_celplane")).start().await.unwrap();
        println!("\nserved at {}", address(cluster.url()));
        // Nothing is written to its standard input, which closes if the outer test ends first.
        let _ = std::io::stdin().read_line(&mut String::new());
        return;
    }
    // The files of a killed test stay: they are removed with this directory.
    let directory = tempfile::tempdir().unwrap();
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_clusters::child_process_ends_with_a_killed_test", "--nocapture"])
        .env(HOLDER, "1")
        .env("TMPDIR", directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines().map(Result::unwrap);
    let address = lines.find_map(|line| line.strip_prefix("served at ").map(ToOwned::to_owned)).unwrap();
    assert!(TcpStream::connect(&address).is_ok());
    holder.kill().unwrap();
    holder.wait().unwrap();
    let started = Instant::now();
    while TcpStream::connect(&address).is_ok() {
        assert!(started.elapsed() < LIMIT, "the control plane outlives the test");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
