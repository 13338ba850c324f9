//! Costly expressions just inside the limits, from one namespace, together with ordinary pods of another, which
//! are not delayed.
//!
//! Pods, DaemonSets, node affinity, a RuntimeClass and claims that cannot be pruned, in `celplane up` on nodes
//! with one distinct taint each, beside ordinary reads, writes and health checks, which all succeed, and with bounded
//! memory. As a test it is small and compares no times. As a measurement, with a release build, it is the whole siege
//! (1,000 pods and 200 DaemonSets on 500 nodes), and the times in which plain pods are bound and health checks answer
//! are checked:
//!
//! ```text
//! CELPLANE_BIN=target/release/celplane CELPLANE_SIEGE_SECONDS=60 cargo test -p celplane expression_siege -- --nocapture
//! ```

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use api::apps::v1::DaemonSet;
use api::core::v1::{Node, Pod};
use api::json;
use api::json::Value;
use client::objects::{Deletion, Patch, Selection};
use client::resources::ServedView as _;
use client::{Client, Resource};
use http::Method;
use tokio::task::JoinHandle;

use crate::cluster::program;

const EVENTS: Resource = Resource::new("", "v1", "events", "Event");
const NAMESPACES: Resource = Resource::new("", "v1", "namespaces", "Namespace");
const RUNTIME_CLASSES: Resource = Resource::new("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass");
const DEVICE_CLASSES: Resource = Resource::new("resource.k8s.io", "v1", "deviceclasses", "DeviceClass");
const CLAIMS: Resource = Resource::new("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim");
const ACCOUNTS: Resource = Resource::new("", "v1", "serviceaccounts", "ServiceAccount");

/// Time limit for everything, on the slowest machine.
const LIMIT: Duration = Duration::from_secs(200);
/// Plain pods are bound within this time, in a measurement.
const BOUND_MAX: Duration = Duration::from_secs(2);
/// Health never takes longer, in a measurement.
const HEALTH_MAX: Duration = Duration::from_secs(2);
/// Under attack the process takes at most this many KiB more than before.
const MORE_MEMORY_MAX: u64 = 600 << 10;
/// Health checks and rounds of ordinary requests before the attack, at least.
const QUIET_ROUNDS: usize = 20;

struct Plan {
    nodes: usize,
    pods: usize,
    sets: usize,
    claims: usize,
    plain: usize,
    /// Times are compared.
    measures: Option<Duration>,
}

fn plan() -> Plan {
    match std::env::var("CELPLANE_SIEGE_SECONDS") {
        Ok(seconds) => {
            let measures = Some(Duration::from_secs(seconds.parse().unwrap()));
            Plan { nodes: 500, pods: 1000, sets: 200, claims: 20, plain: 200, measures }
        }
        Err(_) => Plan { nodes: 8, pods: 6, sets: 3, claims: 2, plain: 4, measures: None },
    }
}

/// `celplane up`, killed when dropped.
struct Up {
    process: Child,
    _directory: tempfile::TempDir,
    kubeconfig: PathBuf,
}

impl Up {
    fn start(nodes: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let mut process = Command::new(program())
            .args(["up", "--port", "0", "--ephemeral", "--devices", "grid:8x8"])
            .args(["--nodes", &nodes.to_string(), "--data-dir"])
            .arg(&data)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("The API is served"), "{line}");
        Self { process, _directory: directory, kubeconfig: data.join("admin.kubeconfig") }
    }
}

impl Up {
    fn kibibytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        line.trim().trim_end_matches("kB").trim().parse().unwrap_or_default()
    }
}

/// Ordinary requests and health checks, each of which succeeds.
#[derive(Default)]
struct Traffic {
    is_over: AtomicBool,
    requests: Mutex<Vec<Duration>>,
    health: Mutex<Vec<Duration>>,
}

impl Traffic {
    /// Starts it, with connections of its own.
    async fn start(kubeconfig: &Path) -> (Arc<Self>, Vec<JoinHandle<()>>) {
        let traffic = Arc::<Self>::default();
        let mut tasks = Vec::new();
        for number in 0..2 {
            let client = Client::from_kubeconfig(kubeconfig, None, "ordinary").await.unwrap();
            let traffic = traffic.clone();
            tasks.push(tokio::spawn(async move { traffic.request(&client, number).await }));
        }
        let client = Client::from_kubeconfig(kubeconfig, None, "health").await.unwrap();
        let checked = traffic.clone();
        tasks.push(tokio::spawn(async move { checked.check(&client).await }));
        (traffic, tasks)
    }

    async fn request(&self, client: &Client, number: usize) {
        let maps = "/api/v1/namespaces/ordinary/configmaps";
        let mut round = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            let one = format!("{maps}/m-{number}-{round}");
            let body = json!({"metadata": {"name": (format!("m-{number}-{round}"))}, "data": {"k": "v"}}).to_string();
            for (method, path, body) in [
                (Method::POST, maps, body.as_str()),
                (Method::GET, &one, ""),
                (Method::GET, "/api/v1/namespaces?limit=5", ""),
                (Method::PUT, &one, &body),
                (Method::DELETE, &one, ""),
            ] {
                let started = Instant::now();
                let answer = client.send(method.clone(), path, "application/json", body.to_owned()).await;
                answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
                self.requests.lock().unwrap().push(started.elapsed());
            }
            round += 1;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn check(&self, client: &Client) {
        while !self.is_over.load(Ordering::Relaxed) {
            for path in ["/livez", "/readyz"] {
                let started = Instant::now();
                let health = client.get_as(path, "text/plain").await.unwrap();
                assert_eq!(&health[..], b"ok");
                self.health.lock().unwrap().push(started.elapsed());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The latencies since the last call: of requests, and of health checks.
    fn take(&self) -> [Vec<Duration>; 2] {
        let mut both = [&self.requests, &self.health].map(|times| std::mem::take(&mut *times.lock().unwrap()));
        both.iter_mut().for_each(|times| times.sort());
        both
    }

    /// Waits for a number of samples, and for this long.
    async fn quiet(&self, length: Duration) -> [Vec<Duration>; 2] {
        let started = Instant::now();
        until("ordinary requests", || async {
            let counts = [&self.requests, &self.health].map(|times| times.lock().unwrap().len());
            counts.into_iter().all(|count| count >= QUIET_ROUNDS) && started.elapsed() >= length
        })
        .await;
        self.take()
    }
}

fn p99(sorted: &[Duration]) -> Duration {
    sorted[(sorted.len() * 99).div_ceil(100) - 1]
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An expression with an estimate of about 755,000, which no taint satisfies.
fn costly(input: &str, number: usize) -> String {
    let ten = "[1,2,3,4,5,6,7,8,9,10]";
    let inner = format!("{ten}.all(e,{input}!='x{number}')");
    let nested = ["d", "c", "b", "a"].iter().fold(inner, |inner, variable| format!("{ten}.all({variable},{inner})"));
    format!("{nested}&&false")
}

/// Tolerations just inside the limits: five distinct expressions.
fn tolerations(number: usize) -> Value {
    let texts = (0..5).map(|it| costly("taint.value", number * 5 + it));
    Value::Array(texts.map(|text| json!({"expression": text})).collect())
}

fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({"metadata": {"name": name}, "spec": spec});
    let containers = json!([{"name": "c", "image": "app:1"}]);
    pod.get_mut("spec").and_then(Value::as_object_mut).unwrap().insert("containers", containers);
    pod
}

fn daemon_set(name: &str, number: usize) -> Value {
    let labels = json!({"set": name});
    let containers = json!([{"name": "c", "image": "app:1"}]);
    let spec = json!({"containers": containers, "tolerations": (tolerations(number))});
    let template = json!({"metadata": {"labels": (labels.clone())}, "spec": spec});
    json!({"metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}, "template": template}})
}

async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let started = Instant::now();
    while !holds().await {
        assert!(started.elapsed() < LIMIT, "{what} took too long");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Gives all nodes but two a distinct taint.
async fn taint(client: &Client, plan: &Plan) {
    let nodes = client.objects::<Node>();
    let is_ready = |node: &Node| {
        let ready = node.status.conditions.iter().any(|it| it.condition_type == "Ready" && it.status == "True");
        ready && node.spec.taints.is_empty()
    };
    until("starting", || async {
        nodes
            .list(&Selection::default())
            .await
            .is_ok_and(|list| list.items.iter().filter(|it| is_ready(it)).count() == plan.nodes)
    })
    .await;
    for number in 2..plan.nodes {
        let taints = json!([{"key": "siege", "value": (number.to_string()), "effect": "NoSchedule"}]);
        let patch = json!({"spec": {"taints": taints}});
        nodes.patch("", &format!("node-{number}"), "", Patch::Merge, &patch).await.unwrap();
    }
}

/// Creates everything that is costly, all within the limits.
async fn attack(client: &Client, plan: &Plan) {
    let pods = client.documents(Pod::RESOURCE);
    let class =
        json!({"metadata": {"name": "costly"}, "handler": "h", "scheduling": {"tolerations": (tolerations(90_000))}});
    client.documents(RUNTIME_CLASSES).create("", &class).await.unwrap();
    for number in 0..plan.pods {
        let spec = match number % 4 {
            0 => json!({"runtimeClassName": "costly"}),
            1 => {
                let texts = (0..4).map(|it| costly("node.labels['kubernetes.io/hostname']", number * 5 + it));
                let terms = texts.map(|text| json!({"matchCELExpressions": [text]})).collect();
                let required = json!({"nodeSelectorTerms": (Value::Array(terms))});
                json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}})
            }
            // Never on a node without a taint, so that every taint is evaluated.
            _ => json!({"nodeSelector": {"nowhere": "true"}, "tolerations": (tolerations(number))}),
        };
        pods.create("hostile", &pod(&format!("p{number}"), spec)).await.unwrap();
    }
    for number in 0..plan.sets {
        let set = daemon_set(&format!("d{number}"), 10_000 + number);
        client.documents(DaemonSet::RESOURCE).create("hostile", &set).await.unwrap();
    }
    let class = json!({"metadata": {"name": "mla"}, "spec": {}});
    client.documents(DEVICE_CLASSES).create("", &class).await.unwrap();
    for number in 0..plan.claims {
        let name = format!("c{number}");
        let attribute = |name: &str| format!("d.attributes[\"mla.example.com\"].{name}");
        // Partial sets do not decide whether the complete set satisfies it.
        let expression =
            format!("devices.map(d, {}*8 + {}).sum() % 7 == {}", attribute("row"), attribute("col"), 8 + number);
        let requests = json!([{"name": "r", "exactly": {"deviceClassName": "mla", "count": 4}}]);
        let constraints = json!([{"requests": ["r"], "cel": {"expression": expression}}]);
        let devices = json!({"requests": requests, "constraints": constraints});
        let claim = json!({"metadata": {"name": (name.clone())}, "spec": {"devices": devices}});
        client.documents(CLAIMS).create("hostile", &claim).await.unwrap();
        let spec = json!({"resourceClaims": [{"name": "r", "resourceClaimName": (name.clone())}]});
        pods.create("hostile", &pod(&name, spec)).await.unwrap();
    }
}

/// Creates a plain pod in another namespace; the time until it is bound.
async fn bind_plain(client: &Client, number: usize) -> Duration {
    let name = format!("plain-{number}");
    let started = Instant::now();
    client.documents(Pod::RESOURCE).create("ordinary", &pod(&name, json!({}))).await.unwrap();
    let pods = client.objects::<Pod>();
    until("binding a plain pod", || async {
        pods.get("ordinary", &name).await.is_ok_and(|pod| !pod.spec.node_name.is_empty())
    })
    .await;
    let bound = started.elapsed();
    // Only two nodes have no taint: a long run must not fill them.
    let now = Deletion { grace_period_seconds: Some(0), ..Deletion::default() };
    client.documents(Pod::RESOURCE).delete("ordinary", &name, &now).await.unwrap();
    bound
}

async fn events_say(client: &Client, kind: &str, text: &str) -> bool {
    let hostile = Selection { namespace: "hostile".to_owned(), ..Selection::default() };
    let Ok(events) = client.documents(EVENTS).list(&hostile).await else { return false };
    events.items.iter().any(|event| {
        event.str_at(&["involvedObject", "kind"]) == Some(kind)
            && event.str_at(&["message"]).is_some_and(|message| message.contains(text))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_pods_are_bound_beside_costly_expressions() {
    let plan = plan();
    let mut up = Up::start(plan.nodes);
    let client = Client::from_kubeconfig(&up.kubeconfig, None, "siege").await.unwrap();
    for name in ["hostile", "ordinary"] {
        client.documents(NAMESPACES).create("", &json!({"metadata": {"name": name}})).await.unwrap();
        until("an account", || async { client.documents(ACCOUNTS).get(name, "default").await.is_ok() }).await;
    }
    taint(&client, &plan).await;
    let mut many = tolerations(80_000);
    many.as_array_mut().unwrap().push(json!({"expression": (costly("taint.value", 1))}));
    let refused = client.documents(Pod::RESOURCE).create("hostile", &pod("above", json!({"tolerations": many}))).await;
    assert!(refused.unwrap_err().to_string().contains("add up to 4533306"), "six are above the limit");
    let (traffic, tasks) = Traffic::start(&up.kubeconfig).await;
    let [_, health_quiet] = traffic.quiet(plan.measures.unwrap_or_default() / 4).await;
    let (before, mut highest) = (up.kibibytes(), 0);
    attack(&client, &plan).await;
    let mut times = Vec::new();
    let started = Instant::now();
    while times.len() < plan.plain || plan.measures.is_some_and(|length| started.elapsed() < length) {
        times.push(bind_plain(&client, times.len()).await);
        highest = up.kibibytes().max(highest);
    }
    let budget = "exceeded the budget of one";
    until("the event of a pod", || events_say(&client, "Pod", budget)).await;
    until("the event of a daemon set", || events_say(&client, "DaemonSet", budget)).await;
    assert!(up.process.try_wait().unwrap().is_none(), "the process is still there");
    traffic.is_over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    highest = up.kibibytes().max(highest);
    let [requests, health] = traffic.take();
    times.sort();
    let rows = [("plain pods", &times), ("requests", &requests), ("health, quiet", &health_quiet), ("health", &health)];
    for (name, times) in rows {
        let (p50, p99, max) = (times[times.len() / 2], p99(times), times[times.len() - 1]);
        println!("{} {name}: p50 {p50:?}, p99 {p99:?}, max {max:?}", times.len());
    }
    println!("memory before {} MiB, at most {} MiB", before >> 10, highest >> 10);
    assert!(highest.saturating_sub(before) < MORE_MEMORY_MAX, "{before} {highest}");
    if plan.measures.is_some() {
        assert!(p99(&times) <= BOUND_MAX, "{:?}", p99(&times));
        assert!(p99(&health) <= p99(&health_quiet) * 5, "{:?} {:?}", p99(&health_quiet), p99(&health));
        assert!(health[health.len() - 1] < HEALTH_MAX, "{:?}", health[health.len() - 1]);
    }
}
