//! `celplane simulate`: where would all pending pods go?
//!
//! Places pods by the scheduler's core on a copy of a cluster, from files or from a server. Nothing is written anywhere;
//! time is virtual. Exit code 0: everything has a place; 1: something stays pending or had to make room; 2: something
//! could not be read.

mod cluster;
mod expand;
mod play;
mod report;
mod writes;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use api::features::Features;
use scheduling::config::Configuration;

use self::cluster::Cluster;
use self::play::{Played, Rules};
use crate::connection::ConnectionArguments;
use crate::manifests;
use crate::style::{Style, When};

/// Place all pending pods on a copy of a cluster, offline, and say where they go, what stays pending and why
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The cluster: files or directories with nodes, pods, workloads, volumes, claims and devices; `-` for standard input
    #[arg(short, long = "filename", value_name = "FILE", required_unless_present_any = ["kubeconfig", "context"])]
    filenames: Vec<String>,

    #[command(flatten)]
    connection: ConnectionArguments,

    /// More pods, or workloads that make pods: files or directories
    #[arg(long, value_name = "FILE")]
    add: Vec<String>,

    /// How the scheduler is configured: a KubeSchedulerConfiguration
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Another configuration: say what would move
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,

    /// Decides ties: the same number gives the same placements
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,

    /// Which features are on, as `A=true,B=false`; by default the five proposals are, as with `celplane up`
    #[arg(long, default_value = "", value_name = "GATES")]
    feature_gates: String,

    /// How to print
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,

    /// When to use color
    #[arg(long, value_enum, default_value = "auto")]
    color: When,
}

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// What stays pending, and how full nodes are.
    Table,
    /// Every pod with its node and its scores.
    Wide,
    /// Everything, for programs.
    Json,
}

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let (first, other) = match self.play() {
            Ok(played) => played,
            Err(error) => {
                crate::output::complain(&error);
                return Ok(ExitCode::from(2));
            }
        };
        let style = Style::of_stdout(self.color);
        match (self.output, &other) {
            (Output::Json, other) => report::json(&first, other.as_ref())?,
            (output, None) => report::text(&first, output == Output::Wide, style)?,
            (_, Some(other)) => report::comparison(&first, other, style)?,
        }
        let all_well = first.is_well() && other.as_ref().is_none_or(Played::is_well);
        Ok(if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn play(&self) -> anyhow::Result<(Played, Option<Played>)> {
        let features = Features::all_proposals().with_flag(&self.feature_gates)?;
        let configuration = read_configuration(self.config.as_deref())?;
        let other = self.compare.as_deref().map(|path| read_configuration(Some(path))).transpose()?;
        let mut cluster = Cluster::new(features)?;
        if self.connection.is_given() {
            cluster.add(manifests::readable(self.connection.read(crate::live::SCHEDULING)?)?, false)?;
        }
        for (files, is_more) in [(&self.filenames, false), (&self.add, true)] {
            for source in manifests::sources(files)? {
                cluster.add(manifests::readable(source.read()?)?, is_more)?;
            }
        }
        let cluster = cluster.finish()?;
        let with_scores = self.output != Output::Table;
        let rules = |configuration| Rules { configuration, features, seed: self.seed, with_scores };
        let first = play::play(&cluster, &rules(configuration))?;
        let other = other.map(|other| play::play(&cluster, &rules(other))).transpose()?;
        Ok((first, other))
    }
}

fn read_configuration(path: Option<&Path>) -> anyhow::Result<Configuration> {
    let Some(path) = path else { return Ok(Configuration::default()) };
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read `{name}`"))?;
    let manifests = manifests::readable(manifests::Manifests::parse(name.clone(), text))?;
    let document = manifests.first().with_context(|| format!("`{name}` is empty"))?;
    Configuration::read(&document.value).with_context(|| format!("cannot use `{name}`"))
}
