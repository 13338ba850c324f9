//! Behavior of a scheduler that loses its lease or its server, or whose search does not end, and access to its
//! metrics.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use apiserver::Body;
use client::election::{self, Election};
use client::objects::Patch;
use http::{Method, Request, Response};

use super::*;
use crate::cluster::Cluster;
use crate::first_light::until;

pub(super) const CLASSES: Resource = Resource::new("resource.k8s.io", "v1", "deviceclasses", "DeviceClass");
pub(super) const SLICES: Resource = Resource::new("resource.k8s.io", "v1", "resourceslices", "ResourceSlice");
pub(super) const DEVICE_CLAIMS: Resource = Resource::new("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim");

pub(super) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Decides whether work happens before a request is passed on.
type BeforeRequest = dyn Fn(&Method, &str) -> Option<Work> + Send + Sync;

/// The scheduler's connection to the server: it records bindings, and can be cut for all writes.
#[derive(Clone)]
pub(super) struct Wire {
    connection: Connection,
    /// Work to do before a request is sent, by its method and path.
    before: Arc<BeforeRequest>,
    is_cut: Arc<AtomicBool>,
    /// By pod: how many bindings were refused, and how many were made.
    bindings: Arc<Mutex<BTreeMap<String, (usize, usize)>>>,
}

impl Wire {
    pub(super) fn to(server: &Arc<Server>) -> Self {
        let user = User::authenticated(::scheduler::IDENTITY, &["system:masters"]);
        Wire {
            connection: Connection::new(server.clone(), Some(user)),
            before: Arc::new(|_, _| None),
            is_cut: Arc::default(),
            bindings: Arc::default(),
        }
    }

    /// Does some work before requests are sent.
    pub(super) fn before(self, work: impl Fn(&Method, &str) -> Option<Work> + Send + Sync + 'static) -> Self {
        Wire { before: Arc::new(work), ..self }
    }

    fn client(&self) -> Client {
        Client::in_process(self.clone(), "kube-scheduler")
    }

    /// Number of bindings.
    fn made(&self) -> usize {
        self.bindings.lock().unwrap().values().map(|(_, made)| made).sum()
    }

    /// Waits until this many are recorded: the server has a binding before its client receives the response.
    async fn has_made(&self, count: usize) {
        let started = Instant::now();
        while self.made() < count {
            assert!(started.elapsed() < LIMIT, "{:?}", self.bindings.lock().unwrap());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

type ClientRequest = Request<http_body_util::Full<bytes::Bytes>>;

impl tower_service::Service<ClientRequest> for Wire {
    type Response = Response<Body>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, std::io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: ClientRequest) -> Self::Future {
        let bound = request.uri().path().strip_suffix("/binding").and_then(|path| path.rsplit('/').next());
        let bound = bound.map(ToOwned::to_owned);
        let is_refused = self.is_cut.load(Ordering::SeqCst) && request.method() != Method::GET;
        let before = (self.before)(request.method(), request.uri().path());
        let (mut connection, bindings) = (self.connection.clone(), self.bindings.clone());
        Box::pin(async move {
            if let Some(before) = before {
                before.await;
            }
            let answer = match is_refused {
                true => Err(std::io::ErrorKind::ConnectionRefused.into()),
                false => Ok(tower_service::Service::call(&mut connection, request).await.unwrap()),
            };
            if let Some(pod) = bound {
                let mut bindings = bindings.lock().unwrap();
                let (refused, made) = bindings.entry(pod).or_default();
                match &answer {
                    Ok(answer) if answer.status().is_success() => *made += 1,
                    _ => *refused += 1,
                }
            }
            answer
        })
    }
}

pub(super) fn options(client: Client, leadership: Leadership, shutdown: Shutdown) -> ::scheduler::Options {
    ::scheduler::Options {
        client,
        features: all(),
        registry: Arc::new(Registry::new()),
        health: Health::new(),
        shutdown,
        leadership,
        seed: 1,
        device_cost_limit: dra::Budget::COST_LIMIT,
        configuration: Default::default(),
        profiler: Default::default(),
        has_placement_annotations: false,
    }
}

/// A server without a scheduler.
async fn without_scheduler() -> Plane {
    let plane = Plane::in_memory(all()).await;
    plane.stop.stop();
    plane.node("node", "{}", "[]").await;
    plane
}

/// Schedules as long as it holds the lease.
fn contend(wire: &Wire, identity: &str) -> tokio::task::JoinHandle<election::Outcome<()>> {
    let mut lease = election::Options::new("kube-system", "kube-scheduler", identity);
    lease.retry_period = Duration::from_millis(50);
    let (election, client) = (Election::new(&wire.client(), lease), wire.client());
    tokio::spawn(async move {
        let work = move |leadership, _| async move {
            let (_stop, shutdown) = Shutdown::channel();
            ::scheduler::run(options(client, leadership, shutdown)).await.unwrap();
        };
        election.lead(std::future::pending(), work).await
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn scheduler_without_lease_stops_and_another_continues() {
    let plane = without_scheduler().await;
    let (first, second) = (Wire::to(&plane.server), Wire::to(&plane.server));
    let leader = contend(&first, "first");
    assert_eq!(plane.place("p0", "{}").await.as_deref(), Ok("node"));
    first.has_made(1).await;
    let leases = plane.admin.documents(Resource::new("coordination.k8s.io", "v1", "leases", "Lease"));
    let theft = yaml("spec: {holderIdentity: somebody, leaseDurationSeconds: 1}");
    leases.patch("kube-system", "kube-scheduler", "", Patch::Merge, &theft).await.unwrap();
    let outcome = tokio::time::timeout(LIMIT, leader).await.expect("it notices").unwrap();
    assert_eq!(outcome, election::Outcome::Lost);
    let names: Vec<String> = (1..20).map(|number| format!("p{number}")).collect();
    for name in &names {
        plane.try_pod(name, "{}").await.unwrap();
    }
    let next = contend(&second, "second");
    for name in &names {
        assert_eq!(plane.outcome(name).await.as_deref(), Ok("node"));
    }
    second.has_made(names.len()).await;
    assert_eq!(first.made(), 1, "nothing after its lease was gone");
    let bindings = second.bindings.lock().unwrap().clone();
    assert_eq!(bindings.len(), names.len());
    assert!(bindings.values().all(|(refused, made)| (*refused, *made) == (0, 1)), "each once: {bindings:?}");
    next.abort();
    plane.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn bindings_are_tried_again_until_the_server_is_back() {
    let plane = without_scheduler().await;
    let wire = Wire::to(&plane.server);
    let (stop, shutdown) = Shutdown::channel();
    let running = tokio::spawn(::scheduler::run(options(wire.client(), Leadership::uncontested(), shutdown)));
    assert_eq!(plane.place("before", "{}").await.as_deref(), Ok("node"));
    wire.has_made(1).await;
    wire.is_cut.store(true, Ordering::SeqCst);
    let names: Vec<String> = (0..5).map(|number| format!("p{number}")).collect();
    for name in &names {
        plane.try_pod(name, "{}").await.unwrap();
    }
    // Each is decided, fails, and is decided again.
    let started = Instant::now();
    let refused = |name: &String| wire.bindings.lock().unwrap().get(name).map_or(0, |(refused, _)| *refused);
    while !names.iter().all(|name| refused(name) >= 2) {
        assert!(started.elapsed() < LIMIT, "{:?}", wire.bindings.lock().unwrap());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(wire.made(), 1);
    wire.is_cut.store(false, Ordering::SeqCst);
    // Informers have to start over as well.
    plane.server.end_watches();
    for name in &names {
        let started = Instant::now();
        while plane.outcome(name).await.is_err() {
            assert!(started.elapsed() < LIMIT, "{name} was not bound");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    wire.has_made(names.len() + 1).await;
    let bindings = wire.bindings.lock().unwrap().clone();
    assert!(bindings.values().all(|(_, made)| *made == 1), "each once: {bindings:?}");
    stop.stop();
    running.await.unwrap().unwrap();
    plane.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_search_blocks_no_other_pod() {
    // No limit on time.
    let configuration = "
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  pluginConfig: [{name: DynamicResources, args: {filterTimeout: 0s}}]
";
    let store = Arc::new(EmbeddedStore::in_memory(store::Options::default()).unwrap());
    let plane = Plane::start_limited(store, all(), all(), configuration, u64::MAX).await;
    plane.node("node", "{}", "[]").await;
    let devices: Vec<String> =
        (0..100).map(|id| format!("{{name: d{id}, attributes: {{id: {{int: {id}}}}}}}")).collect();
    let slice = format!(
        "metadata: {{name: s}}\nspec: {{driver: d.example.com, nodeName: node, pool: {{name: node, generation: 1, \
         resourceSliceCount: 1}}, devices: [{}]}}",
        devices.join(", ")
    );
    plane.admin.documents(SLICES).create("", &yaml(&slice)).await.unwrap();
    plane.admin.documents(CLASSES).create("", &yaml("metadata: {name: d}\nspec: {}")).await.unwrap();
    let claim = "metadata: {name: endless}\nspec: {devices: {requests: [{name: r, exactly: {deviceClassName: d, count: 16}}], \
                 constraints: [{cel: {expression: \"devices.map(d, d.attributes['d.example.com'].id).sum() % 7 == 9\"}}]}}";
    plane.admin.documents(DEVICE_CLAIMS).create("default", &yaml(claim)).await.unwrap();
    plane.try_pod("endless", "{resourceClaims: [{name: x, resourceClaimName: endless}]}").await.unwrap();
    let started = Instant::now();
    while !plane.registry.text().contains("scheduler_device_searches_deferred_total 1") {
        assert!(started.elapsed() < LIMIT, "the search is not carried out aside");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for number in 0..100 {
        plane.try_pod(&format!("p{number}"), "{}").await.unwrap();
    }
    for number in 0..100 {
        assert_eq!(plane.outcome(&format!("p{number}")).await.as_deref(), Ok("node"));
    }
    let pod = plane.admin.documents(PODS).get("default", "endless").await.unwrap();
    assert!(pod.at(&["status", "conditions"]).is_none(), "nothing is decided about it: {pod}");
    // The search ends with the scheduler: otherwise this would wait for it.
    plane.end().await;
}

/// A scheduler in its own process, stopped when dropped.
struct Separate(Child);

impl Drop for Separate {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts one, and returns its port. If another process has taken the port meanwhile, another one is tried.
fn separate(cluster: &Cluster) -> (Separate, u16) {
    for _ in 0..10 {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(env!("CARGO_BIN_EXE_celplane"));
        command.args(["scheduler", "--secure-port", &free.to_string(), "--kubeconfig"]).arg(cluster.kubeconfig());
        let mut process = Separate(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let started = Instant::now();
        while process.0.try_wait().unwrap().is_none() {
            if read(cluster, free, "/livez", "") == Ok("ok".to_owned()) {
                return (process, free);
            }
            assert!(started.elapsed() < LIMIT, "it does not serve");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    panic!("no port is free");
}

/// Reads from the scheduler's port with a token through `kubectl`.
fn read(cluster: &Cluster, port: u16, path: &str, token: &str) -> Result<String, String> {
    let nothing = cluster.directory.path().join("no.kubeconfig");
    let server = format!("https://127.0.0.1:{port}");
    let mut command = cluster.command(&["get", "--raw", path, "--server", &server, "--insecure-skip-tls-verify"]);
    command.env("KUBECONFIG", nothing).stdin(Stdio::null());
    match token {
        // Without credentials `kubectl` would prompt for a name: this one does not exist.
        "" => command.args(["--username", "nobody", "--password", "none"]),
        token => command.args(["--token", token]),
    };
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn secure_port_authenticates_readers() {
    let Some(cluster) = Cluster::start() else { return };
    let (_scheduler, port) = separate(&cluster);
    let refusal = read(&cluster, port, "/metrics", "").unwrap_err();
    assert!(refusal.contains("must be logged in"), "{refusal}");
    let refusal = read(&cluster, port, "/metrics", "nobody's").unwrap_err();
    assert!(refusal.contains("must be logged in"), "{refusal}");
    cluster.kubectl(&["create", "serviceaccount", "reader"], "");
    let token = cluster.kubectl(&["create", "token", "reader"], "").trim().to_owned();
    let refusal = read(&cluster, port, "/metrics", &token).unwrap_err();
    assert!(refusal.contains("Forbidden") || refusal.contains("forbidden"), "{refusal}");
    cluster.kubectl(&["create", "clusterrole", "metrics", "--verb=get", "--non-resource-url=/metrics"], "");
    let subject =
        ["create", "clusterrolebinding", "metrics", "--clusterrole=metrics", "--serviceaccount=default:reader"];
    cluster.kubectl(&subject, "");
    let started = Instant::now();
    // The role counts at once or a little later, and its metrics are there once it leads.
    let shown = "scheduler_pending_pods{queue=\"active\"} 0";
    loop {
        match read(&cluster, port, "/metrics", &token) {
            Ok(metrics) if metrics.contains(shown) => break,
            other => assert!(started.elapsed() < LIMIT, "{other:?}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let refusal = read(&cluster, port, "/configz", &token).unwrap_err();
    assert!(refusal.contains("Forbidden") || refusal.contains("forbidden"), "{refusal}");
    until(&cluster, &["get", "lease", "kube-scheduler", "-n", "kube-system"], |text| text.contains("kube-scheduler"));
}
