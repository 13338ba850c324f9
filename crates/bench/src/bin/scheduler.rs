//! How many pods are bound per second, how fast, and at what cost: workloads after Kubernetes' scheduler_perf.
//!
//! `cargo run --release -p celplane-bench --bin scheduler -- basic node-affinity` plays them on API server, durable store and
//! scheduler in one process; with `--core` on the scheduler's core alone.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use celplane_bench::memory;
use celplane_bench::scheduling::whole::{self, Settings};
use celplane_bench::scheduling::workload::Workload;
use celplane_bench::scheduling::{Size, core, workload};
use clap::Parser;

/// As the product has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures the scheduler
#[derive(Parser)]
struct Arguments {
    /// How many nodes
    #[arg(long, default_value_t = 5000)]
    nodes: usize,
    /// How many pods are measured
    #[arg(long, default_value_t = 10_000)]
    pods: usize,
    /// How many distinct sets of taints, or zones
    #[arg(long, default_value_t = 10)]
    sets: usize,
    /// How often each workload is played
    #[arg(long, default_value_t = 1)]
    runs: usize,
    /// How many clients create pods at a time
    #[arg(long, default_value_t = Settings::default().creators)]
    creators: usize,
    /// Only the scheduler's core, without API server and store
    #[arg(long)]
    core: bool,
    /// Keep objects in memory only
    #[arg(long)]
    ephemeral: bool,
    /// Which workloads; all unless given
    workloads: Vec<String>,
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
    if arguments.core { core_alone(chosen, size) } else { all_together(chosen, size, &arguments) }?;
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
    let settings = Settings { creators: arguments.creators, ephemeral: arguments.ephemeral };
    let kept = if settings.ephemeral { "in memory" } else { "durable" };
    println!(
        "{} nodes, {} pods, {} sets; API server, {kept} store and scheduler in one process, from create to bound and event",
        size.nodes, size.pods, size.sets
    );
    println!(
        "{:<24} {:>8} {:>9} {:>9} {:>9} {:>12} {:>10}  pods bound per half second",
        "workload", "pods/s", "p50 ms", "p90 ms", "p99 ms", "CPU µs/pod", "memory"
    );
    for workload in workloads {
        let size = Size { pods: size.pods.min(workload.pods_on(size.nodes)), ..size };
        let mut reports = Vec::new();
        for _ in 0..arguments.runs.max(1) {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            let report = runtime.block_on(whole::run(workload, size, settings))?;
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
            reports.push((per_second, micros));
        }
        if reports.len() > 1 {
            println!("{:<24} {}", format!("  median of {}", reports.len()), spread(&mut reports));
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
