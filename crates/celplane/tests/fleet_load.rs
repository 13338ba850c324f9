//! A fleet under load, in its own process: pods are created and deleted, and no node loses its heartbeat.
//!
//! As a test it is small. As a measurement, beside a release build, it takes the numbers of nodes, of pods and of pods
//! that come and go in a second, and for how many seconds:
//!
//! ```text
//! CELPLANE_BIN=target/release/celplane CELPLANE_FLEET=5000,50000,100,600 cargo test -p celplane fleet_load -- --nocapture
//! ```

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use api::core::v1::{Node, Pod};
use api::json;
use client::informer::Change;
use client::objects::{Deletion, Selection};
use client::resources::ServedView as _;
use client::{Client, Informer, Resource};

use crate::cluster::program;

const SERVICE_ACCOUNTS: Resource = Resource::new("", "v1", "serviceaccounts", "ServiceAccount");
/// Number of concurrent requests.
const AT_A_TIME: usize = 32;
/// Time limit for everything.
const LIMIT: Duration = Duration::from_secs(600);

struct Plan {
    nodes: usize,
    pods: usize,
    per_second: usize,
    seconds: u64,
}

fn plan() -> Plan {
    let given = std::env::var("CELPLANE_FLEET").unwrap_or_else(|_| "60,200,20,3".to_owned());
    let numbers: Vec<usize> = given.split(',').map(|it| it.trim().parse().unwrap()).collect();
    let [nodes, pods, per_second, seconds] = numbers[..] else { panic!("CELPLANE_FLEET has four numbers") };
    Plan { nodes, pods, per_second, seconds: seconds as u64 }
}

/// Resources that a process has used up to a time.
struct CpuReading {
    at: Instant,
    processor: f64,
    commits: f64,
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
            .args(["up", "--port", "0", "--nodes", &nodes.to_string(), "--data-dir"])
            .arg(&data)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("The API is served"), "{line}");
        Self { process, _directory: directory, kubeconfig: data.join("admin.kubeconfig") }
    }

    /// Processor time so far, in seconds.
    fn processor_seconds(&self) -> f64 {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap();
        let fields: Vec<&str> = text.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: f64 = fields[11..13].iter().map(|it| it.parse::<f64>().unwrap()).sum();
        ticks / 100.0
    }

    /// Resident memory in megabytes: now, and at the most so far.
    fn megabytes(&self) -> (f64, f64) {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let of = |field: &str| {
            let line = text.lines().find(|line| line.starts_with(field)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
        };
        (of("VmRSS"), of("VmHWM"))
    }

    /// Resources used so far.
    async fn now(&self, client: &Client) -> CpuReading {
        let metrics = client.get_as("/metrics", "text/plain").await.unwrap();
        let metrics = String::from_utf8(metrics.to_vec()).unwrap();
        let commits = metrics.lines().find_map(|line| line.strip_prefix("apiserver_storage_durable_commits "));
        CpuReading {
            at: Instant::now(),
            processor: self.processor_seconds(),
            commits: commits.expect("the server counts its commits").trim().parse().unwrap(),
        }
    }

    async fn report(&self, what: &str, since: &CpuReading, client: &Client) {
        let now = self.now(client).await;
        let (wall, used) = ((now.at - since.at).as_secs_f64(), now.processor - since.processor);
        let (share, fsyncs) = (used / wall * 100.0, (now.commits - since.commits) / wall);
        let (memory, peak) = self.megabytes();
        println!(
            "{what}: {wall:.2} s, {used:.2} s of processor time ({share:.1} %), {fsyncs:.1} fsyncs/s, \
             {memory:.0} MB ({peak:.0} MB at the most)"
        );
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn says_ready(node: &Node, status: &str) -> bool {
    node.status.conditions.iter().any(|it| it.condition_type == "Ready" && it.status == status)
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < LIMIT, "{what} took too long");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Makes pods with these numbers, many at a time.
async fn create(client: &Client, numbers: std::ops::Range<usize>) {
    let next = Arc::new(AtomicUsize::new(numbers.start));
    let workers = (0..AT_A_TIME).map(|_| {
        let (pods, next, end) = (client.documents(Pod::RESOURCE), next.clone(), numbers.end);
        tokio::spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::SeqCst);
                if number >= end {
                    return;
                }
                let requests = json!({"cpu": "1m", "memory": "1Mi"});
                let pod = json!({"metadata": {"name": (format!("p{number}"))}, "spec": {
                    "containers": [{"name": "c", "image": "app:1", "resources": {"requests": requests}}],
                }});
                pods.create("default", &pod).await.unwrap();
            }
        })
    });
    futures::future::join_all(workers).await.into_iter().for_each(Result::unwrap);
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_come_and_go_and_no_node_loses_its_heartbeat() {
    let plan = plan();
    let begin = CpuReading { at: Instant::now(), processor: 0.0, commits: 0.0 };
    let up = Up::start(plan.nodes);
    let client = Client::from_kubeconfig(&up.kubeconfig, None, "load").await.unwrap();
    let nodes: Informer<Node> = Informer::start(&client, Selection::default());
    let lost: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = lost.clone();
    nodes.on_change(move |key, change| {
        if !matches!(change, Change::Deleted(_)) && says_ready(change.newest(), "Unknown") {
            told.lock().unwrap().push(key.name.to_string());
        }
    });
    until("starting", || nodes.store().list().iter().filter(|node| says_ready(node, "True")).count() == plan.nodes)
        .await;
    let is_free = |node: &Arc<Node>| node.spec.taints.is_empty();
    until("taints", || nodes.store().list().iter().filter(|node| is_free(node)).count() == plan.nodes).await;
    up.report(&format!("{} nodes are ready", plan.nodes), &begin, &client).await;
    let accounts = client.documents(SERVICE_ACCOUNTS);
    while accounts.get("default", "default").await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    let running: Informer<Pod> =
        Informer::start(&client, Selection { fields: "status.phase=Running".to_owned(), ..Selection::default() });
    let begin = up.now(&client).await;
    create(&client, 0..plan.pods).await;
    until("running", || running.store().len() == plan.pods).await;
    up.report(&format!("{} pods run", plan.pods), &begin, &client).await;

    let begin = up.now(&client).await;
    let pods = client.documents(Pod::RESOURCE);
    let mut newest = plan.pods;
    let end = begin.at + Duration::from_secs(plan.seconds);
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    while Instant::now() < end {
        ticks.tick().await;
        let oldest = newest - plan.pods;
        let how = Deletion::default();
        let deletions = (oldest..oldest + plan.per_second).map(|number| {
            let (pods, how) = (pods.clone(), how.clone());
            async move { pods.delete("default", &format!("p{number}"), &how).await.map(drop).unwrap() }
        });
        futures::future::join(futures::future::join_all(deletions), create(&client, newest..newest + plan.per_second))
            .await;
        newest += plan.per_second;
    }
    let rate = (newest - plan.pods) as f64 / begin.at.elapsed().as_secs_f64();
    println!("{rate:.1} pods a second were made and deleted");
    // As a test it may have to share the machine.
    let share = if std::env::var_os("CELPLANE_FLEET").is_some() { 0.95 } else { 0.2 };
    assert!(rate >= share * plan.per_second as f64, "only {rate:.1} pods a second came and went");
    until("settling", || {
        running.store().len() == plan.pods && running.store().get("default", &format!("p{}", newest - 1)).is_some()
    })
    .await;
    up.report(&format!("{} pods a second come and go", plan.per_second), &begin, &client).await;
    let lost = lost.lock().unwrap();
    println!("{} nodes lost their heartbeat", lost.len());
    assert_eq!(nodes.store().list().iter().filter(|node| says_ready(node, "True")).count(), plan.nodes);
    assert!(
        lost.is_empty(),
        "{} nodes lost their heartbeat: {:?}",
        lost.len(),
        lost.iter().take(3).collect::<Vec<_>>()
    );
}
