//! Nodes as a role: simulated ones, one or a whole fleet, and [`real`] ones.

pub mod agent;
pub mod agent_tls;
pub mod containerd;
pub mod doctor;
pub mod join;
pub mod listener;
pub mod machine;
pub mod pod_network;
pub mod reach;
pub mod real;
pub mod rotation;
pub mod static_pods;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};

use api::features::Features;
use api::labels::Selector;
use client::Client;
use kubelet::fleet::ClientFactory;
use kubelet::simulation::{Rules, Simulation};
use kubelet::slice_template::SliceTemplate;
use kubelet::template::Template;
use kubelet::{Fleet, Options};
use matching::CompileCache;
use tokio::time::Instant;

use super::Role;

/// Name in metrics.
pub const NAME: &str = "kubelet";
/// User that reads for a whole fleet.
pub const FLEET: &str = "system:celplane:node-fleet";
/// Maximum number of compiled expressions of each kind.
const EXPRESSIONS_MAX: NonZeroUsize = NonZeroUsize::new(1000).unwrap();

/// The nodes of a fleet.
pub struct Nodes {
    /// Their names.
    pub names: Vec<String>,
    /// Template of the Node objects.
    pub template: Template,
    /// Whether other Nodes may request simulation.
    pub adopts: bool,
    /// The labels of other Nodes that are played as well.
    pub adopted: Option<Selector>,
    /// Behavior of their pods.
    pub rules: Rules,
    /// Default devices of the nodes.
    pub devices: Option<SliceTemplate>,
    /// Address at which the server can read logs, if not in its own process.
    pub endpoint: Option<SocketAddr>,
    /// Whether container events are recorded, if set.
    pub reports: Option<bool>,
    /// Source of static pods.
    pub static_pods: static_pods::StaticPods,
}

/// A fleet that is there once its role has started it.
pub type SharedFleet = Arc<OnceLock<Fleet<Simulation>>>;

/// Starts nodes. `reads` is used for what all of them see, and `client_for` for what each writes.
pub fn start(nodes: Nodes, reads: Client, client_for: ClientFactory, features: Features) -> (Role, SharedFleet) {
    let shared = SharedFleet::default();
    let known = shared.clone();
    let role = Role::start(NAME, features, move |setting| async move {
        let started = Instant::now();
        let cache = CompileCache::new(EXPRESSIONS_MAX, Arc::new(move || started.elapsed()))?;
        let counted = cache.clone();
        setting.registry.counters("kubelet_cel", move || counted.samples());
        let options = Options {
            nodes: nodes.names,
            template: nodes.template,
            adopts: nodes.adopts,
            adopted: nodes.adopted,
            devices: nodes.devices,
            clock: reads.clock().clone(),
            client: reads,
            client_for,
            cache: Arc::new(cache),
            features: setting.features.into(),
            endpoint: nodes.endpoint,
            reports: nodes.reports,
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
pub fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("node-{number}")).collect()
}
