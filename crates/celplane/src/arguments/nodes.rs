//! Flags and files of simulated nodes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use api::json::Value;
use api::labels::Selector;
use controlplane::roles::kubelet::Nodes;
use controlplane::roles::kubelet::static_pods::StaticPods;
use kubelet::simulation::Rules;
use kubelet::slice_template::SliceTemplate;
use kubelet::template::Template;

use super::registration::RegistrationArguments;
use crate::waiting_time;

/// Flags for static pods.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct StaticPodArguments {
    /// Directory of Pod manifests, or one manifest; each node runs these pods even without a server
    #[arg(long, value_name = "PATH", visible_alias = "static-pod-path")]
    pod_manifest_path: Option<PathBuf>,
    /// Interval at which the manifests are read even if no change was detected
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = waiting_time::parse)]
    file_check_frequency: Option<Duration>,
}

impl From<StaticPodArguments> for StaticPods {
    fn from(flags: StaticPodArguments) -> Self {
        let StaticPodArguments { pod_manifest_path, file_check_frequency } = flags;
        StaticPods { pod_manifest_path, file_check_frequency }
    }
}

/// Flags for the shape of simulated nodes and for the simulation of their pods.
#[derive(clap::Args)]
pub(crate) struct NodeArguments {
    /// Node manifest with labels, taints, capacity and so on, used for every node; its name is replaced
    #[arg(long, value_name = "FILE", visible_alias = "template")]
    node_template: Option<PathBuf>,
    /// Simulation defaults for pods without annotations: start-seconds, run-seconds, failure-rate and so on
    #[arg(long, value_name = "FILE")]
    simulation: Option<PathBuf>,
    /// Record an event for each start and end of a container; by default only with up to 100 nodes
    #[arg(long, value_name = "BOOL")]
    container_events: Option<bool>,
    /// Label selector: also simulate other Nodes with these labels, regardless of their creator
    #[arg(long, value_name = "SELECTOR", value_parser = parse_selector)]
    adopt_nodes: Option<Selector>,
    #[command(flatten)]
    registration: RegistrationArguments,
    #[command(flatten)]
    static_pods: StaticPodArguments,
}

impl NodeArguments {
    /// Nodes of these names, from the files, with these devices.
    pub(crate) fn nodes(
        &self,
        names: Vec<String>,
        endpoint: Option<SocketAddr>,
        devices: Option<SliceTemplate>,
    ) -> Result<Nodes> {
        let template = Template::new(self.document()?).context("invalid node template")?;
        let rules = rules(self.simulation.as_deref())?;
        let (reports, static_pods) = (self.container_events, self.static_pods.clone().into());
        let adopted = self.adopt_nodes.clone();
        Ok(Nodes {
            names,
            template,
            adopts: adopted.is_some(),
            adopted,
            rules,
            devices,
            endpoint,
            reports,
            static_pods,
        })
    }
}

impl NodeArguments {
    /// The template of nodes, with what flags add to it.
    pub(crate) fn document(&self) -> Result<Value> {
        let read = |path: &PathBuf| document(path).with_context(|| format!("cannot use `{}`", path.display()));
        let mut node = self.node_template.as_ref().map_or_else(|| Ok(Value::object()), read)?;
        self.registration.add_to(&mut node)?;
        Ok(node)
    }

    /// The source of pods that nodes run without the server.
    pub(crate) fn static_pods(&self) -> StaticPods {
        self.static_pods.clone().into()
    }
}

/// Reads a label selector; an empty one would take every node.
pub(crate) fn parse_selector(text: &str) -> Result<Selector> {
    let selector = Selector::parse(text)?;
    if selector.is_empty() {
        bail!("expected a label selector, such as `karpenter.sh/nodepool`");
    }
    Ok(selector)
}

/// Simulation rules: from a file, if there is one.
pub(crate) fn rules(path: Option<&Path>) -> Result<Rules> {
    let Some(path) = path else { return Ok(Rules::default()) };
    let context = || format!("cannot use `{}`", path.display());
    Rules::new(&document(path).with_context(context)?).with_context(context)
}

/// The only document of a file.
fn document(path: &Path) -> Result<Value> {
    let text = crate::input_file::read_text(path)?;
    let (mut documents, error) = api::yaml::parse_manifests(&text);
    if let Some(error) = error {
        bail!("{error}");
    }
    match (documents.pop(), documents.is_empty()) {
        (Some(document), true) => Ok(document.value),
        _ => bail!("it must contain exactly one document"),
    }
}
