//! `celplane why`: why does a pod fit a node, or not?
//!
//! Runs the scheduler's core on a cluster from files or from a server: every plugin on every node, scores,
//! preemption, and single changes that would let the pod run. [`judge`] adds the details of taints, terms and
//! expressions. Exit code 0: some node fits; 1: none does; 2: some input is unreadable.

mod cluster;
mod devices;
mod judge;
mod report;
mod scheduler;

use std::path::PathBuf;
use std::process::ExitCode;

use api::features::Features;
use cluster::{Cluster, PodQuery};
use judge::NodeReport;
use scheduler::SchedulerResult;

use crate::arguments::scheduler::read_configuration;
use crate::arguments::second_scheduler;
use crate::compile_cache::compile_cache;
use crate::connection::ConnectionArguments;
use crate::output::Report;
use crate::style::{ColorChoice, Style};
use crate::time_limit::TimeLimit;

/// Explain node by node where a pod can run, with the result of each scheduler plugin and the changes that
/// would help.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Pod in the cluster: `web-0`, `pod/web-0`, or a workload such as `deploy/web`
    #[arg(value_name = "POD", conflicts_with = "name", required_unless_present_any = ["pod", "name"])]
    of_cluster: Option<String>,

    /// File with the pod, or `-` for standard input. A workload is replaced by its pod template.
    #[arg(short, long, value_name = "FILE")]
    pod: Option<String>,

    /// Name of the pod in the file, by default the first; without a file, name of the pod in the cluster.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Namespace of the pod in the cluster; defaults to that of the kubeconfig's context.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,

    #[command(flatten)]
    connection: ConnectionArguments,

    /// Files or directories with the cluster's nodes, volumes and claims. Nodes in the pod's file are added.
    #[arg(short, long = "filename", value_name = "FILE")]
    filenames: Vec<String>,

    /// KubeSchedulerConfiguration file of the scheduler, if it does not use the default configuration.
    #[arg(long, value_name = "FILE")]
    scheduler_config: Option<PathBuf>,

    /// Show only this node, with each plugin, taint and term.
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    node: Option<String>,

    /// Show each plugin, taint and term for all nodes.
    #[arg(long)]
    all: bool,

    /// Feature gates, as `A=true,B=false`; defaults to those of the cluster's scheduler, or to the five
    /// proposals without a cluster.
    #[arg(long, default_value = "", value_name = "GATES")]
    feature_gates: String,

    /// Output format.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Report,

    /// Use of color in the output.
    #[arg(long, value_enum, default_value = "auto")]
    color: ColorChoice,

    #[command(flatten)]
    limit: TimeLimit,
}

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        self.limit.start()?;
        let (cluster, mut nodes, mut said) = match self.judge() {
            Ok(judged) => judged,
            Err(error) => {
                crate::output::complain(&error);
                return Ok(ExitCode::from(2));
            }
        };
        let fits = nodes.iter().any(NodeReport::fits);
        let counts = (nodes.iter().filter(|node| node.fits()).count(), nodes.len());
        if let Some(name) = &self.node {
            nodes.retain(|node| node.name == *name);
            said.remedies = said.remedies.into_iter().filter_map(|remedy| remedy.limited_to(name)).collect();
        }
        let is_shown = |name: &str| self.all || self.node.as_deref() == Some(name);
        match self.output {
            Report::Text => report::text(&cluster, (&nodes, counts), &said, is_shown, Style::of_stdout(self.color))?,
            Report::Json => report::json(&cluster, &nodes, &said)?,
        }
        Ok(if fits { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn judge(&self) -> anyhow::Result<(Cluster, Vec<NodeReport>, SchedulerResult)> {
        // Without files, the cluster is the one that kubectl would use.
        let is_live = self.connection.is_given() || self.pod.is_none();
        let name = self.name.as_deref().or(self.of_cluster.as_deref());
        let (kind, name) = match name.and_then(|name| name.split_once('/')) {
            Some((word, name)) => (workload_kind(word)?, Some(name)),
            None => ("Pod", name),
        };
        let cluster = Cluster::load(&PodQuery {
            pod: self.pod.as_deref(),
            kind,
            name,
            namespace: self.namespace.as_deref(),
            filenames: &self.filenames,
            connection: &self.connection,
            is_live,
        })?;
        let gates = cluster.gates.unwrap_or_else(Features::all_proposals).with_flag(&self.feature_gates)?;
        let read = |path| read_configuration(path, gates);
        let mut configuration = self.scheduler_config.as_deref().map(read).transpose()?.unwrap_or_default();
        second_scheduler::add_profiles(&mut configuration, [&cluster.pod]);
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

/// The kind of a word before a slash, as in kubectl.
fn workload_kind(word: &str) -> anyhow::Result<&'static str> {
    Ok(match word.to_ascii_lowercase().as_str() {
        "po" | "pod" | "pods" => "Pod",
        "deploy" | "deployment" | "deployments" | "deployments.apps" => "Deployment",
        "rs" | "replicaset" | "replicasets" | "replicasets.apps" => "ReplicaSet",
        "sts" | "statefulset" | "statefulsets" | "statefulsets.apps" => "StatefulSet",
        "ds" | "daemonset" | "daemonsets" | "daemonsets.apps" => "DaemonSet",
        "job" | "jobs" | "jobs.batch" => "Job",
        "cj" | "cronjob" | "cronjobs" | "cronjobs.batch" => "CronJob",
        "rc" | "replicationcontroller" | "replicationcontrollers" => "ReplicationController",
        _ => anyhow::bail!("`{word}` has no pods: specify a pod, deploy, rs, sts, ds, job, cj or rc"),
    })
}
