//! `celplane why`: why does a pod fit a node, or not?
//!
//! Asks the scheduler's core about a cluster from files or from a server: every plugin about every node, scores, what preemption
//! would do, and which single change would let the pod run. [`judge`] adds what is inside taints, terms and expressions.
//! Exit code 0: some node fits; 1: none does; 2: something could not be read.

mod cluster;
mod devices;
mod judge;
mod report;
mod scheduler;

use std::path::PathBuf;
use std::process::ExitCode;

use api::features::Features;
use cluster::{Asked, Cluster};
use judge::NodeReport;
use scheduler::Said;

use crate::compile_cache::compile_cache;
use crate::connection::ConnectionArguments;
use crate::output::Report;
use crate::roles::scheduler::read_configuration;
use crate::style::{Style, When};

/// Explain where a pod can run: what each plugin of the scheduler says, node by node, and which change would help.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The pod of the cluster, by name.
    #[arg(value_name = "POD", conflicts_with = "name")]
    of_cluster: Option<String>,

    /// The pod: a file, or `-` for standard input. A workload stands for the pods it makes.
    #[arg(short, long, value_name = "FILE")]
    pod: Option<String>,

    /// Which pod of the file, by name, by default the first; without a file, which pod of the cluster.
    #[arg(long, value_name = "NAME", required_unless_present_any = ["pod", "of_cluster"])]
    name: Option<String>,

    /// The namespace of a pod of the cluster.
    #[arg(short, long, value_name = "NAMESPACE", default_value = "default")]
    namespace: String,

    #[command(flatten)]
    connection: ConnectionArguments,

    /// The cluster: files or directories with nodes, volumes and claims. Nodes in the pod's file count as well.
    #[arg(short, long = "filename", value_name = "FILE")]
    filenames: Vec<String>,

    /// A file with the KubeSchedulerConfiguration of the scheduler, if it is not the default one.
    #[arg(long, value_name = "FILE")]
    scheduler_config: Option<PathBuf>,

    /// Show each plugin, taint and term for this node.
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    node: Option<String>,

    /// Show each plugin, taint and term for all nodes.
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
        let (cluster, nodes, said) = match self.judge() {
            Ok(judged) => judged,
            Err(error) => {
                crate::output::complain(&error);
                return Ok(ExitCode::from(2));
            }
        };
        let is_shown = |name: &str| self.all || self.node.as_deref() == Some(name);
        match self.output {
            Report::Text => report::text(&cluster, &nodes, &said, is_shown, Style::of_stdout(self.color))?,
            Report::Json => report::json(&cluster, &nodes, &said)?,
        }
        let fits = nodes.iter().any(NodeReport::fits);
        Ok(if fits { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn judge(&self) -> anyhow::Result<(Cluster, Vec<NodeReport>, Said)> {
        let gates = Features::all_proposals().with_flag(&self.feature_gates)?;
        // Without files, the cluster is the one that kubectl would speak to.
        let is_live = self.connection.is_given() || self.pod.is_none();
        let cluster = Cluster::load(&Asked {
            pod: self.pod.as_deref(),
            name: self.name.as_deref().or(self.of_cluster.as_deref()),
            namespace: &self.namespace,
            filenames: &self.filenames,
            connection: is_live.then_some(&self.connection),
        })?;
        let configuration = self.scheduler_config.as_deref().map(read_configuration).transpose()?.unwrap_or_default();
        let mut said = scheduler::ask(&cluster, &configuration, gates)?;
        let devices = devices::Devices::new(&cluster, gates)?;
        let nodes = judge::judge(&cluster, &compile_cache()?, gates.into(), &mut said.known, &devices);
        if let Some(name) = &self.node
            && !nodes.iter().any(|node| node.name == *name)
        {
            anyhow::bail!("there is no node `{name}`");
        }
        Ok((cluster, nodes, said))
    }
}
