//! Measures Celplane beside the programs of Kubernetes that are installed, and writes a report with tables and plots.
//!
//! `cargo xtask bench` builds what is needed and runs this program.

use std::path::PathBuf;

use anyhow::Result;
use celplane_bench::comparison::programs::Programs;
use celplane_bench::comparison::{self, Size};
use celplane_bench::load::target::{default_binary, raise_file_limit};
use clap::Parser;

/// As the product has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures Celplane beside kube-apiserver, kube-scheduler and etcd, and writes a report
#[derive(Parser)]
struct Arguments {
    /// The celplane to measure; the one beside this program unless given
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Directory with kube-apiserver, kube-scheduler or etcd, searched before the path; may be repeated
    #[arg(long, value_name = "DIR")]
    bin_dir: Vec<PathBuf>,
    /// Directory for the report and its plots
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Small sizes and one round: checks that everything can be measured
    #[arg(long)]
    quick: bool,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    raise_file_limit();
    let mut directories = arguments.bin_dir;
    directories.extend(std::env::var_os("PATH").iter().flat_map(std::env::split_paths));
    let programs = Programs::find(arguments.binary.unwrap_or_else(default_binary), &directories);
    if programs.kubernetes.is_none() {
        eprintln!("kube-apiserver and etcd were not found: measuring Celplane alone");
    }
    let size = if arguments.quick { Size::QUICK } else { Size::FULL };
    comparison::run(&programs, size, &arguments.out)
}
