//! `celplane simulate`: where would all pending pods go?
//!
//! Places pods by the scheduler's core on a copy of a cluster, from files or from a server. Nothing is written anywhere;
//! time is virtual. Exit code 0: everything has a place; 1: something stays pending or had to make room; 2: something
//! could not be read.

mod cluster;
mod expand;
mod fit;
mod play;
mod report;
mod writes;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use api::features::Features;
use scheduling::config::Configuration;

use self::cluster::Cluster;
use self::fit::Fit;
use self::play::{Rules, SimulationResult};
use crate::arguments::second_scheduler;
use crate::connection::ConnectionArguments;
use crate::manifests;
use crate::style::{ColorChoice, Style};
use crate::time_limit::TimeLimit;

/// Simulate the placement of all pending pods on a copy of a cluster, offline, with reasons for pods that stay
/// pending
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Files or directories with the cluster's nodes, pods, workloads, volumes, claims and devices; `-` for
    /// standard input; without them, the cluster named by the kubeconfig is read
    #[arg(short, long = "filename", value_name = "FILE")]
    filenames: Vec<String>,

    #[command(flatten)]
    connection: ConnectionArguments,

    /// Files or directories with additional pods or workloads
    #[arg(long, value_name = "FILE")]
    add: Vec<String>,

    /// KubeSchedulerConfiguration file of the scheduler
    #[arg(long = "scheduler-config", visible_alias = "config", value_name = "FILE")]
    config: Option<PathBuf>,

    /// Second KubeSchedulerConfiguration file: print the pods that would be placed differently
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,

    /// Node manifest: print how many additional nodes like this one give every pod a place
    #[arg(long, value_name = "FILE", conflicts_with = "compare")]
    fit_nodes: Option<PathBuf>,

    /// Seed for breaking ties: the same seed yields the same placements
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,

    /// Feature gates, as `A=true,B=false`; by default the five proposals are enabled, as with `celplane up`
    #[arg(long, default_value = "", value_name = "GATES")]
    feature_gates: String,

    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,

    /// Use of color in the output
    #[arg(long, value_enum, default_value = "auto")]
    color: ColorChoice,

    #[command(flatten)]
    limit: TimeLimit,
}

/// Output format of `celplane simulate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// Pending pods with reasons, and the utilization of nodes.
    Table,
    /// Every pod with its node and its scores.
    Wide,
    /// One JSON object with every detail.
    Json,
}

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        self.limit.start()?;
        let (first, other, fit) = match self.play() {
            Ok(played) => played,
            Err(error) => {
                crate::output::complain(&error);
                return Ok(ExitCode::from(2));
            }
        };
        let style = Style::of_stdout(self.color);
        match (self.output, &other) {
            (Output::Json, other) => report::json(&first, other.as_ref(), fit.as_ref())?,
            (output, None) => report::text(&first, output == Output::Wide, fit.as_ref(), style)?,
            (_, Some(other)) => report::comparison(&first, other, style)?,
        }
        let all_well = first.is_well() && other.as_ref().is_none_or(SimulationResult::is_well);
        Ok(if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn play(&self) -> anyhow::Result<(SimulationResult, Option<SimulationResult>, Option<Fit>)> {
        let features = Features::all_proposals().with_flag(&self.feature_gates)?;
        let configuration = read_configuration(self.config.as_deref())?;
        let other = self.compare.as_deref().map(|path| read_configuration(Some(path))).transpose()?;
        let mut cluster = Cluster::new(features)?;
        if self.connection.is_given() || self.filenames.is_empty() {
            cluster.add(manifests::merged(self.connection.read(crate::live::SCHEDULING)?)?, false)?;
        }
        for (files, is_more) in [(&self.filenames, false), (&self.add, true)] {
            for source in manifests::sources(files)? {
                cluster.add(manifests::merged(source.read()?)?, is_more)?;
            }
        }
        let mut cluster = cluster.finish(self.fit_nodes.is_none())?;
        let add_profiles = |mut configuration| {
            second_scheduler::add_profiles(&mut configuration, cluster.pods.iter().map(|(pod, _)| pod));
            configuration
        };
        let (configuration, other) = (add_profiles(configuration), other.map(add_profiles));
        let with_scores = self.output != Output::Table;
        let rules = |configuration| Rules { configuration, features, seed: self.seed, with_scores };
        if let Some(path) = &self.fit_nodes {
            let template = fit::template(path, features)?;
            let (fit, played) = fit::fit(&mut cluster, template, &rules(configuration))?;
            return Ok((played, None, Some(fit)));
        }
        let first = play::play(&cluster, &rules(configuration))?;
        let other = other.map(|other| play::play(&cluster, &rules(other))).transpose()?;
        Ok((first, other, None))
    }
}

fn read_configuration(path: Option<&Path>) -> anyhow::Result<Configuration> {
    let Some(path) = path else { return Ok(Configuration::default()) };
    let name = path.display().to_string();
    let text = crate::input_file::read_text(path).with_context(|| format!("cannot read `{name}`"))?;
    let manifests = manifests::readable(manifests::Manifests::parse(name.clone(), text))?;
    let document = manifests.first().with_context(|| format!("`{name}` is empty"))?;
    Configuration::read(&document.value).with_context(|| format!("cannot use `{name}`"))
}
