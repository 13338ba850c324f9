//! How many watchers are possible? Each of its own node's pods, or a crowd that watches everything and reads
//! nothing.
//!
//! `cargo build --release -p celplane && cargo run --release -p celplane-bench --bin reach`

use std::path::PathBuf;
use std::time::Duration;

use celplane_bench::load::reach::{self, Cost, Settings};
use celplane_bench::load::target::{Store, Target, default_binary, raise_file_limit};
use celplane_bench::memory::size;
use clap::Parser;

/// Watches the pods of many nodes while they change
#[derive(Parser)]
struct Arguments {
    /// The celplane to start; the one beside this program unless given
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Storage of the server
    #[arg(long, value_enum, default_value = "redb")]
    store: Store,
    /// Below which directory the store is made
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    directory: PathBuf,
    /// Number of pods to create
    #[arg(long, default_value_t = 50_000)]
    pods: usize,
    /// On how many nodes, each with a watcher
    #[arg(long, default_value_t = 5_000)]
    nodes: usize,
    /// Changes per second
    #[arg(long, value_name = "RATE", default_value_t = 500)]
    changes: u32,
    /// Duration of the changes, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    seconds: u64,
    /// Number of watchers that start over
    #[arg(long, default_value_t = 500)]
    restarts: usize,
    /// For how long the history is filled; 0 leaves it out
    #[arg(long, value_name = "SECONDS", default_value_t = 80)]
    history_seconds: u64,
    /// By how many changes per second
    #[arg(long, value_name = "RATE", default_value_t = 2_000)]
    history_changes: u32,
    /// Open this many watches of all pods instead, without reading them
    #[arg(long, value_name = "WATCHES")]
    crowd: Option<usize>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(arguments))
}

async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let binary = arguments.binary.unwrap_or_else(default_binary);
    let target = Target::start(&binary, arguments.store, &arguments.directory).await?;
    let time = Duration::from_secs(arguments.seconds);
    if let Some(watches) = arguments.crowd {
        let crowd = reach::crowd(&target, watches, arguments.pods, time).await?;
        let [before, most, after] = crowd.resident_bytes.map(|bytes| size(bytes as f64));
        println!(
            "| watches of {} pods | writes in {} s | memory before | most | after |",
            arguments.pods, arguments.seconds
        );
        println!("|---|---|---|---|---|\n| {} | {} | {before} | {most} | {after} |", crowd.watches, crowd.writes);
        return Ok(());
    }
    let settings = Settings {
        pods: arguments.pods,
        nodes: arguments.nodes,
        changes_per_second: arguments.changes,
        time,
        restarts: arguments.restarts,
        history_changes_per_second: arguments.history_changes,
        history: Duration::from_secs(arguments.history_seconds),
    };
    let measured = reach::run(&target, settings).await?;
    let row = |name: &str, cost: Cost| {
        let rate = cost.changes as f64 / cost.took.as_secs_f64();
        let each = if cost.changes == 0 { 0.0 } else { cost.processor_seconds * 1e6 / cost.changes as f64 };
        println!("| {name} | {rate:.0}/s | {:.3} | {each:.0} µs |", cost.processors());
    };
    println!(
        "| {} pods on {} nodes | changes | processors | for each change |\n|---|---|---|---|",
        settings.pods, settings.nodes
    );
    row("no watchers", measured.alone);
    row("all watch, no changes", measured.idle);
    row("all watch", measured.watched);
    println!("\neach of {} changes came to the watcher of its node, once, and to no other", measured.watched.changes);
    println!(
        "a watcher that starts over receives {} pods after {:.2} ms, for {:.0} µs of the server",
        measured.restart_events,
        measured.restart.as_secs_f64() * 1e3,
        measured.restart_processor_seconds * 1e6
    );
    if let Some(history) = measured.history {
        println!("a watcher {:.0} s behind resumes, at {} changes/s", history.as_secs_f64(), arguments.history_changes);
    }
    let [filled, end] = measured.resident_bytes.map(|bytes| size(bytes.unwrap_or_default() as f64));
    println!("memory with all pods {filled}, at the end {end}");
    Ok(())
}
