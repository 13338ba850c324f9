//! Processor time and speed of service proxies: `celplane proxy`, and a kube-proxy in nftables mode, on the same Services and changes.
//!
//! `cargo build --release -p celplane && cargo run --release -p celplane-bench --bin service_proxy -- --kube-proxy /path/to/kube-proxy`
//!
//! Requires root and `nft`. Everything runs in a network namespace of its own. Processor time includes the child processes (`nft`).
#![allow(clippy::arithmetic_side_effects, clippy::cast_precision_loss, reason = "numbers of a table")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use celplane_bench::load::target::default_binary;
use celplane_bench::memory::{resident_bytes_of, size};
use clap::Parser;
use client::Client;
use futures::stream::{StreamExt as _, TryStreamExt as _};
use http::Method;
use rustix::process::{Pid, Signal, kill_process};

/// Change Services and measure the proxies that follow
#[derive(Parser)]
struct Arguments {
    /// The celplane to start; the one beside this program unless given
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// A kube-proxy to measure in turn
    #[arg(long, value_name = "FILE")]
    kube_proxy: Option<PathBuf>,
    /// Numbers of Services
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1000, 10_000])]
    services: Vec<usize>,
    /// Number of endpoints of each Service
    #[arg(long, default_value_t = 4)]
    endpoints: usize,
    /// Changes per second while changes are steady
    #[arg(long, default_value_t = 50)]
    rate: u32,
    /// Duration of steady changes
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    seconds: u32,
    /// Number of measurements of each proxy
    #[arg(long, default_value_t = 2)]
    rounds: usize,
}

/// Set in the process inside of the network namespace.
const INSIDE: &str = "CELPLANE_BENCH_INSIDE_NAMESPACE";
const NODE: &str = "bench";
/// Changes that are sent as fast as the server takes them.
const BURST: usize = 1000;
const CONNECTIONS: usize = 8;
const PATIENCE: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(20);
/// After this time, unused chains are deleted, too.
const SETTLED: Duration = Duration::from_secs(3);

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if std::env::var_os(INSIDE).is_none() {
        let own = std::env::current_exe()?;
        let setup = "ip link set lo up && ip addr add 192.168.77.1/32 dev lo && exec \"$0\" \"$@\"";
        let status = Command::new("unshare")
            .args(["-n", "sh", "-c", setup])
            .arg(own)
            .args(std::env::args_os().skip(1))
            .env(INSIDE, "1")
            .status()
            .context("cannot run `unshare`")?;
        anyhow::ensure!(status.success(), "the measurement failed");
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(&arguments))
}

/// A child process that does not outlive us.
struct Process(Child);

impl Process {
    fn start(program: &Path, arguments: &[String], log: &Path) -> Result<Self> {
        let log = File::create(log)?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(Self(command.spawn().with_context(|| format!("cannot run `{}`", program.display()))?))
    }

    fn stop(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.0), Signal::TERM)?;
        self.0.wait()?;
        Ok(())
    }

    /// User and system time of the process and of its children that have ended.
    fn processor_seconds(&self) -> Result<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        // The name in parentheses may hold anything.
        let (_, fields) = text.rsplit_once(')').context("no process times")?;
        let ticks = fields.split_whitespace().skip(11).take(4).filter_map(|field| field.parse::<f64>().ok());
        Ok(ticks.sum::<f64>() / 100.0)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may already have exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A proxy to measure.
#[derive(Clone)]
enum Proxy {
    Celplane(PathBuf),
    Kubernetes(PathBuf),
}

impl Proxy {
    fn name(&self) -> &'static str {
        match self {
            Self::Celplane(_) => "celplane proxy",
            Self::Kubernetes(_) => "kube-proxy",
        }
    }

    fn table(&self) -> &'static str {
        match self {
            Self::Celplane(_) => "celplane-proxy",
            Self::Kubernetes(_) => "kube-proxy",
        }
    }

    fn start(&self, kubeconfig: &Path, log: &Path) -> Result<Process> {
        let kubeconfig = kubeconfig.display();
        let common = [
            format!("--kubeconfig={kubeconfig}"),
            format!("--hostname-override={NODE}"),
            "--cluster-cidr=10.128.0.0/9".to_owned(),
        ];
        let (program, own): (&Path, &[&str]) = match self {
            Self::Celplane(program) => (program, &["proxy"]),
            Self::Kubernetes(program) => (
                program,
                &[
                    "--proxy-mode=nftables",
                    "--nodeport-addresses=primary",
                    "--conntrack-max-per-core=0",
                    "--conntrack-tcp-timeout-established=0s",
                    "--conntrack-tcp-timeout-close-wait=0s",
                ],
            ),
        };
        let arguments: Vec<String> = own.iter().map(|it| (*it).to_owned()).chain(common).collect();
        Process::start(program, &arguments, log)
    }

    /// Waits until a marker has rules. Its EndpointSlice is the last one, so that all earlier changes are applied, too.
    async fn wait(&self, marker: usize) -> Result<()> {
        let element = format!("{{ {} . tcp . 80 }}", marker_address(marker));
        let arguments = ["get", "element", "ip", self.table(), "service-ips", &element];
        let begun = Instant::now();
        while !Command::new("nft").args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status()?.success() {
            anyhow::ensure!(begun.elapsed() < PATIENCE, "{}: changes are not applied", self.name());
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }
}

fn marker_address(marker: usize) -> String {
    format!("10.99.{}.{}", marker >> 8, marker & 255)
}

/// Creates a Service with an endpoint, after all other changes.
async fn mark(client: &Client, markers: &mut usize, services: usize) -> Result<usize> {
    *markers += 1;
    create_service(client, services + *markers, &marker_address(*markers), 1).await?;
    Ok(*markers)
}

/// The EndpointSlice of a Service; each `version` replaces one endpoint.
fn slice(number: usize, endpoints: usize, version: usize) -> String {
    let address = |at: usize| {
        let pod = number * 64 + if at == 0 { 32 + version % 32 } else { at };
        format!("10.{}.{}.{}", 128 + (pod >> 16), (pod >> 8) & 255, pod & 255)
    };
    let all: Vec<String> = (0..endpoints)
        .map(|at| {
            let node = if at % 4 == 1 { NODE } else { "other" };
            format!(r#"{{"addresses":["{}"],"nodeName":"{node}","conditions":{{"ready":true}}}}"#, address(at))
        })
        .collect();
    format!(
        r#"{{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{{"name":"s{number}-1","namespace":"default","labels":{{"kubernetes.io/service-name":"s{number}"}}}},"addressType":"IPv4","ports":[{{"name":"p","port":8080,"protocol":"TCP"}}],"endpoints":[{}]}}"#,
        all.join(",")
    )
}

async fn send(client: &Client, method: Method, path: &str, body: String) -> Result<()> {
    client.send(method, path, "application/json", body).await.map(|_| ()).with_context(|| path.to_owned())
}

async fn change(client: &Client, number: usize, endpoints: usize, version: usize) -> Result<()> {
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/s{number}-1");
    send(client, Method::PUT, &path, slice(number, endpoints, version)).await
}

async fn create(client: &Client, services: usize, endpoints: usize) -> Result<()> {
    let node = format!(
        r#"{{"apiVersion":"v1","kind":"Node","metadata":{{"name":"{NODE}"}},"spec":{{"podCIDR":"10.128.0.0/24"}},"status":{{"addresses":[{{"type":"InternalIP","address":"192.168.77.1"}}]}}}}"#
    );
    send(client, Method::POST, "/api/v1/nodes", node).await?;
    futures::stream::iter(0..services)
        .map(|number| async move {
            let address = format!("10.{}.{}.{}", 100 + (number >> 16), (number >> 8) & 255, number & 255);
            create_service(client, number, &address, endpoints).await
        })
        .buffer_unordered(CONNECTIONS)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(())
}

async fn create_service(client: &Client, number: usize, address: &str, endpoints: usize) -> Result<()> {
    let service = format!(
        r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"s{number}"}},"spec":{{"clusterIP":"{address}","ports":[{{"name":"p","port":80,"targetPort":8080}}]}}}}"#
    );
    send(client, Method::POST, "/api/v1/namespaces/default/services", service).await?;
    let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    send(client, Method::POST, path, slice(number, endpoints, 0)).await
}

/// Results of one proxy.
struct ProxyFigures {
    start_cpu: f64,
    start: Duration,
    steady_cpu: f64,
    burst_cpu: f64,
    burst: Duration,
    memory: u64,
}

/// A cluster whose Services change.
struct Cluster {
    client: Client,
    services: usize,
    directory: tempfile::TempDir,
    markers: usize,
    version: usize,
    _server: Process,
}

async fn measure(proxy: &Proxy, cluster: &mut Cluster, arguments: &Arguments) -> Result<ProxyFigures> {
    let Cluster { client, services, directory, markers, version, .. } = cluster;
    let client: &Client = client;
    let (services, directory, endpoints) = (*services, directory.path(), arguments.endpoints);
    let marker = mark(client, markers, services).await?;
    let begun = Instant::now();
    let process = proxy.start(&directory.join("data/admin.kubeconfig"), &directory.join("proxy.log"))?;
    proxy.wait(marker).await?;
    let start = begun.elapsed();
    tokio::time::sleep(SETTLED).await;
    let start_cpu = process.processor_seconds()?;

    let steady = usize::try_from(arguments.rate * arguments.seconds)?;
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / arguments.rate);
    for number in 0..steady {
        ticks.tick().await;
        *version += usize::from(number % services == 0);
        change(client, number % services, endpoints, *version).await?;
    }
    let marker = mark(client, markers, services).await?;
    proxy.wait(marker).await?;
    tokio::time::sleep(SETTLED).await;
    let steady_cpu = process.processor_seconds()? - start_cpu;

    let (begun, first) = (Instant::now(), *version + 1);
    let changes = (0..BURST).map(|number| change(client, number % services, endpoints, first + number / services));
    futures::stream::iter(changes).buffered(CONNECTIONS).try_collect::<Vec<()>>().await?;
    *version = first + BURST / services;
    let marker = mark(client, markers, services).await?;
    proxy.wait(marker).await?;
    let burst = begun.elapsed();
    tokio::time::sleep(SETTLED).await;
    let burst_cpu = process.processor_seconds()? - start_cpu - steady_cpu;
    let memory = resident_bytes_of(process.0.id()).unwrap_or_default();
    process.stop()?;
    // kube-proxy leaves its tables.
    anyhow::ensure!(Command::new("nft").args(["flush", "ruleset"]).status()?.success(), "cannot remove the rules");
    Ok(ProxyFigures { start_cpu, start, steady_cpu, burst_cpu, burst, memory })
}

async fn run(arguments: &Arguments) -> Result<()> {
    let binary = arguments.binary.clone().unwrap_or_else(default_binary);
    let mut proxies = vec![Proxy::Celplane(binary.clone())];
    proxies.extend(arguments.kube_proxy.clone().map(Proxy::Kubernetes));
    let changes = f64::from(arguments.rate * arguments.seconds);
    println!(
        "| Services | proxy | start: processor time | start: duration | steady: processor time per change | burst: processor time per change | burst: changes/s | memory |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for &services in &arguments.services {
        let directory = tempfile::tempdir()?;
        let data = directory.path().join("data");
        let flags = ["apiserver", "--ephemeral", "--port=16443", "--data-dir"].map(ToOwned::to_owned);
        let flags: Vec<String> = flags.into_iter().chain([data.display().to_string()]).collect();
        let server = Process::start(&binary, &flags, &directory.path().join("server.log"))?;
        let client = connect(&data.join("admin.kubeconfig")).await?;
        create(&client, services, arguments.endpoints).await?;
        let mut cluster = Cluster { client, services, directory, markers: 0, version: 0, _server: server };
        for round in 0..arguments.rounds {
            let mut order = proxies.clone();
            if round % 2 == 1 {
                order.reverse();
            }
            for proxy in &order {
                let it = measure(proxy, &mut cluster, arguments).await.with_context(|| {
                    let log = std::fs::read_to_string(cluster.directory.path().join("proxy.log")).unwrap_or_default();
                    let lines: Vec<&str> = log.lines().rev().take(5).collect();
                    format!("{}: {}", proxy.name(), lines.join("\n"))
                })?;
                println!(
                    "| {services} | {} | {:.2} s | {:.1} s | {:.2} ms | {:.2} ms | {:.0} | {} |",
                    proxy.name(),
                    it.start_cpu,
                    it.start.as_secs_f64(),
                    it.steady_cpu * 1e3 / changes,
                    it.burst_cpu * 1e3 / BURST as f64,
                    BURST as f64 / it.burst.as_secs_f64(),
                    size(it.memory as f64),
                );
            }
        }
    }
    Ok(())
}

async fn connect(kubeconfig: &Path) -> Result<Client> {
    let begun = Instant::now();
    loop {
        // Until it is written in full it cannot be read.
        if let Ok(client) = Client::from_kubeconfig(kubeconfig, None, "bench").await
            && client.send(Method::GET, "/readyz", "", String::new()).await.is_ok()
        {
            return Ok(client);
        }
        anyhow::ensure!(begun.elapsed() < Duration::from_secs(30), "the server is not ready");
        tokio::time::sleep(POLL).await;
    }
}
