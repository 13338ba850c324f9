//! What a decision of the scheduler's core costs: throughput and latencies of workloads after scheduler_perf.
//!
//! `cargo run --release -p celplane-bench --bin scheduler -- --nodes 5000 --pods 10000 basic taints-cel`

use std::process::ExitCode;

use anyhow::Result;
use celplane_bench::scheduling::{Size, run, workloads};
use clap::Parser;

/// Measures the scheduler's core
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
    /// Which workloads; all unless given
    workloads: Vec<String>,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let size = Size { nodes: arguments.nodes, pods: arguments.pods, sets: arguments.sets };
    println!("{} nodes, {} pods, {} sets; the core alone", size.nodes, size.pods, size.sets);
    println!("{:<24} {:>8} {:>10} {:>9} {:>9} {:>9}", "workload", "placed", "pods/s", "p50 µs", "p99 µs", "mean µs");
    for workload in workloads()? {
        if !arguments.workloads.is_empty() && !arguments.workloads.contains(&workload.name) {
            continue;
        }
        let report = run(&workload, size)?;
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
    Ok(ExitCode::SUCCESS)
}
