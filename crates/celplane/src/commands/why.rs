//! `celplane why`: why does a pod fit a node, or not?
//!
//! Judges a pod against nodes and volumes, from files or from a running cluster: what taints, tolerations, node affinity, volume affinity and claims to devices decide.
//! Exit code 0: some node fits; 1: none does; 2: something could not be read.

mod cluster;
mod devices;
mod judge;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use api::features::Features;
use cluster::{Asked, Cluster};
use judge::NodeReport;

use crate::compile_cache::compile_cache;
use crate::output::Report;
use crate::style::{Style, When};

/// Explain where a pod can run: what taints, node affinity, volumes and devices decide, node by node.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The pod: a file, or `-` for standard input. A workload stands for the pods it makes.
    #[arg(short, long, value_name = "FILE", required_unless_present = "kubeconfig")]
    pod: Option<String>,

    /// Which pod of the file, by name, by default the first; without a file, which pod of the cluster.
    #[arg(long, value_name = "NAME", required_unless_present = "pod")]
    name: Option<String>,

    /// The namespace of a pod of the cluster.
    #[arg(short, long, value_name = "NAMESPACE", default_value = "default")]
    namespace: String,

    /// Read the cluster from the server that this kubeconfig names.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The cluster: files or directories with nodes, volumes, devices and claims. Nodes in the pod's file count as well.
    #[arg(short, long = "filename", value_name = "FILE")]
    filenames: Vec<String>,

    /// Show each taint and term for this node.
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    node: Option<String>,

    /// Show each taint and term for all nodes.
    #[arg(long)]
    all: bool,

    /// Which features are on, as `A=true,B=false`; by default the five proposals are, as with `celplane up`.
    #[arg(long, default_value = "", value_name = "GATES")]
    feature_gates: String,

    /// How to print.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Report,

    /// When to use color.
    #[arg(long, value_enum, default_value = "auto")]
    color: When,
}

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let (cluster, nodes) = match self.judge() {
            Ok(judged) => judged,
            Err(error) => {
                eprintln!("error: {error:#}");
                return Ok(ExitCode::from(2));
            }
        };
        let is_shown = |name: &str| self.all || self.node.as_deref() == Some(name);
        match self.output {
            Report::Text => report::text(&cluster, &nodes, is_shown, Style::of_stdout(self.color))?,
            Report::Json => report::json(&cluster, &nodes)?,
        }
        let fits = nodes.iter().any(NodeReport::fits);
        Ok(if fits { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn judge(&self) -> anyhow::Result<(Cluster, Vec<NodeReport>)> {
        let gates = Features::all_proposals().with_flag(&self.feature_gates)?;
        let cluster = Cluster::load(&Asked {
            pod: self.pod.as_deref(),
            name: self.name.as_deref(),
            namespace: &self.namespace,
            filenames: &self.filenames,
            kubeconfig: self.kubeconfig.as_deref(),
        })?;
        let devices = devices::Devices::new(&cluster, gates)?;
        let nodes = judge::judge(&cluster, &compile_cache()?, gates.into(), &devices);
        if let Some(name) = &self.node
            && !nodes.iter().any(|node| node.name == *name)
        {
            anyhow::bail!("there is no node `{name}`");
        }
        Ok((cluster, nodes))
    }
}
