//! Puts load on an API server and shows what it did beside recorded figures of kube-apiserver with etcd.
//!
//! `cargo build --release -p celplane && cargo run --release -p celplane-bench --bin load`

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use celplane_bench::load::compare::Comparison;
use celplane_bench::load::plan::{self, Settings};
use celplane_bench::load::report;
use celplane_bench::load::target::{Store, Target, default_binary, raise_file_limit};
use clap::Parser;

/// Puts load on an API server and measures it
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
    /// A running server to use instead, with certificates in the file itself
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Number of pods to create
    #[arg(long, default_value_t = 13_000)]
    pods: usize,
    /// Over how many connections
    #[arg(long, default_value_t = 32)]
    connections: usize,
    /// Duration of reads and of changes, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    seconds: u64,
    /// Number of lists in each form
    #[arg(long, default_value_t = 15)]
    lists: u32,
    /// Number of watchers
    #[arg(long, default_value_t = 1000)]
    watchers: usize,
    /// Writes per second while they watch
    #[arg(long, value_name = "RATE", default_value_t = 50)]
    watched_writes: u32,
    /// Let the server compress its answers
    #[arg(long)]
    gzip: bool,
    /// Compare with this program instead: both are run in turn
    #[arg(long, value_name = "FILE", conflicts_with = "kubeconfig")]
    against: Option<PathBuf>,
    /// Number of runs of each program
    #[arg(long, default_value_t = 5, requires = "against")]
    runs: usize,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    raise_file_limit();
    // One thread: the server needs the rest of the machine.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(arguments))
}

async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let settings = Settings {
        pods: arguments.pods,
        connections: arguments.connections,
        time: Duration::from_secs(arguments.seconds),
        lists: arguments.lists,
        watchers: arguments.watchers,
        watched_writes_per_second: arguments.watched_writes,
        gzip: arguments.gzip,
    };
    let binary = arguments.binary.unwrap_or_else(default_binary);
    let start = async |binary: &Path| Target::start(binary, arguments.store, &arguments.directory).await;
    let is_reached = if let Some(against) = arguments.against {
        let mut comparison = Comparison::default();
        for run in 0..arguments.runs {
            for is_before in [run.is_multiple_of(2), !run.is_multiple_of(2)] {
                let (program, runs) =
                    if is_before { (&against, &mut comparison.before) } else { (&binary, &mut comparison.after) };
                runs.push(plan::run(&start(program).await?, settings).await?);
            }
        }
        println!("{}", comparison.table());
        comparison.is_reached()
    } else {
        let target = match &arguments.kubeconfig {
            Some(kubeconfig) => Target::running(kubeconfig)?,
            None => start(&binary).await?,
        };
        let measured = plan::run(&target, settings).await?;
        println!("{}{}\n\n{}", report::table(&measured), report::NOTE, report::costs(&measured));
        report::is_reached(&measured)
    };
    Ok(if is_reached { ExitCode::SUCCESS } else { ExitCode::from(3) })
}
