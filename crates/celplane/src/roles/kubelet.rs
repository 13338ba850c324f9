//! Simulated nodes as a role: one, or a whole fleet.

pub(crate) mod listener;
pub(crate) mod reach;
mod registration;
pub(crate) mod static_pods;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, Result, bail};
use api::features::Features;
use api::json::Value;
use client::Client;
use kubelet::fleet::ClientFor;
use kubelet::simulation::{Rules, Simulation};
use kubelet::slice_template::SliceTemplate;
use kubelet::template::Template;
use kubelet::{Fleet, Options, clock};
use matching::CompileCache;
use tokio::time::Instant;

use super::Role;

/// What its metrics are called.
pub(crate) const NAME: &str = "kubelet";
/// Who reads for a whole fleet.
pub(crate) const FLEET: &str = "system:celplane:node-fleet";
/// How many expressions of each kind are kept compiled.
const EXPRESSIONS_MAX: NonZeroUsize = NonZeroUsize::new(1000).unwrap();

/// What nodes are like, and how they play their pods.
#[derive(clap::Args)]
pub(crate) struct NodeArguments {
    /// What the nodes are like: a Node manifest with labels, taints, capacity and so on, whose name is replaced
    #[arg(long, value_name = "FILE", visible_alias = "template")]
    node_template: Option<PathBuf>,
    /// How pods are played unless their annotations say otherwise: start-seconds, run-seconds, failure-rate and so on
    #[arg(long, value_name = "FILE")]
    simulation: Option<PathBuf>,
    /// Whether events tell of each start and end of a container; without this flag, up to 100 nodes do
    #[arg(long, value_name = "BOOL")]
    container_events: Option<bool>,
    #[command(flatten)]
    registration: registration::RegistrationArguments,
    #[command(flatten)]
    static_pods: static_pods::StaticPodArguments,
}

/// The nodes of a fleet.
pub(crate) struct Nodes {
    pub(crate) names: Vec<String>,
    pub(crate) template: Template,
    /// Whether others may ask to be played.
    pub(crate) adopts: bool,
    pub(crate) rules: Rules,
    /// Which devices they have, unless a Node says otherwise.
    pub(crate) devices: Option<SliceTemplate>,
    /// Where the server can ask for logs, if not in its own process.
    pub(crate) endpoint: Option<SocketAddr>,
    /// Whether users are told of each start and end of a container, if that is said.
    pub(crate) tells: Option<bool>,
    /// Where each of them finds pods of its own.
    pub(crate) static_pods: static_pods::StaticPodArguments,
}

impl NodeArguments {
    /// Nodes of these names, as the files say, with these devices.
    pub(crate) fn nodes(
        &self,
        names: Vec<String>,
        endpoint: Option<SocketAddr>,
        devices: Option<SliceTemplate>,
    ) -> Result<Nodes> {
        let read = |path: &PathBuf| document(path).with_context(|| format!("cannot use `{}`", path.display()));
        let mut node = self.node_template.as_ref().map_or_else(|| Ok(Value::object()), read)?;
        self.registration.add_to(&mut node)?;
        let template = Template::new(node).context("cannot use the template of nodes")?;
        let rules = rules(self.simulation.as_deref())?;
        let (tells, static_pods) = (self.container_events, self.static_pods.clone());
        Ok(Nodes { names, template, adopts: false, rules, devices, endpoint, tells, static_pods })
    }
}

/// How pods are played: as a file says, if there is one.
pub(crate) fn rules(path: Option<&Path>) -> Result<Rules> {
    let Some(path) = path else { return Ok(Rules::default()) };
    let context = || format!("cannot use `{}`", path.display());
    Rules::new(&document(path).with_context(context)?).with_context(context)
}

/// The only document of a file.
fn document(path: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(path)?;
    let (mut documents, error) = api::yaml::parse_manifests(&text);
    if let Some(error) = error {
        bail!("{error}");
    }
    match (documents.pop(), documents.is_empty()) {
        (Some(document), true) => Ok(document.value),
        _ => bail!("it must hold one document"),
    }
}

/// A fleet that is there once its role has started it.
pub(crate) type Shared = Arc<OnceLock<Fleet<Simulation>>>;

/// Starts nodes. `reads` is used for what all of them see, and `client_for` for what each writes.
pub(crate) fn start(nodes: Nodes, reads: Client, client_for: ClientFor, features: Features) -> (Role, Shared) {
    let shared = Shared::default();
    let known = shared.clone();
    let role = Role::start(NAME, features, move |setting| async move {
        let started = Instant::now();
        let cache = CompileCache::new(EXPRESSIONS_MAX, Arc::new(move || started.elapsed()))?;
        let options = Options {
            nodes: nodes.names,
            template: nodes.template,
            adopts: nodes.adopts,
            devices: nodes.devices,
            client: reads,
            client_for,
            cache: Arc::new(cache),
            features: setting.features.into(),
            clock: clock::wall(),
            endpoint: nodes.endpoint,
            tells: nodes.tells,
            static_pods: nodes.static_pods.options(setting.features)?,
        };
        let fleet = Fleet::new(options, Simulation::new(nodes.rules));
        let fleet = known.get_or_init(|| fleet).clone();
        let watched = fleet.clone();
        setting.health.add("informers", move || watched.health());
        let shutdown = setting.shutdown;
        fleet.run(async move { shutdown.requested().await }).await;
        Ok(())
    });
    (role, shared)
}

/// The names of the nodes of a fleet.
pub(crate) fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("node-{number}")).collect()
}
