//! The program as envtest starts it: `kube-apiserver` and `etcd` from a directory of assets.

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use client::Client;
use rustix::process::{Pid, Signal, kill_process};

use crate::cluster::free_port;

/// A child that is killed with the test.
struct Process(Child);

impl Process {
    fn start(program: &Path, arguments: &[String]) -> Self {
        let child = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Self(child.unwrap())
    }

    /// Stops it, as envtest does.
    fn terminate(mut self) -> ExitStatus {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        self.0.wait().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn assets(directory: &Path) -> std::path::PathBuf {
    let assets = directory.join("assets");
    let made = Command::new(env!("CARGO_BIN_EXE_celplane")).arg("envtest-assets").arg(&assets).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let text = String::from_utf8(made.stdout).unwrap();
    assert_eq!(text.trim(), format!("export KUBEBUILDER_ASSETS={}", assets.display()));
    assets
}

/// Polls a plain HTTP path until it answers 200.
fn wait_for_health(port: u16) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let answer = std::net::TcpStream::connect(("127.0.0.1", port)).and_then(|mut stream| {
            stream.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
            std::io::read_to_string(stream)
        });
        if answer.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")) {
            return;
        }
        assert!(Instant::now() < deadline, "etcd does not answer");
        std::thread::sleep(Duration::from_millis(10));
    }
}

async fn connect(directory: &Path) -> Client {
    let kubeconfig = directory.join("celplane/admin.kubeconfig");
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Ok(client) = Client::from_kubeconfig(&kubeconfig, None, "test").await
            && client.get_as("/healthz", "*/*").await.is_ok()
        {
            return client;
        }
        assert!(Instant::now() < deadline, "kube-apiserver does not answer");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn server_flags(directory: &Path, etcd: u16) -> Vec<String> {
    [
        "--allow-privileged=true".to_owned(),
        "--authorization-mode=RBAC".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--cert-dir={}", directory.display()),
        "--disable-admission-plugins=ServiceAccount".to_owned(),
        format!("--etcd-servers=http://127.0.0.1:{etcd}"),
        format!("--secure-port={}", free_port()),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
    ]
    .to_vec()
}

const NAMESPACES: client::Resource = client::Resource::new("", "v1", "namespaces", "Namespace");

async fn create(client: &Client, name: &str) {
    let namespace = api::json!({"metadata": {"name": name}});
    client.documents(NAMESPACES).create("", &namespace).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn api_servers_share_the_objects_of_one_etcd() {
    let directory = tempfile::tempdir().unwrap();
    let assets = assets(directory.path());
    let port = free_port();
    let flags = [
        format!("--listen-client-urls=http://127.0.0.1:{port}"),
        format!("--advertise-client-urls=http://127.0.0.1:{port}"),
        "--listen-peer-urls=http://localhost:0".to_owned(),
        format!("--data-dir={}", directory.path().display()),
        "--unsafe-no-fsync=true".to_owned(),
    ];
    let etcd = Process::start(&assets.join("etcd"), &flags);
    wait_for_health(port);
    let (first, second) = (directory.path().join("first"), directory.path().join("second"));
    let server = Process::start(&assets.join("kube-apiserver"), &server_flags(&first, port));
    let client = connect(&first).await;
    assert!(first.join("apiserver.crt").exists(), "the certificate is where kube-apiserver writes it");
    create(&client, "before").await;
    let other = Process::start(&assets.join("kube-apiserver"), &server_flags(&second, port));
    let beside = connect(&second).await;
    create(&beside, "beside").await;
    assert!(client.documents(NAMESPACES).get("", "beside").await.is_ok(), "two servers share objects");
    assert_eq!(server.terminate().code(), Some(0));
    let restarted = Process::start(&assets.join("kube-apiserver"), &server_flags(&first, port));
    let client = connect(&first).await;
    for name in ["before", "beside"] {
        assert!(client.documents(NAMESPACES).get("", name).await.is_ok(), "{name} is kept by etcd");
    }
    for process in [restarted, other, etcd] {
        assert_eq!(process.terminate().code(), Some(0));
    }
}

/// Starts `kube-apiserver` with controllers; returns it with a client.
async fn with_controllers(directory: &Path, controllers: &str) -> (Process, Client) {
    let assets = assets(directory);
    let flags = server_flags(directory, 0).into_iter().filter(|flag| !flag.starts_with("--etcd-servers"));
    let mut command = Command::new(assets.join("kube-apiserver"));
    command.args(flags).env("CELPLANE_ENVTEST_CONTROLLERS", controllers);
    let server = Process(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    (server, connect(directory).await)
}

/// Waits until an object exists.
async fn wait_for_object(client: &Client, resource: client::Resource, namespace: &str, name: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Err(error) = client.documents(resource.clone()).get(namespace, name).await {
        assert!(error.is_not_found() && Instant::now() < deadline, "{name}: {error}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

const SERVICE_ACCOUNTS: client::Resource = client::Resource::new("", "v1", "serviceaccounts", "ServiceAccount");
const CONFIG_MAPS: client::Resource = client::Resource::new("", "v1", "configmaps", "ConfigMap");

#[tokio::test(flavor = "multi_thread")]
async fn all_controllers_run_on_demand() {
    let directory = tempfile::tempdir().unwrap();
    let (server, client) = with_controllers(directory.path(), "all").await;
    create(&client, "tested").await;
    wait_for_object(&client, SERVICE_ACCOUNTS, "tested", "default").await;
    wait_for_object(&client, CONFIG_MAPS, "tested", "kube-root-ca.crt").await;
    assert_eq!(server.terminate().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn listed_controllers_run_alone() {
    let directory = tempfile::tempdir().unwrap();
    let (server, client) = with_controllers(directory.path(), "root-ca-certificate-publisher-controller").await;
    create(&client, "tested").await;
    wait_for_object(&client, CONFIG_MAPS, "tested", "kube-root-ca.crt").await;
    // The controller of the default service account would have created it in `default` before `tested` existed.
    assert!(client.documents(SERVICE_ACCOUNTS).get("default", "default").await.unwrap_err().is_not_found());
    assert_eq!(server.terminate().code(), Some(0));
}

#[test]
fn help_lists_flags_as_envtest_expects() {
    let directory = tempfile::tempdir().unwrap();
    let assets = assets(directory.path());
    let help = Command::new(assets.join("kube-apiserver")).arg("--help").output().unwrap();
    let text = String::from_utf8(help.stdout).unwrap();
    assert!(help.status.success());
    let has = |flag: &str| text.lines().any(|line| line.trim() == flag);
    assert!(has("--etcd-servers") && has("--secure-port") && !text.contains("--insecure-port"), "{text}");
    let (_, ignored) = text.split_once("Flags without effect: ").unwrap();
    assert!(has("--requestheader-client-ca-file") && !ignored.contains("--requestheader-client-ca-file"), "{text}");
    let refused = Command::new(assets.join("kube-apiserver")).args(["--cert-dir=/x", "--oidc-issuer-url=y"]).output();
    let refused = refused.unwrap();
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("unknown flag: --oidc-issuer-url"), "{refused:?}");
}

#[test]
fn assets_never_replace_files() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("etcd"), "a real one").unwrap();
    let refused = Command::new(env!("CARGO_BIN_EXE_celplane")).arg("envtest-assets").arg(directory.path()).output();
    assert!(!refused.unwrap().status.success());
    assert_eq!(std::fs::read_to_string(directory.path().join("etcd")).unwrap(), "a real one");
}

#[test]
fn control_plane_stops_when_stdin_closes() {
    let directory = tempfile::tempdir().unwrap();
    let ready = directory.path().join("ready.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_celplane"));
    command.args(["up", "--ephemeral", "--port=0", "--nodes=0", "--stop-with-stdin", "--ready-file"]).arg(&ready);
    command.arg("--data-dir").arg(directory.path().join("data")).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut process = Process(command.spawn().unwrap());
    let deadline = Instant::now() + Duration::from_secs(60);
    while !ready.exists() {
        assert!(Instant::now() < deadline && process.0.try_wait().unwrap().is_none(), "not ready");
        std::thread::sleep(Duration::from_millis(10));
    }
    let document = api::json::parse(&std::fs::read(&ready).unwrap()).unwrap();
    assert!(document.str_at(&["server"]).unwrap().starts_with("https://127.0.0.1:"));
    assert!(Path::new(document.str_at(&["kubeconfig"]).unwrap()).exists());
    drop(process.0.stdin.take());
    assert_eq!(process.0.wait().unwrap().code(), Some(0));
}
