//! Performance of a whole control plane's controllers with many Deployments: created at once, then rolled out.
//!
//! `celplane up --ephemeral --nodes 200 --data-dir D &` and then
//! `cargo run --release -p celplane-bench --bin workloads -- --kubeconfig D/admin.kubeconfig --process $!`
//!
//! After each phase every queue of the controllers must become empty, or it has failed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use celplane_bench::load::connection::{Connection, Endpoint};
use celplane_bench::load::target::{Target, processor_seconds, raise_file_limit};
use celplane_bench::memory::resident_bytes_of;
use clap::Parser;

/// Creates many Deployments at once, rolls them out, and reports the cost
#[derive(Parser)]
struct Arguments {
    /// The running control plane, with certificates in the file itself
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// Process whose time and memory are counted
    #[arg(long, value_name = "ID")]
    process: u32,
    /// Number of Deployments
    #[arg(long, default_value_t = 2000)]
    deployments: usize,
    /// Number of replicas of each
    #[arg(long, default_value_t = 10)]
    replicas: usize,
    /// A phase that takes longer has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    limit: u64,
}

/// Over how many connections Deployments are written.
const CONNECTIONS: usize = 8;
/// Interval at which progress is checked.
const INTERVAL: Duration = Duration::from_secs(2);
/// Within this time after the last Deployment is done, all queues are empty.
const QUEUES_EMPTY: Duration = Duration::from_secs(60);
/// All that writes, and what is counted of it.
const WRITES: [&str; 5] = ["POST", "PUT", "PATCH", "APPLY", "DELETE"];

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(arguments))
}

fn request(verb: &str, endpoint: &Endpoint, path: &str, content_type: &str, body: &str) -> Vec<u8> {
    let (host, length) = (&endpoint.address, body.len());
    format!(
        "{verb} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

async fn get(connection: &mut Connection, endpoint: &Endpoint, path: &str) -> Result<String> {
    let (status, body) = connection.fetch(&request("GET", endpoint, path, "application/json", "")).await?;
    anyhow::ensure!(status == 200, "{path}: {status}");
    Ok(String::from_utf8(body)?)
}

/// The sum of a metric over lines that `counts` takes.
fn sum(metrics: &str, name: &str, counts: impl Fn(&str) -> bool) -> f64 {
    let lines = metrics.lines().filter(|line| line.starts_with(name) && counts(line));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// Writes so far, by resource, and number of conflicts.
#[derive(Default)]
struct Writes {
    by_resource: BTreeMap<String, f64>,
    conflicts: f64,
}

/// The value of a label in a line of metrics.
fn label<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    let labels = line.split_once('{')?.1.split_once('}')?.0;
    labels.split(',').find_map(|label| label.strip_prefix(name)?.strip_prefix("=\"")?.strip_suffix('"'))
}

impl Writes {
    async fn so_far(connection: &mut Connection, endpoint: &Endpoint) -> Result<Self> {
        let metrics = get(connection, endpoint, "/metrics").await?;
        let mut writes = Self::default();
        for line in metrics.lines().filter(|line| line.starts_with("apiserver_request_total{")) {
            let count: f64 = line.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0.0);
            let resource = label(line, "resource").unwrap_or_default();
            if !label(line, "verb").is_some_and(|verb| WRITES.contains(&verb)) || resource == "leases" {
                continue;
            }
            if label(line, "code") == Some("409") {
                writes.conflicts += count;
            }
            *writes.by_resource.entry(resource.to_owned()).or_default() += count;
        }
        Ok(writes)
    }

    /// Difference to an earlier count.
    fn since(&self, before: &Self) -> Self {
        let change = |(resource, count): (&String, &f64)| {
            (resource.clone(), count - before.by_resource.get(resource).copied().unwrap_or(0.0))
        };
        Self {
            by_resource: self.by_resource.iter().map(change).collect(),
            conflicts: self.conflicts - before.conflicts,
        }
    }

    fn all(&self) -> f64 {
        self.by_resource.values().sum()
    }

    /// Number per pod, of each frequently written resource.
    fn per_pod(&self, pods: f64) -> String {
        let often = self.by_resource.iter().map(|(resource, count)| (resource, count / pods));
        let often = often.filter(|(_, count)| *count >= 0.01).map(|(resource, count)| format!("{resource} {count:.2}"));
        often.collect::<Vec<_>>().join(", ")
    }
}

/// Waits until all queues of the controllers are empty, and returns the duration.
async fn queues_empty(connection: &mut Connection, endpoint: &Endpoint) -> Result<Duration> {
    let started = Instant::now();
    loop {
        let metrics = get(connection, endpoint, "/metrics/kube-controller-manager").await?;
        let depths = || metrics.lines().filter(|line| line.starts_with("workqueue_depth{"));
        anyhow::ensure!(depths().next().is_some(), "no queue has a depth");
        let full: Vec<&str> = depths().filter(|line| !line.ends_with(" 0")).collect();
        if full.is_empty() {
            return Ok(started.elapsed());
        }
        if started.elapsed() > QUEUES_EMPTY {
            bail!("queues are not empty: {}", full.join(", "));
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn run(arguments: Arguments) -> Result<()> {
    let target = Target::running(&arguments.kubeconfig)?;
    let endpoint = &target.endpoint;
    let mut watcher = endpoint.connect().await?;
    let (count, replicas) = (arguments.deployments, arguments.replicas);
    let pods = u32::try_from(count.saturating_mul(replicas)).map(f64::from).context("too many pods")?;
    println!("phase    seconds  processor s  ms per pod  writes per pod  of pods  deepest queue  memory MB");
    for (phase, name) in ["create", "roll"].into_iter().enumerate() {
        let before = Writes::so_far(&mut watcher, endpoint).await?;
        let process = arguments.process.to_string();
        let time = || processor_seconds(&process).context("the process has ended");
        let (started, used) = (Instant::now(), time()?);
        send_all(endpoint, count, replicas, phase).await?;
        let mut deepest = 0.0_f64;
        loop {
            tokio::time::sleep(INTERVAL).await;
            let metrics = get(&mut watcher, endpoint, "/metrics/kube-controller-manager").await?;
            deepest = deepest.max(sum(&metrics, "workqueue_depth", |_| true));
            let list = get(&mut watcher, endpoint, "/apis/apps/v1/namespaces/default/deployments").await?;
            let generation = phase.saturating_add(1);
            let done = list.split("\"status\":{").skip(1).filter(|status| {
                let has = |field: &str, number: usize| status.contains(&format!("\"{field}\":{number}"));
                has("observedGeneration", generation)
                    && ["replicas", "updatedReplicas", "availableReplicas"].iter().all(|field| has(field, replicas))
            });
            if done.count() == count {
                break;
            }
            if started.elapsed() > Duration::from_secs(arguments.limit) {
                bail!("not done after {} seconds", arguments.limit);
            }
        }
        let (took, used) = (started.elapsed().as_secs_f64(), time()? - used);
        let writes = Writes::so_far(&mut watcher, endpoint).await?.since(&before);
        let memory = resident_bytes_of(arguments.process).context("the process has ended")? / (1 << 20);
        println!(
            "{name:<8}{took:>8.1}{used:>13.1}{:>12.2}{:>16.2}{:>9.2}{deepest:>15}{memory:>11}",
            used * 1000.0 / pods,
            writes.all() / pods,
            writes.by_resource.get("pods").copied().unwrap_or(0.0) / pods,
        );
        println!("  per pod: {}; {} conflicts in all", writes.per_pod(pods), writes.conflicts);
        let empty = queues_empty(&mut watcher, endpoint).await?;
        println!("  every queue is empty {:.1} s after that", empty.as_secs_f64());
    }
    Ok(())
}

/// Makes all Deployments, or gives them another template.
async fn send_all(endpoint: &Endpoint, count: usize, replicas: usize, phase: usize) -> Result<()> {
    let mut senders = tokio::task::JoinSet::new();
    for first in 0..CONNECTIONS {
        let mut connection = endpoint.connect().await?;
        let endpoint = endpoint.clone();
        senders.spawn(async move {
            for number in (first..count).step_by(CONNECTIONS) {
                let template = format!(
                    r#"{{"metadata":{{"labels":{{"app":"web-{number}"}},"annotations":{{"phase":"{phase}"}}}},"spec":{{"containers":[{{"name":"c","image":"app"}}]}}}}"#
                );
                let collection = "/apis/apps/v1/namespaces/default/deployments";
                let sent = if phase == 0 {
                    let body = format!(
                        r#"{{"metadata":{{"name":"web-{number}"}},"spec":{{"replicas":{replicas},"selector":{{"matchLabels":{{"app":"web-{number}"}}}},"template":{template}}}}}"#
                    );
                    request("POST", &endpoint, collection, "application/json", &body)
                } else {
                    let body = format!(r#"{{"spec":{{"template":{template}}}}}"#);
                    let path = format!("{collection}/web-{number}");
                    request("PATCH", &endpoint, &path, "application/merge-patch+json", &body)
                };
                let (status, body) = connection.fetch(&sent).await?;
                anyhow::ensure!(status < 300, "{status}: {}", String::from_utf8_lossy(&body));
            }
            Ok(())
        });
    }
    while let Some(sender) = senders.join_next().await {
        sender??;
    }
    Ok(())
}
