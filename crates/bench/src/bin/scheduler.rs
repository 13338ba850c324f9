//! How many pods are bound per second, how fast, and at what cost: workloads after Kubernetes' scheduler_perf.
//!
//! `cargo run --release -p celplane-bench --bin scheduler -- basic node-affinity` plays them on API server, durable store and
//! scheduler in one process; with `--core` on the scheduler's core alone, with `--kubeconfig` on a control plane that runs
//! already.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use celplane_bench::memory;
use celplane_bench::scheduling::whole::{self, RunningPlane, Settings};
use celplane_bench::scheduling::workload::Workload;
use celplane_bench::scheduling::{Size, core, soak, workload};
use clap::Parser;

/// As the product has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures the scheduler
#[derive(Parser)]
struct Arguments {
    /// Number of nodes
    #[arg(long, default_value_t = 5000)]
    nodes: usize,
    /// Number of measured pods
    #[arg(long, default_value_t = 10_000)]
    pods: usize,
    /// Number of distinct sets of taints, or zones
    #[arg(long, default_value_t = 10)]
    sets: usize,
    /// Number of runs of each workload
    #[arg(long, default_value_t = 1)]
    runs: usize,
    /// Number of concurrent clients that create pods
    #[arg(long, default_value_t = Settings::default().creators)]
    creators: usize,
    /// Only the scheduler's core, without API server and store
    #[arg(long)]
    core: bool,
    /// Keep objects in memory only
    #[arg(long)]
    ephemeral: bool,
    /// Print the processor time by stage
    #[arg(long, conflicts_with_all = ["core", "kubeconfig"])]
    stages: bool,
    /// Events go after this time
    #[arg(long, value_name = "SECONDS", default_value_t = Settings::default().event_ttl.as_secs())]
    event_ttl: u64,
    /// Create, bind and delete this many pods repeatedly for this long, and check for memory growth
    #[arg(long, value_name = "SECONDS", conflicts_with = "core")]
    soak: Option<u64>,
    /// A control plane that runs already
    #[arg(long, value_name = "FILE", conflicts_with = "core", requires = "processes")]
    kubeconfig: Option<PathBuf>,
    /// Processes whose time and memory are counted
    #[arg(long = "process", value_name = "ID", requires = "kubeconfig")]
    processes: Vec<u32>,
    /// Wait until pods are running: the cluster has nodes that run them
    #[arg(long, requires = "kubeconfig")]
    running: bool,
    /// Workloads to run; all by default
    workloads: Vec<String>,
}

impl Arguments {
    fn settings(&self) -> Settings {
        let running = self.kubeconfig.clone().map(|kubeconfig| RunningPlane {
            kubeconfig,
            processes: self.processes.clone(),
            has_nodes: self.running,
            has_events: true,
        });
        Settings {
            creators: self.creators,
            ephemeral: self.ephemeral,
            event_ttl: Duration::from_secs(self.event_ttl),
            stages: self.stages,
            running,
        }
    }
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let size = Size { nodes: arguments.nodes, pods: arguments.pods, sets: arguments.sets };
    let known = workload::all()?;
    for name in &arguments.workloads {
        ensure!(known.iter().any(|it| it.name == *name), "there is no workload `{name}`");
    }
    let wanted = |it: &&Workload| arguments.workloads.is_empty() || arguments.workloads.contains(&it.name);
    let chosen = known.iter().filter(wanted);
    match arguments.soak {
        _ if arguments.core => core_alone(chosen, size)?,
        None => all_together(chosen, size, &arguments)?,
        Some(seconds) => soak(chosen, size, &arguments, Duration::from_secs(seconds))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn core_alone<'w>(workloads: impl Iterator<Item = &'w Workload>, size: Size) -> Result<()> {
    println!("{} nodes, {} pods, {} sets; the core alone", size.nodes, size.pods, size.sets);
    println!("{:<24} {:>8} {:>10} {:>9} {:>9} {:>9}", "workload", "placed", "pods/s", "p50 µs", "p99 µs", "mean µs");
    for workload in workloads {
        let size = Size { pods: size.pods.min(workload.pods_on(size.nodes)), ..size };
        let report = core::run(workload, size)?;
        let seconds = report.took.as_secs_f64();
        let micros = |share: f64| report.latencies.quantile(share).unwrap_or(0.0) * 1e6;
        println!(
            "{:<24} {:>8} {:>10.0} {:>9.0} {:>9.0} {:>9.1}",
            workload.name,
            report.placed,
            size.pods as f64 / seconds,
            micros(0.5),
            micros(0.99),
            seconds * 1e6 / size.pods as f64
        );
    }
    Ok(())
}

fn all_together<'w>(workloads: impl Iterator<Item = &'w Workload>, size: Size, arguments: &Arguments) -> Result<()> {
    let settings = arguments.settings();
    let kept = if settings.ephemeral { "in memory" } else { "durable" };
    let what = match &settings.running {
        None => format!("API server, {kept} store and scheduler in one process, from create to bound and event"),
        Some(running) if running.has_nodes => "over TLS, from create to Running".to_owned(),
        Some(_) => "over TLS, from create to bound and event".to_owned(),
    };
    println!("{} nodes, {} pods, {} sets; {what}", size.nodes, size.pods, size.sets);
    println!(
        "{:<24} {:>8} {:>9} {:>9} {:>9} {:>12} {:>10}  pods bound per half second",
        "workload", "pods/s", "p50 ms", "p90 ms", "p99 ms", "CPU µs/pod", "memory"
    );
    for workload in workloads {
        let size = Size { pods: size.pods.min(workload.pods_on(size.nodes)), ..size };
        let mut reports = Vec::new();
        for _ in 0..arguments.runs.max(1) {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            let report = runtime.block_on(whole::run(workload, size, settings.clone()))?;
            let millis = |share: f64| report.latencies.quantile(share).unwrap_or(0.0) * 1e3;
            let per_second = size.pods as f64 / report.took.as_secs_f64();
            let micros = report.processor_seconds * 1e6 / size.pods as f64;
            println!(
                "{:<24} {:>8.0} {:>9.1} {:>9.1} {:>9.1} {:>12.0} {:>10}  {:?}",
                workload.name,
                per_second,
                millis(0.5),
                millis(0.9),
                millis(0.99),
                micros,
                memory::size(report.resident_bytes.unwrap_or(0) as f64),
                report.over_time
            );
            for (stage, seconds) in &report.stages {
                println!("  {stage:<52} {:>7.1} µs", seconds * 1e6 / size.pods as f64);
            }
            reports.push((per_second, micros));
        }
        if reports.len() > 1 {
            println!("{:<24} {}", format!("  median of {}", reports.len()), spread(&mut reports));
        }
    }
    Ok(())
}

fn soak<'w>(
    workloads: impl Iterator<Item = &'w Workload>,
    size: Size,
    arguments: &Arguments,
    length: Duration,
) -> Result<()> {
    for workload in workloads {
        let size = Size { pods: size.pods.min(workload.pods_on(size.nodes)), ..size };
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let soaked = runtime.block_on(soak::run(workload, size, &arguments.settings(), length))?;
        let sizes: Vec<String> = soaked.resident_bytes.iter().map(|bytes| memory::size(*bytes as f64)).collect();
        println!("{}: {} pods came and went; memory by round: {}", workload.name, soaked.pods, sizes.join(", "));
        match soaked.growth() {
            Some(growth) => println!("last third / middle third: {growth:.3}"),
            None => println!("too few rounds to say how memory grows"),
        }
    }
    Ok(())
}

/// The median run, and how far others are from it.
fn spread(reports: &mut [(f64, f64)]) -> String {
    let show = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(0.0);
        let last = values.len().saturating_sub(1);
        format!("{:.0} ({:.0} to {:.0})", at(last / 2), at(0), at(last))
    };
    let mut speeds: Vec<f64> = reports.iter().map(|(speed, _)| *speed).collect();
    let mut costs: Vec<f64> = reports.iter().map(|(_, cost)| *cost).collect();
    format!("{} pods/s, {} µs of processor time per pod", show(&mut speeds), show(&mut costs))
}
